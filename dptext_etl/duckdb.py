"""Release text columns in queries of DuckDB by a SQL function (`register`); `privatize_table` releases relations."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dptext_etl.column import privatize, require_row_by_row
from dptext_etl.errors import InputError, PolicyError, bare, seam
from dptext_etl.policy import PolicyLike, resolve_column

__all__ = ["register"]


@bare
def register(connection: Any, name: str, policy: PolicyLike) -> None:
    """Register a column's policy as a SQL function of a connection: `name(text, id)`.

    The function is for callers who may read the raw column, because they choose the ids. It writes no ledger, so its
    results must not be published. An id with two texts is refused where one vector of DuckDB (2,048 rows) holds both.

    Args:
        connection: A connection of DuckDB (2.0 or newer).
        name: Name of the SQL function.
        policy: The column's policy; or a policy of one text column, or the path of its file.

    Raises:
        PolicyError: A SQL function cannot apply the policy, or the policy forbids SQL functions. Or DuckDB has a
            function of this name.
        InputError: The connection is closed, or is none of DuckDB.
    """
    chosen = resolve_column(policy)
    if not chosen.sql_function:
        msg = "the policy forbids SQL functions whose callers choose the ids (sql_function = false)"
        raise PolicyError(msg, "run the policy, and give readers its published table")
    require_row_by_row(chosen)

    @bare
    def release(*arguments: pa.ChunkedArray) -> pa.Array:
        if len(arguments) != 2:
            raise InputError(f"{name} needs two arguments, got {len(arguments)}", f"write {name}(text, id)")
        return privatize(*arguments, chosen)

    options = {"type": "arrow", "null_handling": "special", "side_effects": not chosen.mechanism.reproducible}
    with seam("registering the function", InputError, "is it an open connection of DuckDB?"):
        query = "select count(*) from duckdb_functions() where lower(function_name) = lower(?)"
        if connection.cursor().execute(query, [name]).fetchone()[0]:
            msg = f"DuckDB has a function {name!r}, and a query might call that one"
            raise PolicyError(msg, 'use another name, such as "private_review"')
        connection.create_function(name, release, None, "VARCHAR", **options)
