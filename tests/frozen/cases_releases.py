"""What every word mechanism releases of the forty rows: one list of texts per policy, the same in every engine."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa

import dptext_etl.polars  # noqa: F401  (registers the namespace)
from dptext_etl import ColumnPolicy, column

from . import facts, rows

POLICIES = json.loads(Path(__file__).with_name("policies.json").read_text())
"""Mechanisms as plain data, by label: those that there were when the fixtures were made."""
NAMES = {
    "plain": {"dataset": "frozen", "column": "text", "release": "2026-11"},
    "others": {"dataset": "gefroren 😀", "column": "text", "release": 'a "name"', "nonce": 2**63 + 5},
}


ALLOW = ("case", "cluster", "numbers", "oov", "oov_flag", "punct", "sens_class", "stopwords")


def policy(label, folder, names="plain"):
    return ColumnPolicy(
        **NAMES[names], mechanism=POLICIES[label], key=rows.key(folder), allow=set(ALLOW), accept_unbounded={"UMLDP"}
    )


def frame():
    numbers = range(len(rows.TEXTS))
    return pl.DataFrame(
        {"id": rows.IDS, "text": rows.TEXTS, "n": numbers}, schema={"id": pl.String, "text": pl.String, "n": pl.Int64}
    )


def by_column(label, folder, names="plain"):
    """Texts, draws and amounts by `column.privatize`, with the configuration that they are released under."""
    made = policy(label, folder, names)
    out = column.privatize(rows.texts(), rows.ids(), made, spend=True)
    parts = {name: out.field(name).to_pylist() for name in ("text", "positions", "epsilon", "delta")}
    mechanism = made.mechanism
    return {
        "cfg": mechanism.cfg(),
        "configuration": mechanism.configuration(),
        "artifacts": {role: item.sha256 for role, item in mechanism.artifacts().items()},
        "type": str(out.type),
        "text": parts["text"],
        "positions": parts["positions"],
        "epsilon": [repr(amount) for amount in parts["epsilon"]],
        "delta": sorted({repr(amount) for amount in parts["delta"]}),
    }


def layouts_of_texts():
    """The forty texts in layouts that a mechanism must read alike."""
    view = pa.string_view()
    return {
        "string": rows.texts(pa.string()),
        "string_view": rows.texts(view),
        "sliced": pa.array(["before", *rows.TEXTS, None], pa.string()).slice(1, 40),
        "sliced view": pa.array(["before", *rows.TEXTS, None], view).slice(1, 40),
        "chunked": pa.chunked_array([rows.texts(view)[:3], rows.texts(view)[3:3], rows.texts(view)[3:]]),
    }


def _expression(label, folder, **options):
    return pl.col("text").dptext.privatize(policy(label, folder), id=pl.col("id"), **options)


def _pieces(table):
    return pl.concat([table[:11], table[11:12], table[12:]], rechunk=False)


ENGINES = {
    "eager": lambda table, e: table.select(e),
    "eager, chunks": lambda table, e: _pieces(table).select(e),
    "eager, sliced": lambda table, e: pl.concat([table[:5], table]).slice(5).select(e),
    "lazy": lambda table, e: table.lazy().select(e).collect(),
    "streaming": lambda table, e: table.lazy().select(e).collect(engine="streaming"),
    "streaming, chunks": lambda table, e: _pieces(table).lazy().select(e).collect(engine="streaming"),
    "over": lambda table, e: table.with_columns(e.over(pl.col("n") % 7)).select("text"),
    "groups": lambda table, e: (
        table.group_by(pl.col("n") % 7)
        .agg(pl.col("n").alias("row"), e)
        .explode("row", "text")
        .sort("row")
        .select("text")
    ),
}


def by_polars(label, folder, engine):
    """The released texts, as an engine of Polars gives them."""
    return ENGINES[engine](frame(), _expression(label, folder))["text"].to_list()


def by_polars_with_spend(label, folder):
    """The same in the shape of `by_column`."""
    out = frame().lazy().select(_expression(label, folder, spend=True)).collect(engine="streaming")["text"].struct
    parts = {name: out.field(name).to_list() for name in ("text", "positions", "epsilon", "delta")}
    return {
        "text": parts["text"],
        "positions": parts["positions"],
        "epsilon": [repr(amount) for amount in parts["epsilon"]],
        "delta": sorted({repr(amount) for amount in parts["delta"]}),
    }


def observed(folder):
    """Every policy, and one under other names."""
    seen = {label: by_column(label, folder) for label in POLICIES}
    return seen | {"under other names": by_column("custext", folder, "others")}


SHAPES = {
    "one row": lambda table, e: table[:1].select(e),
    "no rows": lambda table, e: table[:0].select(e),
    "no rows, streaming": lambda table, e: table[:0].lazy().select(e).collect(engine="streaming"),
    "a text for every id": lambda table, e: table.with_columns(text=pl.lit("The film was good.")).select(e)[:3],
    "nulls of no type": lambda table, e: table.with_columns(text=pl.lit(None))[:2].select(e),
    "a schema alone": lambda table, e: table.lazy().select(e).collect_schema(),
}


def shapes(folder):
    """Names and types of what Polars gives, mostly without rows."""
    seen = {}
    for kind in ("custext", "madlib"):
        for name, made in SHAPES.items():
            for spend in (False, True):
                e = _expression(kind, folder, spend=spend)
                label = f"{kind}, {name}{', spend' if spend else ''}"
                seen[label] = facts.attempted(lambda made=made, e=e: _shape(made(frame(), e)))
    return seen


def _shape(out):
    schema = {name: str(dtype) for name, dtype in (out if isinstance(out, pl.Schema) else out.schema).items()}
    if isinstance(out, pl.Schema):
        return {"schema": schema}
    return {"schema": schema, "rows": facts.values(out["text"].to_list())}
