"""Texts in every Arrow layout, as kernel and library take them in: the same bytes, or the words of a refusal."""

import json

import polars as pl
import pyarrow as pa

from dptext_etl import ColumnPolicy, _kernel, column

from . import cases_ids, facts, rows

STRICT = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass", "n_max": 50}
FAITHFUL = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass", "n_max": 50}
POLICIES = {
    "strict": STRICT,
    "faithful": FAITHFUL,
    "dropping": {**STRICT, "numbers": "drop", "oov": "drop"},
    "null as empty": {**STRICT, "null": "empty"},
    "fixed": {**STRICT, "n_max": 12, "length": "fixed"},
    "noisy": {**STRICT, "n_max": 12, "length": {"noisy": [1, 20]}},
}
REFUSED_POLICIES = {
    "no JSON": "x",
    "unknown field": json.dumps({**STRICT, "more": 1}),
    "missing field": "{}",
    "fixed and keeping": json.dumps({**FAITHFUL, "length": "fixed"}),
    "noisy of another rate": json.dumps({**STRICT, "length": {"noisy": [2, 4]}}),
}
KNOWN = [
    "the", "good", "don't", "film", "plot", "and", "i", "seven77", "sixteen__letters", "seventeen_letters", "naïve",
]  # fmt: skip
KEPT = ["of", "is", "it"]


def chunked(array):
    return pa.chunked_array([array[:7], array[7:7], array[7:20], array[20:]])


LAYOUTS = {
    "string": lambda: rows.texts(pa.string()),
    "large_string": rows.texts,
    "string_view": lambda: rows.texts(pa.string_view()),
    **{
        f"{name} sliced": lambda dtype=dtype: pa.array(["before", None, *rows.TEXTS, "after"], dtype).slice(2, 40)
        for name, dtype in (("string", pa.string()), ("large", pa.large_string()), ("view", pa.string_view()))
    },
    **{
        f"{name} chunked": lambda dtype=dtype: chunked(rows.texts(dtype))
        for name, dtype in (("string", pa.string()), ("large", pa.large_string()), ("view", pa.string_view()))
    },
    "polars": lambda: pl.Series(rows.TEXTS, dtype=pl.String),
    "polars chunks": lambda: pl.concat([pl.Series(rows.TEXTS[:9]), pl.Series(rows.TEXTS[9:])], rechunk=False),
}
REFUSED = {
    "binary": lambda: pa.array([b"zxqvyuu"]),
    "int64": lambda: pa.array([1]),
    "dictionary": lambda: cases_ids.encoded(["zxqvyuu"], pa.int8()),
    "list": lambda: pa.array([["zxqvyuu"]]),
    "struct": lambda: pa.array([{"zxqvyuu": 1}]),
    "null": lambda: pa.nulls(1),
    "json": lambda: pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(["1"])),
    "not utf-8": cases_ids.ARRAYS["string not utf-8"],
    "chunks of another type": lambda: pa.chunked_array([["zxqvyuu"]], pa.string()).cast(pa.binary()),
    "a list of Python": lambda: ["zxqvyuu"],
}


def _vocabulary(padded):
    ends = ["<PAD>"] if padded else []
    return _kernel.Vocabulary([*KNOWN, *ends], [] if padded else KEPT, [*KNOWN, *ends])


def _encoded(name):
    """Numbers of words, and the texts that are written from them, each word one further in the vocabulary."""
    policy = POLICIES[name]
    vocabulary, written = _vocabulary("length" in policy), json.dumps(policy)
    texts = rows.texts()
    words, offsets = (pa.array(part) for part in vocabulary.encode(texts, written, record_keys()))
    outputs = len(KNOWN) + ("length" in policy)
    chosen = pa.array([(word + 1) % outputs if word < 2**32 - 1 else 0 for word in words.to_pylist()], pa.uint32())
    return {
        "words": facts.of_column(words),
        "offsets": facts.of_column(offsets),
        "assembled": facts.of_column(vocabulary.assemble(texts, offsets, chosen, written)),
        "positions": facts.of_column(vocabulary.positions(texts, written)),
    }


def release_key(**changed):
    names = {"dataset": "frozen", "column": "text", "release": "2026-11", "cfg": "ab" * 32, **changed}
    return _kernel.ReleaseKey(_kernel.Secret.from_bytes(rows.SECRET), *names.values())


def record_keys():
    return pa.array(_kernel.record_keys(release_key(), rows.ids(), rows.texts()))


def observed():
    first = _of_layout(LAYOUTS["string"])
    others = {name: _of_layout(made) for name, made in LAYOUTS.items() if name != "string"}
    seen = {"layout: string": first}
    seen |= {f"layout: {name}": "as string" if held == first else held for name, held in others.items()}
    seen |= {f"policy: {name}": facts.attempted(lambda name=name: _encoded(name)) for name in POLICIES}
    one = pa.array(["zxqvyuu"])
    for name, written in REFUSED_POLICIES.items():
        vocabulary = _vocabulary(padded=True)
        seen[f"policy refused: {name}"] = facts.attempted(
            lambda v=vocabulary, w=written: facts.of_column(v.positions(one, w))
        )
    for name, made in REFUSED.items():
        seen[f"kernel refused: {name}"] = facts.attempted(lambda made=made: facts.of_column(_kernel.digests(made())))
    return seen


def _of_layout(made):
    """What depends on texts alone, in one layout: all layouts give the same."""
    texts, key = made(), release_key()
    return {
        "digests": facts.of_column(_kernel.digests(texts)),
        "record keys": facts.of_column(_kernel.record_keys(key, rows.ids(), texts)),
        "idem keys": facts.of_column(_kernel.idem_keys(key, rows.ids(), texts)),
        "positions": facts.of_column(_vocabulary(padded=False).positions(texts, json.dumps(STRICT))),
    }


def refused_columns(folder):
    """Columns that `column.privatize` refuses before anything is drawn, in its words."""
    policy = ColumnPolicy(
        dataset="frozen",
        column="text",
        release="r",
        mechanism={"name": "custext", "epsilon": 2.0, "limit": 40},
        key=rows.key(folder),
        allow={"cluster"},
    )
    ids = pa.array(["r1"])
    calls = {
        name: (made, lambda: ids) for name, made in REFUSED.items() if name not in {"a list of Python", "not utf-8"}
    }
    calls["not utf-8"] = (REFUSED["not utf-8"], lambda: pa.array(["r1", "r2"]))
    calls |= {
        "no ids": (lambda: pa.array(["a", "b"]), lambda: pa.array(["1"])),
        "null ids": (lambda: pa.array(["a", "b"]), lambda: pa.array(["1", None])),
        "float ids": (lambda: pa.array(["a"]), lambda: pa.array([1.0])),
        "naive ids": (lambda: pa.array(["a"]), cases_ids.ARRAYS["timestamp naive"]),
    }
    return {
        f"column: {name}": facts.attempted(
            lambda texts=texts, given=given: column.privatize(texts(), given(), policy).to_pylist()
        )
        for name, (texts, given) in calls.items()
    }
