"""The batched scorer against Algorithm 1 written out for one text at a time, on small models of many architectures."""

import logging

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import sampling
from models.tests.inference.masked_loops import DECODINGS, SHORT, check_against_the_plain_loop, recorded
from models.tests.model_makers import ARCHITECTURES, CLIP
from models.tests.toy_scorer import keys
from tests.computing import PLACES, place_name
from tests.quick import quick

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

TOLERANCES = {"float32": 2e-4, "bfloat16": 0.1}
"""Differences from only rounding, and more: 2e-6 and 0.04 were seen."""


@pytest.mark.parametrize("block", DECODINGS)
def test_scores_are_those_of_the_plain_loop(of_kind, block, computing, caplog):
    with caplog.at_level(logging.WARNING):
        check_against_the_plain_loop(of_kind(**DECODINGS[block]), block, TOLERANCES[computing.dtype])
    assert not caplog.records


@pytest.mark.parametrize("computing", quick(PLACES), ids=place_name, indirect=True)
@pytest.mark.parametrize("kind", ARCHITECTURES[1:])
def test_every_architecture_scores_as_itself(of_kind, kind, computing):
    made = of_kind(kind, decoding="block", block=4)
    check_against_the_plain_loop(made, 4, TOLERANCES[computing.dtype])
    assert made.scorer().model.shortened == (kind != "deberta-v3"), "the head is evaluated at masks alone"


def test_progress_is_told(whole):
    made, scorer = whole()
    told = []
    made.release_with(scorer, sampling, pa.array(SHORT, pa.large_string()), keys(6), lambda *step: told.append(step))
    total = sum(made.positions(pa.array(SHORT, pa.large_string())).to_pylist())
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_likeness_of_words_moves_the_scores(of_kind, computing):
    """Appendix A, bounded: likeness of word embeddings plus a small weight of the clipped scores."""
    made = of_kind(alpha=0.01, decoding="parallel")
    _, sampler = recorded(made, ["good film"])
    plain = recorded(of_kind(decoding="parallel"), ["good film"])[1]
    where = (keys(1)[0].as_py(), 0)
    scores, logits = sampler.scores[where], plain.scores[where]
    likeness = scores - 0.01 * np.clip(logits, *CLIP)
    assert np.abs(likeness).max() <= 1 + 1e-5
    assert made.output_texts[int(likeness.argmax())] == "good", "a word is most like itself"
    low, high = made.score_range
    assert (scores >= low - 1e-6).all()
    assert (scores <= high + 1e-6).all()


def test_antonyms_are_wordnet_s(shared_data):
    from dptext_etl.errors import ArtifactError
    from dptext_etl_models.mechanisms.dpmlm import antonyms_among

    corpora = shared_data / "nltk_data" / "corpora"
    found = antonyms_among(corpora / "wordnet.zip", ["unable", "Large", "late", "film", "big", "large"])
    assert (list(found("able")), list(found("small")), list(found("EARLY"))) == ([0], [1, 4, 5], [2])
    assert list(found("zxqv")) == []
    with pytest.raises(ArtifactError, match="reading WordNet failed"):
        antonyms_among(corpora / "stopwords.zip", ["good"])


def test_antonyms_score_lowest(mechanism, shared_data):
    wordnet = shared_data / "nltk_data" / "corpora" / "wordnet.zip"
    made = mechanism(mode="faithful", decoding="parallel", antonyms=str(wordnet))
    _, sampler = recorded(made, ["small early young"])
    plain = recorded(mechanism(mode="faithful", decoding="parallel"), ["small early young"])[1]
    opposite = {"large", "late", "old"}
    known = {text.lower(): number for number, text in enumerate(made.output_texts) if text.lower() in opposite}
    assert known
    lowered = 0
    for where, row in sampler.scores.items():
        changed = set(np.flatnonzero(row != plain.scores[where]).tolist())
        assert (row[list(changed)] == -np.inf).all()
        lowered += len(changed & set(known.values()))
    assert lowered
    assert made.cfg() != mechanism(mode="faithful", decoding="parallel").cfg()


def test_words_beyond_the_text_are_drawn_like_any_other(of_kind, computing):
    made = of_kind(length="fixed", n_max=5)
    out, sampler = recorded(made, ["good film", "", "a b c d e f g"])
    assert (len(sampler.scores), out.positions.to_pylist()) == (15, [5, 5, 5])
    row = sampler.scores[(keys(3)[1].as_py(), 4)]
    assert row[-1] == np.inf
    assert (row[:-1] == -np.inf).all()
    assert sampler.scores[(keys(3)[0].as_py(), 0)][-1] == -np.inf
