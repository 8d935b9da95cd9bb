"""Register SQL functions and views that release text columns.

    from dptext_etl.spark import register, register_view

    register(spark, "private_review", policy)
    spark.sql("SELECT id, private_review(review, id) AS review FROM reviews")
    register_view(spark, "released_reviews", table="reviews", policy="privacy.toml")
    spark.sql("SELECT * FROM released_reviews")

The arguments are text, id and, with a ledger that charges subjects, subject; by position or by name (`text =>`,
`id =>`, `subject =>`). The released text depends on key, record and text alone, so Spark may retry, repeat and reorder.

Anyone who calls the function chooses the ids, and one text under many ids is many draws, whose noise averages away. So
it is for those who may read the raw column anyway; give others a view (`register_view`), which fixes id and subject. A
policy with `sql_function = false` has no such function.

The functions behind a view are in no catalog. Readers of the view must not be able to read the table: use grants of
the catalog, or a separate session for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from dptext_etl.checks.great_expectations.tallies import polars_schema
from dptext_etl.column import require_row_by_row
from dptext_etl.engines.spark.session import require_workers
from dptext_etl.engines.spark.worker_policy import WorkerLedger, WorkerPolicy, opened, ship
from dptext_etl.errors import LedgerError, PolicyError, bare
from dptext_etl.id_forms import Normalization
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import Cap, ColumnPolicy, LedgerSpec, Policy, PolicyLike, resolve, resolve_column
from dptext_etl.runner.source.roles import check_id
from dptext_etl.spark.worker import Account
from dptext_etl.validation import validated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@bare
def register(  # noqa: PLR0917  (in the order in which one says it)
    spark: SparkSession,
    name: str,
    policy: PolicyLike,
    ledger: str | LedgerSpec | None = None,
    form: Literal["arrow", "pandas"] = "arrow",
    spend: bool = False,
    *,
    cap: Cap | None = None,
    on_cap: Literal["quarantine", "refuse"] = "quarantine",
    unit: Literal["subject", "record"] = "subject",
    normalize: tuple[Normalization, ...] = (),
    artifacts: str | None = None,
    check_workers: bool = False,
) -> Any:
    """Register a column's policy as a SQL function of a session, classic or Spark Connect.

    The function is for callers who may read the raw column, because they choose the ids. Use `register_view` for all
    others. An id with two texts is refused where one Arrow batch holds both; a ledger refuses it over all batches.

    Args:
        spark: The session.
        name: Name of the SQL function.
        policy: The column's policy, with the column's name and a key reference that resolves on the workers; or a
            policy of one text column, or the path of its file.
        ledger: Ledger that is charged for rows before they are returned: a URL, a path, a reference to it
            ("env:NAME"), or a `LedgerSpec` with the key of its ids, which PostgreSQL needs. Without a ledger, the
            function writes nothing, and its results must not be published.
        form: "arrow" (Spark 4.1 and newer) or "pandas" (also Spark 3.5).
        spend: Return `struct<text, positions, epsilon, delta>`, the declared pair of each record.
        cap: The largest amount that a unit may spend; the ledger pins it at its first use.
        on_cap: Treatment of rows over the cap: they become null ("quarantine"), or fail the query ("refuse").
        unit: Unit whose budget is charged: "subject" needs a third argument, "record" makes every record a unit.
        normalize: How subjects are spelled before they are hashed, as `normalize` in a policy.
        artifacts: Folder or object-store URI by which tables reach the workers; None takes the driver's own path with a
            local master, and the session's files (`addArtifacts`) otherwise.
        check_workers: Ask the session's workers first, by a small job, whether they can compute: the package, its
            version, its libraries.

    Returns:
        The function, for use in the DataFrame API.

    Raises:
        PolicyError: A SQL function cannot do what the policy asks, or the policy forbids SQL functions; the hint says
            what is possible. Or a worker lacks something (`check_workers`).
        LedgerError: The ledger cannot be opened, or workers could not reach it.
    """
    require_name(name)
    policy = resolve_column(policy)
    if not policy.sql_function:
        raise PolicyError(
            "the policy forbids SQL functions whose callers choose the ids (sql_function = false)",
            'give a view that fixes id and subject: register_view(spark, "released", table="…", policy="privacy.toml")',
        )
    if check_workers:
        ask_workers(spark, form, [policy.mechanism])
    function = released_by(
        spark, policy, ledger, form, artifacts, spend=spend, cap=cap, on_cap=on_cap, unit=unit, normalize=normalize
    )
    made = spark.udf.register(name, function)
    describe(spark, name, policy, "text, id, subject" if ledger is not None and unit == "subject" else "text, id")
    return made


def released_by(
    spark: SparkSession,
    policy: ColumnPolicy,
    ledger: str | LedgerSpec | None,
    form: str,
    artifacts: str | None,
    *,
    cap: Cap | None,
    spend: bool = False,
    **terms: Any,
) -> Any:
    """Make the function that releases a column, without adding it to a session's catalog."""
    if policy.column is None:
        raise PolicyError(
            "the policy names no column, and a SQL function does not know the name of its column", "give column=…"
        )
    require_row_by_row(policy)
    if ledger is None and cap is not None:
        raise PolicyError("a cap needs a ledger, and none is given", "give ledger=…")
    with validated("ledger", LedgerSpec.model_fields):
        spec = LedgerSpec(url=ledger) if isinstance(ledger, str) else ledger
    carried = WorkerPolicy.of(
        policy,
        ship(spark, policy.mechanism.artifacts(), artifacts),
        spend=spend,
        ledger=None if spec is None else _account(spark, policy, spec, cap=cap, **terms),
    )
    function = _made(carried.written(), form, spend=spend)
    if not policy.mechanism.reproducible:
        function = function.asNondeterministic()
    return function


def ask_workers(spark: Any, form: str, mechanisms: Iterable[Mechanism]) -> None:
    """Ask the session's workers whether they can evaluate a function of a form."""
    worker = "dptext_etl.spark.series" if form == "pandas" else "dptext_etl.spark.worker"
    require_workers(spark, [worker], mechanisms)


def require_name(name: str) -> None:
    """Refuse a name that Spark would have to quote."""
    if not _NAME.fullmatch(name):
        raise PolicyError("a name in SQL has letters, digits and _ alone", 'such as "private_review"')


def _account(spark: Any, policy: ColumnPolicy, spec: LedgerSpec, **terms: Any) -> WorkerLedger:
    if not policy.mechanism.reproducible:
        raise LedgerError(
            f"{policy.mechanism.name} is a model: a second run may give other bytes, and a SQL function keeps no copy "
            "of its results, so it cannot be charged here",
            "use run_frame(df, policy, id=…), which stages its results; or register without a ledger",
        )
    shared, ledger_id = opened(spark, spec)
    carried = WorkerLedger(**shared.model_dump(), ledger_id=ledger_id, **terms)
    Account(policy, carried).close()  # notices a lost or restored ledger before a query runs
    return carried


def _made(carried: str, form: str, *, spend: bool) -> Any:
    if form == "arrow":
        try:
            from dptext_etl.spark.arrow_form import function
        except ImportError:
            pass
        else:
            return function(carried, spend=spend)
        raise PolicyError('form="arrow" needs Spark 4.1 or newer', 'give form="pandas"')
    if form == "pandas":
        from dptext_etl.spark.pandas_form import function

        return function(carried, spend=spend)
    raise PolicyError('the form of a Spark function is "arrow" or "pandas"')


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
        InputError: The id or subject column has a type that ids cannot have, such as double.
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
    schema = polars_schema(raw, (whole.id, *subject))
    check_id(whole.id, schema[whole.id])
    for column in subject:
        check_id(column, schema[column], role="subjects")
    chosen = [
        _released_column(spark, whole, whole.column_policy(column), charge=charge, form=form, artifacts=artifacts)(
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


def _released_column(
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
