"""Register SQL functions and views that release text columns.

Anyone who calls a function chooses the ids, and one text under many ids is many draws, whose noise averages away. So it
is for those who may read the raw column anyway. Others get a view (`register_view`), which fixes id and subject.

The functions behind a view are in no catalog. Readers of the view must not be able to read the table: use grants of
the catalog, or a separate session for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from dptext_etl.column import require_row_by_row
from dptext_etl.engines.spark.session import require_workers
from dptext_etl.engines.spark.spark_types import polars_schema, require_unpadded
from dptext_etl.engines.spark.worker_policy import WorkerPolicy, for_workers, opened, ship
from dptext_etl.errors import LedgerError, PolicyError, bare
from dptext_etl.id_forms import Normalization
from dptext_etl.ledger.account import Account, AccountTerms
from dptext_etl.mechanism import Mechanism
from dptext_etl.parameters import validated
from dptext_etl.policy import Cap, ColumnPolicy, LedgerSpec, PolicyLike, resolve, resolve_column
from dptext_etl.runner.source.roles import check_id
from dptext_etl.spark import worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@bare
def function(
    spark: SparkSession,
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
    """Return a column's policy as a function of columns, which is in no catalog: for the DataFrame API and pipelines.

    Nothing in the session changes, so Spark's declarative pipelines can use it.

    Args:
        spark: The session, classic or Spark Connect.
        policy: The column's policy, or a policy of one text column, or the path of its file (see `register`).
        ledger: Ledger that is charged for rows before they are returned, or None (see `register`).
        form: "arrow" or "pandas" (see `register`).
        spend: Return `struct<text, positions, epsilon, delta>`, the declared pair of each record.
        cap: The largest amount that a unit may spend; the ledger pins it at its first use.
        on_cap: Treatment of rows over the cap, "quarantine" or "refuse" (see `register`).
        unit: Unit whose budget is charged, "subject" or "record" (see `register`).
        normalize: How subjects are spelled before they are hashed (see `register`).
        artifacts: Folder or object-store URI by which tables reach the workers, or None (see `register`).
        check_workers: Ask the workers first whether they can compute (see `register`).

    Returns:
        A function of the columns text, id, and subject if the ledger charges subjects.

    Raises:
        PolicyError: A SQL function cannot carry out the policy, or the policy forbids SQL functions.
        LedgerError: The ledger cannot be opened, or workers could not reach it.
    """
    policy = resolve_column(policy)
    if not policy.sql_function:
        raise PolicyError(
            "the policy forbids SQL functions whose callers choose the ids (sql_function = false)",
            'give a view that fixes id and subject: register_view(spark, "released", table="…", policy="privacy.toml")',
        )
    if check_workers:
        ask_workers(spark, form, [policy.mechanism], keys_of(policy.key, ledger))
    terms: dict[str, Any] = {"cap": cap, "on_cap": on_cap, "unit": unit, "normalize": normalize}
    return released_by(spark, policy, ledger, form, artifacts, spend=spend, **terms)


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
        artifacts: Folder or object-store URI by which tables reach the workers; None uses the driver's path with a
            local master, and the session's files (`addArtifacts`) otherwise.
        check_workers: Ask the session's workers first, by a small job, whether they can compute: the package, its
            version, its libraries, and the keys that the policy and the ledger name.

    Returns:
        The function, for use in the DataFrame API.

    Raises:
        PolicyError: A SQL function cannot carry out the policy, or the policy forbids SQL functions; the hint names
            alternatives. Or Spark has a function of this name, or a worker lacks something (`check_workers`).
        LedgerError: The ledger cannot be opened, or workers could not reach it.
    """
    require_name(name)
    column = resolve_column(policy)
    if spark.sql(f"SHOW SYSTEM FUNCTIONS LIKE '{name}'").take(1):
        msg = f"Spark has a built-in function {name!r}, and a query would call that one"
        raise PolicyError(msg, 'use another name, such as "private_review"')
    terms: dict[str, Any] = {"cap": cap, "on_cap": on_cap, "unit": unit, "normalize": normalize}
    made = function(spark, column, ledger, form, spend, **terms, artifacts=artifacts, check_workers=check_workers)
    registered = spark.udf.register(name, made)
    arguments = "text, id, subject" if ledger is not None and unit == "subject" else "text, id"
    describe(spark, name, column, arguments)
    return registered


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
    if policy.column is None:
        msg = "the policy names no column, and a SQL function does not know the name of its column"
        raise PolicyError(msg, "give column=…")
    require_row_by_row(policy)
    if ledger is None and cap is not None:
        raise PolicyError("a cap needs a ledger, and none is given", "give ledger=…")
    with validated("ledger", LedgerSpec):
        spec = LedgerSpec(url=ledger) if isinstance(ledger, str) else ledger
    worker_policy = WorkerPolicy.of(
        policy,
        ship(spark, policy.mechanism.artifacts(), artifacts),
        spend=spend,
        ledger=None if spec is None else ledger_of_workers(spark, policy, spec, cap=cap, **terms),
    )
    if form not in FORMS:
        raise PolicyError(f"form = {form!r} is not a form of Spark functions", 'give form="arrow" or form="pandas"')
    made = FORMS[form](worker_policy.written(), spend=spend)
    return made if policy.mechanism.reproducible else made.asNondeterministic()


def ask_workers(spark: Any, form: str, mechanisms: Iterable[Mechanism], keys: Iterable[str]) -> None:
    needed = ["dptext_etl.spark.worker", *(["pandas"] if form == "pandas" else [])]
    require_workers(spark, needed, mechanisms, keys)


def keys_of(noise: str, ledger: str | LedgerSpec | None) -> list[str]:
    """Return the references of the keys that workers resolve: of the noise, and of the ids in a ledger."""
    ids = for_workers(ledger).id_key if isinstance(ledger, LedgerSpec) else None
    return [noise, *([] if ids is None else [ids])]


def require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise PolicyError("a name in SQL has only letters, digits, and _", 'such as "private_review"')


def ledger_of_workers(spark: Any, policy: ColumnPolicy, spec: LedgerSpec, **terms: Any) -> AccountTerms:
    if not policy.mechanism.reproducible:
        raise LedgerError(
            f"{policy.mechanism.name} is a model: a second run may give other bytes, and a SQL function keeps no copy "
            "of its results, so it cannot be charged here",
            "use run_frame(df, policy, id=…), which stages its results; or register without a ledger",
        )
    shared, ledger_id = opened(spark, spec)
    agreed = AccountTerms(**shared.model_dump(), ledger_id=ledger_id, **terms)
    Account(policy, agreed).close()  # notices a lost or restored ledger before a query runs
    return agreed


def arrow_function(policy_json: str, *, spend: bool) -> Any:
    """Make the function of (text, id, subject); it is pickled together with the string `policy_json` only."""
    import pyarrow as pa

    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:
        raise PolicyError('form="arrow" needs Spark 4.1 or newer', 'give form="pandas"') from None

    def release(*columns: Any, **named: Any) -> Any:
        return worker.release(policy_json, *worker.arguments(columns, named))

    release.__annotations__ = dict.fromkeys(("columns", "named", "return"), pa.Array)
    declare: Any = arrow_udf  # its overloads expect annotations that users write
    return declare(release, worker.SPEND_SQL if spend else "string")


def pandas_function(policy_json: str, *, spend: bool) -> Any:
    """Make the same function over Series; with `spend` it returns a frame."""
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def release(*columns: Any, **named: Any) -> Any:
        return worker.release_series(policy_json, *worker.arguments(columns, named))

    returned = pd.DataFrame if spend else pd.Series
    release.__annotations__ = {"columns": pd.Series, "named": pd.Series, "return": returned}
    declare: Any = pandas_udf
    return declare(release, worker.SPEND_SQL if spend else "string")


FORMS = {"arrow": arrow_function, "pandas": pandas_function}


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
    released for the id of its row, and charged to that row's subject under the policy's cap. Spark evaluates the view
    at every read; the same rows give the same bytes and one charge.

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
        A frame of the same rows.

    Raises:
        PolicyError: The table lacks a column of the policy, or has the view's name; SQL cannot carry out the policy;
            or a worker lacks something.
        InputError: The id or subject column has a type that ids cannot have, such as double.
        LedgerError: The ledger cannot be opened, or workers could not reach it.
    """
    require_name(name)
    if name.casefold() == table.strip("`").casefold():
        msg = f"the view has the name of its table, {name!r}, so the next registration would release it again"
        raise PolicyError(msg, "use another name for the view, or give the table with its catalog and schema")
    policy = resolve(policy)
    released = {str(item.column) for item in policy.column_policies()}
    if coarse := [item.column for item in policy.kept if item.rule]:
        msg = f"the policy coarsens {', '.join(map(repr, coarse))}, and a view shows kept columns as the table has them"
        raise PolicyError(msg, "coarsen them in SQL and keep the result by its name, or publish by a run (`run_frame`)")
    if check_workers:
        ask_workers(
            spark,
            form,
            [column.mechanism for column in policy.columns],
            keys_of(policy.key, policy.ledger if charge else None),
        )
    raw = spark.table(table)
    columns = {policy.id, *policy.kept_columns, *released}
    subject = {policy.subject} if charge and policy.unit == "subject" and policy.subject else set()
    if missing := (columns | subject) - set(raw.columns):
        msg = f"the table has no column {', '.join(map(repr, sorted(missing)))}, and the policy names it"
        raise PolicyError(msg, "a view needs every column that the policy names")
    require_unpadded(raw, policy)
    schema = polars_schema(raw, (policy.id, *subject))
    check_id(policy.id, schema[policy.id])
    for column in subject:
        check_id(column, schema[column], role="subjects")
    cells = {column: raw[f"`{column.replace('`', '``')}`"] for column in raw.columns if column in columns | subject}
    ledger, cap = (policy.ledger, policy.cap) if charge else (None, None)
    terms: dict[str, Any] = {
        "on_cap": policy.on_cap,
        "unit": policy.unit,
        "normalize": policy.normalize,
        "id_columns": policy.id_columns,
    }
    chosen = []
    for column in (column for column in raw.columns if column in columns):
        cell = cells[column]
        if column in released:
            release = released_by(spark, policy.column_policy(column), ledger, form, artifacts, cap=cap, **terms)
            cell = release(cell, *(cells[item] for item in (policy.id, *subject))).alias(column)
        chosen.append(cell)
    view = raw.select(*chosen)
    view.createOrReplaceTempView(name)
    return view  # by its name, a search path could find a table


_USAGE = (
    "{name}({arguments}) - releases the text of a record of {dataset}.{column} under differential privacy, release "
    "{release}. Arguments by position or by name (text =>, id =>{subject}); id is the table's id column as it is."
)
_NOTE = """
    For callers who may read the raw column: one text under many ids is many draws, whose noise averages away. Others
    use a view that fixes the ids (dptext_etl.spark.register_view) or the published table.
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
    jvm = spark._jvm  # noqa: SLF001  (the registry has no public interface)
    name, *place = named
    catalyst = jvm.org.apache.spark.sql.catalyst
    function = catalyst.FunctionIdentifier(name, *(jvm.scala.Some(part) for part in place))
    entry = registry.lookupFunction(function).get()
    facts = (entry.getClassName(), entry.getDb(), entry.getName())
    info = catalyst.expressions.ExpressionInfo(*facts, usage, "", "", _NOTE, "", "", "", entry.getSource())
    registry.registerFunction(function, info, registry.lookupFunctionBuilder(function).get())
