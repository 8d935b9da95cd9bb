"""Publish files as a version of a table of Delta Lake or Iceberg: each format is one module with the same methods."""

from __future__ import annotations

from dptext_etl.table_formats.table_format import DataFile as DataFile
from dptext_etl.table_formats.table_format import Facts as Facts
from dptext_etl.table_formats.table_format import TableFormat as TableFormat
from dptext_etl.table_formats.table_format import TableState as TableState
from dptext_etl.table_formats.table_opening import open_table as open_table
from dptext_etl.table_formats.table_opening import rewrites as rewrites
