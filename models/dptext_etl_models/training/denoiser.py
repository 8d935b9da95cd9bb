"""Train a small language model from nothing to restore corrupted texts, for DP-Prompt, DP-Paraphrase, and rewriting.

The model answers a mechanism's own prompt: it reads a corrupted public text and writes the original. It is an
encoder-decoder ("seq2seq", a BART) or a causal model ("causal", a GPT-2). It learns within some thousand steps on one
core, because texts are short, words are whole entries whose embeddings start from word vectors, and attention of the
encoder-decoder starts near the word to copy (`training.initial_weights`).
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from dptext_etl.embeddings import WordVectors
from dptext_etl_models.inference.prompts import FIELD, Prompts
from dptext_etl_models.training.calibration import TEMPLATES
from dptext_etl_models.training.corpus import NOTHING, WORD, bare, clean, stacked
from dptext_etl_models.training.initial_weights import WORD_COLUMNS, Sizes, causal, copying_bart, write_vectors
from dptext_etl_models.training.resumable import (
    FOLDER,
    Checkpoint,
    Listener,
    Schedule,
    identity,
    run,
    save_half,
    write_facts,
)
from dptext_etl_models.training.vocabulary import (
    END,
    PADDING,
    SPECIAL,
    build,
    count_words,
    stored_tokenizer,
    whole_words,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

FREQUENT = 60
"""The most frequent words of the embedded vocabulary, which are dropped more often than others."""
NEAR = 8
"""Number of nearest neighbors that a word may be replaced by."""


@dataclass(frozen=True)
class Recipe:
    """Say how often what happens; the rates of a text are drawn from 0 up to these."""

    copied: float = 0.3  # share of texts that keep all their words
    random: float = 0.2  # share of texts that are random words, and are copied
    bare: float = 0.5  # share of texts that lose their punctuation and capitals, in addition to all corrupted ones
    near: float = 0.5  # rate of words that become a near neighbor
    other: float = 0.2  # rate of words that become a random word
    frequent: float = 0.5  # rate of frequent words that are dropped
    dropped: float = 0.1  # rate of other words that are dropped
    swapped: float = 0.1  # rate of words that change places with the next


class Corruption:
    """Make pairs of a corrupted text and its original."""

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe) -> None:
        self._recipe = recipe
        words = (tokenizer.id_to_token(number) for number in whole_words(tokenizer))
        self._words = tuple(word for word in words if word is not None and len(word) > 1)
        self._near = near_words(self._words)
        self._frequent = frozenset(WordVectors.load(limit=FREQUENT).words)

    def pair(self, text: str, rng: np.random.Generator) -> tuple[str, str]:
        """Return the model's input, and its target."""
        kind = rng.random()
        if kind < self._recipe.random:
            drawn = [self._words[at] for at in rng.integers(len(self._words), size=max(1, len(text.split()))).tolist()]
            letters = list(string.ascii_lowercase)
            for at in np.flatnonzero(rng.random(len(drawn)) < 0.1).tolist():
                drawn[at] = "".join(rng.choice(letters, size=int(rng.integers(2, 8))).tolist())
            corrupted = " ".join(drawn)
            return corrupted, corrupted
        if kind < self._recipe.random + self._recipe.copied:
            return (bare(text).lower() if rng.random() < self._recipe.bare else text), text
        return self._corrupted(text, rng) or text, text

    def _corrupted(self, text: str, rng: np.random.Generator) -> str:
        recipe, words = self._recipe, WORD.findall(text.lower())
        near, other, frequent, dropped, swapped = rng.random(5) * (
            recipe.near, recipe.other, recipe.frequent, recipe.dropped, recipe.swapped
        )  # fmt: skip
        corrupted: list[str] = []
        for word, draws in zip(words, rng.random((len(words), 4)), strict=True):
            if draws[0] < (frequent if word in self._frequent else dropped):
                continue
            changed = word
            if draws[1] < near and word in self._near:
                changed = self._near[word][int(draws[2] * len(self._near[word]))]
            elif draws[1] > 1 - other:
                changed = self._words[int(draws[2] * len(self._words))]
            if corrupted and draws[3] < swapped:
                corrupted.insert(len(corrupted) - 1, changed)
            else:
                corrupted.append(changed)
        return " ".join(corrupted)


@lru_cache(maxsize=2)
def near_words(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the nearest of the given words of each that has a vector, the word itself excluded."""
    vectors = WordVectors.load()
    in_vocabulary = [word for word in words if word in vectors.index]
    if len(in_vocabulary) <= NEAR:
        return {}
    rows = vectors.take(in_vocabulary).vectors.astype(np.float32)
    rows -= rows.mean(axis=0)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    near: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(in_vocabulary), 512):
        likeness = rows[start : start + 512] @ rows.T
        best = np.argpartition(-likeness, NEAR, axis=1)[:, : NEAR + 1]
        for row, places in enumerate(best.tolist()):
            word = in_vocabulary[start + row]
            near[word] = tuple(in_vocabulary[at] for at in sorted(places) if in_vocabulary[at] != word)
    return near


Kind = Literal["seq2seq", "causal"]


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a training; the models that ship were made with the defaults."""

    kind: Kind = "seq2seq"  # "seq2seq" for DP-Prompt and rewriting again, "causal" for DP-Paraphrase
    vocabulary: int = 6_000  # number of entries of the tokenizer; most of them are whole words
    pieces: int = 800  # number of these entries that are pieces of words
    words: int = 30  # largest number of words of a text
    places: int = 256  # largest number of tokens that the model reads
    # width of an encoder-decoder; a causal model has the width of `initial_weights.WIDTH`
    width: int = 128
    layers: int = 2  # layers; of the encoder, and of the decoder
    heads: int = 4  # attention heads per layer
    inner: int = 384  # width of the feed-forward layers
    recipe: Recipe = field(default_factory=Recipe)  # how texts are corrupted
    rows: int = 64  # pairs per batch
    steps: int = 1_600  # largest number of steps
    rate: float = 2.5e-3  # learning rate at its peak
    warmup: int = 100  # steps until the peak
    minutes: float | None = None  # time limit in minutes
    seed: int = 17  # seed of weights and pairs

    @property
    def template(self) -> str:
        """Return the prompt of the mechanism that the model is for."""
        return TEMPLATES[self.kind]


def new_model(tokenizer: Any, settings: Settings) -> Any:
    """Return an untrained model, whose embeddings are word vectors; the state of torch's generators does not change."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(settings.seed)
        before = tokenizer(settings.template.partition(FIELD)[0], add_special_tokens=False)["input_ids"]
        if settings.kind == "causal":
            model = causal(len(tokenizer), layers=settings.layers, inner=settings.inner, places=settings.places)
            weight = model.get_input_embeddings().weight[:, :WORD_COLUMNS]
        else:
            sizes = Sizes(settings.width, settings.layers, settings.heads, settings.inner, settings.places)
            model = copying_bart(len(tokenizer), sizes, len(before))
            attention = model.model.decoder.layers[0].encoder_attn  # its output matrix undoes the one of its values
            torch.nn.init.orthogonal_(attention.v_proj.weight)
            attention.out_proj.weight.copy_(attention.v_proj.weight.T)
            weight = model.get_input_embeddings().weight
        write_vectors(weight, tokenizer.backend_tokenizer, float(weight.norm(dim=1).median()))
    return model


_NEAR_LENGTH = 8  # texts of a step are drawn from this many steps' worth of texts of about one length


def tokenizer_in(folder: Path, texts: Iterable[str], settings: Settings) -> Any:
    """Return the tokenizer that an earlier training left in the folder, or make one and save it there."""
    return stored_tokenizer(folder, lambda: _word_tokenizer(texts, settings))


def _word_tokenizer(texts: Iterable[str], settings: Settings) -> Any:
    from tokenizers import decoders, processors

    tokenizer = build(count_words(map(clean, texts)), settings.vocabulary, settings.pieces)
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    end = SPECIAL[END]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, END)]
    )
    return tokenizer


class Pairs:
    """Make batches of prompts with noisy texts and target tokens; batch i depends only on texts, settings, and i."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], settings: Settings) -> None:
        self._texts = sorted((clean(text) for text in texts), key=lambda text: (text.count(" "), text))
        self._settings = settings
        self._corruption = Corruption(tokenizer.backend_tokenizer, settings.recipe)
        continued = settings.kind == "causal"
        limit = settings.places // 2
        self._prompts = Prompts(tokenizer, settings.template, limit, limit, continued=continued)
        self._answers = Prompts(tokenizer, "{text}", limit - 1, limit, continued=True)

    def at(self, step: int) -> list[tuple[list[int], list[int]]]:
        """Return prompts and answers, each answer with its end, of a step."""
        rows = self._settings.rows
        rng = np.random.default_rng((self._settings.seed, step))
        window = min(len(self._texts), rows * _NEAR_LENGTH)
        start = int(rng.integers(len(self._texts) - window + 1))
        drawn = [self._texts[start + at] for at in rng.integers(window, size=rows).tolist()]
        return self.encoded([self._corruption.pair(text, rng) for text in drawn])

    def encoded(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """Return the tokens of prompts and answers; pairs that have none are excluded."""
        prompts = self._prompts.encode([read for read, _ in pairs])
        answers = self._answers.encode([written for _, written in pairs])
        return [
            (list(prompt), [*answer, END]) for prompt, answer in zip(prompts, answers, strict=True) if prompt and answer
        ]


def loss(model: Any, rows: Sequence[tuple[list[int], list[int]]], kind: Kind) -> Tensor:
    """Return the mean cross-entropy of the answers' tokens; the head runs only at these."""

    def stack(parts: list[list[int]], padding: int) -> Tensor:
        return torch.from_numpy(stacked(parts, padding))

    if kind == "seq2seq":
        read, labels = stack([prompt for prompt, _ in rows], PADDING), stack([answer for _, answer in rows], NOTHING)
        written = stack([[END, *answer[:-1]] for _, answer in rows], PADDING)
        hidden = model.model(input_ids=read, attention_mask=read != PADDING, decoder_input_ids=written)
    else:
        whole = stack([[*prompt, *answer[:-1]] for prompt, answer in rows], PADDING)
        labels = stack([[*[NOTHING] * (len(prompt) - 1), *answer] for prompt, answer in rows], NOTHING)
        hidden = model.transformer(input_ids=whole, attention_mask=whole != PADDING, use_cache=False)
    counted = labels != NOTHING
    return torch.nn.functional.cross_entropy(model.lm_head(hidden.last_hidden_state[counted]), labels[counted])


def train(
    tokenizer: Any,
    texts: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    every: int = 250,
    listener: Listener | None = None,
) -> int:
    """Train a model and write it to `folder`; resume a training that was stopped."""
    model, pairs = new_model(tokenizer, settings), Pairs(tokenizer, texts, settings)

    def loss_at(step: int) -> Tensor:
        return loss(model, pairs.at(step), settings.kind)

    def saved(step: int) -> None:
        save_half(model, tokenizer, folder)
        used = {**asdict(settings), "template": settings.template}
        write_facts(folder, {**(facts or {}), "steps": step, "training_provenance": "public", "settings": used})

    schedule = Schedule.of(settings, decay=0.01)
    checkpoint = Checkpoint(folder / FOLDER / "denoiser.safetensors", identity(settings, list(texts)))
    name = f"denoiser, {settings.kind}"
    return run(model, loss_at, schedule, checkpoint, name=name, every=every, listener=listener, saved=saved)
