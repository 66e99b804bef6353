"""Comparison with the paper: its table, and a text on what agrees."""

from collections.abc import Sequence
from itertools import combinations

from creinn.classifier.methods import label
from creinn.numerics import pluralize
from creinn.report.tables import Cell, MeanStd
from experiments.result_tables import COLUMNS, PUBLISHED, Rows, Study, qualities

PAPER_EPOCHS, PAPER_RUNS = 150, 15
POST_HOC = {"bnn-l": "bnn-l-post-hoc"}  # the method on the network of the SNN
ORDERED = ("accuracy %", "AUARC TU", "AUROC EU", "AUROC TU")
"""Columns whose order of methods is compared."""

Numbers = dict[str, dict[str, Cell]]  # by column and method


def comparison_table(study: Study, ood: str) -> Rows:
    """Build the table of the paper with our values beside the published ones."""
    published, ours = _published(study), _ours(study, ood)
    epochs = study.settings["training"]["epochs"]
    rows: Rows = []
    for method in (*published, *(m for m in ours if m not in published)):
        used = _used(study, method)
        row: dict[str, Cell] = {"model": label(used if method in ours else method)}
        row[f"runs, ours (paper {PAPER_RUNS})"] = len(study.records(used))
        for name in COLUMNS:
            row[f"{name}, paper ({PAPER_EPOCHS} epochs)"] = published.get(method, {}).get(name)
            row[f"{name}, ours ({epochs} epochs)"] = ours.get(method, {}).get(name)
        rows.append(row)
    return rows


def agreement(study: Study, ood: str) -> str:
    """Describe which values and orders of methods agree with the paper.

    A value agrees if it is at most two published standard deviations from the
    published mean. The order of two methods agrees if the same one is larger.
    """
    published, ours = _published(study), _ours(study, ood)
    agree: list[str] = []
    differ: list[str] = []
    for method, name in ((m, n) for m in published for n in COLUMNS):
        theirs, own = published[method].get(name), ours.get(method, {}).get(name)
        if isinstance(theirs, MeanStd) and isinstance(own, MeanStd):
            gap = own.mean - theirs.mean
            where = agree if abs(gap) <= 2 * (theirs.std or 0) else differ
            where.append(f"{label(method)} {name} ({_signed(gap, name)})")
    same, reversed_ = _orders(published, ours)
    runs = max((len(study.records(_used(study, m))) for m in ours), default=0)
    epochs = study.settings["training"]["epochs"]
    absent = [label(method) for method in published if method not in ours]
    parts = [
        _listed("Values within two published standard deviations", agree),
        _listed("Other values, with the difference from the paper", differ),
        _listed("Orders of two methods as in the paper", same),
        _listed("Reversed orders", reversed_),
        f"Unverified: all values at {PAPER_EPOCHS} epochs and over {PAPER_RUNS} runs, because these "
        f"have {pluralize(epochs, 'epoch')} and at most {pluralize(runs, 'run')}.",
        _listed("Not measured", absent),
    ]
    return " ".join(filter(None, parts))


def _published(study: Study) -> Numbers:
    found = PUBLISHED.get(study.settings["paper"] or "", {})
    return {method: dict(row) for method, row in found.items()}


def _used(study: Study, method: str) -> str:
    """Return the method that is compared with a published method."""
    return method if study.records(method) else POST_HOC.get(method, method)


def _ours(study: Study, ood: str) -> Numbers:
    """Return our values by method."""
    published = _published(study)
    others = [m for m in study.methods if m not in published and m not in POST_HOC.values()]
    used = {method: _used(study, method) for method in (*published, *others)}
    return {
        method: qualities(records, name, "running", ood)
        for method, name in used.items()
        if (records := study.records(name))
    }


def _orders(published: Numbers, ours: Numbers) -> tuple[list[str], list[str]]:
    """Return the pairs of methods with the same order, and the others."""
    same: list[str] = []
    other: list[str] = []
    both = [method for method in published if method in ours]
    for name in ORDERED:
        for one, two in combinations(both, 2):
            values = [of[m].get(name) for of in (published, ours) for m in (one, two)]
            means = [value.mean for value in values if isinstance(value, MeanStd)]
            if len(means) < 4 or means[0] == means[1] or means[2] == means[3]:
                continue
            first, second = (one, two) if means[0] > means[1] else (two, one)
            holds = (means[0] > means[1]) == (means[2] > means[3])
            text = f"{name}: {label(first)} above {label(second)}"
            (same if holds else other).append(text)
    return same, other


def _listed(what: str, found: Sequence[str]) -> str:
    return f"{what}: {'; '.join(found)}." if found else ""


def _signed(gap: float, name: str) -> str:
    return f"{gap:+.1f}" if name.endswith("%") else f"{gap:+.3f}"
