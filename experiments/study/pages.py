"""The two pages of the study: one of prose with marked places for tables, and one of tables alone."""

import re
from collections.abc import Mapping

SECTIONS = {
    "fashion-mnist": (
        "Fashion-MNIST",
        "All methods with running statistics. The runs of an ensemble are draws of its members from the runs of one "
        "network; draws overlap, so their deviation is smaller than that of independent ensembles.",
    ),
    "cifar10": ("CIFAR-10 against SVHN", "The same on CIFAR-10."),
    "chest-xray": ("Chest X-ray", "The same on chest X-rays, two classes."),
    "statistics": (
        "Batch statistics",
        "AUROC by TU when batch norms use their running statistics, and when they use those of the test batch, which "
        "holds images of one kind only.",
    ),
    "ensembles": (
        "Ensembles",
        "Averaged credal sets against their envelope; runs of the average / of the envelope.",
    ),
    "members": (
        "Number of members",
        "At equal numbers: means over ten draws of the ten runs, which overlap (one draw of all ten).",
    ),
    "intervals": (
        "Interval inputs",
        "Mean uncertainty in bits of the paper's form on interval images of CIFAR-10.",
    ),
    "lungs": (
        "X-rays on a pretrained network",
        "AUROC against other sets and AUARC by each score: two classes on features of the frozen network, five draws "
        "of the images held out.",
    ),
    "quality": (
        "Probabilities on a pretrained network",
        "Of credal sets, those of the intersection probability.",
    ),
    "terms": (
        "What the distance could be",
        "Other ways to join its terms, by the AUROC of the joined number; other scales, by the AUROC of total "
        "uncertainty (TU) and what they cost on test images. Near are two classes that were left out. Nothing else is "
        "looked at (`python -m experiments.study.terms`).",
    ),
    "near": (
        "Small networks and classes that they have not learnt",
        "Two classes are left out of training, and are the foreign images.",
    ),
    "scratch-statistics": (
        "Batch statistics on a larger network",
        "A ResNet-20 from scratch on all of CIFAR-10, against SVHN.",
    ),
    "fashion-mnist-cost": (
        "Cost on Fashion-MNIST",
        "Parameters are trained numbers; a CreINN-D also keeps class means and covariances, which are computed in one "
        "pass.",
    ),
    "cifar10-cost": ("Cost on CIFAR-10", ""),
    "chest-xray-cost": ("Cost on chest X-rays", ""),
}
OPENING = """# The study: all tables

Written by `python -m experiments.study` from the records in `results/experiments`; the page that says
what they mean is [docs/study.md](../../docs/study.md)."""


def report(tables: Mapping[str, str]) -> str:
    """All sections, with the tables of each."""
    parts = [OPENING]
    for name, (heading, text) in SECTIONS.items():
        parts += [f"## {heading}", text, tables[name]]
    return "\n\n".join(filter(None, parts)) + "\n"


def replace_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """The page with new text between its markers; all else stays.

    Raises:
        ValueError: If a marker is unknown, stands twice, or has no partner.
    """
    marker = re.compile(r"^<!-- (begin|end): (\S+) -->$", re.MULTILINE)
    parts, done, opened, position = [], set[str](), "", 0
    for found in marker.finditer(page):
        kind, name = found.groups()
        line = page.count("\n", 0, found.start()) + 1
        if name not in blocks:
            raise ValueError(
                f"Line {line} of the page has a marker of {name!r}. Known are {', '.join(blocks)}."
            )
        if kind == "begin" and opened:
            raise ValueError(
                f"Line {line} of the page begins {name!r}, but {opened!r} has not ended. Add its end."
            )
        if kind == "end" and name != opened:
            raise ValueError(
                f"Line {line} of the page ends {name!r}, which has not begun. Add its begin, or remove it."
            )
        if kind == "begin" and name in done:
            raise ValueError(
                f"Line {line} of the page begins {name!r} for the second time. Remove one of the two."
            )
        if kind == "begin":
            parts.append(page[position : found.end()])
        else:
            parts.append(f"\n{blocks[name]}\n")
            done.add(name)
            position = found.start()
        opened = name if kind == "begin" else ""
    if opened:
        raise ValueError(
            f"The page begins {opened!r} and never ends it. Add <!-- end: {opened} -->."
        )
    return "".join([*parts, page[position:]])
