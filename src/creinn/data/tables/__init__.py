"""CSV tables in, numbers for a network out: what was read, found out or left out is said, not hidden."""

from creinn.data.tables.columns import Category, Column, Date, Number
from creinn.data.tables.encoder import TableEncoder
from creinn.data.tables.pair import check_pair
from creinn.data.tables.reading import is_packed_table, read_table
from creinn.data.tables.table import MISSING, Reading, Table

__all__ = [
    "MISSING",
    "Category",
    "Column",
    "Date",
    "Number",
    "Reading",
    "Table",
    "TableEncoder",
    "check_pair",
    "is_packed_table",
    "read_table",
]
