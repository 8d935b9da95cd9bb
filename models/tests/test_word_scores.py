"""The scores of paper 001 that need a tagger or an encoder, in the direction that the paper's text says."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from dptext_etl import catalog, column
from dptext_etl.allocation import score
from dptext_etl.allocation.score import Tools
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl_models import likeness, tagging

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "nltk_data"
FOX = ("The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog")


def of(name, tokens, **tools):
    if name in {"pos", "ner"}:
        pytest.importorskip("nltk", reason="nltk is not installed (extra: allocation)")
    return dict(zip(tokens, score.load(name)(Tools(**tools)).of(tokens).tolist(), strict=True))


def test_classes_of_words_have_the_weights_of_the_paper():
    found = of("pos", ("She", "quickly", "bought", "3", "red", "cars", "of"))
    assert [round(15 * value, 6) for value in found.values()] == [7, 5, 15, 2, 5, 14, 0.1]


def test_names_and_numbers_are_found():
    """The paper's code never does: it asks for a 1 among pairs."""
    found = of("ner", ("Please", "call", "John", "Smith", "of", "Santa", "Fe", "on", "555", "0134", "a@x.org"))
    assert {word for word, value in found.items() if value} >= {
        "John",
        "Smith",
        "Santa",
        "Fe",
        "555",
        "0134",
        "a@x.org",
    }
    assert not {"call", "of", "on"} & {word for word, value in found.items() if value}
    assert not any(of("ner", FOX).values())


def test_what_a_text_would_lose_counts():
    text = ("the", "cat", "of", "the", "astronomer", "and", "her", "telescope")
    found = of("sd", text)
    assert max(found, key=found.get) in {"cat", "astronomer", "telescope"}
    assert found["the"] < found["astronomer"]
    turned = of("sd", text, printed=True)
    assert turned["the"] > turned["astronomer"], "the printed Algorithm 3 has the sign the other way round"
    coded = of("sd", text, printed="code")
    assert coded["the"] < coded["astronomer"], "the paper's code has the sign of its text"


def test_a_word_unlike_the_rest_is_important():
    found = of("wi", ("rain", "snow", "wind", "storm", "violin"))
    assert max(found, key=found.get) == "violin"
    coded = of("wi", tuple(found), printed="code")
    assert min(coded, key=coded.get) == "violin", "the paper's code takes the cosine itself"
    assert of("wi", ("zzqx", "rain", "snow"))["zzqx"] == 1.0, "a word without a vector is like nothing"


def test_texts_without_a_word_are_differences_of_sums():
    """Against the encoder itself, text by text."""
    text = ["rain", "and", "a", "violin", "zzqx"]
    encoder, _ = likeness.words_encoder()
    each = encoder.sums(text)
    for place in range(len(text)):
        rest = encoder.sums([" ".join(text[:place] + text[place + 1 :])])[0]
        assert (each.sum(axis=0) - each[place] == rest).all()


@pytest.mark.skipif(not SHARED.exists(), reason="NLTK's data lie not next to this checkout")
def test_nltks_own_tagger_is_read_from_a_folder():
    found = of("pos", FOX, tagger=f"nltk:{SHARED}")
    assert round(15 * found["jumps"]) == 15
    assert len(score.load("pos")(Tools(tagger=f"nltk:{SHARED}")).artifacts()) == 3


def test_a_missing_library_stops_before_anything_is_drawn(monkeypatch, small_vectors):
    """Otherwise every budget would be divided evenly, and no one would see it."""
    mechanism = catalog.build(
        {"name": "custext", "vectors": str(small_vectors), "k": 5, "allocation": {"scores": ["pos"], "total": 9.0}}
    )
    tagging.tagger.cache_clear()
    for name in [name for name in sys.modules if name == "nltk" or name.startswith("nltk.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(PolicyError, match="needs nltk") as caught:
        column.probe(mechanism)
    assert "pip install" in caught.value.hint
    tagging.tagger.cache_clear()


def test_a_model_of_sentences_reads_words_and_texts_without_them(monkeypatch, tmp_path):
    read = []

    class Model:
        def encode(self, texts):
            read.extend(texts)
            return np.array([[len(text), 1] for text in texts], np.int8)

    monkeypatch.setattr(likeness, "sentence_model", lambda folder: Model())
    found = of("sd", ("a", "bc", "d"), encoder=f"sentence-transformers:{tmp_path}")
    assert read == ["a", "bc", "d", "bc d", "a d", "a bc", "a bc d"]
    assert found["bc"] == 1.0
    assert found["a"] == pytest.approx(found["d"])


def test_a_tagger_with_other_content_is_refused_by_its_hash(tmp_path, monkeypatch):
    other = tmp_path / "english-tags.json"
    other.write_text("{}")
    monkeypatch.setattr(tagging, "OWN", other)
    first = tagging.artifacts("english")["tagger"].sha256
    monkeypatch.undo()
    assert tagging.artifacts("english")["tagger"].sha256 != first
    with pytest.raises(ArtifactError):
        tagging.NltkTagger.read(other)


def test_the_printed_variants_add_up_to_one():
    for name, printed in itertools.product(("wi", "sd", "pos", "ner"), (True, "code")):
        assert sum(of(name, FOX[:6], printed=printed).values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("pos", {"tagger": "elsewhere"}),
        ("pos", {"tagger": "spacy:no_such_pipeline"}),
        ("wi", {"encoder": "sentence-transformers:nowhere"}),
        ("pos", {"tagger": "nltk:nowhere"}),
    ],
)
def test_a_tool_that_is_not_here_is_an_error_with_a_hint(name, tools):
    with pytest.raises(PolicyError) as caught:
        of(name, ("sentinel",), **tools)
    assert caught.value.hint
    assert "sentinel" not in str(caught.value)
