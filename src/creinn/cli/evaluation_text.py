"""What ``creinn evaluate`` says: the numbers of its record with a sentence on each, for terminal and page."""

from math import log
from typing import Any

from creinn.data.tables.columns import counted
from creinn.report.tables import text_table

MOST_CLASSES = 10
"""Classes in the terminal's table; the page and the JSON file have all."""

RECALL = (
    "Recall is the share of the rows of a class that are predicted as this class; a dash means that there are none."
)


def heading(record: dict[str, Any]) -> str:
    """What was evaluated."""
    text = f"{counted(record['rows'], 'row')} of {record['data']}, {len(record['classes'])} classes"
    return (
        f"{text}; OOD: {counted(record['ood']['rows'], 'row')} of {record['ood']['data']}" if "ood" in record else text
    )


def measure_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per number: what it is, the number, what it says."""
    classes, bins = len(record["classes"]), len(record["reliability"]["rows"])
    said = [
        ("accuracy", record["accuracy"], "Share of the rows whose predicted class is the true one."),
        (
            "log loss",
            record["log_loss"],
            "Mean of -ln of the probability of the true class: 0 is best, equal probabilities give "
            f"{log(classes):.3f}, confident errors cost most.",
        ),
        (
            "Brier score",
            record["brier"],
            "Mean squared distance of the probabilities from the truth: 0 is best, equal probabilities give "
            f"{1 - 1 / classes:.3f}, confident errors 2.",
        ),
        (
            "calibration error",
            record["expected_calibration_error"],
            f"By how much the probability of the predicted class misses the share of hits, over {bins} bins of equal "
            "width: 0 is best.",
        ),
    ]
    if "sets" in record:
        sets = record["sets"]
        said += [
            (
                "coverage",
                sets["coverage"],
                f"Share of the sets of classes ({sets['rule']}) with the true class in them.",
            ),
            ("set size", sets["mean_size"], f"Mean number of classes in a set: 1 decides, {classes} says nothing."),
        ]
    return [{"measure": name, "value": value, "meaning": meaning} for name, value, meaning in said]


def uncertainty_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per measure of uncertainty: areas under the curves."""
    rows = []
    for name, area in record["auarc"].items():
        row: dict[str, Any] = {"uncertainty": name, "AUARC": area}
        if "ood" in record:
            row |= {"OOD AUROC": record["ood"]["auroc"][name], "OOD AUPRC": record["ood"]["auprc"][name]}
        rows.append(row)
    return rows


def uncertainty_meaning(record: dict[str, Any]) -> list[str]:
    """Sentences on the measures of uncertainty."""
    unit = "in bits" if record["unit"] == "bits" else "probabilities from 0 to 1, the measures for two classes"
    said = [
        f"AU, EU and TU are aleatoric, epistemic and total uncertainty ({unit}): ambiguity of the row itself, lack of "
        "knowledge, and both together.",
        "AUARC is the mean accuracy when ever more of the least certain rows are put aside: 1 is best, and a measure "
        f"that knows nothing of the errors has {record['accuracy']:.3f}.",
    ]
    if "ood" in record:
        said.append(
            "OOD AUROC is the chance that a row of other data is less certain than one of these: 0.5 is guessing. OOD "
            f"AUPRC is the average precision of telling them apart: guessing has {record['ood']['base_rate']:.3f}."
        )
    return said


def class_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per class: how many rows are of it, and its recall."""
    rows = zip(record["classes"], record["confusion"], strict=True)
    return [{"class": name, "rows": sum(counts), "recall": record["recall"][name]} for name, counts in rows]


def probabilities_meaning(record: dict[str, Any]) -> list[str]:
    """Which probabilities are meant, if there are several."""
    return ["Probabilities are the intersection probability of each credal set."] if "sets" in record else []


def terminal_text(record: dict[str, Any]) -> str:
    """All of it as lines of text."""
    said = [f"{row['measure']} {row['value']:.4f}: {row['meaning']}" for row in measure_rows(record)]
    said += probabilities_meaning(record)
    table = text_table(uncertainty_rows(record), digits=4)
    return "\n\n".join(
        [heading(record), "\n".join(said), table, "\n".join(uncertainty_meaning(record)), _classes_text(record)]
    )


def _classes_text(record: dict[str, Any]) -> str:
    """Recall per class, and what the class is most often taken for; of many classes those of the lowest recall."""
    rows: list[dict[str, Any]] = []
    for index, (row, counts) in enumerate(zip(class_rows(record), record["confusion"], strict=True)):
        wrong, other = max((count, -k) for k, count in enumerate(counts) if k != index)
        taken = f"{record['classes'][-other]} ({wrong})" if wrong else None
        rows.append({**row, "most often taken for": taken})
    if len(rows) <= MOST_CLASSES:
        return text_table(rows, digits=4) + f"\n{RECALL}"
    rows.sort(key=lambda row: 2 if row["recall"] is None else row["recall"])
    left = f"Shown are {MOST_CLASSES} of {len(rows)} classes, those of the lowest recall."
    return text_table(rows[:MOST_CLASSES], digits=4) + f"\n{RECALL} {left}"
