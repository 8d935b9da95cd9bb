"""Evaluate a small masked language model on held-out texts, and write its card.

There are three settings, each in the form of strict releases (words in lower case, no punctuation). In the first, a
text is by itself with 15% of its words masked. In the second, the model sees the pair of DP-MLM: the plain text, then
the text with masks, so that finding a word is mostly copying. In the third, every word of the second copy is masked, as
in parallel decoding. All masked words count; words outside the vocabulary count as missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import sha256_file
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.clipping import CLIP_FILE, write_clip
from dptext_etl_models.training.calibration import estimate
from dptext_etl_models.training.corpus import clean, sentences, words
from dptext_etl_models.training.masked_examples import (
    Example,
    Ids,
    Masked,
    Words,
    alone,
    drawable,
    masking,
    padded,
    pair,
    segment,
)
from dptext_etl_models.training.masked_lm import Held
from dptext_etl_models.training.resumable import FACTS
from dptext_etl_models.training.vocabulary import MASK

SETTINGS = ("alone", "pair", "pair, all masked")
_SHARE = 0.15
_PIECES = 300  # pieces per corpus, about
_WORDS = (8, 40)  # smallest and largest number of words of a piece
_ROWS = 16
_TEN = 10


@dataclass
class Score:
    """Count the masked words of one setting, and how many of them were found."""

    words: int = 0  # masked words
    first: int = 0  # words with the highest score
    ten: int = 0  # words among the ten highest scores
    guess: int = 0  # words that equal the most frequent word
    guess_ten: int = 0  # words among the ten most frequent words

    def shares(self) -> dict[str, float]:
        """Return the shares of found words."""
        return {name: getattr(self, name) / max(1, self.words) for name in ("first", "ten", "guess", "guess_ten")}


def figures(
    folder: Path, examined: Mapping[str, Sequence[str]], unigrams: Sequence[str], pieces: int = _PIECES
) -> dict[str, dict[str, Score]]:
    """Evaluate the model in a folder."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForMaskedLM

    model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab()
    guesses = np.array([vocabulary[word] for word in unigrams])
    scores_of: dict[str, dict[str, Score]] = {"all": {name: Score() for name in SETTINGS}}
    for corpus, texts in examined.items():
        scores_of[corpus] = {name: Score() for name in SETTINGS}
        rng = np.random.default_rng(0)
        for group in _grouped(segment(list(_runs(texts, pieces)), tokenizer, drawable(tokenizer))):
            for name, examples in _examples(group, rng).items():
                batch = padded([example for example, _ in examples])
                masked = batch.ids == MASK
                truth = np.concatenate([labels for _, labels in examples])
                best = _best(model, batch, masked)
                for score in (scores_of[corpus][name], scores_of["all"][name]):
                    _count(score, truth, best, guesses)
    return scores_of


def _best(model: Any, batch: Masked, masked: npt.NDArray[np.bool_]) -> Ids:
    """Return the ten ids with the highest scores at every mask, shape (masks, 10)."""
    import torch

    ids, attended, types = (torch.from_numpy(part) for part in (batch.ids, batch.attended, batch.types))
    with torch.inference_mode():
        hidden = model.base_model(input_ids=ids, attention_mask=attended, token_type_ids=types).last_hidden_state
        scores = model.lm_head(hidden[torch.from_numpy(masked)])
        best: Ids = scores.topk(_TEN).indices.numpy()
    return best


def _count(score: Score, truth: Ids, best: Ids, guesses: Ids) -> None:
    score.words += len(truth)
    score.first += int((best[:, 0] == truth).sum())
    score.ten += int((best == truth[:, None]).any(axis=1).sum())
    score.guess += int((truth == guesses[0]).sum())
    score.guess_ten += int(np.isin(truth, guesses).sum())


def _runs(texts: Sequence[str], pieces: int) -> Iterator[str]:
    """Yield one sequence of sentences per text, of texts spread evenly over a corpus."""
    least, most = _WORDS
    step = max(1, len(texts) // pieces)
    left = pieces
    for text in texts[::step]:
        run: list[str] = []
        for sentence in sentences(clean(text)):
            run += words(sentence)
            if len(run) >= least:
                break
        if len(run) >= 2 and left:
            left -= 1
            yield " ".join(run[:most])


def _grouped(texts: Sequence[Words]) -> Iterator[list[Words]]:
    examples = [text.cut(60) for text in texts if text.asked.any()]
    for start in range(0, len(examples), _ROWS):
        yield examples[start : start + _ROWS]


def _examples(group: Sequence[Words], rng: np.random.Generator) -> dict[str, list[tuple[Example, Ids]]]:
    """Return the examples of some texts by setting, and the masked ids in order."""
    examples: dict[str, list[tuple[Example, Ids]]] = {name: [] for name in SETTINGS}
    for text in group:
        possible = np.flatnonzero(text.masked)
        number = max(1, round(_SHARE * len(possible)))
        chosen = np.sort(rng.choice(possible, size=number, replace=False))
        plain = masking(text, chosen[:0])
        examples["alone"].append((alone(masking(text, chosen)), _truth(text, chosen)))
        examples["pair"].append((pair(plain, masking(text, chosen)), _truth(text, chosen)))
        examples["pair, all masked"].append((pair(plain, masking(text, possible)), _truth(text, possible)))
    return examples


def _truth(text: Words, chosen: Ids) -> Ids:
    """Return the ids of words; -1 for a word without a single id."""
    return np.where(text.asked[chosen], text.ids[text.starts[:-1][chosen]], -1)


CARD = "README.md"
WEIGHTS = "model.safetensors"
LICENSE = "The license of the weights follows from the licenses of the corpora."
_CALIBRATED = 500  # held-out texts
_DEVIATIONS = 7.0
"""Upper end of the range, in standard deviations above the mean. Scores of these models have a long upper tail, because
they start as logarithms of frequencies: with the 4 deviations of the papers, the right word of a pair scored like six
other words. 7 deviations were best on held-out texts."""


def finish(out: Path, examined_texts: Held, *, terms: str | None = None, pieces: int = 300) -> dict[str, Any]:
    """Evaluate a trained model, estimate the range of its scores on held-out texts, and write its card."""
    facts = json.loads((out / FACTS).read_text(encoding="utf-8"))
    (out / CLIP_FILE).unlink(missing_ok=True)
    files = language_model.model_files(str(out))
    kept = sorted(text for texts in examined_texts.examined.values() for text in texts)
    estimated = estimate(files, kept[:: max(1, len(kept) // _CALIBRATED)], deviations=_DEVIATIONS)
    about = estimated.facts(examined_texts.hashes) | {"provenance": "public texts that the training kept back"}
    write_clip(out / CLIP_FILE, *estimated.clip, files, about)
    scores = figures(out, examined_texts.examined, facts["unigrams"], pieces)
    size = sum(path.stat().st_size for path in out.iterdir() if path.is_file() and path.name != CARD)
    low, high = estimated.clip
    more = {
        "name": out.name,
        "weights": (out / WEIGHTS).stat().st_size,
        "sha256": sha256_file(out / WEIGHTS),
        "size": size,
        "method": about["method"],
        "low": low,
        "high": high,
        "licence": terms or LICENSE,
    }
    (out / CARD).write_text(_card(facts, scores, more), encoding="utf-8")
    shares = {name: score.shares() for name, score in scores["all"].items()}
    return {"out": str(out), "steps": facts["steps"], "bytes": size, "held_out": shares, "clip": [low, high]}


_TEXT = """# {name}

A small masked language model whose vocabulary is whole words, so that DP-MLM runs without a hub. It was trained on
public text only: nothing of it depends on any text that is privatized. It knows little of the world; use a larger one
for real work.

- RoBERTa, {layers} layers of width {hidden}, {vocabulary:,} entries, {long} places
- half precision: {weights:,} bytes of weights, {size:,} bytes in all
- SHA-256 of the weights `{sha256}`
- {steps:,} steps of about {tokens:,} tokens; {pairs:.0%} of the examples are pairs, as DP-MLM shows them
- range of its scores ({method}; whole words behind masks of held-out texts): ({low:.4f}, {high:.4f})

## Data and license

| corpus | SHA-256 |
| --- | --- |
{corpora}

Two in a hundred texts of each were held out, by their own hash; files for evaluation only are in the table, too.

{licence}

## Figures

Words found on held-out texts, in percent: at once (top 1) and among ten (top 10), next to always guessing the
most frequent word, or the ten most frequent ones. Every masked word counts, those outside the vocabulary as missed.

| corpus | setting | masked words | top 1 | most frequent | top 10 | ten most frequent |
| --- | --- | --- | --- | --- | --- | --- |
{figures}

A pair shows the plain text first, so that finding its words is mostly copying; the model's knowledge of language shows
where a text is by itself.

## Settings

```json
{settings}
```
"""


def _card(facts: dict[str, Any], scores: dict[str, dict[str, Score]], more: dict[str, Any]) -> str:
    settings = facts["settings"]
    return _TEXT.format(
        **{name: settings[name] for name in ("layers", "hidden", "vocabulary", "tokens")},
        **{name: settings["recipe"][name] for name in ("long", "pairs")},
        **more,
        steps=facts["steps"],
        corpora="\n".join(f"| {name} | `{value}` |" for name, value in facts["corpora"].items()),
        figures="\n".join(_row(corpus, name, score) for corpus, row in scores.items() for name, score in row.items()),
        settings=json.dumps(settings, indent=1, sort_keys=True),
    )


def _row(corpus: str, setting: str, score: Score) -> str:
    share = {name: f"{100 * value:.1f}" for name, value in score.shares().items()}
    cells = (corpus, setting, f"{score.words:,}", share["first"], share["guess"], share["ten"], share["guess_ten"])
    return f"| {' | '.join(cells)} |"
