"""Draw words from integer weights that stand in a table."""

from dptext_etl.families.table.table import TableMechanism as TableMechanism
from dptext_etl.families.table.table import TableParts as TableParts
