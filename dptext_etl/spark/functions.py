"""Run a policy over a Spark data frame, register SQL functions and views, read published tables, and label texts.

In a run, executors reserve, compute, stage and commit; the driver checks and publishes, and gets counts and hashes but
no rows. Staging and sink are on storage that driver and executors share under one path, or in an object store.

Anyone who calls a SQL function chooses the ids, and one text under many ids is many draws, whose noise averages away.
So it is for those who may read the raw column anyway. Others get a view (`register_view`), which fixes id and subject.

The functions behind a view are in no catalog. Readers of the view must not be able to read the table: use grants of
the catalog, or a separate session for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from dptext_etl.column import require_row_by_row
from dptext_etl.engines import run
from dptext_etl.engines.spark.frames import open_table, require_publishable
from dptext_etl.engines.spark.session import located, named, read_text, require_workers
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.engines.spark.worker_policy import WorkerPolicy, for_workers, opened, ship
from dptext_etl.errors import InputError, LedgerError, PolicyError, bare, seam
from dptext_etl.families.aggregate import Classifier
from dptext_etl.file_formats import PARQUET
from dptext_etl.keys import Normalization
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.account import Account, AccountTerms
from dptext_etl.ledger.anchor_files import place_of
from dptext_etl.mechanism import Mechanism
from dptext_etl.parameters import validated
from dptext_etl.policy import Cap, ColumnPolicy, LedgerSpec, Policy, PolicyLike, resolve, resolve_column, run_policy
from dptext_etl.runner import RunSummary, open_classifier
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.publish.manifest import published_manifest, scan
from dptext_etl.runner.shard.attempt import require_environment
from dptext_etl.runner.source.roles import shown_columns
from dptext_etl.spark import worker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TERMS = ("cap", "on_cap", "unit", "normalize")
"""Entries of a policy that are arguments of functions, too."""


@bare
def function(
    spark: SparkSession,
    policy: PolicyLike,
    ledger: str | LedgerSpec | None = None,
    form: Literal["arrow", "pandas"] = "arrow",
    spend: bool = False,
    *,
    cap: Cap | None = None,
    on_cap: Literal["quarantine", "refuse"] | None = None,
    unit: Literal["subject", "record"] | None = None,
    normalize: tuple[Normalization, ...] | None = None,
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
    column = resolve_column(policy)
    if not column.sql_function:
        raise PolicyError(
            "the policy forbids SQL functions whose callers choose the ids (sql_function = false)",
            'give a view that fixes id and subject: register_view(spark, "released", table="…", policy="privacy.toml")',
        )
    with validated("ledger", LedgerSpec):
        spec = LedgerSpec(url=ledger) if isinstance(ledger, str) else ledger
    if check_workers:
        ask_workers(spark, form, [column.mechanism], column.key, spec)
    terms: dict[str, Any] = {"cap": None, "on_cap": "quarantine", "unit": "subject", "normalize": ()}
    if spec is not None and not isinstance(policy, ColumnPolicy):
        whole = resolve(policy)
        _refuse_without_run(whole, spec, leaves_out=False)
        terms = {name: getattr(whole, name) for name in _TERMS}
    given = {"cap": cap, "on_cap": on_cap, "unit": unit, "normalize": normalize}
    terms |= {name: value for name, value in given.items() if value is not None}
    return released_by(spark, column, spec, form, artifacts, spend=spend, **terms)


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
    on_cap: Literal["quarantine", "refuse"] | None = None,
    unit: Literal["subject", "record"] | None = None,
    normalize: tuple[Normalization, ...] | None = None,
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
        cap: The largest amount that a unit may spend; the ledger pins it at its first use. Like the next three
            arguments, by default the policy's, where the policy is of a dataset and there is a ledger.
        on_cap: Treatment of rows over the cap: they become null ("quarantine", the default of a policy of one column),
            or fail the query ("refuse").
        unit: Unit whose budget is charged: "subject" (the default of a policy of one column) needs a third argument,
            "record" makes every record a unit.
        normalize: Normalization of subjects before they are hashed, as `normalize` in a policy.
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
    policy = policy if isinstance(policy, ColumnPolicy) else resolve(policy)
    resolve_column(policy)  # refuses a policy that no function can carry out, before Spark is asked
    if spark.sql(f"SHOW SYSTEM FUNCTIONS LIKE '{name}'").take(1):
        msg = f"Spark has a built-in function {name!r}, and a query would call that one"
        raise PolicyError(msg, 'use another name, such as "private_review"')
    terms: dict[str, Any] = {"cap": cap, "on_cap": on_cap, "unit": unit, "normalize": normalize}
    expression = function(spark, policy, ledger, form, spend, **terms, artifacts=artifacts, check_workers=check_workers)
    return spark.udf.register(name, expression)


def released_by(
    spark: SparkSession,
    policy: ColumnPolicy,
    spec: LedgerSpec | None,
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
    if spec is None and cap is not None:
        raise PolicyError("a cap needs a ledger, and none is given", "give ledger=…")
    worker_policy = WorkerPolicy.of(
        policy,
        ship(spark, policy.mechanism.artifacts(), artifacts),
        spend=spend,
        ledger=None if spec is None else ledger_of_workers(spark, policy, spec, cap=cap, **terms),
    )
    if form not in FORMS:
        raise PolicyError(f"form = {form!r} is not a form of Spark functions", 'give form="arrow" or form="pandas"')
    release = FORMS[form](worker_policy.written(), spend=spend)
    return release if policy.mechanism.reproducible else release.asNondeterministic()


def ask_workers(spark: Any, form: str, mechanisms: Iterable[Mechanism], noise: str, ledger: LedgerSpec | None) -> None:
    """Ask workers whether they can compute, and resolve the keys of the noise and of the ids in a ledger."""
    ids = None if ledger is None else for_workers(ledger).id_key
    needed = ["dptext_etl.spark.worker", *(["pandas"] if form == "pandas" else [])]
    require_workers(spark, needed, mechanisms, [noise, *([] if ids is None else [ids])])


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


def arrow_udf(call: str, hint: str) -> Any:
    """Return what declares functions over Arrow arrays; its overloads expect annotations that users write."""
    try:
        from pyspark.sql.pandas.functions import arrow_udf as declare
    except ImportError:
        raise PolicyError(f"{call} needs Spark 4.1 or newer", hint) from None
    return declare


def arrow_function(policy_json: str, *, spend: bool) -> Any:
    """Make the function of (text, id, subject); it is pickled together with the string `policy_json` only."""
    declare = arrow_udf('form="arrow"', 'give form="pandas"')

    def release(*columns: Any, **named: Any) -> Any:
        return worker.release(policy_json, *worker.arguments(columns, named))

    release.__annotations__ = dict.fromkeys(("columns", "named", "return"), pa.Array)
    return declare(release, worker.SPEND_SQL if spend else "string")


def pandas_function(policy_json: str, *, spend: bool) -> Any:
    """Make the same function over Series; with `spend` it returns a frame."""
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def release(*columns: Any, **named: Any) -> Any:
        return worker.release_series(policy_json, *worker.arguments(columns, named))

    release.__annotations__ = {"columns": pd.Series, "named": pd.Series, "return": pd.DataFrame if spend else pd.Series}
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

    The view has the columns of the published table, in its order: ids as `ids` says, kept columns, and texts. Each text
    is released for the id of its row, and charged to that row's subject under the policy's cap. Rows over the cap, rows
    of people who were forgotten, and under `on_null_subject = "quarantine"` rows without a person are excluded. Now,
    the call refuses kept columns that hold texts of their rows (`keep_copies`), or single out more than 5% of the rows
    (`keep_unique`). Spark evaluates the view at every read; the same rows give the same bytes and one charge.

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
        PolicyError: Spark has no such table, or it has the view's name; a view cannot apply an entry of the policy; or
            a worker lacks something.
        InputError: The table lacks a column of the policy, or one has a type that it cannot have, such as double ids.
        LedgerError: The ledger cannot be opened, or workers could not reach it.
    """
    require_name(name)
    if name.casefold() == table.strip("`").casefold():
        msg = f"the view has the name of its table, {name!r}, so the next registration would release it again"
        raise PolicyError(msg, "use another name for the view, or give the table with its catalog and schema")
    policy = resolve(policy)
    columns, ledger = policy.column_policies(), policy.ledger if charge else None
    coarse = ", ".join(repr(item.column) for item in policy.kept if item.rule)
    in_sql = "coarsen them in SQL and keep the result by its name, or publish by a run (`run_frame`)"
    several = charge and policy.cap is not None and len(columns) > 1
    _refuse(  # entries that a view would ignore
        [
            (bool(coarse), f"keep coarsens {coarse}, and a view shows kept columns as the table has them", in_sql),
            (not policy.publish, "publish = false, and a view shows released texts to readers", "set publish = true"),
            (several, "cap: a view charges the text columns of a row one after the other, and a run all at once", _RUN),
        ]
    )
    if check_workers:
        ask_workers(spark, form, [column.mechanism for column in columns], policy.key, ledger)
    with seam(f"looking for the table {table!r}", PolicyError, "is its name right, and may this session read it?"):
        raw = spark.table(table)
        _ = raw.columns  # Spark Connect looks for the table only now
    opened_table = open_table(raw, policy, Layout(policy.source, policy.sink))
    require_publishable(opened_table, policy)
    rows, given = opened_table.frame, [named(policy.id)]
    _refuse_without_run(policy, ledger)
    shown = {item: named(item) for item in shown_columns(policy)}
    if policy.unit == "subject":
        rows = rows.filter(_has_person(policy))
        given += [named(str(policy.subject))] if charge else []
    if policy.ids != "keep":  # rows come in the order of the hashes, as in a published part
        hashes = _keyed(form, policy)(named(policy.id))
        rows = rows.withColumn(_ORDER, hashes).sortWithinPartitions(_ORDER)
        shown |= {policy.id: named(_ORDER)} if policy.ids == "keyed" else {}
    terms: dict[str, Any] = {item: getattr(policy, item) for item in (*_TERMS, "id_columns")}
    terms |= {} if charge else {"cap": None}
    for column in columns:
        release = released_by(spark, column, ledger, form, artifacts, spend=charge, **terms)
        shown[column.named] = release(named(column.named), *given)
    view = rows.select(*(cell.alias(item) for item, cell in shown.items()))
    for column in columns if charge else ():  # a row over the cap, or of a person who was forgotten, has no positions
        cell = named(column.named)
        view = view.filter(cell["positions"].isNotNull()).withColumn(column.named, cell["text"])
    view.createOrReplaceTempView(name)
    return view  # by its name, a search path could find a table


_ORDER = "__dptext_order"
_RUN = "publish by a run (`run_frame`), or leave the entry out of the policy of the view or function"


def _refuse_without_run(policy: Policy, spec: LedgerSpec | None, *, leaves_out: bool = True) -> None:
    """Refuse entries about charges that only a run applies; `leaves_out` says whether rows can be excluded."""
    wanted = {"refuse", "quarantine"} if leaves_out else {"refuse"}
    in_store = bool(policy.storage_options) and spec is not None and place_of(spec.anchors).remote
    problems = [
        (policy.on_null_subject not in wanted, f'on_null_subject = "{policy.on_null_subject}" is for runs', _RUN),
        (policy.on_changed != "refuse", f'on_changed = "{policy.on_changed}" is for runs', _RUN),
        (policy.per_subject is not None, "per_subject: only a run knows all rows of a person", _RUN),
        (in_store, "storage_options: workers do not get them, and could not store anchors of the ledger there", _RUN),
    ]
    _refuse(problems)
    if policy.environment is not None:
        with nullcontext() if spec is None else Ledger.open(spec.url, spec.id_key) as ledger:
            require_environment(policy, policy.column_policies()[0].secret, ledger, recording=True)


def _refuse(problems: Iterable[tuple[bool, str, str]]) -> None:
    for present, problem, hint in problems:
        if present:
            raise PolicyError(problem, hint)


def _has_person(policy: Policy) -> Column:
    """Return whether a row has a person; one without is excluded, or fails the query, as the policy says."""
    from pyspark.sql import functions as F  # noqa: N812

    person = named(str(policy.subject)).isNotNull()
    if policy.on_null_subject != "refuse":
        return person
    msg = f'a row has no subject (column {policy.subject!r} is null); on_null_subject = "quarantine" leaves it out'
    return F.when(person, True).otherwise(F.raise_error(F.lit(msg)).cast("boolean"))


def _keyed(form: str, policy: Policy) -> Any:
    """Make the function of an id that gives its published hash; a reader of a view cannot call it."""
    from pyspark.sql.pandas import functions as made

    named_key = (policy.key, policy.dataset, policy.release)
    array: Any = import_module("pandas").Series if form == "pandas" else pa.Array

    def keyed(ids: Any) -> Any:
        return worker.published_ids(*named_key, ids)

    keyed.__annotations__ = {"ids": array, "return": array}
    declare: Any = made.pandas_udf if form == "pandas" else made.arrow_udf
    return declare(keyed, "string")


@bare
def run_frame(
    df: DataFrame,
    policy: PolicyLike,
    *,
    id: str | None = None,  # noqa: A002  (the argument's name is the column's role)
    subject: str | None = None,
    gpus_per_task: float = 0,
    check_workers: bool | None = None,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    accept_fewer_rows: bool = False,
    progress: Listener | None = None,
    **entries: Any,
) -> RunSummary:
    """Release the text columns of a Spark frame as a whole run: charge, compute, stage, commit, check, publish.

    Every record gets the same text and the same charge as from `dptext_etl.run`. Task retries, speculation and a second
    call change nothing; a run that was killed continues where it stopped.

    Args:
        df: The raw table, of classic Spark or Spark Connect; every evaluation must give the same rows.
        policy: A policy, the path of one, or the policy of one column, with the other entries of a run in `entries`.
            The run does not read its source.
        id: Column of the record ids, if the frame uses another name than the policy.
        subject: Column of the subjects, if the frame uses another name than the policy.
        gpus_per_task: GPUs per task, from the cluster's resource scheduling; 0 for none, 0.5 for two tasks on one.
        check_workers: Ask the workers first whether they can compute, as `register` does; None asks unless the
            master is local.
        partition: Name of the partition, if the policy has a place for one.
        accept_lower_cap: Lower the pinned cap to the policy's cap; otherwise a lower cap is refused.
        accept_fewer_rows: Leave out more than 10% of the published rows that the source still holds.
        progress: Called with counts, rate, and remaining time, from a separate thread.
        entries: Entries of the policy to set: `sink`, `ledger`, `cap`, `keep`, `unit`, …

    Returns:
        Counts, spends, verdicts, and the place of the published table.

    Raises:
        PolicyError: The run cannot be carried out as written, or a worker lacks something; nothing is lost.
        LedgerError: The ledger is a SQLite file, but executors run on other machines.
        BudgetError: Records are over the cap, and on_cap is "refuse".
        GateError: A gate failed: nothing is published, charges stay, and the release name is revoked.
    """
    named = {"id": id, "subject": subject, **entries}
    whole = run_policy(policy, {name: value for name, value in named.items() if value is not None})
    return run(
        whole,
        engine=SparkEngine(df, gpus_per_task, check_workers),
        partition=partition,
        accept_lower_cap=accept_lower_cap,
        accept_fewer_rows=accept_fewer_rows,
        progress=progress,
    )


@bare
def published(
    spark: SparkSession, path: str, storage_options: Mapping[str, str] | None = None, *, verify: bool = True
) -> DataFrame:
    """Read the current version of a published table, and check first that its files match its manifest.

    Args:
        spark: The session; its executors see the files under the same paths.
        path: Folder or object-store URL of the table, which is the policy's sink.
        storage_options: Options with which the driver reads the manifest of an object store; values may be "env:NAME".
            Executors read the objects with Spark's own settings.
        verify: Read every file once and compare its hash (see `runner.scan_published`).

    Returns:
        A frame of the version that was current at the call; a later publication does not change it.

    Raises:
        InputError: Nothing is published there, or a file is not the one that was published.
    """
    layout = Layout.of_sink(path, dict(storage_options or {}))
    manifest = published_manifest(layout, verify=verify)
    paths = [located(layout.part(part.path)) for part in manifest.parts]
    if manifest.file_format != PARQUET.name:
        return read_text(spark, paths, manifest.file_format, scan(layout, manifest).collect_schema())
    with seam(
        "opening a published table with Spark", InputError, "check that every executor sees the files under this path"
    ):
        return spark.read.parquet(*paths)


@lru_cache(maxsize=4)
def _opened(content: bytes) -> Classifier:
    """Read a classifier; a function of this module, because Spark pickles it by its name."""
    return Classifier.read(content)


@bare
def label_function(classifier: Classifier | str | Path, corpus: str | None = None) -> Any:
    """Return a function of a column of texts that returns their labels, strings; null where the text is null.

    It reads your own texts and costs nothing. Nothing of it is a release: labels of private texts are private.
    `spark.udf.register(NAME, label_function(…))` makes it a function of SQL.

    Args:
        classifier: The classifier, or the place of its release (`open_classifier`).
        corpus: The folder of the classifier's corpus on the workers; by default the installed one of that name.
    """
    declare = arrow_udf("label_function", "label a Parquet file by `dptext label`")
    opened = classifier if isinstance(classifier, Classifier) else open_classifier(classifier)
    content = opened.content()

    def labels(texts: pa.Array) -> pa.Array:
        return _opened(content).label(texts, corpus)

    labels.__annotations__ = {"texts": pa.Array, "return": pa.Array}
    return declare(labels, "string")
