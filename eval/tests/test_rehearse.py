"""A rehearsal reads only public texts, quotes none, and says what to do."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from dptext_etl import Policy
from dptext_etl.accounting.shuffling import central_epsilon
from dptext_etl.cli.options import Command
from dptext_etl.corpora import Corpus, static
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.surrogate import Surrogate
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner.publish.export import Rehearsal
from dptext_etl_eval import candidates, stand_in
from dptext_etl_eval.baselines import BLIND, CORPUS, GIVEN, WRITTEN, label_names, public_data
from dptext_etl_eval.commands.rehearse import KEYS, rehearse
from dptext_etl_eval.forms import FORMS, STEP, cheapest_draw, two_digits
from dptext_etl_eval.pairs import Free
from dptext_etl_eval.rehearsal import Figure, free, recommendation
from tests.corpus_texts import static_package

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
OPEN, PLUGGED = Corpus.open, {"plugged": "example"}
SENTINEL = "zzqsentinelqzz"
PREDICTING = {"linear_discriminant", "synthetic_vectors", "synthetic_scores", "synthetic_vector_scores"}


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
    made.command(cls=Command)(rehearse)
    return CliRunner().invoke(made, [str(word) for word in words])


@pytest.mark.parametrize(("form", "words"), [("synthetic_scores", "Ridge(alpha=0.3"), ("linear_discriminant", "")])
def test_the_recommended_reader_comes_with_its_lines(form, words):
    found = recommendation([Figure(form, 1.0, 1.0, 1.0, 0.5, 0.9, model="central")], {"label names": 0.5})
    assert any(line.startswith("Read it in scikit-learn: ") and words in line for line in found["reasons"]) == bool(
        words
    )


def test_outputs_hold_figures_and_no_text(public, tmp_path):
    page = tmp_path / "page.html"
    given = ("--label", "topic", "--rows", 200, "--epsilon", "4,8", "--words", 4, "--per-person", 3, "--html", page)
    given = (*given, "--forms", ",".join(FORMS), "--corpus", CORPUS)
    done = run(public, *given, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    exported = Rehearsal.model_validate_json(done.stdout)
    assert [figure.macro_f1 for figure in exported.figures] == [figure["macro_f1"] for figure in facts["figures"]]
    assert tuple(facts) == KEYS
    assert (facts["rows"], facts["tested"], facts["labels"], facts["mean_words"] <= 4) == (200, 100, 2, True)
    assert [(one["form"], one["asked"]) for one in facts["figures"]] == [(f, e) for f in FORMS for e in (4, 8)]
    assert [one["person"] for one in facts["figures"][:2]] == pytest.approx([12, 24])
    assert all(3 * one["epsilon"] - 1e-9 <= one["person"] <= 3 * one["asked"] + 1e-5 for one in facts["figures"])
    assert [one["form"] for one in facts["figures"] if "cluster" in one["discloses"]] == ["custext"] * 2
    assert [one["model"] for one in facts["figures"]] == ["local"] * 4 + ["central"] * 12
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
        found = kind(rows, 1.0, per_person, 1e-6)
        assert found.person <= per_person * (1.0 + 1e-9) + 1e-6, form
        assert found.person > 0.5 * per_person, form
        assert len(found.texts) == len(found.labels)
        assert (found.predict is None) == bool(len(found.texts)) == (form not in PREDICTING)
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


def test_corpora_and_installed_vectors_are_compared_in_one_table(public, tmp_path, monkeypatch):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra: static)")
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(static_package(tmp_path / "site", 24)))
    monkeypatch.setattr(static, "PACKAGE", "smallvec")
    monkeypatch.setattr(candidates, "names", lambda: ("example", "plugged"))
    given = (public, "--label", "topic", "--rows", 200, "--epsilon", "8", "--forms", "surrogate,linear_discriminant")
    monkeypatch.setattr(Corpus, "open", classmethod(lambda cls, name, *more: OPEN(PLUGGED.get(name, name), *more)))
    facts = json.loads(run(*given, "--json").stdout)
    (line,) = facts["installs"]
    assert "a sentence encoder" in line, "static vectors are installed"
    over = [(figure["form"], figure["corpus"]) for figure in facts["figures"]]
    static_corpus = "everyday-30k with smallvec"
    assert over == [("surrogate", ""), *(("linear_discriminant", name) for name in ("", "plugged", static_corpus))]
    assert all(f"linear_discriminant over {name} " in facts["answers"][0] for name in ("plugged", static_corpus))
    (figure,) = (figure for figure in facts["figures"] if figure["corpus"] == static_corpus)
    assert 'corpus = "corpus"' in figure["entries"][-1], "the folder that the commands make"
    assert figure["commands"][0] == "dptext corpus vectors smallvec --out vectors.safetensors"
    only = json.loads(run(*given, "--corpus", "example, everyday-30k", "--json").stdout)
    assert [figure["corpus"] for figure in only["figures"]] == ["", "", "everyday-30k"]
    assert "static vectors of smallvec" in only["installs"][0]


def test_a_corpus_that_wins_comes_with_the_commands_that_make_it():
    common = {"corpus": "everyday-30k with smallvec", "commands": ("dptext corpus vectors smallvec",)}
    better = Figure("linear_discriminant", 1, 1, 1, 0.4, 0.9, (), 1e-8, "central", **common)
    own = Figure("linear_discriminant", 1, 1, 1, 0.4, 0.7, (), 1e-8, "central")
    given = recommendation([own, better], NAMED)
    assert "released with a synthetic table over everyday-30k with smallvec at epsilon 1" in given["verdict"]
    assert "Make its corpus first: dptext corpus vectors smallvec" in given["reasons"]
    as_good = recommendation([replace(own, macro_f1=0.88), better], NAMED)
    assert "over" not in as_good["verdict"], "another corpus is not worth its work"


def test_labels_of_one_row_are_not_released_shuffled():
    labels = np.array(["food"] * 20 + ["train"])
    rows = stand_in.StandIn(("cold food",) * 20 + ("a late train",), labels, ("a",), labels[:1])
    assert set(FORMS["shuffled"].release(rows, 1.0, 1, 1e-8).labels) == {"food"}


NAMED = {"label names": 0.6}


def test_the_smallest_epsilon_that_beats_every_baseline_is_recommended():
    def figures(*values):
        return [
            Figure("synthetic", at, at, at, at / 2.3, value, (), 1e-8, "central", (f"epsilon = {at}",))
            for at, value in values
        ]

    said = recommendation(figures((1, 0.62), (2, 0.63), (4, 0.9)), NAMED)
    assert said["policy"] == ["epsilon = 2"], "0.62 is not better by more than 0.02, and more epsilon is not needed"
    assert said["verdict"].startswith("Use a synthetic table at epsilon 2 per record to")
    assert "; do not use it to read texts of your records." in said["verdict"]
    assert "synthetic at epsilon 2 per record (central) reaches macro-F1 0.63, label names 0.60." in said["reasons"][0]
    assert "and delta 1e-8 at most" in said["reasons"][0]
    lost = recommendation(figures((1, 0.6), (8, 0.62)), NAMED)
    assert lost["verdict"] == "Do not publish. Use label names: macro-F1 0.60."
    assert (lost["policy"], lost["reasons"]) == ([], ["No release beats it by more than 0.02."])


def test_the_best_form_at_that_epsilon_is_recommended_and_rows_follow():
    table, classifier = (
        Figure(name, 1, 1, 1, 0.4, f1, (), 1e-8, "central")
        for name, f1 in (("synthetic", 0.7), ("linear_discriminant", 0.8))
    )
    local = [Figure("surrogate", at, at, at, at / 2.3, f1) for at, f1 in ((4, 0.61), (8, 0.95))]
    said = recommendation([table, classifier, *local], NAMED)
    assert said["verdict"].startswith("Use the linear discriminant released with a synthetic table")
    assert "do not trust the curator: surrogate at epsilon 8 per record (local)" in said["reasons"][1]
    assert said["reasons"][1].count("macro-F1 0.95") == 1
    assert "no row-wise release is good enough" in recommendation([table, local[0]], NAMED)["reasons"][1]


@pytest.mark.parametrize("source", ["public.parquet", "{partition}.parquet", ".", "*.parquet"])
def test_a_raw_table_is_refused_before_a_row_is_read(public, tmp_path, source):
    public.write_bytes(b"no rows that anything could read")
    (tmp_path / "privacy.toml").write_text(f'source = "{source}"\n')
    with pytest.raises(PolicyError, match="names this table as raw"):
        stand_in.refuse_raw(str(public), [])


def test_a_conditional_bound_is_proposed_last():
    plain = Figure("surrogate", 8, 8, 8, 3.5, 0.7, ("nullness",))
    given = Figure("custext", 1, 1, 1, 0.4, 0.9, ("cluster", "length", "nullness"))
    assert "surrogate at epsilon 8" in recommendation([given, plain], NAMED)["reasons"][0]
    assert "It releases exactly: cluster, length" in recommendation([given, plain], {"label names": 0.8})["reasons"][0]


POLICY = """
dataset = "notes"
release = "1"
source = "raw.parquet"
sink = "published"
id = "id"
subject = "person"
key = "file:noise.key"
ledger = {{ url = "sqlite:///ledger.db" }}
cap = {{ measure = "approx", epsilon = {cap}, delta = 1e-5 }}
"""
TABLE = """
[synthetic]
column = "note"
rows = 100
per_subject = 2
labels = {{ column = "topic", values = ["food", "other"] }}
mechanism = {{ name = "maxent", epsilon = 3.0, delta = 2e-7, corpus = "example" }}
"""


def test_a_policy_gives_epsilons_rows_per_person_label_corpus_and_delta(public, tmp_path, monkeypatch):
    pl.read_parquet(public).rename({"text": "note"}).write_parquet(public)
    path = tmp_path / "privacy.toml"
    path.write_text((POLICY + TABLE).format(cap=8.0))
    seen = {}

    def stop(rows, epsilons, **more):
        seen.update(rows=rows, epsilons=epsilons, **more)
        raise PolicyError("seen", "")

    monkeypatch.setattr("dptext_etl_eval.rehearsal.rehearse", stop)
    assert "seen" in str(run(public, "--policy", path, "--rows", 200).exception)
    charged = Policy.load(path).statistic.charge(CLAIM).eps_approx / 1e6
    assert seen["epsilons"] == (1.0, 2.0, charged, 4.0), "with two records of a person, 8 is over the cap"
    assert (seen["per_person"], seen["delta"], seen["rows"].corpus) == (2, 2e-7, "example")
    assert {*seen["rows"].labels} == {"food", "other"}, "train is not listed"
    assert all(SENTINEL in text for text in seen["rows"].texts)
    run(public, "--policy", path, "--rows", 200, "--epsilon", "5", "--per-person", 1, "--corpus", CORPUS)
    assert (seen["epsilons"], seen["per_person"], seen["rows"].corpus) == ([5.0], 1, CORPUS)
    path.write_text((POLICY + TABLE).format(cap=1.0).replace('"food", "other"', '"food", "train"'))
    run(public, "--policy", path, "--rows", 200)
    assert {*seen["rows"].labels} == {"food", "train"}
    assert seen["epsilons"] == (charged,), "no usual epsilon fits"
    refused = run(public, "--rows", 200)
    assert "no column of labels is named" in str(refused.exception)


def test_the_lines_of_a_policy_make_the_recommended_release(public, tmp_path):
    """The rehearsed table and the policy with the printed lines have one configuration and charge."""
    path = tmp_path / "privacy.toml"
    path.write_text((POLICY + TABLE).format(cap=8.0).replace('"food", "other"', '"food", "train"'))
    pl.read_parquet(public).rename({"text": "note"}).write_parquet(public)
    done = run(public, "--policy", path, "--rows", 200, "--epsilon", "2", "--forms", "synthetic", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    (figure,) = facts["figures"]
    head, of_person, mechanism = figure["entries"]
    assert (head, of_person) == ("[synthetic]", "per_subject = 2")
    before = path.read_text().splitlines()
    path.write_text("\n".join(mechanism if line.startswith("mechanism") else line for line in before))
    charge = Policy.load(path).statistic.charge(CLAIM).eps_approx / 1e6
    assert 2 * charge == pytest.approx(figure["person"])
    assert 3.99 < figure["person"] <= 4 + 1e-5


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
    assert facts["verdict"].startswith("Do not publish. Use ")
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
    said = recommendation([Figure("surrogate", 4, 4, 4, 1.7372, 0.8)], {"label names": 0.4})["reasons"][0]
    assert "factor of at most 10^1.74." in said
    assert "10^1.73." not in said
