"""Write the SQL of a ledger as PostgreSQL understands it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from dptext_etl.ledger.storage.schema import SCHEMA


@cache
def dialect(sql: str) -> str:
    """Translate a statement of the ledger to the SQL of PostgreSQL."""
    sql = sql.replace("%", "%%").replace("?", "%s")
    if sql.startswith("insert or ignore "):
        sql = sql.replace("insert or ignore ", "insert ", 1) + " on conflict do nothing"
    elif sql.lstrip().startswith("create table"):
        for old, new in ((" strict, without rowid", ""), (" strict", ""), (" integer", " bigint"), (" blob", " bytea")):
            sql = sql.replace(old, new)
    elif sql.startswith("insert or replace into meta "):
        sql = sql.replace("insert or replace ", "insert ", 1) + " on conflict(name) do update set value=excluded.value"
    return sql


def schema() -> Iterator[str]:
    """Translate the tables to PostgreSQL. Blobs are random bytes, so PostgreSQL must not try to compress them."""
    yield from (statement for statement in re.sub(r"--[^\n]*", "", SCHEMA).split(";\n") if statement.strip())
    for table, column in (("segment", "data"), ("run_part", "data"), ("batch", "state")):
        yield f"alter table {table} alter column {column} set storage external"
