"""Figures as the papers take them: directions, predictions, test texts, means over texts."""

import numpy as np
import pytest

from dptext_etl_eval import Pairs
from dptext_etl_eval.attacks import masked_tokens
from dptext_etl_eval.attacks.nearest_neighbour import NearestNeighbour, ranks_of, ranks_of_vectors
from dptext_etl_eval.metrics.bleu import mean_bleu
from eval.tests.release_tables import figures, pairs

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")


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


def test_the_first_and_the_first_three_predictions_count():
    assert masked_tokens.TOP == 3


def test_bleu_is_given_of_all_texts_and_as_the_mean_over_texts():
    from nltk.translate.bleu_score import sentence_bleu

    same, other = ["a", "b", "c", "d", "e"], ["a", "b", "c", "d", "x"]
    assert mean_bleu([same, same], [same, ["x"]]) == pytest.approx(0.5)
    assert mean_bleu([same], [other]) == pytest.approx(sentence_bleu([same], other))
    found = {what for measure, what in figures_of_release() if measure == "Bleu"}
    assert found == {"BLEU, case ignored", "mean BLEU over texts, as in paper 001"}


def figures_of_release():
    from dptext_etl_eval import evaluate

    return figures(evaluate(pairs(lambda text: text.replace("awful", "town").replace("lovely", "town"))))


def test_gains_and_points_use_released_test_texts_first_and_raw_ones_next():
    found = figures_of_release()
    for measure, count in (("PointsAboveGuessing", 3), ("RelativeGain", 2)):
        names = [what for kind, what in found if kind == measure]
        assert ["released" in name for name in names] == [True] * count + [False] * count
    use = found["Downstream", "macro-F1, learned from released texts, tested on released texts"]
    secret = found["Attribute", "adaptive attacker, macro-F1"]
    gain = found["RelativeGain", "as paper 000 defines it, use tested on released texts"]
    assert gain.value == pytest.approx(use.value / use.raw - secret.value / secret.raw)
    points = found["PointsAboveGuessing", "macro-F1, tested on released texts"]
    assert points.value == pytest.approx(100 * (use.value - use.blind))
