"""Entries of a policy, each with a value that changes a release, and the table and policy that they change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import polars as pl
from pydantic import BaseModel

from dptext_etl import _kernel
from dptext_etl.mechanism import Mechanism, PostProcess
from dptext_etl.policy import ColumnPolicy, Policy
from tests.policy_files import custext_column

ROWS = 24


def entries(model: type[BaseModel] = Policy, prefix: str = "") -> Iterator[str]:
    """Yield every entry of a policy by its path; the parameters of mechanisms are not entries."""
    for name, item in model.model_fields.items():
        path = prefix + (item.alias or name)
        yield path
        for inner in _models(item.annotation):
            if not issubclass(inner, Mechanism | PostProcess):
                yield from entries(inner, f"{path}.")
    if model is Policy:
        named = {path.rpartition(".")[2] for path in (*Policy.model_fields, *entries_of_columns())}
        yield from (f"ColumnPolicy.{name}" for name in ColumnPolicy.model_fields if name not in {*named, "column"})


def entries_of_columns() -> list[str]:
    (column,) = _models(Policy.model_fields["columns"].annotation)
    return list(column.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


@dataclass(frozen=True)
class Probe:
    change: dict[str, Any]  # the entries with the value, which replace entries of the policy
    given: dict[str, Any] = field(default_factory=dict)  # entries that are the same before and after
    table: str = "plain"  # the table of the source
    earlier: tuple[str, dict[str, Any]] | None = None  # a run before: its table, and its other entries
    nonce: int | None = None  # for the policy of one column


def tables() -> dict[str, pl.DataFrame]:
    numbers = range(ROWS)
    plain = pl.DataFrame(
        {
            "id": [f"r{n:02d}" for n in numbers],
            "other": [f"s{n:02d}" for n in numbers],
            "user": [f"{'u' if n % 12 else 'U'}{n % 6}" for n in numbers],
            "member": [f"m{n % 4}" for n in numbers],
            "kind": ["ab"[n % 2] for n in numbers],
            "n": [n % 2 for n in numbers],
            "day": [dt.date(2026, 1 + n % 2, 1) for n in numbers],
            "single": [n for n in numbers],
            "review": [f"worda{'abcdefgh'[n % 8]} wordab" for n in numbers],
            "note": ["wordac wordad"] * ROWS,
        }
    )
    return {
        "plain": plain,
        "nameless": plain.with_columns(user=pl.when(pl.col("id") > "r02").then("user")),
        "changed": plain.with_columns(review=pl.when(pl.col("id") > "r02").then("review").otherwise(pl.lit("wordba"))),
        "first half": plain.head(ROWS // 2),
        "more": pl.concat([plain, plain.head(3).with_columns(pl.col("id", "other") + "x")]),
    }


def prepare(folder: Path) -> None:
    """Write the tables and the keys of all probes."""
    for name in ("noise", "other", "ids"):
        _kernel.Secret().write(str(folder / f"{name}.key"))
    for name, frame in tables().items():
        frame.write_parquet(folder / f"{name}.parquet")
    plain = tables()["plain"].drop("day")
    plain.write_csv(folder / "plain.csv")
    plain.write_csv(folder / "quoted.csv", quote_char="'", quote_style="always")


def policy(folder: Path, vectors: str) -> dict[str, Any]:
    """Return the entries of the policy that probes change."""
    return {
        "dataset": "d",
        "release": "1",
        "source": str(folder / "plain.parquet"),
        "sink": str(folder / "out"),
        "staging": str(folder / "inside"),
        "id": "id",
        "subject": "user",
        "keep": ["kind"],
        "key": f"file:{folder / 'noise.key'}",
        "ledger": {"url": f"sqlite:///{folder / 'ledger.db'}", "anchors": str(folder / "anchors")},
        "min_released": 0.0,
        "column": [custext_column(vectors, "review")],
    }


def probes(folder: Path, vectors: str) -> dict[str, Probe]:
    """Return the probes of all entries that are not in `ELSEWHERE`."""
    place, column = str, custext_column(vectors, "review")
    url = {"url": f"sqlite:///{folder / 'ledger.db'}", "anchors": str(folder / "anchors")}
    cap, tight = {"epsilon": 1000.0}, {"epsilon": 4.0}
    approx = {"measure": "approx", "epsilon": 1000.0, "delta": 1e-5}
    csv, again = {"source": place(folder / "plain.csv")}, [{"name": "again"}]
    surrogate = [{"name": "review", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}]
    shuffled = {
        "column": surrogate,
        "shuffled": {"rows": 10, "delta": 1e-9, "per_subject": 4},
        "keep": [],
        "cap": approx,
    }
    maxent = {"name": "maxent", "epsilon": 2.0, "delta": 1e-9, "corpus": "example"}
    synthetic = {"synthetic": {"column": "review", "rows": 20, "per_subject": 4, "mechanism": maxent}, "column": []}
    santext = {
        "name": "santext",
        "variant": "plus",
        "epsilon": 3.0,
        "p": 0.4,
        "sensitive_share": 0.8,
        "vectors": vectors,
    }
    unbounded = {"name": "review", "mechanism": santext, "allow": ["sens_class"]}
    kept = lambda **rule: {"keep": ["kind", *([rule] if rule else [])]}
    return {
        "dataset": Probe({"dataset": "e"}),
        "release": Probe({"release": "2"}),
        "environment": Probe({"environment": "test"}, {"environment": "live"}, earlier=("plain", {})),
        "source": Probe({"source": place(folder / "first half.parquet")}),
        "csv": Probe({"csv": {"separator": ";"}}, csv),
        "csv.separator": Probe({"csv": {"separator": ";"}}, csv),
        "csv.encoding": Probe({"csv": {"encoding": "utf-16"}}, csv),
        "csv.quote": Probe({"csv": {"quote": "'"}}, {"source": place(folder / "quoted.csv")}),
        "csv.types": Probe({"csv": {"types": {"n": "String"}}}, csv | {"keep": ["n"]}),
        "sink": Probe({"sink": place(folder / "elsewhere")}),
        "table": Probe({"table": {"format": "delta"}}),
        "table.format": Probe({"table": {"format": "delta"}}),
        "compression": Probe({"compression": "none"}),
        "id": Probe({"id": "other"}),
        "subject": Probe({"subject": "member"}, {"cap": tight}),
        "normalize": Probe({"normalize": ["casefold"]}, {"cap": tight}),
        "unit": Probe({"unit": "record"}),
        "ids": Probe({"ids": "keyed"}),
        "keep": Probe({"keep": ["kind", "n"]}),
        "keep.column": Probe(kept(column="n"), kept()),
        "keep.as": Probe(kept(column="day", **{"as": "month"}), kept(column="day")),
        "keep.bins": Probe(kept(column="n", bins=[1]), kept(column="n")),
        "keep.top": Probe({"keep": [{"column": "kind", "top": ["a"]}]}),
        "keep_unique": Probe({"keep_unique": "accepted"}, {"keep": ["single"]}),
        "strict_columns": Probe({"strict_columns": True}),
        "key": Probe({"key": f"file:{folder / 'other.key'}"}),
        "ledger": Probe({"ledger": url | {"url": f"sqlite:///{folder / 'second.db'}"}}),
        "ledger.url": Probe({"ledger": url | {"url": f"sqlite:///{folder / 'second.db'}"}}),
        "ledger.id_key": Probe({"ledger": url | {"id_key": f"file:{folder / 'ids.key'}"}}),
        "ledger.anchors": Probe({"ledger": url | {"anchors": place(folder / "heads")}}),
        "ledger.require_anchors": Probe(
            {"ledger": {"url": url["url"], "require_anchors": True}}, {"ledger": {"url": url["url"]}}
        ),
        "cap": Probe({"cap": tight}),
        "cap.measure": Probe({"cap": {"measure": "zcdp", "rho": 1000.0}}, {"cap": cap}),
        "cap.epsilon": Probe({"cap": tight}, {"cap": cap}),
        "cap.rho": Probe({"cap": {"measure": "zcdp", "rho": 3.0}}, {"cap": {"measure": "zcdp", "rho": 1000.0}}),
        "cap.delta": Probe({"cap": approx | {"delta": 1e-6}}, {"cap": approx}),
        "cap.period": Probe({"cap": cap | {"period": "2026"}}, {"cap": cap}),
        "cap.group": Probe({"cap": cap | {"group": "all"}}, {"cap": cap}),
        "on_cap": Probe({"on_cap": "refuse"}, {"cap": tight}),
        "on_null_subject": Probe({"on_null_subject": "quarantine"}, table="nameless"),
        "on_changed": Probe({"on_changed": "keep"}, table="changed", earlier=("plain", {})),
        "per_subject": Probe({"per_subject": 2}),
        "min_released": Probe({"min_released": 1.0}, {"cap": tight}),
        "publish": Probe({"publish": False}),
        "incremental": Probe({"incremental": True}, table="more", earlier=("plain", {})),
        "deletions": Probe(
            {"deletions": "keep"}, {"incremental": True}, table="first half", earlier=("plain", {"incremental": False})
        ),
        "staging": Probe({"staging": place(folder / "deep")}),
        "storage_options": Probe({"storage_options": {"aws_secret_access_key": "env:DPTEXT_NOT_SET"}}),
        "retention": Probe({"retention": {"staging_days": 0.0}}),
        "retention.staging_days": Probe({"retention": {"staging_days": 0.0}}),
        "retention.quarantine_days": Probe({"retention": {"quarantine_days": 0.0}}, {"cap": tight}),
        "retention.kept_days": Probe({"retention": {"kept_days": 0.0}}),
        "shard_rows": Probe({"shard_rows": 10}),
        "shard_bytes": Probe({"shard_bytes": 100}),
        "sql_function": Probe({"sql_function": False}),
        "copy_gate_false_alarm": Probe({"copy_gate_false_alarm": 1e-9}, {"cap": approx}),
        "reports": Probe({"reports": ["copies"]}),
        "dagster": Probe({"dagster": {"tags": {"dagster/priority": "3"}}}),
        "dagster.tags": Probe({"dagster": {"tags": {"dagster/priority": "3"}}}),
        "shuffled": Probe({"shuffled": shuffled["shuffled"]}, shuffled | {"shuffled": None}),
        "synthetic": Probe(synthetic, {"cap": approx, "keep": []}),
        "column": Probe({"column": [column, custext_column(vectors, "note")]}),
        "column.name": Probe({"column": [custext_column(vectors, "note")]}),
        "column.mechanism": Probe({"column": [custext_column(vectors, "review", epsilon=3.0)]}),
        "column.allow": Probe({"column": [column | {"allow": []}]}),
        "column.accept_unbounded": Probe(
            {"column": [unbounded | {"accept_unbounded": ["UMLDP"]}]}, {"column": [unbounded]}
        ),
        "column.postprocess": Probe({"column": [column | {"postprocess": again}]}),
        "column.keep_intermediate": Probe(
            {"column": [column | {"postprocess": again, "keep_intermediate": True}]},
            {"column": [column | {"postprocess": again}]},
        ),
        "ColumnPolicy.nonce": Probe({}, nonce=1),
    }
