"""Pages of the study: one with text and marked tables, and one with tables only."""

import re
from collections.abc import Mapping

SECTIONS = {
    "differences": (
        "Differences",
        'Means and standard deviations over runs. "Run by run" compares networks with the same '
        "number. Differences of ensembles are differences of means.",
    ),
    "fashion-mnist": (
        "Fashion-MNIST",
        "All methods with running statistics. The members of an ensemble are drawn from the runs "
        "of one network. The draws overlap, so their deviation is smaller than the deviation of "
        "independent ensembles.",
    ),
    "cifar10": ("CIFAR-10 against SVHN", "The same on CIFAR-10."),
    "chest-xray": ("Chest X-ray", "The same on chest X-rays, two classes."),
    "statistics": (
        "Batch statistics",
        "AUROC by TU if batch norm uses running statistics, and if it uses the statistics of the "
        "test batch, which contains images of one data set only.",
    ),
    "ensembles": (
        "Ensembles",
        "Averaged credal sets and their envelope. The runs are those of the average and of the "
        "envelope.",
    ),
    "members": (
        "Number of members",
        "Means over ten draws from ten runs, which overlap. All ten members have one draw.",
    ),
    "intervals": (
        "Interval inputs",
        "Mean uncertainty in bits of the paper's form on interval images of CIFAR-10.",
    ),
    "frozen": (
        "Frozen pretrained network",
        "AUROC of detecting foreign images and AUARC by each score on features of the frozen "
        "network. The column near is the AUROC on two classes that were left out. Means over five "
        "splits.",
    ),
    "lungs": (
        "X-rays on a pretrained network",
        "The same for X-rays of two classes. Means over five draws of the held-out images.",
    ),
    "fine-tuned": ("Fine-tuned pretrained network", "The same for fine-tuned networks."),
    "quality": (
        "Probabilities on a pretrained network",
        "For credal sets, the numbers of the intersection probability.",
    ),
    "terms": (
        "Other forms of the distance",
        "Other ways to combine the terms, by the AUROC of the combination. Other scales, by the "
        "AUROC of total uncertainty (TU) and by their cost on test images. The column near is the "
        "AUROC on two classes that were left out (`python -m experiments.study.terms`).",
    ),
    "unknown": (
        "Small networks and unknown classes",
        "Two classes are left out of training. Their images are the foreign images.",
    ),
    "resnet20": ("A ResNet-20 on all of CIFAR-10", "Trained from scratch for four epochs."),
    "scratch-statistics": (
        "Batch statistics on a larger network",
        "A ResNet-20 from scratch on all of CIFAR-10, against SVHN.",
    ),
    "converted": (
        "A fine-tuned network converted to intervals",
        "One network, trained on 1,000 images and tested on 500 images of each data set.",
    ),
    "fashion-mnist-cost": (
        "Cost on Fashion-MNIST",
        "Parameters are trained numbers. A CreINN-D also stores class means and covariances, which "
        "are computed in one pass.",
    ),
    "cifar10-cost": ("Cost on CIFAR-10", ""),
    "chest-xray-cost": ("Cost on chest X-rays", ""),
}
OPENING = """# The study: all tables

`python -m experiments.study` writes this page from the records in `results/experiments`. The page
[docs/study.md](../../docs/study.md) discusses the results."""


def report(tables: Mapping[str, str]) -> str:
    """Return the page of all sections with their tables."""
    parts = [OPENING]
    for name, (heading, text) in SECTIONS.items():
        parts += [f"## {heading}", text, tables[name]]
    return "\n\n".join(filter(None, parts)) + "\n"


def replace_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Replace the text between the markers of a page.

    Raises:
        ValueError: If a marker is unknown, occurs twice, or has no partner.
    """
    marker = re.compile(r"^<!-- (begin|end): (\S+) -->$", re.MULTILINE)
    parts, done, opened, position = [], set[str](), "", 0
    for found in marker.finditer(page):
        kind, name = found.groups()
        line = page.count("\n", 0, found.start()) + 1
        if name not in blocks:
            raise ValueError(
                f"Line {line} of the page has the unknown marker {name!r}. "
                f"Known markers are {', '.join(blocks)}."
            )
        if kind == "begin" and opened:
            raise ValueError(
                f"Line {line} of the page begins {name!r} inside {opened!r}. "
                f"Add <!-- end: {opened} --> above."
            )
        if kind == "end" and name != opened:
            raise ValueError(
                f"Line {line} of the page ends {name!r} without a beginning. Remove the marker."
            )
        if kind == "begin" and name in done:
            raise ValueError(
                f"Line {line} of the page begins {name!r} twice. Remove one of the blocks."
            )
        if kind == "begin":
            parts.append(page[position : found.end()])
        else:
            parts.append(f"\n{blocks[name]}\n")
            done.add(name)
            position = found.start()
        opened = name if kind == "begin" else ""
    if opened:
        raise ValueError(f"The page has no end of {opened!r}. Add <!-- end: {opened} -->.")
    return "".join([*parts, page[position:]])
