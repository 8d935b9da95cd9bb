"""Open the table of a policy by its format, and compare two sets of its files."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import polars as pl

from dptext_etl.data_types import by_name
from dptext_etl.errors import InputError
from dptext_etl.extensions import pip_install
from dptext_etl.file_formats import TABLES
from dptext_etl.files import literal
from dptext_etl.storage import Storage
from dptext_etl.table_formats.table_format import TableFormat


def rewrites(files: Storage, before: Iterable[str], after: Iterable[str]) -> bool:
    """Return whether two sets of Parquet files hold the same rows in any order, as after OPTIMIZE.

    Rows are compared by two hashes of 64 bits under seeds that no one else knows.
    """
    old_paths, new_paths = ([literal(files.local_path(name)) for name in sorted(names)] for names in (before, after))
    seeds = [secrets.randbits(64) for _ in range(2)]
    try:
        old, new = pl.scan_parquet(old_paths), pl.scan_parquet(new_paths)
        schema = old.collect_schema()
        if {*new.collect_schema()} != {*schema}:
            return False
        whole = pl.struct(by_name(name).cast(dtype) for name, dtype in schema.items())
        hashes = [whole.hash(seed).alias(f"hash{number}") for number, seed in enumerate(seeds)]
        rows = pl.concat([old.select(*hashes, often=1), new.select(*hashes, often=-1)])
        left = rows.group_by("hash0", "hash1").agg(pl.col("often").sum()).filter(pl.col("often") != 0)
        return left.collect(engine="streaming").is_empty()
    except (pl.exceptions.PolarsError, OSError):  # no files, files that are gone, or that hold other things than rows
        return False


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
