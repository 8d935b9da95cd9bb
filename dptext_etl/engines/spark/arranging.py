"""Bring the composite ids of a frame into the order of fields that the ledger pinned, on the executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.engines.spark.shards import named
from dptext_etl.id_forms import IdForm
from dptext_etl.policy import Policy
from dptext_etl.runner.source.arranging import composites, form_of, pinned_orders
from dptext_etl.runner.source.roles import wanted_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def in_pinned_order(frame: DataFrame, schema: pl.Schema, policy: Policy) -> DataFrame:
    """Return the wanted columns of a frame, the fields of composite ids in the pinned order."""
    orders = pinned_orders({name: form_of(schema[name]) for name in composites(schema, policy)}, policy)
    columns = ((name, named(name)) for name in wanted_columns(policy))
    return frame.select(
        *(_ordered(item, orders[name]).alias(name) if name in orders else item for name, item in columns)
    )


def _ordered(column: Column, form: IdForm) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if not form.fields:
        return column
    fields = (_ordered(column.getField(name), inner).alias(name) for name, inner in form.fields)
    return F.when(column.isNotNull(), F.struct(*fields))
