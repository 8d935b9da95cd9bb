"""Bugs planted into shuffled releases: in draws, in the staged rows, and in the published multiset."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.checks.published import check_published
from dptext_etl.corpora import Corpus
from dptext_etl.engines import run, stage
from dptext_etl.errors import GateError
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.shard import computing
from tests.policy_files import policy_in

SENTINEL = "zqdrillsentinel"
ROWS = 300


@pytest.fixture
def policy(tmp_path):
    """Texts of the corpus, and every ninth one with a word that nothing else holds."""
    _kernel.Secret.from_bytes(bytes(range(50, 82))).write(str(tmp_path / "noise.key"))
    public = Corpus.open("example").texts
    texts = [public[number % len(public)] for number in range(ROWS)]
    texts[::9] = [f"{text} {SENTINEL}" for text in texts[::9]]
    pl.DataFrame({"id": range(ROWS), "text": texts}).write_parquet(tmp_path / "raw.parquet")
    column = {"name": "text", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}
    cap = {"measure": "approx", "epsilon": 10.0, "delta": 1e-5}
    shuffled = {"rows": ROWS, "delta": 1e-7, "form": "counts"}
    return policy_in(tmp_path, column, dataset="drills", shard_rows=100, cap=cap, shuffled=shuffled)


def original_on_failure(raw, out, _):
    return [text if text and SENTINEL in text else drawn for text, drawn in zip(raw, out, strict=True)]


def one_seed_for_every_row(raw, out, mechanism):
    texts, _ = mechanism.transition("")
    return [texts[int(np.random.default_rng(42).integers(len(texts)))] for _ in out]


def the_nearest_text(raw, _, mechanism):
    texts = mechanism.opened.texts
    near = [None if text is None else mechanism.near_to(text) for text in raw]
    return [None if text is None else texts[found[0] if found else 0] for text, found in zip(raw, near, strict=True)]


def behind_the_draw(raw, out, _):
    return [drawn and f"{drawn} {text}" for text, drawn in zip(raw, out, strict=True)]


DRAWS = {
    "the original on failure": (original_on_failure, {"texts_in_corpus"}),
    "one seed for every row": (one_seed_for_every_row, {"repeats_within_chance"}),
    "the nearest text in the place of a draw": (the_nearest_text, {"canary_texts_replaced"}),
    "raw text behind the draw": (behind_the_draw, {"texts_in_corpus", "canary_text_absent"}),
}


@pytest.mark.parametrize("planted", DRAWS)
def test_a_bug_of_the_draws_stops_a_shuffled_release(policy, monkeypatch, planted):
    """The records are charged, pinned, staged, and committed as if the draws were right."""
    bug, stops = DRAWS[planted]
    right = computing.release

    def wrong(texts, ids, column):
        out = right(texts, ids, column)
        changed = bug(pa.array(texts).to_pylist(), pa.array(out.text).to_pylist(), column.mechanism)
        return out._replace(text=pa.array(changed, pa.large_string()))

    monkeypatch.setattr(computing, "release", wrong)
    staged = stage(policy)
    verdicts = check(staged)
    assert stops <= {verdict.name for verdict in verdicts if not verdict.passed}
    with pytest.raises(GateError):
        publish(staged, verdicts)
    assert not list(Path(policy.sink).rglob("*.parquet"))


def with_ids(rows):
    return rows.with_columns(id=pl.int_range(pl.len()))


def one_text_raw(rows):
    return rows.with_columns(text=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit(SENTINEL)).otherwise("text"))


def counted_anew(rows):
    return rows.with_columns(count=pl.when(pl.int_range(pl.len()) == 0).then(ROWS).otherwise("count"))


TABLES = {
    "ids next to the texts": (with_ids, "raw_column_absent"),
    "a raw text among the texts": (one_text_raw, "texts_in_corpus"),
    "a count that no draws could have": (counted_anew, "repeats_within_chance"),
}


def test_a_changed_multiset_is_found_in_the_published_table(policy):
    run(policy)
    assert all(verdict.passed for verdict in check_published(Path(policy.sink), policy))
    rows = scan_published(policy.sink).collect()
    assert rows["count"].sum() == ROWS
    for planted, (change, gate) in TABLES.items():
        verdicts = check_published(change(rows), policy)
        assert gate in {verdict.name for verdict in verdicts if not verdict.passed}, planted
        assert SENTINEL not in str([verdict.message for verdict in verdicts])
