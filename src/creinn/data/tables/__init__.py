"""CSV tables in, numbers for a network out: what was read, found out or left out is said, not hidden.

In reading order: ``numerals`` (how numbers are written), ``table`` (a file as texts), ``columns`` (the kinds, and how
each is learnt), ``encoder`` (all columns).
"""

from creinn.data.tables.columns import Category, Number
from creinn.data.tables.encoder import TableEncoder, classes_of
from creinn.data.tables.table import MISSING, Reading, Table, check_same_texts, is_packed_table, read_table

__all__ = [
    "MISSING",
    "Category",
    "Number",
    "Reading",
    "Table",
    "TableEncoder",
    "check_same_texts",
    "classes_of",
    "is_packed_table",
    "read_table",
]
