"""Ids and texts of every Polars type through the expression: the released text, or the words of the refusal."""

import re

import polars as pl

from dptext_etl import ColumnPolicy

from . import cases_ids, facts, rows

MECHANISMS = {
    "plugin": {"name": "custext", "epsilon": 2.0, "limit": 60},
    "batches": {"name": "madlib", "epsilon": 20.0, "limit": 60, "unknown_words": "drop"},
}
ENGINES = ("in-memory", "streaming")
TEXTS = {
    "Categorical": lambda: pl.Series(["zxqvyuu"], dtype=pl.Categorical),
    "Enum": lambda: pl.Series(["zxqvyuu"], dtype=pl.Enum(["zxqvyuu"])),
    "Binary": lambda: pl.Series([b"zxqvyuu"]),
    "Int64": lambda: pl.Series([1]),
    "List": lambda: pl.Series([["zxqvyuu"]]),
    "Struct": lambda: pl.Series([{"zxqvyuu": "zxqvyuu"}]),
    "Object": lambda: pl.Series([object()], dtype=pl.Object),
    "Null": lambda: pl.Series([None]),
}
IDS = {
    **{name: made for name, made in cases_ids.POLARS.items() if name != "polars frame"},
    "polars String null": lambda: pl.Series(["a", None]),
    "polars Categorical null": lambda: pl.Series(["a", None], dtype=pl.Categorical),
}
OPEN = {("batches", "polars Int128"), ("batches", "polars UInt128"), ("batches", "Object")}
"""Refused in words that are not ours: better ones are welcome."""


def policy(kind, folder):
    return ColumnPolicy(
        dataset="frozen",
        column="text",
        release="2026-11",
        mechanism=MECHANISMS[kind],
        key=rows.key(folder),
        allow={"cluster", "oov_flag"},
    )


def _released(kind, folder, frame, engine):
    expression = pl.col("text").dptext.privatize(policy(kind, folder), id=pl.col("id"))
    return frame.lazy().select(expression).collect(engine=engine)["text"].to_list()


def _by_id(made, kind, folder, engine):
    ids = made()
    frame = pl.DataFrame(
        {"id": ids, "text": ["the and of to a in zxqvyuu"] * len(ids)}, schema_overrides={"text": pl.String}
    )
    return _released(kind, folder, frame, engine)


def _by_text(made, kind, folder, engine):
    return _released(kind, folder, pl.DataFrame({"id": ["r1"], "text": made()}), engine)


def _said(call):
    """Streaming hands over parts, so the number of nulls in one of them is not the column's."""
    said = facts.attempted(call)
    return {"refused": re.sub(r"\d+ nulls", "N nulls", said["refused"])} if isinstance(said, dict) else said


LENGTHS = {
    "one id for all": lambda text, policy: text.dptext.privatize(policy, id=pl.lit("x")),
    "one text for all": lambda text, policy: text.first().dptext.privatize(policy, id=pl.col("id")),
    "two ids for three texts": lambda text, policy: text.dptext.privatize(policy, id=pl.col("id").head(2)),
}
"""Inputs of lengths that do not fit."""


def _by_length(made, kind, folder, engine):
    frame = pl.DataFrame({"id": ["r1", "r2", "r3"], "text": ["the", "of", "and"]})
    released = frame.lazy().select(made(pl.col("text"), policy(kind, folder)))
    return released.collect(engine=engine).to_series().to_list()


def observed(folder):
    """Every case in both engines; where they say the same, once."""
    seen = {}
    groups = [(f"{kind}: id", kind, IDS, _by_id, ENGINES) for kind in MECHANISMS]
    groups += [(f"{kind}: text", kind, TEXTS, _by_text, ENGINES) for kind in MECHANISMS]
    groups += [("plugin: length", "plugin", LENGTHS, _by_length, ENGINES[:1])]  # streaming cuts columns where it likes
    for group, kind, cases, call, engines in groups:
        for name, made in cases.items():
            if (kind, name) not in OPEN:
                said = [_said(lambda c=call, m=made, k=kind, e=engine: c(m, k, folder, e)) for engine in engines]
                seen[f"{group}: {name}"] = said[0] if said[0] == said[-1] else said
    return seen
