"""A rehearsal reads only public texts, quotes none, and says what to do."""

import json
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from dptext_etl.accounting.shuffling import central_epsilon
from dptext_etl.corpora import Corpus
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.surrogate import Surrogate
from dptext_etl_eval import stand_in
from dptext_etl_eval.baselines import BLIND, CORPUS, GIVEN, NAMES, PUBLIC, WRITTEN, label_names, public_data
from dptext_etl_eval.commands.rehearse import KEYS, rehearse
from dptext_etl_eval.forms import FORMS, STEP, cheapest_draw, two_digits
from dptext_etl_eval.pairs import Free
from dptext_etl_eval.rehearsal import Figure, answers, free, recommendation

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
    assert [(one["form"], one["asked"]) for one in facts["figures"]] == [(f, e) for f in FORMS for e in (4, 8)]
    assert [one["person"] for one in facts["figures"][:2]] == pytest.approx([12, 24])
    assert all(3 * one["epsilon"] - 1e-9 <= one["person"] <= 3 * one["asked"] + 1e-5 for one in facts["figures"])
    assert [one["form"] for one in facts["figures"] if "cluster" in one["discloses"]] == ["custext"] * 2
    assert [one["model"] for one in facts["figures"]] == ["local"] * 4 + ["central"] * 6
    assert all((one["delta"] > 0) == (one["model"] == "central") for one in facts["figures"])
    assert [line in page.read_text() for line in facts["answers"]] == [True, True]
    assert all(f"{form}, {FORMS[form].model}: " in page.read_text() for form in FORMS)
    assert SENTINEL not in done.output + page.read_text()


@pytest.mark.parametrize("per_person", [3, 1])
def test_a_person_loses_at_most_what_was_asked_in_every_form(per_person):
    labels = np.array(["food", "train"] * 150)
    texts = tuple(f"{'cold food in' if one == 'food' else 'the train was late'} {n}" for n, one in enumerate(labels))
    rows = stand_in.StandIn(texts, labels, texts, labels)
    for form, (kind, model) in {name: (one.release, one.model) for name, one in FORMS.items()}.items():
        found = kind(rows, 1.0, per_person)
        assert found.person <= per_person * (1.0 + 1e-9) + 1e-6, form
        assert found.person > 0.5 * per_person, form
        assert len(found.texts) == len(found.labels)
        assert (found.predict is None) == bool(len(found.texts)) == (form != "nearest_mean")
        assert 0 <= found.delta <= per_person * 1e-6 * (1 + 1e-9)
        assert (found.delta > 0) == (model == "central")


def test_draws_of_a_shuffled_release_cost_more_than_they_are_charged():
    draw, central, delta = cheapest_draw(1_000, 1e-6, 1, 1.0)
    law = Surrogate(epsilon=draw, corpus=CORPUS).law
    assert draw > 1.0
    assert central == central_epsilon(1_000, law, 1e-6) <= 1
    assert central_epsilon(1_000, Surrogate(epsilon=draw + STEP, corpus=CORPUS).law, 1e-6) > 1
    assert delta == Fraction(1, 10**6)
    assert cheapest_draw(2, 1e-6, 1, 1.1)[0] >= 1.1  # the local guarantee of a draw holds without other records
    assert [two_digits(count) for count in (1, 7, 99, 129, 1_438)] == [2, 7, 99, 120, 1_400]


def test_labels_of_one_row_are_not_released_shuffled():
    labels = np.array(["food"] * 20 + ["train"])
    rows = stand_in.StandIn(("cold food",) * 20 + ("a late train",), labels, ("a",), labels[:1])
    assert set(FORMS["shuffled"].release(rows, 1.0, 1).labels) == {"food"}


def test_answers_name_the_form_the_bound_and_a_better_guess():
    local = Figure("surrogate", 1, 1, 1, 0.44, 0.3)
    shows = Figure("custext", 1, 0.3, 1, 0.44, 0.35, ("cluster", "nullness"))
    central = Figure("synthetic", 1, 1, 1, 0.44, 0.9, (), 1e-6, "central")
    line = answers([local, shows, central], {"label names alone": 0.6})[0]
    assert line.startswith(
        "A person loses epsilon 1 at most: synthetic 0.90 (central), custext 0.35 (local; reveals clus"
    )
    assert line.endswith("surrogate 0.30 (local); label names alone 0.60 at no loss.")
    lost = answers([local, shows], {"label names alone": 0.6})[0]
    assert lost.endswith("Publish nothing, do this instead: label names alone.")
    said = recommendation([local, central], {"label names alone": 0.6})
    assert said.startswith("Use synthetic at epsilon 1 per record (central)")
    assert "and delta 0.000001 at most" in said
    assert said.endswith("publish nothing: no row-wise release does better than label names alone.")
    said = recommendation([Figure("surrogate", 8, 8, 8, 3.5, 0.95), central], {"label names alone": 0.6})
    assert said.startswith("Use surrogate at epsilon 8")  # 0.05 better
    said = recommendation([Figure("surrogate", 8, 8, 8, 3.5, 0.8), central], {"label names alone": 0.6})
    assert "do not trust the curator: Use surrogate at epsilon 8 per record (local)" in said


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
    assert free(rows, Free()) == {BLIND: 0.5}


def test_every_baseline_is_printed(public):
    done = run(public, "--label", "topic", "--rows", 200, "--epsilon", "8", "--forms", "surrogate")
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in (BLIND, NAMES, PUBLIC))


def test_written_and_public_labeled_texts_are_baselines_that_may_win(public, tmp_path):
    better = pl.DataFrame(
        {"text": ["cold food in the restaurant", "the train was late"] * 5, "topic": ["food", "train"] * 5}
    )
    better.write_parquet("labeled.parquet")
    better.rename({"topic": "label"}).write_parquet("written.parquet")
    given = ("--label", "topic", "--rows", 200, "--epsilon", "0.1", "--forms", "surrogate", "--corpus", "example")
    done = run(public, *given, "--public", "labeled.parquet", "--written", "written.parquet", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert {WRITTEN: 1.0, GIVEN: 1.0}.items() <= facts["baselines"].items()
    assert facts["recommendation"].startswith("Publish nothing, do this instead")
    (tmp_path / "privacy.toml").write_text('source = "labeled.parquet"\n')
    refused = run(public, *given, "--public", "labeled.parquet")
    assert isinstance(refused.exception, PolicyError)
    assert "names this table as raw" in str(refused.exception)


def test_a_set_ships_and_shares_no_sentence_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = stand_in.read("everyday", text="text", label="topic", rows=1_000)
    assert (len(found.texts), len(found.test_texts), len(np.unique(found.labels))) == (1_000, 2_000, 60)
    assert not {*found.texts, *found.test_texts} & {*Corpus.open(CORPUS).texts}
    assert len(np.unique(stand_in.read("everyday", text="text", label="kind", rows=1_000).labels)) == 5
    done = run("everyday", "--label", "kind", "--rows", 500, "--epsilon", "8", "--forms", "surrogate")
    assert done.exit_code == 0, done.output
    assert "an upper end" in done.output
    pl.DataFrame({"text": ["a"], "topic": ["b"]}).write_parquet("everyday")
    assert not stand_in.ships("everyday")


def test_printed_bounds_are_rounded_up():
    said = recommendation([Figure("surrogate", 4, 4, 4, 1.7372, 0.8)], {"label names alone": 0.4})
    assert "factor of at most 10^1.74." in said
    assert "10^1.73." not in said
