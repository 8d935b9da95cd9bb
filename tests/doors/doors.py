"""Every way to release a table by a policy: its output, files, and charges, or how it refuses."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import types
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from dptext_etl import ColumnPolicy, Ledger, Policy, privatize
from dptext_etl.engines import run
from dptext_etl.errors import DPTextError
from dptext_etl.polars import run_frame
from dptext_etl.runner import scan_published
from dptext_etl.tables import privatize_table
from tests.policy_files import write_policy

from . import probes
from .probes import Probe

PLUGIN = Path(__file__).resolve().parents[2] / "deploy/dbt/dptext_etl/plugin/dptext_dbt.py"


class Case:
    """A folder with tables and keys, and the policy of a probe over them: before (`changed` is false) or after."""

    def __init__(self, template: Path, vectors: str, name: str, *, changed: bool) -> None:
        self.folder = Path(shutil.copytree(template, template.parent / uuid.uuid4().hex))
        self.probe: Probe = probes.probes(self.folder, vectors)[name]
        table = self.folder / f"{self.probe.table}.parquet"
        plain = {**probes.policy(self.folder, vectors), "source": str(table)} | self.probe.given
        self.values = plain | (self.probe.change if changed else {})
        self.nonce = self.probe.nonce if changed else None
        for name, entries in self.probe.earlier:
            run(parsed(plain | {"source": str(self.folder / f"{name}.parquet")} | entries))
        self.plain, self.frame = plain, pl.read_parquet(table)

    @property
    def policy(self) -> Policy | ColumnPolicy:
        policy = parsed(self.values)
        return policy if self.nonce is None else policy.column_policy().model_copy(update={"nonce": self.nonce})

    def publish(self) -> None:
        """Publish a table by the policy before the change, or after it, where the former publishes none."""
        try:
            run(parsed(self.plain))
        except DPTextError:
            run(parsed(self.plain | self.probe.change))

    @property
    def file(self) -> Path:
        _ = parsed(self.values)
        return write_policy(self.folder / "privacy.toml", self.values)

    def left(self) -> dict[str, Any]:
        """Return the results of a run in the folders of the policy: rows, files, charges, and heads."""
        folder = self.folder
        left: dict[str, Any] = {name: (folder / name).exists() for name in ("heads", "elsewhere", "deep")}
        with suppress(DPTextError):
            scanned = scan_published(str(folder / "out")).collect()
            left |= {"rows": rows_of(scanned), "types": [*map(str, scanned.schema.items())]}
        parts = [pq.ParquetFile(part).metadata for part in sorted((folder / "out").glob("*.parquet"))]
        left["files"] = [part.row_group(0).column(0).compression for part in parts]
        left["versions"] = len([*(folder / "out.versions").glob("v*")])
        left["log"] = (folder / "out" / "_delta_log").is_dir()
        for name in ("ledger.db", "second.db"):
            own = (folder / f"{name}.id.key").exists()
            with suppress(DPTextError):
                key = None if own else f"file:{folder / 'ids.key'}"
                with Ledger.open(str(folder / name), key, create=False, read_only=True) as ledger:
                    left[name] = str([own, ledger.reports.caps(), ledger.reports.show()])
        return left


def parsed(values: dict[str, Any]) -> Policy:
    return Policy.parse({name: value for name, value in values.items() if value is not None})


def rows_of(frame: pl.DataFrame) -> list[str]:
    return sorted(map(repr, frame.rows()))


WRAPPING = {"pyspark", "_duckdb"}
"""Libraries whose errors wrap ours."""


def outcome(door: Callable[[Case], Any], case: Case) -> tuple[str, Any]:
    """Return ("done", the output of a door) or ("refused", its words), the same in every folder."""
    try:
        kind, shown = "done", door(case)
    except Exception as error:
        if not isinstance(error, DPTextError) and type(error).__module__.partition(".")[0] not in WRAPPING:
            raise
        kind, shown = "refused", str(error)
    return kind, repr(shown).replace(str(case.folder), "")


def by_run(case: Case, engine: Any = None) -> Any:
    if case.nonce is None:
        done = run(case.policy, engine=engine)
    else:
        entries = {name: case.values[name] for name in ("id", "subject", "keep", "sink", "staging", "ledger")}
        done = run_frame(case.frame, case.policy, **entries)
    return case.left(), done.rows, [gate["name"] for gate in done.gates], done.reports


def by_expression(case: Case) -> Any:
    import dptext_etl.polars  # noqa: F401  (registers the namespace)

    return rows_of(case.frame.select("id", pl.col("review").dptext.privatize(case.policy, id="id")))


def by_table(case: Case) -> Any:
    return rows_of(privatize_table(case.frame, case.policy, id="id" if case.nonce else None))


def by_column(case: Case) -> Any:
    return privatize(case.frame["review"].to_arrow(), case.frame["id"].to_arrow(), case.policy).to_pylist()


def by_dbt(case: Case) -> Any:
    import duckdb

    case.publish()
    stub = types.ModuleType("dbt.adapters.duckdb.plugins")
    stub.BasePlugin = object
    names = ("dbt", "dbt.adapters", "dbt.adapters.duckdb", stub.__name__)
    before = {name: sys.modules.get(name) for name in names}
    try:
        sys.modules.update({name: types.ModuleType(name) for name in names[:3]} | {stub.__name__: stub})
        spec = importlib.util.spec_from_file_location("dptext_dbt", PLUGIN)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for name, held in before.items():
            sys.modules.pop(name) if held is None else sys.modules.update({name: held})
    plugin, connection = module.Plugin(), duckdb.connect()
    plugin.initialize({"functions": {"private_text": {"policy": str(case.file), "column": "review"}}})
    plugin.configure_connection(connection)
    connection.register("raw", case.frame.select("id", "review").to_arrow())
    released = connection.execute("select id, private_text(review, id) from raw order by id").fetchall()
    return released, plugin.load({"policy": str(case.file)}).sort_by("review").to_pylist()


def by_suite(case: Case) -> Any:
    from dptext_etl.checks.great_expectations.expectations import suite_for, validate_suite

    case.publish()
    verdict = validate_suite(scan_published(str(case.folder / "out")).collect(), suite_for(case.policy))
    return [(item.name, item.gate, item.success) for item in verdict.outcomes]


def by_asset(case: Case) -> Any:
    from dptext_etl.orchestration import build_definitions

    return _materialized(case, build_definitions(case.policy))


def by_component(case: Case) -> Any:
    from dptext_etl.orchestration.component import PolicyComponent

    component = PolicyComponent(policy=str(case.file))
    return _materialized(case, component.build_defs(types.SimpleNamespace(path=case.folder)))


def _materialized(case: Case, definitions: Any) -> Any:
    import dagster as dg

    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    job = definitions.resolve_job_def(f"run_{case.values['dataset']}")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(run_config=quiet, instance=instance, raise_on_error=False)
    if not result.success:
        failed = next(event.step_failure_data for event in result.all_events if event.is_step_failure)
        raise DPTextError(str(failed.user_failure_data or failed.error))
    checks = [
        (item.check_name, item.passed, item.description, item.metadata) for item in result.get_asset_check_evaluations()
    ]
    return case.left(), dict(job.tags), sorted(map(str, checks))


def of_spark(spark: Any) -> dict[str, Callable[[Case], Any]]:
    """Return the ways of a session of Spark."""
    from dptext_etl.engines.spark.spark_engine import SparkEngine
    from dptext_etl.spark import register, register_view, run_frame

    def raw(case: Case) -> Any:
        return spark.createDataFrame(case.frame.to_pandas()).coalesce(1)

    def by_spark_run(case: Case) -> Any:
        if case.nonce is not None:
            return run_frame(raw(case), case.policy, id="id")
        policy = case.policy
        with SparkEngine.started(policy, None) as engine:
            return by_run(case, engine)

    def by_view(case: Case) -> Any:
        raw(case).createOrReplaceTempView("raw")
        view = register_view(spark, "shown", table="raw", policy=case.policy)
        return view.columns, sorted(map(tuple, view.collect()), key=repr), case.left()

    def by_function(case: Case) -> Any:
        raw(case).createOrReplaceTempView("raw")
        register(spark, "private_text", case.policy, ledger=case.plain["ledger"]["url"])
        rows = spark.sql("SELECT id, private_text(review, id, user) AS review FROM raw").collect()
        return sorted(map(tuple, rows)), case.left()

    return {"spark": by_spark_run, "view": by_view, "function": by_function}
