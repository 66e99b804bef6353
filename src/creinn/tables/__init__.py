"""CSV tables in, numbers for a network out: what was read, filled in or left out is said, not hidden."""

from creinn.tables.columns import Category, Column, Number
from creinn.tables.encoder import TableEncoder
from creinn.tables.pair import check_pair
from creinn.tables.table import MISSING, Table, read_table

__all__ = ["MISSING", "Category", "Column", "Number", "Table", "TableEncoder", "check_pair", "read_table"]
