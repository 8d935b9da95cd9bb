"""A view that releases the text columns of a table: ids and subjects are the policy's, so its readers choose none.

    from dptext_etl.spark import register_view

    register_view(spark, "released_reviews", table="reviews", policy="privacy.toml")
    spark.sql("SELECT * FROM released_reviews")

The functions behind it are in no catalogue. Whoever reads the view must not be able to read the table: that is the
catalogue's business (grants), or that of a session of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dptext_etl.errors import PolicyError
from dptext_etl.policy import ColumnPolicy, Policy, PolicyLike, resolve
from dptext_etl.spark.functions import released_by, require_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def register_view(
    spark: SparkSession,
    name: str,
    *,
    table: str,
    policy: PolicyLike,
    charge: bool = True,
    form: Literal["arrow", "pandas"] = "arrow",
    artifacts: str | None = None,
) -> DataFrame:
    """Register a temporary view of a table in which every text column is released, and nothing unnamed is left.

    It has the policy's id column, its kept columns and its text columns, in the table's order. Each text is released
    for the id of its own row, and charged to that row's subject under the policy's cap. Spark evaluates the view
    whenever it is read: same rows, same bytes, one charge.

    Args:
        spark: The session, classic or Spark Connect.
        name: Name of the view.
        table: Name of the raw table or view.
        policy: The policy of the dataset, or the path of its file; its source is not read.
        charge: Charge the policy's ledger before a text is returned. Without, the view writes nothing: models, which
            cannot be charged in SQL, need that; a text is still drawn once per id.
        form: As for `register`.
        artifacts: As for `register`.

    Returns:
        The view as a frame.

    Raises:
        PolicyError: The table lacks a column that the policy names, or the policy cannot be carried out in SQL.
        LedgerError: The ledger cannot be opened, or workers could not reach it.
    """
    require_name(name)
    whole = resolve(policy)
    raw = spark.table(table)
    named = {column.name: column for column in whole.columns}
    kept = {whole.id, *whole.keep, *named}
    subject = {whole.subject} if charge and whole.unit == "subject" and whole.subject else set()
    if missing := (kept | subject) - set(raw.columns):
        raise PolicyError(
            f"the table has no column {', '.join(map(repr, sorted(missing)))}, and the policy names it",
            "a view takes every column that the policy names",
        )
    chosen = [
        _released(spark, whole, whole.column_policy(column), charge=charge, form=form, artifacts=artifacts)(
            *(raw[f"`{item}`"] for item in [column, whole.id, *subject])
        ).alias(column)
        if column in named
        else raw[f"`{column}`"]
        for column in raw.columns
        if column in kept
    ]
    raw.select(*chosen).createOrReplaceTempView(name)
    return spark.table(name)


def _released(
    spark: Any, whole: Policy, column: ColumnPolicy, *, charge: bool, form: str, artifacts: str | None
) -> Any:
    return released_by(
        spark,
        column,
        whole.ledger if charge else None,
        form,
        cap=whole.cap if charge else None,
        on_cap=whole.on_cap,
        unit=whole.unit,
        artifacts=artifacts,
    )
