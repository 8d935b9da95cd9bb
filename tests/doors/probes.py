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
    earlier: tuple[tuple[str, dict[str, Any]], ...] = ()  # runs before: their tables, and their other entries
    nonce: int | None = None  # for the policy of one column


PLAIN: tuple[tuple[str, dict[str, Any]], ...] = (("plain", {}),)


LONG = pl.concat_str(pl.col("review"), pl.lit(" wordac wordad"))


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
            "single": list(numbers),
            "review": [f"worda{'abcdefgh'[n % 8]} wordab" for n in numbers],
            "note": ["wordac wordad"] * ROWS,
        }
    )
    return {
        "plain": plain,
        "nameless": plain.with_columns(user=pl.when(pl.col("id") > "r02").then("user")),
        "changed": plain.with_columns(review=pl.when(pl.col("id") > "r02").then("review").otherwise(pl.lit("wordba"))),
        "first half": plain.head(ROWS // 2),
        "copied": plain.with_columns(review=LONG, body=LONG),
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


ELSEWHERE = {
    **dict.fromkeys(("source_catalog", "table.name", "table.catalog"), "integration/test_run_iceberg.py"),
    **dict.fromkeys((path for path in entries() if path.startswith("audience.")), "integration/test_run_audiences.py"),
    **dict.fromkeys((path for path in entries() if path.startswith("shuffled.")), "integration/test_run_labels.py"),
    **dict.fromkeys((path for path in entries() if path.startswith("synthetic.")), "integration/test_run_synthetic.py"),
}
"""Entries that need a catalog, a signature, or another form of release, and the files that test their values."""


def probes(folder: Path, vectors: str) -> dict[str, Probe]:
    """Return the probes of all entries that are not in `ELSEWHERE`."""
    column, csv = custext_column(vectors, "review"), {"source": str(folder / "plain.csv")}
    url = {"url": f"sqlite:///{folder / 'ledger.db'}", "anchors": str(folder / "anchors")}
    second = url | {"url": f"sqlite:///{folder / 'second.db'}"}
    cap, tight = {"cap": {"epsilon": 1000.0}}, {"cap": {"epsilon": 4.0}}
    zcdp, delta = {"measure": "zcdp", "rho": 1000.0}, {"measure": "approx", "epsilon": 1000.0, "delta": 1e-5}
    again, approx = [{"name": "again"}], {"cap": delta}
    surrogate = {"name": "review", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}
    maxent = {"name": "maxent", "epsilon": 2.0, "delta": 1e-9, "corpus": "example"}
    synthetic = {"column": "review", "rows": 20, "per_subject": 4, "mechanism": maxent}
    santext = {"name": "santext", "variant": "plus", "epsilon": 3.0, "p": 0.4, "vectors": vectors}
    unbounded = {"name": "review", "mechanism": santext | {"sensitive_share": 0.8}, "allow": ["sens_class"]}
    runs = (*PLAIN, ("more", {}), *PLAIN, ("more", {}))
    return {
        "dataset": Probe({"dataset": "e"}),
        "release": Probe({"release": "2"}),
        "environment": Probe({"environment": "test"}, {"environment": "live"}, earlier=PLAIN),
        "source": Probe({"source": str(folder / "first half.parquet")}),
        "csv": Probe({"csv": {"separator": ";"}}, csv),
        "csv.separator": Probe({"csv": {"separator": ";"}}, csv),
        "csv.encoding": Probe({"csv": {"encoding": "utf-16"}}, csv),
        "csv.quote": Probe({"csv": {"quote": "'"}}, {"source": str(folder / "quoted.csv")}),
        "csv.types": Probe({"csv": {"types": {"n": "String"}}}, csv | {"keep": ["n"]}),
        "sink": Probe({"sink": str(folder / "elsewhere")}),
        "table": Probe({"table": {"format": "delta"}}),
        "table.format": Probe({"table": {"format": "delta"}}),
        "compression": Probe({"compression": "none"}),
        "id": Probe({"id": "other"}),
        "subject": Probe({"subject": "member"}, tight),
        "normalize": Probe({"normalize": ["casefold"]}, tight),
        "unit": Probe({"unit": "record"}),
        "ids": Probe({"ids": "keyed"}),
        "keep": Probe({"keep": ["kind", "n"]}),
        "keep.column": Probe({"keep": [{"column": "n"}]}),
        "keep.as": Probe({"keep": [{"column": "day", "as": "month"}]}, {"keep": ["day"]}),
        "keep.bins": Probe({"keep": [{"column": "n", "bins": [1]}]}, {"keep": ["n"]}),
        "keep.top": Probe({"keep": [{"column": "kind", "top": ["a"]}]}),
        "keep_unique": Probe({"keep_unique": "accepted"}, {"keep": ["single"]}),
        "keep_copies": Probe({"keep_copies": ["body"]}, {"keep": ["body"]}, table="copied"),
        "strict_columns": Probe({"strict_columns": True}),
        "key": Probe({"key": f"file:{folder / 'other.key'}"}),
        "ledger": Probe({"ledger": second}),
        "ledger.url": Probe({"ledger": second}),
        "ledger.id_key": Probe({"ledger": url | {"id_key": f"file:{folder / 'ids.key'}"}}),
        "ledger.anchors": Probe({"ledger": url | {"anchors": str(folder / "heads")}}),
        "ledger.require_anchors": Probe(
            {"ledger": {"url": url["url"], "require_anchors": True}}, {"ledger": {"url": url["url"]}}
        ),
        "cap": Probe(tight),
        "cap.measure": Probe({"cap": zcdp}, cap),
        "cap.epsilon": Probe(tight, cap),
        "cap.rho": Probe({"cap": zcdp | {"rho": 3.0}}, {"cap": zcdp}),
        "cap.delta": Probe({"cap": delta | {"delta": 1e-6}}, approx),
        "cap.period": Probe({"cap": cap["cap"] | {"period": "2026"}}, cap),
        "cap.group": Probe({"cap": cap["cap"] | {"group": "all"}}, cap),
        "on_cap": Probe({"on_cap": "refuse"}, tight),
        "on_null_subject": Probe({"on_null_subject": "quarantine"}, table="nameless"),
        "on_changed": Probe({"on_changed": "keep"}, table="changed", earlier=PLAIN),
        "per_subject": Probe({"per_subject": 2}),
        "min_released": Probe({"min_released": 1.0}, tight),
        "publish": Probe({"publish": False}),
        "incremental": Probe({"incremental": True}, table="more", earlier=PLAIN),
        "deletions": Probe(
            {"deletions": "keep"}, {"incremental": True}, "first half", earlier=(("plain", {"incremental": False}),)
        ),
        "staging": Probe({"staging": str(folder / "deep")}),
        "storage_options": Probe({"storage_options": {"aws_secret_access_key": "env:DPTEXT_NOT_SET"}}),
        "retention": Probe({"retention": {"versions": 5}}, earlier=runs),
        "retention.versions": Probe({"retention": {"versions": 5}}, earlier=runs),
        "retention.staging_days": Probe({"retention": {"staging_days": 0.0}}),
        "retention.quarantine_days": Probe({"retention": {"quarantine_days": 0.0}}, tight),
        "retention.kept_days": Probe({"retention": {"kept_days": 0.0}}),
        "shard_rows": Probe({"shard_rows": 10}),
        "shard_bytes": Probe({"shard_bytes": 100}),
        "sql_function": Probe({"sql_function": False}),
        "copy_gate_false_alarm": Probe({"copy_gate_false_alarm": 1e-9}, approx),
        "reports": Probe({"reports": ["copies"]}),
        "dagster": Probe({"dagster": {"tags": {"dagster/priority": "3"}}}),
        "dagster.tags": Probe({"dagster": {"tags": {"dagster/priority": "3"}}}),
        "audience": Probe({"audience": [{"name": "analysts", "sink": str(folder / "analysts"), "keep": ["n"]}]}),
        "shuffled": Probe(
            {"shuffled": {"rows": 10, "delta": 1e-9, "per_subject": 4}}, approx | {"column": [surrogate], "keep": []}
        ),
        "synthetic": Probe({"synthetic": synthetic, "column": []}, approx | {"keep": []}),
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
