"""Ways around the guard of Polars plans: each a plan that once passed, and that gives its reader raw texts.

`source` is the raw table of a policy; every plan is one that someone might write.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

import dptext_etl.polars  # noqa: F401  (registers `.dptext`)

col = pl.col


@dataclass(frozen=True)
class Way:
    """A way around a guard.

    Attributes:
        planted: The effect of the plan.
        seen: How it comes about.
        plan: Makes the plan from a policy.
    """

    planted: str
    seen: str
    plan: Callable


def released(policy, texts=None, **changes):
    """The policy's release, or one that differs."""
    column = policy.column_policy("text")
    made = column.model_copy(update=changes) if changes else column
    return (col("text") if texts is None else texts).dptext.privatize(made, id="id")


def parquet(policy):
    return pl.scan_parquet(policy.source)


def ipc(policy):
    path = policy.source.replace(".parquet", ".arrow")
    pl.read_parquet(policy.source).write_ipc(path)
    return pl.scan_ipc(path)


def in_bytes(policy):
    file = io.BytesIO()
    pl.read_parquet(policy.source).write_parquet(file)
    return pl.scan_parquet(file.getvalue())


def changed(policy, **parameters):
    mechanism = policy.column_policy("text").mechanism
    made = type(mechanism)(**{**mechanism.model_dump(), **parameters})
    return {"mechanism": made, "allow": made.guarantee.disclosures}


def beside(policy, raw):
    """A proper release, and raw text of another source joined to it."""
    return parquet(policy).select("id", released(policy)).join(raw, on="id")


def _raw(policy):
    return pl.read_parquet(policy.source)


WAYS = [
    Way(
        "raw text of an IPC file joined to a release",
        "a dimension that still holds the text, read by `scan_ipc`",
        lambda p: beside(p, ipc(p).select("id", comment="text")),
    ),
    Way(
        "raw text of a file in memory joined to a release",
        "bytes that were fetched from somewhere",
        lambda p: beside(p, in_bytes(p).select("id", comment="text")),
    ),
    Way(
        "raw text behind a cache joined to a release",
        "`cache()` in a long pipeline",
        lambda p: beside(p, ipc(p).select("id", comment="text").cache()),
    ),
    Way(
        "raw text by SQL over a source that is not shown",
        "`SQLContext` over an IPC file",
        lambda p: beside(p, pl.SQLContext(raw=ipc(p)).execute("SELECT id, text AS comment FROM raw")),
    ),
    Way(
        "raw text below a proper release",
        "old rows kept next to new ones",
        lambda p: pl.concat([parquet(p).select("id", released(p)), ipc(p).select("id", "text")]),
    ),
    Way(
        "a release of mode faithful",
        "a benchmark's policy in production",
        lambda p: parquet(p).select("id", released(p, **changed(p, mode="faithful"))),
    ),
    Way(
        "a release with another budget",
        "epsilon in other units, or turned up once",
        lambda p: parquet(p).select("id", released(p, **changed(p, epsilon=1000.0))),
    ),
    Way(
        "one text released for every id",
        "an aggregate as the text: its draws vote the text back",
        lambda p: parquet(p).select(released(p, col("text").first())),
    ),
    Way(
        "one text released in two forms",
        "a query that compares two preparations of a text: each form is another draw",
        lambda p: parquet(p).select(released(p), more=released(p, col("text").str.to_lowercase())),
    ),
    Way(
        "a predicate as nulls of the released texts",
        "`when` without `otherwise`, which a hint of the guard recommended: null texts stay null",
        lambda p: parquet(p).select("id", released(p, pl.when(col("text").str.contains("a")).then(col("text")))),
    ),
    Way(
        "a predicate as nulls of an earlier step",
        "`str.extract` where the text is cleaned, before the release",
        lambda p: parquet(p).with_columns(col("text").str.extract("(a.*)")).select("id", released(p)),
    ),
    Way(
        "the text of another row by `replace_strict`",
        "a mapping whose keys and values are columns: one text is drawn for every id",
        lambda p: parquet(p).select("id", text=released(p, (col("id") * 0).replace_strict(col("id"), col("text")))),
    ),
    Way(
        "raw texts inside a series that the plan holds",
        "a column of structs that was made from the raw table",
        lambda p: parquet(p).select("id", comment=pl.lit(_raw(p).select(made=pl.struct("text"))["made"])),
    ),
]
