"""Surrogate with vectors of a model."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.corpora import Corpus
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.choice import cut
from dptext_etl.keys import RecordKeys
from dptext_etl.polars.plan_expressions import in_kernel

from .choice_toys import FACTS, kernel_corpus, mechanism, record_keys, released, toy


def test_vectors_of_a_model_are_drawn_near_and_checked(tmp_path):
    corpus = toy(tmp_path, 30)
    drawn, texts = mechanism(corpus, 2.0, hit=0.7), [*corpus.texts[:5], ""]
    keys, column = record_keys(6), pa.array([*corpus.texts[:5], ""], pa.large_string())
    given = corpus.encoder.encode(texts)
    policy, own = json.dumps(drawn.input_policy()), kernel_corpus(drawn)
    told = pa.array(own.release_with_keys(keys, column, policy, pa.array(given.ravel())))
    assert told.field("text").to_pylist() == released(drawn, texts, keys)
    for wrong in (given[:5], np.where(given == given.max(), -128, given)):
        with pytest.raises(InputError, match="-127 to 127"):
            own.release_with_keys(keys, column, policy, pa.array(wrong.ravel().astype(np.int8)))


class StandIn:
    """A model of sentences: the words' own vectors; it fails on some texts."""

    def __init__(self, corpus, fails=()):
        self._corpus, self._fails = corpus, fails

    def encode(self, texts):
        if any(word in text for text in texts for word in self._fails):
            raise RuntimeError("a text that no message may quote: " + texts[0])
        known = self._corpus.encoder.encode(texts)
        return np.ones_like(known) if "doctor" in texts[0] else known


def test_a_model_encodes_texts_one_by_one_and_fails_closed(tmp_path):
    words = toy(tmp_path / "words", 30)
    facts = FACTS | {"encoder": {"kind": "sentence-transformers", "name": "stand-in"}}
    corpus = Corpus.save(tmp_path / "model", words.texts, facts, vectors=words.vectors)
    for parts in (1, 2):
        drawn, same = (mechanism(one, 2.0, hit=0.7, parts=parts) for one in (corpus, words))
        drawn.__dict__["sentence_model"] = StandIn(words, fails=["bad"])
        texts = [*words.texts[:8], "", "bad text", None, " ".join(words.texts[:3])]
        column = pa.array(texts, pa.large_string())
        ids = pa.array([str(row) for row in range(len(texts))])
        keys = RecordKeys(_kernel.ReleaseKey(_kernel.Secret(), "d", "c", "r", "00" * 32), ids)
        told, expected_text = drawn.release(column, keys), same.release(column, keys).text.to_pylist()
        assert told.text.to_pylist() == expected_text, "a failure is drawn as a text that says nothing"
        assert told.failed.to_pylist() == [0] * 9 + [1] + [0] * 2
        assert drawn.near_to(words.texts[3]) == same.near_to(words.texts[3])
    assert (drawn.reproducible, same.reproducible) == (False, True)
    assert (in_kernel(drawn), in_kernel(same)) == (None, same)
    assert drawn.guarantee.assumptions - same.guarantee.assumptions == {"SCORES_LOCAL"}
    drawn.probe()
    drawn.__dict__["sentence_model"] = StandIn(words, fails=["doctor"])
    with pytest.raises(PolicyError, match="fails on public texts") as refused:
        drawn.probe()
    assert refused.value.__cause__ is None


@given(st.text(alphabet="ab ,.é😀\u0301'", max_size=30), st.integers(1, 5), st.integers(1, 9))
def test_parts_for_a_model_hold_the_words_that_parts_of_the_kernel_hold(text, parts, n_max):
    pieces = cut(text, parts, n_max)
    words = [segment for segment, is_word in _kernel.split(text) if is_word][:n_max]
    assert len(pieces) == parts
    assert text.startswith("".join(pieces))
    wanted = [words[part * len(words) // parts : (part + 1) * len(words) // parts] for part in range(parts)]
    assert [[segment for segment, is_word in _kernel.split(piece) if is_word] for piece in pieces] == wanted
