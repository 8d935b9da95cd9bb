"""Describe a registered function for `DESCRIBE FUNCTION`: how to call it, and who may call it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dptext_etl.policy import ColumnPolicy

_USAGE = (
    "{name}({arguments}) - releases the text of a record of {dataset}.{column} under differential privacy, release "
    "{release}. Arguments by position or by name (text =>, id =>{subject}); id is the table's id column as it is."
)
_NOTE = """
    For callers who may read the raw column: one text under many ids is many draws, whose noise averages away. Others
    take a view that fixes the ids (dptext_etl.spark.register_view) or the published table.
  """
_PLACES: tuple[tuple[str, ...], ...] = (("session", "system"), ())
"""Database and catalog in which versions of Spark keep the functions of a session."""


def describe(spark: Any, name: str, policy: ColumnPolicy, arguments: str) -> None:
    """Write the description of a function into the catalog of a classic session; Spark Connect cannot hold one."""
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return
    subject = ", subject =>" if "subject" in arguments else ""
    facts = {"dataset": policy.dataset, "column": policy.column, "release": policy.release}
    usage = _USAGE.format(name=name, arguments=arguments, subject=subject, **facts)
    for place in _PLACES:
        with suppress(Exception):  # other versions keep functions elsewhere, and the function is registered anyway
            _write(spark, session.sessionState().functionRegistry(), (name, *place), usage)
            return


def _write(spark: Any, registry: Any, named: tuple[str, ...], usage: str) -> None:
    """Register a function again with its description."""
    jvm = spark._jvm  # noqa: SLF001  (the registry has no public interface)
    name, *place = named
    catalyst = jvm.org.apache.spark.sql.catalyst
    function = catalyst.FunctionIdentifier(name, *(jvm.scala.Some(part) for part in place))
    known = registry.lookupFunction(function).get()
    facts = (known.getClassName(), known.getDb(), known.getName())
    info = catalyst.expressions.ExpressionInfo(*facts, usage, "", "", _NOTE, "", "", "", known.getSource())
    registry.registerFunction(function, info, registry.lookupFunctionBuilder(function).get())
