"""Evaluators are parameters: models, splits, seeds, pairs of texts, numbers as labels; bad ones are refused first."""

import json

import numpy as np
import polars as pl
import pytest

from dptext_etl.errors import InputError
from dptext_etl_eval import Pairs, evaluate, join
from dptext_etl_eval.classifier import crossed
from dptext_etl_eval.evaluators import sentence_vectors, surprise
from dptext_etl_eval.measure import Score, averaged
from dptext_etl_eval.pairs import LABEL, RAW, RELEASED
from dptext_etl_eval.statistics import pearson, spearman
from eval.tests.release_tables import NAMED, ROWS, SENTINEL, figures, saved, table
from tests.command_line import dptext

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")
MODELS = ("--encoder", "--masked-model", "--perplexity-model")


def pair_table(rows=ROWS):
    """Two texts per row; the label is the share of words that the second has from the first, from 0 to 5."""
    random = np.random.default_rng(7)
    first = [[f"w{word}" for word in random.integers(0, 400, 8)] for _ in range(rows)]
    kept = random.integers(0, 9, rows)
    second = [
        [*words[:count], *(f"v{word}" for word in random.integers(0, 400, 8 - count))]
        for words, count in zip(first, kept, strict=True)
    ]
    parts = ["test" if row % 3 == 0 else "train" if row % 3 == 1 else "spare" for row in range(rows)]
    return pl.DataFrame(
        {
            "id": range(rows),
            "text": [" ".join(words) for words in first],
            "other": [" ".join(words) for words in second],
            "score": kept * 5 / 8,
            "part": parts,
        }
    )


def joined(frame, released=None, **given):
    return join(frame.lazy(), (frame if released is None else released).lazy(), id="id", text="text", **given)


def test_numbers_are_regressed_on_and_a_pair_is_read_together():
    frame = pair_table()
    alone = joined(frame, label="score")
    paired = joined(frame, label="score", text_pair="other")
    found = {name: crossed(given, LABEL, train=RAW, test=RAW) for name, given in (("one", alone), ("two", paired))}
    correlation = {name: pearson(one.truth, one.guessed) for name, one in found.items()}
    assert abs(correlation["one"]) < 0.3 < 0.8 < correlation["two"]
    evidence = evaluate(paired)
    score = figures(evidence)["Downstream", "Pearson correlation, learned from released texts, tested on raw texts"]
    assert (score.value, score.blind) == (pytest.approx(correlation["two"]), 0.0)
    assert score.interval[0] < score.value < score.interval[1]
    assert evidence.excluded["PP+: points above the random baseline"] == ("classes",)


def test_a_release_of_the_second_text_alone_is_seen_by_the_pair():
    frame = pair_table()
    blank = frame.with_columns(other=pl.lit("nothing"))
    given = joined(frame, blank, label="score", text_pair="other")
    kept, lost = (crossed(given, LABEL, train=which, test=which) for which in (RAW, RELEASED))
    assert pearson(kept.truth, kept.guessed) > 0.8 > 0.4 > pearson(lost.truth, lost.guessed)


def test_correlations_are_those_of_scipy():
    from scipy import stats

    random = np.random.default_rng(2)
    first, second = random.integers(0, 6, 50) / 2, random.random(50)
    assert pearson(first, second) == pytest.approx(stats.pearsonr(first, second).statistic)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert pearson(np.ones(4), second[:4]) == 0.0


def test_a_split_says_what_is_learned_from_and_what_is_tested():
    frame = table().with_columns(
        part=pl.when(pl.col("id") % 3 == 0).then(pl.lit("test")).when(pl.col("id") % 3 == 1).then(pl.lit("train"))
    )
    # every training row has the other label than its word says: a classifier that learns from it is mostly wrong
    frame = frame.with_columns(stars=pl.when(pl.col("part") == "train").then(1 - pl.col("stars")).otherwise("stars"))
    given = joined(frame, label="stars", split="part", subject="person")
    assert (len(given), given.of, given.rest.height) == (ROWS // 3, ROWS // 3, ROWS // 3)
    found = crossed(given, LABEL, train=RAW, test=RAW)
    assert np.mean(found.truth == found.guessed) < 0.3
    few = joined(frame, label="stars", split="part", rows=25)
    assert (len(few), few.rest.height) == (25, ROWS // 3)  # a sample of the test rows, and all training rows


def test_seeds_give_means_and_deviations_of_what_is_random():
    found = averaged([[Score("a", 0.4, (0.3, 0.5), blind=0.1)], [Score("a", 0.6, (0.5, 0.7), blind=0.3)]])
    assert found == (Score("a", 0.5, (0.4, 0.6), blind=0.2, deviation=pytest.approx(2**0.5 / 10)),)
    noisy = table().with_columns(stars=pl.Series(np.random.default_rng(1).integers(0, 2, ROWS)))
    given = joined(noisy, label="stars")
    by_seed = [figures(evaluate(given, seeds=seeds)) for seeds in (1, 3)]
    what = "Downstream", "accuracy, learned from released texts, tested on raw texts"
    assert by_seed[0][what].deviation is None
    assert by_seed[1][what].deviation > 0
    assert by_seed[1]["Bleu", "BLEU, case ignored"].deviation is None  # nothing is drawn


def test_a_command_takes_every_evaluator(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    words = saved(tmp_path)
    models = ("example-masked", "example-masked", "example-causal")
    asked = [word for option in zip(MODELS, models, strict=True) for word in option]
    done = dptext(*words, *NAMED, *asked, "--rows", 30, "--label", "stars", "--seeds", 2, "--show-texts")
    assert done.exit_code == 0, done.output
    (column,) = json.loads((tmp_path / "report" / "evidence.json").read_text())["columns"]
    whats = {score["what"]: score for part in ("metrics", "attacks") for one in column[part] for score in one["scores"]}
    for what in (
        "mean cosine by the sentence encoder",
        "own release found first, by the sentence encoder",
        "perplexity per token of the causal model",
        "mean perplexity over texts of the causal model",
        "by bag, first 3 predictions",
    ):
        assert whats[what]["value"] is not None
    assert whats["macro-F1, learned from released texts, tested on raw texts"]["deviation"] is not None
    assert "±" in (tmp_path / "report" / "evidence.html").read_text()


@pytest.mark.parametrize("option", [*MODELS, "--classifier"])
def test_an_evaluator_that_cannot_be_loaded_is_refused_before_the_first_measure(tmp_path, option):
    pytest.importorskip("accelerate", reason="accelerate is not installed (extra: models)")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    for model in (tmp_path / "broken", tmp_path / "absent"):
        done = dptext(*saved(tmp_path), *NAMED, option, model)
        said = " ".join(done.output.split())
        assert (done.exit_code, f"the model of {option} cannot be loaded" in said) == (5, True), done.output
        assert "1 of" not in said
        assert SENTINEL not in said


@pytest.mark.parametrize(("asked", "said"), [
    (("--text-pair", "absent"), "the raw table has no column 'absent'"),
    (("--text-pair", "stars"), "the released table has no column 'stars'"),
    (("--split", "absent"), "the raw table has no column 'absent'"),
    (("--split", "city"), "0 rows of both tables say 'test' in the split column; 20 are the fewest"),
])  # fmt: skip
def test_columns_that_cannot_serve_are_refused_before_the_first_measure(tmp_path, asked, said):
    done = dptext(*saved(tmp_path), *NAMED, *asked)
    printed = " ".join(done.output.split())
    assert (done.exit_code, said in printed, "1 of" in printed) == (5, True, False), done.output


def test_a_pair_column_has_one_text_per_row():
    texts = tuple(f"text {row}" for row in range(20))
    with pytest.raises(InputError, match="a column of 19 rows"):
        Pairs(raw=texts, released=texts, second=(texts, texts[:19]))


def test_models_say_what_transformers_says():
    """Against the models themselves, one text at a time: a mean over tokens, and the loss of a causal model."""
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    import torch

    from dptext_etl_eval.evaluators import loaded

    texts = ["the cat sat", "a much longer text about the old town and its people", "the"]
    tokenizer, model = loaded("AutoModel", "example-masked")
    vectors = sentence_vectors("example-masked", texts)
    for text, vector in zip(texts, vectors, strict=True):
        with torch.inference_mode():
            mean = model(**tokenizer(text, return_tensors="pt"))[0][0].mean(0)
        assert vector == pytest.approx((mean / mean.norm()).numpy(), abs=1e-4)
    tokenizer, model = loaded("AutoModelForCausalLM", "example-causal")
    found = surprise("example-causal", texts)
    for text, (total, count) in zip(texts, found, strict=True):
        ids = [tokenizer.bos_token_id, *tokenizer.encode(text, add_special_tokens=False)]
        with torch.inference_mode():
            loss = model(torch.as_tensor([ids]), labels=torch.as_tensor([ids])).loss
        assert (count, total / count) == (len(ids) - 1, pytest.approx(float(loss), abs=1e-4))


def test_a_text_is_cut_to_the_positions_of_a_model_whose_tokenizer_states_no_length():
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    from dptext_etl_eval.evaluators import loaded

    text = "the old town and its people " * 60
    assert loaded("AutoModel", "example-masked")[0].model_max_length > 10**9
    assert np.isfinite(sentence_vectors("example-masked", [text])).all()
    tokenizer, model = loaded("AutoModelForCausalLM", "example-causal")
    assert len(tokenizer.encode(text)) > model.config.n_positions
    assert np.isfinite(surprise("example-causal", [text])).all()


@pytest.mark.thorough  # fine-tunes a model ten times
def test_a_fine_tuned_model_learns_labels_of_texts_and_of_a_split():
    pytest.importorskip("accelerate", reason="accelerate is not installed (extra: models)")
    frame = table().with_columns(part=pl.when(pl.col("id") % 3 == 0).then(pl.lit("test")).otherwise(pl.lit("train")))
    frame = frame.with_columns(text=pl.col("stars").replace_strict({0: "awful", 1: "lovely"}) + pl.lit(" day"))
    poor = frame.with_columns(text=pl.lit("some day"))
    what = "accuracy, learned from released texts, tested on {} texts, by the fine-tuned model"
    for split in (None, "part"):
        given = joined(frame, poor, label="stars", split=split, models=True)
        score = figures(evaluate(given))["Downstream", what.format("released")]
        assert score.raw == 1
        assert score.value < 0.8
    states = np.random.get_state()[1].tolist()
    again = figures(evaluate(given))["Downstream", what.format("released")]
    assert (again.value, np.random.get_state()[1].tolist()) == (score.value, states)
