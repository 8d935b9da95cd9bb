"""Register views that release the text columns of a table, with the policy's ids and subjects instead of the readers'.

    from dptext_etl.spark import register_view

    register_view(spark, "released_reviews", table="reviews", policy="privacy.toml")
    spark.sql("SELECT * FROM released_reviews")

The functions behind a view are in no catalog. Readers of the view must not be able to read the table: use grants of
the catalog, or a separate session for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dptext_etl.errors import PolicyError, bare
from dptext_etl.policy import ColumnPolicy, Policy, PolicyLike, resolve
from dptext_etl.spark.functions import ask_workers, released_by, require_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@bare
def register_view(
    spark: SparkSession,
    name: str,
    *,
    table: str,
    policy: PolicyLike,
    charge: bool = True,
    form: Literal["arrow", "pandas"] = "arrow",
    artifacts: str | None = None,
    check_workers: bool = False,
) -> DataFrame:
    """Register a temporary view of a table that releases every text column and shows only columns of the policy.

    The view has the policy's id column, its kept columns and its text columns, in the table's order. Each text is
    released for the id of its own row, and charged to that row's subject under the policy's cap. Spark evaluates the
    view at every read; the same rows give the same bytes and one charge.

    Args:
        spark: The session, classic or Spark Connect.
        name: Name of the view.
        table: Name of the raw table or view.
        policy: The policy of the dataset, or the path of its file; the view does not read its source.
        charge: Charge the policy's ledger before a text is returned. If False, the view writes nothing, which models
            need because SQL cannot charge them; a text still has one draw per id.
        form: "arrow" or "pandas" (see `register`).
        artifacts: Folder or object-store URI by which tables reach the workers, or None (see `register`).
        check_workers: Ask the workers first whether they can compute (see `register`).

    Returns:
        The view as a frame.

    Raises:
        PolicyError: The table lacks a column of the policy, SQL cannot carry out the policy, or a worker lacks
            something.
        LedgerError: The ledger cannot be opened, or workers could not reach it.
    """
    require_name(name)
    whole = resolve(policy)
    named = {str(item.column): item for item in whole.column_policies()}
    if check_workers:
        ask_workers(spark, form, [column.mechanism for column in whole.columns])
    raw = spark.table(table)
    kept = {whole.id, *whole.keep, *named}
    subject = {whole.subject} if charge and whole.unit == "subject" and whole.subject else set()
    if missing := (kept | subject) - set(raw.columns):
        raise PolicyError(
            f"the table has no column {', '.join(map(repr, sorted(missing)))}, and the policy names it",
            "a view takes every column that the policy names",
        )
    chosen = [
        _released(spark, whole, whole.column_policy(column), charge=charge, form=form, artifacts=artifacts)(
            *(raw[_quoted(item)] for item in [column, whole.id, *subject])
        ).alias(column)
        if column in named
        else raw[_quoted(column)]
        for column in raw.columns
        if column in kept
    ]
    raw.select(*chosen).createOrReplaceTempView(name)
    return spark.table(name)


def _quoted(column: str) -> str:
    """Write a column's name as one name, whatever it holds."""
    return f"`{column.replace('`', '``')}`"


def _released(
    spark: Any, whole: Policy, column: ColumnPolicy, *, charge: bool, form: str, artifacts: str | None
) -> Any:
    return released_by(
        spark,
        column,
        whole.ledger if charge else None,
        form,
        artifacts,
        cap=whole.cap if charge else None,
        on_cap=whole.on_cap,
        unit=whole.unit,
        normalize=whole.normalize,
        id_columns=whole.id_columns,
    )
