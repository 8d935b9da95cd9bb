# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The models that ship: their cards, and that mechanisms with them keep as much of texts as the cards say."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import dptext_etl_models
from dptext_etl import ColumnPolicy, extensions
from dptext_etl.column import draw, release
from dptext_etl.corpora.corpus import products
from dptext_etl.corpora.learning import learn
from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import ArtifactError
from dptext_etl.keys import throwaway
from dptext_etl_eval.pairs import words_of
from dptext_etl_models.inference.clipping import CLIP_FILE, read_clip
from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.mechanisms.dp_paraphrase import DPParaphrase
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from dptext_etl_models.mechanisms.dpbart import DPBart
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from dptext_etl_models.training.corpus import Corpus, clean, held_out
from dptext_etl_models.training.masked_card import figures
from dptext_etl_models.training.resumable import FACTS
from tests.computing import PRECISE, place_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "models" / "dptext_etl_models"
MASKED, LSTM, ENCODER = (PACKAGE / name for name in ("english-small", "english-lstm", "english-encoder"))
LARGEST = {"english-small": 16_000_000, "english-autoencoder": 16_000_000}
"""Bytes that a folder may have; all others may have 8,000,000."""
FREQUENT = frozenset(WordVectors.load(limit=100).words)
"""Words that any text has."""
precisely = pytest.mark.parametrize("computing", PRECISE, ids=place_name, indirect=True)


def card(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def stated(folder, pattern):
    """The numbers of a sentence of a card."""
    return list(map(int, re.search(pattern, card(folder)).groups()))


def unseen(shared_data, count):
    """The first words of texts of four words and more, of two sets that no training of a shipped model saw."""
    found = {}
    for name, path in (("Snips", "snips/snips.parquet"), ("SST-2", "sst2/sst2.parquet")):
        frame = pl.read_parquet(shared_data / path).filter(pl.col("split") == "test")
        texts = (" ".join(words_of(clean(text))[:18]) for text in frame["text"].to_list()[::3])
        found[name] = [text for text in texts if text.count(" ") >= 3][:count]
    return found


def share(texts, outputs):
    """Shares of the texts' rarer words that are in the outputs of the same row, and of another row."""
    shares = []
    for given in (outputs, outputs[1:] + outputs[:1]):
        rows = [(set(text.split()) - FREQUENT, set(words_of(out))) for text, out in zip(texts, given, strict=True)]
        shares.append(sum(len(words & out) for words, out in rows) / sum(len(words) for words, _ in rows))
    return shares


def released(mechanism, texts):
    policy = ColumnPolicy(dataset="m", column="text", release="1", mechanism=mechanism, key="env:DPTEXT_SUITE_SECRET")
    return release(pa.array(texts), pa.array(list(map(str, range(len(texts))))), policy).text.to_pylist()


# All of them


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in PACKAGE.glob("*/config.json")), ids=lambda one: one.name
)
def test_it_is_small_and_its_card_names_its_weights_and_licenses(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < LARGEST.get(folder.name, 8_000_000)
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() in card(folder)
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".md", ".safetensors"}
    assert "CC BY-SA 4.0" in card(folder)


def test_models_are_found_by_name_and_are_defaults():
    assert "english-small" in dptext_etl_models.names()
    assert DPMLM(epsilon=10.0, model="english-small").model_files.keys() >= {"model/config.json", f"model/{CLIP_FILE}"}
    with pytest.raises(LookupError, match="there is no model"):
        dptext_etl_models.path("english-huge")
    assert DPParaphrase(epsilon=10.0).model == "english-paraphraser"
    assert Adept(epsilon=10.0, noise="laplace").model == LSTM.name


# The masked language model


def rows():
    """Cells of the figures by corpus and setting: masked words, top 1, most frequent, top 10, ten most frequent."""
    lines = card(MASKED).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if re.match(r"\| \w+ \| (alone|pair)", line)]
    return {(one[0], one[1]): [float(cell.replace(",", "")) for cell in one[2:]] for one in cells}


def test_the_masked_model_finds_twice_as_many_words_as_a_guess_and_the_guide_says_so():
    for said in ("CC BY-SA 3.0", "CC BY-SA 4.0", "research"):
        assert said in card(MASKED)
    _, first, guess, ten, guess_ten = rows()["all", "alone"]
    assert first >= 2 * guess > 0
    assert ten > guess_ten
    guide = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert f"{first}% of masked words right; {rows()['all', 'pair'][1]}% if the plain text comes first" in guide


@pytest.mark.slow
def test_the_card_is_true_of_texts_that_were_kept_back(shared_data):
    kept = {}
    for name in ("wiki_en", "imdb_unsup", "sgd_utterances"):
        corpus = Corpus(shared_data / "public_corpus" / f"{name}.parquet")
        kept[name] = [text for text in corpus.texts() if held_out(text)]
    unigrams = json.loads((MASKED / FACTS).read_text())["unigrams"]
    found = figures(MASKED, kept, unigrams, pieces=100)["all"]
    assert found["alone"].first >= 2 * found["alone"].guess
    of_corpora = [rows()[name, "alone"] for name in kept]
    expected = sum(row[0] * row[1] for row in of_corpora) / sum(row[0] for row in of_corpora)
    assert 100 * found["alone"].first / found["alone"].words == pytest.approx(expected, abs=4)


def test_its_range_is_in_its_folder_and_copies_survive_a_large_epsilon_and_not_a_small_one(computing):
    text = "the film was good and the actors were great"
    kept = []
    for epsilon in (1.0, 2_000.0):
        mechanism = DPMLM(epsilon=epsilon, model=str(MASKED), decoding="parallel")
        assert mechanism.clip_range == read_clip(MASKED / CLIP_FILE)
        assert 10_000 < mechanism.outputs < 14_000
        pairs = [
            pair for out in released(mechanism, [text] * 20) for pair in zip(text.split(), out.split(), strict=True)
        ]
        kept.append(sum(before == after for before, after in pairs) / len(pairs))
    assert kept[0] < 0.05 < 0.2 < kept[1]


# The autoencoders


@pytest.fixture
def bart(computing):
    return DPBart(epsilon=2500.0, n_rec=10_000, model=str(PACKAGE / "english-autoencoder"), num_beams=1)


def rebuilt(mechanism, texts):
    """Texts of the decoder from latents that are clipped as in a release, without noise."""
    model, out = mechanism.latent_model, []
    for start in range(0, len(texts), model.rows):
        latents = model.encode(texts[start : start + model.rows]).astype(np.float64)
        if mechanism.norm == "value":
            latents = np.clip(latents, -mechanism.clip, mechanism.clip)
        else:
            latents *= np.minimum(1, mechanism.clip / np.linalg.norm(latents, axis=1, keepdims=True))
        out += model.decode(latents.astype(np.float32))
    return out


@precisely
def test_the_bart_rebuilds_texts_that_it_never_saw(bart, shared_data):
    metrics = pytest.importorskip("sacrebleu.metrics", reason="sacrebleu is not installed (extra: eval)")
    frame = pl.read_parquet(shared_data / "snips" / "snips.parquet").filter(pl.col("split") == "test")
    texts = frame["text"].to_list()[::4]
    assert metrics.BLEU(lowercase=True).corpus_score(rebuilt(bart, texts), [texts]).score >= 60


@pytest.mark.parametrize("text", ["play zxqvy by brmlsk", "42 + 17", "wörter — ναι 🙂", "<s> </s> <pad>"])
def test_unknown_words_come_through(bart, text):
    assert rebuilt(bart, [text]) == [text]


def test_noise_changes_the_text(bart):
    texts = ["add this song to my summer playlist", None, "what is the weather in rome"]
    found = released(bart, texts)
    assert found[1] is None
    assert found[0] != texts[0]
    assert released(bart, texts) == found


def test_the_lstm_learnt_from_public_texts_and_rebuilds_texts_that_it_never_saw(shared_data):
    assert json.loads((LSTM / "training.json").read_text())["training_provenance"] == "public"
    floor, others = stated(LSTM, r"without noise: (\d+) % of Snips, and less than (\d+) % in those of other texts")
    texts = unseen(shared_data, 100)["Snips"]
    own, blind = share(texts, rebuilt(Adept(epsilon=10.0, noise="laplace", model=str(LSTM)), texts))
    assert own > floor / 100
    assert blind < others / 100


# The vectors for corpora


def test_the_encoder_is_found_by_its_name_and_has_the_words_of_its_base(monkeypatch):
    assert json.loads((ENCODER / "training.json").read_text())["training_provenance"] == "public"
    named, base = WordVectors.load(ENCODER.name), WordVectors.load()
    assert named.artifact.path == ENCODER / "model.safetensors"
    assert (named.words, named.vectors.shape) == (base.words, base.vectors.shape)
    assert named.artifact.description["base"] == base.artifact.sha256
    monkeypatch.setattr(extensions, "installed", lambda _: {})
    with pytest.raises(ArtifactError, match="cannot be read"):
        WordVectors.load(ENCODER.name)


def test_the_encoder_puts_dialogues_together_that_it_never_saw(shared_data):
    """Of the 20 turns nearest to one, in other dialogues, how many have its domain."""
    floor, most = stated(ENCODER, r"more than (\d+) %, and with `english-20k` less than (\d+) %")
    turns = pl.read_parquet(shared_data / "public_corpus" / "sgd_utterances.parquet").filter(
        pl.col("speaker") == "user", pl.col("text").str.count_matches(r"\w+") >= 8
    )
    turns = turns.with_columns(dialogue=pl.col("id").str.replace(r"-\d+$", ""))
    names = turns["dialogue"].unique().sort()
    kept_back = [name for name in names if hashlib.sha256(name.encode()).digest()[1] % 2][:300]
    turns = turns.filter(pl.col("dialogue").is_in(kept_back))
    texts, (dialogues, domains) = turns["text"].to_list(), (turns[name].to_numpy() for name in ("dialogue", "domain"))
    agreed = []
    for source in (ENCODER / "model.safetensors", "english-20k"):
        points = learn(texts, WordVectors.load(source)).encode(texts)
        scores = products(points, points)
        scores[dialogues[:, None] == dialogues[None, :]] = -np.inf
        near = np.argpartition(-scores, 20, axis=1)[:, :20]
        agreed.append(float((domains[near] == domains[:, None]).mean()))
    assert agreed[0] > floor / 100
    assert agreed[1] < most / 100


# The models for DP-Prompt and DP-Paraphrase


@precisely
@pytest.mark.parametrize(("name", "mechanism"), [("english-denoiser", DPPrompt), ("english-paraphraser", DPParaphrase)])
def test_rarer_words_survive_a_large_epsilon_and_not_a_small_one(name, mechanism, computing, shared_data):
    folder = PACKAGE / name
    facts = json.loads((folder / "training.json").read_text())
    assert facts["training_provenance"] == "public"
    assert {item["name"] for item in facts["corpora"]} == {"sgd_utterances", "wiki_en"}
    assert facts["settings"]["kind"] == ("causal" if mechanism is DPParaphrase else "seq2seq")
    assert mechanism(epsilon=10.0, model=str(folder)).clip_range == read_clip(folder / CLIP_FILE)
    floors = r"at ε = (\d+): (\d+) % of Snips, (\d+) % of SST-2, and less than (\d+) %"
    epsilon, snips, films, others = stated(folder, floors)
    texts = unseen(shared_data, 24)
    made = mechanism(epsilon=float(epsilon), l_max=28, model=str(folder))

    def kept(mechanism, texts):
        ids, key = pa.array(list(map(str, range(len(texts))))), throwaway(mechanism.cfg())
        return share(texts, draw(mechanism, pa.array(texts, pa.large_string()), ids, key).text.to_pylist())

    for dataset, floor in (("Snips", snips), ("SST-2", films)):
        own, blind = kept(made, texts[dataset])
        assert own > floor / 100
        assert blind < others / 100
    assert kept(made.model_copy(update={"epsilon": 1.0}), texts["Snips"])[0] < 0.05
