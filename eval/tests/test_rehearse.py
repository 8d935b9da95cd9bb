"""A rehearsal reads public texts alone, quotes none, and says what to do."""

import json

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from dptext_etl.corpora import Corpus
from dptext_etl.errors import PolicyError
from dptext_etl_eval import stand_in
from dptext_etl_eval.baselines import BLIND, CORPUS, NAMES, PUBLIC, label_names, public_data
from dptext_etl_eval.commands.rehearse import KEYS, rehearse
from dptext_etl_eval.rehearsal import Figure, free, recommendation

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
SENTINEL = "zzqsentinelqzz"


@pytest.fixture
def public(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = ("cold food in the restaurant", "the train was late again")
    label = np.random.default_rng(1).integers(0, 2, 300)
    texts = [f"{kinds[kind]} {SENTINEL} today" for kind in label]
    pl.DataFrame({"text": texts, "topic": [("food", "train")[k] for k in label]}).write_parquet("public.parquet")
    return tmp_path / "public.parquet"


def run(*words):
    made = typer.Typer()
    made.command()(rehearse)
    return CliRunner().invoke(made, [str(word) for word in words])


def test_outputs_hold_figures_and_no_text(public, tmp_path):
    page = tmp_path / "page.html"
    given = ("--label", "topic", "--rows", 200, "--epsilon", "4,8", "--words", 4, "--per-person", 3, "--html", page)
    done = run(public, *given, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert tuple(facts) == KEYS
    assert (facts["rows"], facts["tested"], facts["labels"], facts["mean_words"] <= 4) == (200, 100, 2, True)
    assert [one["asked"] for one in facts["figures"]] == [4, 8, 4, 8]
    assert [one["person"] for one in facts["figures"][:2]] == pytest.approx([12, 24])
    assert all(one["person"] >= 3 * one["epsilon"] - 1e-9 for one in facts["figures"])
    assert ["cluster" in one["discloses"] for one in facts["figures"]] == [False, False, True, True]
    assert SENTINEL not in done.output + page.read_text()


@pytest.mark.parametrize("source", ["public.parquet", "{partition}.parquet", ".", "*.parquet"])
def test_a_raw_table_is_refused_before_a_row_is_read(public, tmp_path, source):
    public.write_bytes(b"no rows that anything could read")
    (tmp_path / "privacy.toml").write_text(f'source = "{source}"\n')
    with pytest.raises(PolicyError, match="names this table as raw"):
        stand_in.refuse_raw(str(public), [])


def test_a_release_that_loses_to_a_baseline_is_not_proposed():
    weak, strong = (Figure("surrogate", 4, 4, 4, 1.7, value) for value in (0.3, 0.8))
    assert recommendation([weak], {"label names alone": 0.4}).startswith("Publish nothing")
    assert recommendation([weak, strong], {"label names alone": 0.4}).startswith("Use surrogate at epsilon 4")


def test_a_conditional_bound_is_proposed_last():
    plain = Figure("surrogate", 8, 8, 8, 3.5, 0.7, ("nullness",))
    given = Figure("custext", 1, 1, 1, 0.4, 0.9, ("cluster", "length", "nullness"))
    assert recommendation([given, plain], {"label names alone": 0.4}).startswith("Use surrogate at epsilon 8")
    assert "It releases exactly: cluster, length" in recommendation([given, plain], {"label names alone": 0.8})


@pytest.mark.parametrize("names", [("food", "train"), ("RestaurantFood", "late_train")])
def test_names_of_labels_are_read_as_words(names):
    texts = ("cold food in the restaurant", "the train was late again")
    assert tuple(label_names(np.array(names), texts)) == names


def test_public_data_are_texts_of_the_corpus_labeled_by_names():
    names = np.array(["food", "weather"])
    judged = ("It snows and rains today.", "This soup is salty.")
    corpus = Corpus.open(CORPUS)
    given = label_names(names, corpus.texts)
    assert set(given) == set(names)
    assert tuple(public_data(names, judged)) == ("weather", "food")
    moved = public_data(np.array(["sport", "weather"]), judged)
    assert "food" not in moved


@pytest.mark.parametrize("names", [("zzqzz", "qqzqq"), ("\u2603", "+")])
def test_names_without_words_give_no_baseline(names):
    rows = stand_in.StandIn(("a b", "c d"), np.array(names), ("a b", "c d"), np.array(names))
    assert label_names(np.array(names), rows.texts) is None
    assert public_data(np.array(names), rows.texts) is None
    assert free(rows) == {BLIND: 0.5}


def test_every_baseline_is_printed(public):
    done = run(public, "--label", "topic", "--rows", 200, "--epsilon", "8", "--mechanisms", "surrogate")
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in (BLIND, NAMES, PUBLIC))


def test_a_set_ships_and_shares_no_sentence_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = stand_in.read("everyday", text="text", label="topic", rows=1_000)
    assert (len(found.texts), len(found.test_texts), len(np.unique(found.labels))) == (1_000, 2_000, 60)
    assert not {*found.texts, *found.test_texts} & {*Corpus.open(CORPUS).texts}
    assert len(np.unique(stand_in.read("everyday", text="text", label="kind", rows=1_000).labels)) == 5
    done = run("everyday", "--label", "kind", "--rows", 500, "--epsilon", "8", "--mechanisms", "surrogate")
    assert done.exit_code == 0, done.output
    assert "an upper end" in done.output
    pl.DataFrame({"text": ["a"], "topic": ["b"]}).write_parquet("everyday")
    assert not stand_in.ships("everyday")


def test_printed_bounds_are_rounded_up():
    said = recommendation([Figure("surrogate", 4, 4, 4, 1.7372, 0.8)], {"label names alone": 0.4})
    assert "factor of at most 10^1.74." in said
    assert "10^1.73." not in said
