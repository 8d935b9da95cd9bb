"""The use of a release and the success of attackers: figures with known answers, reports without texts, bad tables."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dptext_etl.errors import PolicyError
from dptext_etl_eval import Pairs, evaluate, join
from dptext_etl_eval.attacks.nearest_neighbour import NearestNeighbour, ranks_of, ranks_of_vectors
from dptext_etl_eval.measure import attacks, metrics
from dptext_etl_eval.metrics.bleu import mean_bleu
from dptext_etl_eval.metrics.relative_gain import Scored, relative_gain, relative_gain_above_guessing
from dptext_etl_eval.statistics import bootstrapped, macro_f1, wilson
from eval.tests.release_tables import NAMED, ROWS, SENTINEL, figures, pairs, saved, table
from tests.command_line import dptext

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")


def test_a_release_that_is_the_raw_text_keeps_all_and_gives_all():
    found = figures(evaluate(pairs(lambda text: text)))
    for (measure, what), score in found.items():
        if score.raw is not None and "mean rank" not in what:
            assert score.value == score.raw, (measure, what)
    assert found["WordsKept", "words that stand where they stood"].value == 1
    assert found["Bleu", "BLEU, case ignored"].value == pytest.approx(1)
    assert found["NearestNeighbour", "own release found first"].value == 1
    assert found["NearestNeighbour", "mean rank of the own release"].value == 1
    assert found["Attribute", "adaptive attacker, macro-F1"].value == 1
    assert found["RelativeGain", "as Meisenbacher et al. 2024 define it, use tested on released texts"].value == 0


def test_a_release_that_says_nothing_gives_nothing():
    found = figures(evaluate(pairs(lambda _: "nothing to see")))
    for kind in ("adaptive", "static"):
        score = found["Attribute", f"{kind} attacker, macro-F1"]
        assert score.raw == 1
        assert score.value <= score.blind + 1e-9
    rank = found["NearestNeighbour", "mean rank of the own release"]
    assert rank.value == rank.blind == (ROWS + 1) / 2
    assert found["WordsKept", "words that stand anywhere in the release"].value == 0
    for what in ("macro-F1", "accuracy", "F1 of the most frequent label, as in Meisenbacher et al. 2024"):
        points = found["PointsAboveGuessing", f"{what}, tested on raw texts"]
        assert points.value <= 0 < points.raw
    use = found["Downstream", "macro-F1, learned from released texts, tested on raw texts"]
    secret = found["Attribute", "adaptive attacker, macro-F1"]
    assert (use.blind, secret.blind) == (pytest.approx(1 / 2), pytest.approx(1 / 3))
    points = found["PointsAboveGuessing", "macro-F1, tested on raw texts"]
    assert points.raw == pytest.approx(100 * (use.raw - use.blind))
    kept, learnt = ((score.value - score.blind) / (score.raw - score.blind) for score in (use, secret))
    gain = found["RelativeGain", "above not looking, as Meisenbacher et al. 2025 define it, use tested on raw texts"]
    assert gain.value == pytest.approx(kept - learnt)


def test_a_release_that_drops_the_city_keeps_its_use_and_stops_the_attacker():
    evidence = evaluate(pairs(lambda text: re.sub("paris|oslo|rome|only\\d+", "", text)))
    found = figures(evidence)
    use = found["Downstream", "macro-F1, learned from released texts, tested on raw texts"]
    learnt = found["Attribute", "adaptive attacker, macro-F1"]
    assert use.value > 0.95 > 0.6 > learnt.value
    assert use.interval[0] <= use.value <= use.interval[1]
    assert found["RelativeGain", "as Meisenbacher et al. 2024 define it, use tested on released texts"].value > 0.3
    assert evidence.excluded["Guessing the attribute from several records"] == ("subject",)
    assert set(evidence.excluded.values()) <= {("subject",), ("word mechanism",), ("masked model",), ("classifier",)}


def test_label_names_alone_are_measured_and_a_release_that_loses_to_them_is_said_to_bring_nothing(tmp_path):
    frame = table().with_columns(stars=pl.col("stars").replace_strict({0: "awful", 1: "lovely"}))
    wrong = frame.select("id", text=pl.col("stars").replace_strict({"awful": "lovely", "lovely": "awful"}))
    poor = frame.select("id", text=pl.when(pl.col("id") % 3 == 0).then(wrong["text"]).otherwise(pl.col("stars")))
    found = evaluate(join(frame.lazy(), poor.lazy(), id="id", text="text", label="stars"))
    names = figures(found)["Downstream", "macro-F1, label names"]
    assert (names.value, names.blind, names.raw) == (1, pytest.approx(1 / 2), None)
    words = saved(tmp_path, wrong)
    frame.write_parquet(words[1])
    done = dptext(*words, *NAMED, "--label", "stars")
    said = " ".join(done.output.split())
    assert "Without any release: label names 1.00, public data" in said
    assert "Do not publish. Use label names, with macro-F1 1.00" in said
    assert said.index("Do not publish") < said.index("* A classifier"), "the verdict comes first"


@pytest.mark.parametrize("option", ["--public", "--written"])
def test_raw_texts_are_not_compared_as_public_ones(tmp_path, option):
    words = saved(tmp_path, table())
    done = dptext(*words, *NAMED, "--label", "stars", option, words[1])
    assert (done.exit_code, "names the raw table" in done.output) == (PolicyError.exit_code, True), done.output
    (tmp_path / "raw.toml").write_text(f'source = "{words[1]}"\n')
    done = dptext("evaluate", tmp_path / "raw.toml", "--label", "stars", option, words[1])
    assert (done.exit_code, "names this table as raw" in done.output) == (PolicyError.exit_code, True), done.output


def test_public_and_written_texts_are_compared_with_a_release(tmp_path):
    frame = table().with_columns(stars=pl.col("stars").replace_strict({0: "u7", 1: "v8"}))
    words = saved(tmp_path, frame.select("id", text=pl.lit("nothing to see")))
    frame.write_parquet(words[1])
    frame.write_parquet(tmp_path / "public.parquet")
    frame.select("text", label=3 - pl.col("stars").str.tail(1).cast(pl.Int64) % 2).write_parquet(
        tmp_path / "written.parquet"
    )
    given = ("--public", tmp_path / "public.parquet", "--written", tmp_path / "written.parquet")
    refused = dptext(*words, *NAMED, *given)
    assert "--public, --written" in refused.output
    done = dptext(*words, *NAMED, "--label", "stars", *given)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "written texts 0.00, public labeled texts 1.00." in said
    assert "Do not publish. Use public labeled texts, with macro-F1 1.00" in said


def test_the_learner_finds_a_rare_label_among_noisy_texts():
    from dptext_etl_eval.classifier import counted, fit

    random = np.random.default_rng(5)
    truth = np.array(["rare"] * 60 + ["usual"] * 1_140)
    right = random.random(len(truth)) < 0.4  # other texts are drawn uniformly from both kinds
    shown = np.where(right, truth, np.array(["rare", "usual"])[random.integers(0, 2, len(truth))])
    texts = [f"{('quiet', 'loud')[one == 'rare']} w{random.integers(0, 50)}" for one in shown]
    assert list(fit(counted(texts), truth)(counted(["loud w1", "quiet w1"]))) == ["rare", "usual"]


def test_records_of_one_person_add_up():
    def half(text):  # every other release reveals the city
        return text if hash_of(text) % 2 else text.replace("paris", "").replace("oslo", "").replace("rome", "")

    def hash_of(text):
        return int(text.rpartition("only")[2])

    frame = table().with_columns(city=pl.col("city").first().over("person"))
    frame = frame.with_columns(
        text=pl.format(
            f"{SENTINEL} {{}} {{}}",
            pl.col("city").replace_strict({0: "paris", 1: "oslo", 2: "rome"}),
            pl.format("only{}", "id"),
        )
    )
    released = frame.select("id", text=pl.Series([half(text) for text in frame["text"]]))
    given = join(frame.lazy(), released.lazy(), id="id", text="text", attribute="city", subject="person")
    found = figures(evaluate(given))
    one, two = (found["SeveralRecords", f"{count} of each of 60 persons, macro-F1"].value for count in (1, 2))
    assert two > one + 0.1


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_that_of_scikit_learn(seed):
    from sklearn.metrics import f1_score

    random = np.random.default_rng(seed)
    truth, guessed = random.integers(0, 5, 60).astype(str), random.integers(1, 7, 60).astype(str)
    assert macro_f1(truth, guessed) == pytest.approx(f1_score(truth, guessed, average="macro", zero_division=0))
    low, high = bootstrapped(macro_f1, truth, guessed)
    assert low < high


def test_intervals_of_shares_are_wilsons():
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1), abs=1e-4)
    assert wilson(0, 0) == (0, 1)


def test_a_gain_is_undefined_where_raw_texts_do_not_beat_not_looking():
    fine = Scored(raw=0.9, released=0.6, blind=0.3)
    assert relative_gain_above_guessing(fine, fine) == 0
    for poor in (Scored(0.3, 0.3, 0.3), Scored(0.2, 0.4, 0.3)):
        for gain in (relative_gain, relative_gain_above_guessing):
            assert gain(fine, poor) is None
            assert gain(poor, fine) is None


def test_every_file_of_the_two_rooms_is_a_measure():
    from dptext_etl_eval import attacks as attack_room
    from dptext_etl_eval import metrics as metric_room

    for room, found in ((metric_room, metrics()), (attack_room, attacks())):
        names = {path.stem for folder in room.__path__ for path in Path(folder).glob("[a-z]*.py")}
        assert names == {type(measure).__module__.rpartition(".")[2] for measure in found}
    assert all(measure.knows for measure in attacks())


def test_classifiers_learn_from_the_rows_outside_the_sample():
    from dptext_etl_eval.classifier import Rest, counted, guess

    frame = table()
    small, whole = (
        figures(evaluate(pairs(lambda text: text, rows=rows)))[
            "Downstream", "accuracy, learned from released texts, tested on raw texts"
        ]
        for rows in (20, ROWS)
    )
    assert (small.value, whole.value) == (1, 1)
    # each row has its own word, so only its copy outside the sample can teach its label
    truth = np.array(["a", "b"] * 10)
    shown = counted([f"{word}{row}" for row, word in enumerate(truth)])
    more = Rest(shown, truth, np.array([f"p{row}" for row in range(20)]))
    assert list(guess(shown, shown, truth, None, more).guessed) == list(truth)
    people = np.array([f"p{row}" for row in range(20)])
    assert not (guess(shown, shown, truth, people, more).guessed == truth).all()  # a tested person teaches nothing
    given = join(frame.lazy(), frame.lazy(), id="id", text="text", label="stars", subject="person", rows=20)
    assert (len(given), given.rest.height, given.of) == (20, ROWS - 20, ROWS)
    assert not set(given.rest["raw"]) & set(given.raw)


def test_planted_examples_survive_only_where_the_mechanism_keeps_them():
    from dptext_etl.catalog import build
    from dptext_etl_eval.attacks.personal_data import EXAMPLES, planted

    found = planted(build({"name": "surrogate", "epsilon": 4.0, "corpus": "example"}))
    assert (found.found, found.survived) == (dict.fromkeys(EXAMPLES, 10), {})
    kept = planted(build({"name": "custext", "epsilon": 1000.0}))
    assert kept.survived != {}


def test_a_raw_text_is_the_query_and_releases_are_the_corpus():
    """The two directions differ: a hub among the releases pushes the own release away, and not the other way round."""
    raw = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    released = np.array([[0.6, 0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
    assert ranks_of_vectors(raw, released).tolist() == [2.0, 2.0, 1.0]
    assert ranks_of_vectors(released, raw).tolist() == [2.0, 1.0, 1.0]


def test_both_directions_are_given_and_the_papers_comes_first():
    texts = tuple(f"word{row} text" for row in range(20))
    hub = ("word1 text word0", *texts[1:])
    scores = NearestNeighbour().of(Pairs(raw=texts, released=hub))
    assert [score.what for score in scores][:2] == ["own release found first", "mean rank of the own release"]
    by_what = {score.what: score.value for score in scores}
    forth, back = ranks_of(texts, hub), ranks_of(hub, texts)
    assert by_what["mean rank of the own release"] == forth.mean()
    assert by_what["mean rank of the own raw text"] == back.mean()


def test_bleu_is_given_of_all_texts_and_as_the_mean_over_texts():
    from nltk.translate.bleu_score import sentence_bleu

    same, other = ["a", "b", "c", "d", "e"], ["a", "b", "c", "d", "x"]
    assert mean_bleu([same, same], [same, ["x"]]) == pytest.approx(0.5)
    assert mean_bleu([same], [other]) == pytest.approx(sentence_bleu([same], other))


def test_gains_and_points_use_released_test_texts_first_and_raw_ones_next():
    found = figures(evaluate(pairs(lambda text: text.replace("awful", "town").replace("lovely", "town"))))
    names = {what for measure, what in found if measure == "Bleu"}
    assert names == {"BLEU, case ignored", "mean BLEU over texts, as in Meisenbacher et al. 2025"}
    for measure, count in (("PointsAboveGuessing", 3), ("RelativeGain", 2)):
        names = [what for kind, what in found if kind == measure]
        assert ["released" in name for name in names] == [True] * count + [False] * count
    use = found["Downstream", "macro-F1, learned from released texts, tested on released texts"]
    secret = found["Attribute", "adaptive attacker, macro-F1"]
    gain = found["RelativeGain", "as Meisenbacher et al. 2024 define it, use tested on released texts"]
    assert gain.value == pytest.approx(use.value / use.raw - secret.value / secret.raw)
    points = found["PointsAboveGuessing", "macro-F1, tested on released texts"]
    assert points.value == pytest.approx(100 * (use.value - use.blind))
