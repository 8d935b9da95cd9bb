"""Publish files as a version of a table of Delta Lake or Iceberg: each format is one module with the same methods."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from dptext_etl.errors import InputError
from dptext_etl.extensions import pip_install
from dptext_etl.file_formats import TABLES
from dptext_etl.storage import Storage
from dptext_etl.table_formats.table_format import DataFile as DataFile
from dptext_etl.table_formats.table_format import Facts as Facts
from dptext_etl.table_formats.table_format import OtherWriterError as OtherWriterError
from dptext_etl.table_formats.table_format import TableFormat as TableFormat
from dptext_etl.table_formats.table_format import TableState as TableState
from dptext_etl.table_formats.table_format import rewrites as rewrites


def open_table(spec: Any, files: Storage) -> TableFormat:
    """Open a table by its entry in the policy and the storage of its files."""
    title, library = TABLES[spec.format]
    if find_spec(library) is None:
        msg = f"publishing a table of {title} needs {library}, which is not installed"
        raise InputError(msg, f"`{pip_install('tables')}`")
    if spec.format == "delta":
        from dptext_etl.table_formats.delta import Delta

        return Delta(files)
    from dptext_etl.table_formats.iceberg import Iceberg

    return Iceberg(files, spec.name, spec.catalog)
