"""Tables of the study as Markdown with rounded numbers, or as JSON with all digits."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from creinn.report.tables import Cell, MeanStd, markdown_table
from experiments.result_tables import digits

DATA = {"fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "chest-xray": "X-ray"}
STUDIES = {
    "fashion-mnist": "study-fashion-mnist",
    "cifar10": "study-cifar10-svhn",
    "chest-xray": "study-chest-xray",
}
FOREIGN = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
}
IN_COLOUR = ("cifar10", "svhn")
PAIRS = (
    ("fashion-mnist", "mnist"),
    ("fashion-mnist", "cifar10"),
    ("cifar10", "svhn"),
    ("chest-xray", "cifar10"),
)
NOTHING = "No records yet."


class Number(NamedTuple):
    """Mean and standard deviation over runs, and the number of runs."""

    mean: float
    std: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float], factor: float = 1) -> "Number | None":
        """Compute the number from values; ``None`` if there are none."""
        if not values:
            return None
        mean, std = MeanStd.of(values)
        return cls(mean * factor, None if std is None else std * factor, len(values))


Entry = Cell | Number
Rows = list[dict[str, Entry]]


class Table(NamedTuple):
    """Rows, their caption, and whether standard deviations are shown."""

    rows: Rows
    caption: str = ""
    spreads: bool = True
    places: int | None = None


def render(tables: Sequence[Table]) -> str:
    """Return tables as Markdown, each with its caption above."""
    texts = []
    for table in tables:
        if table.rows:
            rows = [
                {name: shown(cell, table.spreads) for name, cell in row.items()}
                for row in table.rows
            ]
            places = digits(rows) if table.places is None else table.places
            texts += [table.caption, markdown_table(rows, places)]
    return "\n\n".join(filter(None, texts)) or NOTHING


def shown(cell: Entry, spreads: bool) -> Cell:
    """Convert a cell for the Markdown table."""
    return MeanStd(cell.mean, cell.std if spreads else None) if isinstance(cell, Number) else cell


def as_json(table: Table) -> dict[str, Any]:
    """Return a table as plain values, without rounding."""
    rows = [
        {name: c._asdict() if isinstance(c, Number) else c for name, c in row.items()}
        for row in table.rows
    ]
    return {"caption": table.caption, "rows": rows}


def counted(rows: Sequence[Mapping[str, Cell]]) -> Rows:
    """Add the number of runs to each number of the rows."""
    return [
        {
            name: Number(*cell, int(str(row["runs"]))) if isinstance(cell, MeanStd) else cell
            for name, cell in row.items()
        }
        for row in rows
    ]


def title(data: str, ood: str) -> str:
    """Return the name of a pair of data sets."""
    return f"{DATA[data]} → {foreign(data, ood)}"


def foreign(data: str, ood: str) -> str:
    """Return the name of a foreign data set, which is grey for networks of grey images."""
    name = FOREIGN.get(ood, ood)
    return f"grey {name}" if ood in IN_COLOUR and data not in IN_COLOUR else name
