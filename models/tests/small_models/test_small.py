# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The masked language model that ships: its card, what it knows, and DP-MLM with it."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl import ColumnPolicy
from dptext_etl.column import release
from dptext_etl_models.inference.clipping import CLIP_FILE, read_clip
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from dptext_etl_models.training.corpus import Corpus, held_out
from dptext_etl_models.training.masked_card import figures
from dptext_etl_models.training.resumable import FACTS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "models" / "dptext_etl_models" / "english-small"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the small masked model does not lie next to the tests")


@pytest.fixture(scope="module")
def card():
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def rows(card):
    """Cells of the figures by corpus and setting: masked words, top 1, most frequent, top 10, ten most frequent."""
    lines = [line.strip("| ").split(" | ") for line in card.splitlines() if re.match(r"\| \w+ \| (alone|pair)", line)]
    return {(cells[0], cells[1]): [float(cell.replace(",", "")) for cell in cells[2:]] for cells in lines}


def test_its_card_names_the_licenses_of_its_texts(card):
    for said in ("CC BY-SA 3.0", "CC BY-SA 4.0", "research"):
        assert said in card


def test_it_finds_at_least_twice_as_many_words_as_a_guess(card):
    _, first, guess, ten, guess_ten = rows(card)["all", "alone"]
    assert first >= 2 * guess > 0
    assert ten > guess_ten


def test_the_guide_has_the_figures_of_the_card(card):
    guide = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| all \|.*\|$", card, re.MULTILINE)
    assert len(shown) == 3
    for line in shown:
        assert line.replace("| all ", "", 1) in guide


@pytest.mark.thorough
@pytest.mark.slow
def test_the_card_is_true_of_texts_that_were_kept_back(card, shared_data):
    folder = shared_data / "public_corpus"
    kept = {}
    for name in ("wiki_en", "imdb_unsup", "sgd_utterances"):
        kept[name] = [text for text in Corpus(folder / f"{name}.parquet").texts() if held_out(text)]
    unigrams = json.loads((FOLDER / FACTS).read_text())["unigrams"]
    found = figures(FOLDER, kept, unigrams, pieces=100)["all"]
    assert found["alone"].first >= 2 * found["alone"].guess
    stated = rows(card)
    of_corpora = [stated[name, "alone"] for name in kept]
    expected = sum(row[0] * row[1] for row in of_corpora) / sum(row[0] for row in of_corpora)
    assert 100 * found["alone"].first / found["alone"].words == pytest.approx(expected, abs=4)


def test_its_range_is_found_in_its_folder():
    assert DPMLM(epsilon=10.0, model=str(FOLDER)).clip_range == read_clip(FOLDER / CLIP_FILE)


def test_its_words_are_what_can_be_released():
    mechanism = DPMLM(epsilon=10.0, model=str(FOLDER))
    assert 10_000 < mechanism.outputs < 14_000


def test_copies_survive_a_large_epsilon_and_not_a_small_one(computing):
    text = "the film was good and the actors were great"
    kept = []
    for epsilon in (1.0, 2_000.0):
        mechanism = DPMLM(epsilon=epsilon, model=str(FOLDER), decoding="parallel")
        policy = ColumnPolicy(
            dataset="m", column="text", release="1", mechanism=mechanism, key="env:DPTEXT_SUITE_SECRET"
        )
        texts = pa.array([text] * 20)
        released = release(texts, pa.array([str(number) for number in range(20)]), policy).text.to_pylist()
        assert all(len(words.split()) == 9 for words in released)
        pairs = [pair for words in released for pair in zip(text.split(), words.split(), strict=True)]
        kept.append(sum(before == after for before, after in pairs) / len(pairs))
    assert kept[0] < 0.05 < 0.2 < kept[1]


def test_it_is_known_by_its_name():
    models = pytest.importorskip("dptext_etl_models", reason="dptext-etl-models is not installed")
    assert "english-small" in models.names()
    assert DPMLM(epsilon=10.0, model="english-small").model_files.keys() >= {"model/config.json", f"model/{CLIP_FILE}"}
    with pytest.raises(LookupError, match="there is no model"):
        models.path("english-huge")
