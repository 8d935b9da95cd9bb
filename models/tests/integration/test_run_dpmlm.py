"""A run of DP-MLM: its words are drawn one by one, so the gates of word mechanisms judge it, by bounds of its draws."""

from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import load
from dptext_etl.checks import text_counts as copy_report
from dptext_etl.errors import GateError
from dptext_etl.mechanism import Released
from tests.later import later
from tests.quick import quick

later("transformers", reason="torch and transformers are not installed (extra: models)")

EPSILON = 5.0
"""So small that a draw gives no word with more than a few percent: the gates have power."""


def column(**options):
    mechanism = {"name": "dpmlm", "model": "example-masked", "epsilon": EPSILON, **options}
    return [{"name": "review", "mechanism": mechanism}]


@pytest.fixture
def films(make_job):
    texts = ["a good film", "the people of this city saw it again and again", "", None, "work zzqunknownqzz time!"]
    rows = {"id": range(60), "user_id": [i % 7 for i in range(60)], "review": [texts[i % 5] for i in range(60)]}
    return make_job("films", frame=pl.DataFrame(rows), keep=[], shard_rows=40, cap={"measure": "pure", "epsilon": 1e5})


def gates(summary):
    return {gate["name"]: gate for gate in summary.gates}


@pytest.mark.parametrize("decoding", quick(["parallel", "sequential"]))
def test_a_run_passes_gates_that_could_have_fired(films, decoding):
    summary = films.run(column=column(decoding=decoding))
    found = gates(summary)
    assert all(gate["passed"] for gate in found.values())
    native, duplicates = found["canary_words_replaced"], found["duplicates_within_chance"]
    assert native["counts"]["words"] == 2 * 6 * 24
    assert native["counts"]["allowed review"] < 60
    assert duplicates["counts"]["compared"] > 0
    for gate in (native, duplicates):
        assert not any(said in gate["message"] for said in ("not applicable", "no count"))
    table = pl.read_parquet(films.folder / "published" / "*.parquet")
    raw = pl.read_parquet(films.folder / "raw.parquet")
    words = pl.col("review").str.count_matches(r"\S+").alias("words")
    assert table.sort("id").select(words).equals(raw.sort("id").select(words)), "the length is disclosed, and no more"


@pytest.mark.thorough
def test_other_variants_are_no_words_for_words(films):
    found = gates(films.run(column=column(variant="plusminus", addition=0.25)))
    assert all(gate["passed"] for gate in found.values())
    assert "not applicable" in found["canary_words_replaced"]["message"]
    assert found["words_in_output_set"]["counts"]["words"] > 0


def test_known_words_that_come_back_are_found(films, monkeypatch):
    """The original as fallback, as public code has it where a mask is lost: every known word survives."""
    kind = load("dpmlm")

    def original(self, texts, keys):
        known = set(self.input_words())
        kept = [text and " ".join(w for w in text.lower().split() if w in known) for text in texts.to_pylist()]
        return Released(pa.array(kept, pa.large_string()), self.positions(texts))

    monkeypatch.setattr(kind, "release", original)
    with pytest.raises(GateError, match="canary_words_replaced"):
        films.run(column=column())


def test_draws_that_records_share_are_found(films, monkeypatch):
    """One seed for every row: equal texts are released alike."""
    kind = load("dpmlm")
    real = kind.release

    def shared(self, texts, keys):
        ids = pa.array(["same"] * len(texts), pa.large_string())
        return real(self, texts, replace(keys, ids=ids))

    monkeypatch.setattr(kind, "release", shared)
    with pytest.raises(GateError, match="duplicates_within_chance"):
        films.run(column=column(decoding="parallel"))


@pytest.mark.thorough
def test_copies_have_a_bound(films):
    reports = {report["name"]: report for report in films.run(column=column()).reports}
    copies = reports[copy_report.COPIES]["counts"]
    assert copies["copies"] <= copies["threshold"] < copies["rows"]
    assert copy_report.NGRAMS in reports
