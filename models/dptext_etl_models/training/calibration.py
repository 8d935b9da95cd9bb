"""Estimate the range that a model's scores are clipped to, from public text.

The range is (mean, mean + 4 standard deviations) of the scores, as in Meisenbacher et al. 2024. Most tokens of a
vocabulary fit nowhere, so their scores may all be clipped to the lower end; the scores of fitting tokens reach up to
the upper end. If the scores have a long upper tail, 4 deviations are too few: all fitting words then score the same,
whatever epsilon is. The calibration scores the same candidates as the mechanism: whole words behind masks of a pair of
texts (DP-MLM), or the next token of an answer (DP-Prompt, DP-Paraphrase); the answer here is the text itself. Only sums
are kept (`training.moments`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dptext_etl import _kernel, device
from dptext_etl.artifacts import MADE_FROM, Artifact, Lineage
from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.clipping import write_clip
from dptext_etl_models.training.corpus import Corpus, stacked

Kind = Literal["masked", "causal", "seq2seq"]
TEMPLATES = {"causal": "{text} >>>>> ", "seq2seq": "Document : {text}\nParaphrase of the document :"}
"""Default prompts of the mechanisms DP-Paraphrase and DP-Prompt."""
PERCENTILES = (0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9, 99.99)
DTYPE = "float32"
"""Number type of the estimate, whatever `DPTEXT_DTYPE` says: the range belongs to a model, not to a machine."""
SPREAD = 4.0
"""Upper end of the range, in standard deviations above the mean, as in the papers."""
_MASKS = 4  # masked words per text, each in its own row
_LONGEST = 128  # words of a text that are read


@dataclass(frozen=True)
class Estimate:
    """Hold the estimated moments of a model's scores."""

    kind: Kind  # kind of model
    texts: int  # number of public texts that were scored
    moments: Moments  # moments of their scores
    deviations: float = SPREAD  # upper end of the range, in standard deviations above the mean

    @property
    def clip(self) -> tuple[float, float]:
        """Return the range: the mean, and the mean plus `deviations` standard deviations."""
        return self.moments.mean, self.moments.mean + self.deviations * self.moments.sd

    def facts(self, corpora: Mapping[str, str]) -> dict[str, Any]:
        """Return the facts that the file states next to the range; `corpora` maps file names to hashes."""
        return {
            "method": f"mean, mean + {self.deviations:g} standard deviations",
            "kind": self.kind,
            "provenance": "public, as declared by anyone who ran dptext calibrate",
            "corpus": dict(corpora),
            "texts": self.texts,
            "scores": self.moments.count,
            "left_out": self.moments.left_out,
            "mean": self.moments.mean,
            "sd": self.moments.sd,
            "least": self.moments.low,
            "largest": self.moments.high,
            "percentiles": self.moments.percentiles(PERCENTILES),
        }


def kind_of(files: Mapping[str, Artifact]) -> Kind:
    """Read the kind of a model from its configuration."""
    architecture = language_model.config(files)
    names = " ".join(architecture.get("architectures") or ())
    if architecture.get("is_encoder_decoder"):
        return "seq2seq"
    if "MaskedLM" in names:
        return "masked"
    if "CausalLM" in names or "LMHead" in names:
        return "causal"
    raise PolicyError("the model's config.json does not state the kind of model", "name it: --kind masked")


def estimate(
    files: Mapping[str, Artifact],
    texts: Sequence[str],
    *,
    kind: Kind | None = None,
    template: str | None = None,
    deviations: float = SPREAD,
    progress: Callable[[int, int], None] | None = None,
) -> Estimate:
    """Score public texts and return the mean and spread of the scores."""
    read: Kind = kind or kind_of(files)
    batches = _masked(files, texts) if read == "masked" else _answers(files, texts, read, template or TEMPLATES[read])
    moments = Moments()
    done = 0
    for scored, scores in batches:
        moments.add(scores)
        done += scored
        if progress is not None:
            progress(done, len(texts))
    if moments.count < 2:
        raise InputError("no text of the corpus has anything to score", "name a corpus of longer texts")
    return Estimate(read, done, moments, deviations)


def calibrate(
    files: Mapping[str, Artifact],
    corpus: Corpus,
    out: Path,
    *,
    texts: int = 1_000,
    kind: Kind | None = None,
    template: str | None = None,
    deviations: float = SPREAD,
    progress: Callable[[int, int], None] | None = None,
    lineage: Lineage | None = None,
) -> Estimate:
    """Estimate a model's range from texts spread evenly over a public corpus, and write it to the file `out`."""
    range_ = estimate(
        files, spread(corpus, texts), kind=kind, template=template, deviations=deviations, progress=progress
    )
    facts = range_.facts({corpus.path.name: corpus.sha256})
    write_clip(out, *range_.clip, files, {**facts, MADE_FROM: lineage} if lineage else facts)
    return range_


def spread(corpus: Corpus, number: int) -> list[str]:
    """Return texts spread evenly over a corpus; the same corpus always gives the same texts."""
    step = max(1, len(corpus) // number)
    return [text for place, text in enumerate(corpus.texts()) if place % step == 0][:number]


Batches = Iterator[tuple[int, npt.NDArray[np.floating]]]


def _masked(files: Mapping[str, Artifact], texts: Sequence[str]) -> Batches:
    """Yield scores of whole words behind masks; the model reads the text, then the text with one word masked."""
    from dptext_etl_models.inference.masked.model import MaskedModel
    from dptext_etl_models.inference.masked.vocabulary import MaskedVocabulary

    vocabulary = MaskedVocabulary.of(files)
    _, tokens = vocabulary.whole_words()
    model = MaskedModel(language_model.masked_model(files, device.device(), DTYPE), tokens, 512)
    frame = vocabulary.frame(model.window)
    rng = np.random.default_rng(0)
    for text in texts:
        words = [word.lower() for word, is_word in _kernel.split(text) if is_word][:_LONGEST]
        pieces = [piece for piece in vocabulary.encode(words) if len(piece)]
        while sum(map(len, pieces)) * 2 > frame.room:
            pieces.pop()
        if len(pieces) < 2:
            continue
        masked = rng.choice(len(pieces), size=min(_MASKS, len(pieces)), replace=False)
        first = [number for piece in pieces for number in piece]
        rows, columns = [], []
        for word in sorted(masked.tolist()):
            head = [*frame.before, *first, *frame.between, *(n for piece in pieces[:word] for n in piece)]
            tail = [*(n for piece in pieces[word + 1 :] for n in piece), *frame.after]
            columns.append([len(head)])
            rows.append([*head, frame.mask, *tail])
        ids = stacked([[*numbers, frame.pad] for numbers in rows], frame.pad)
        types = np.full(ids.shape, frame.types[-1], np.int64)
        sizes = (len(frame.before), len(first), len(frame.between))
        types[:, : sum(sizes)] = np.repeat(frame.types[:3], sizes)
        totals = np.array([len(numbers) for numbers in rows])
        yield 1, model.forward(ids, totals, types, np.array(columns)).float().cpu().numpy()


def _answers(files: Mapping[str, Artifact], texts: Sequence[str], kind: Kind, template: str) -> Batches:
    """Yield scores of the next token at every position of an answer, which is the text itself after its prompt."""
    import torch

    from dptext_etl_models.inference.prompts import Prompts

    continues = kind == "causal"
    tokenizer = language_model.tokenizer(files)
    load = language_model.causal_model if continues else language_model.sequence_model
    model = load(files, device.device(), DTYPE)
    places = getattr(model.config, "max_position_embeddings", None) or getattr(model.config, "n_positions", None)
    limit = min(512, int(places or 512)) // 2
    prompts = Prompts(tokenizer, template, limit, _LONGEST, continued=continues)
    answers = Prompts(tokenizer, "{text}", limit, _LONGEST, continued=True)
    start = None if continues else model.config.decoder_start_token_id
    for text in texts:
        prompt, answer = prompts.encode([text])[0], answers.encode([text])[0]
        if not prompt or not answer:
            continue
        with torch.inference_mode():
            if continues:
                ids = torch.tensor([[*prompt, *answer]], device=model.device)
                logits = model(input_ids=ids).logits[0, len(prompt) - 1 :]
            else:
                tokens = torch.tensor([[start, *answer]], device=model.device)
                ids = torch.tensor([prompt], device=model.device)
                logits = model(input_ids=ids, decoder_input_ids=tokens).logits[0]
            yield 1, logits.float().cpu().numpy()


_SAMPLE = 4_096  # numbers kept per batch for percentiles
_HELD = 2**20


class Moments:
    """Compute count, mean and variance of all numbers, and percentiles of an even sample of them.

    Numbers that are not finite are counted apart and excluded.
    """

    def __init__(self) -> None:
        self.count = 0
        self.left_out = 0
        self.mean = 0.0
        self._squares = 0.0
        self.low, self.high = math.inf, -math.inf
        self._sample: list[npt.NDArray[np.float64]] = []

    def add(self, numbers: npt.NDArray[np.floating]) -> None:
        """Add a batch of any shape."""
        flat = np.asarray(numbers, dtype=np.float64).ravel()
        finite = flat[np.isfinite(flat)]
        self.left_out += len(flat) - len(finite)
        if not len(finite):
            return
        mean = float(finite.mean())
        squares = float(np.square(finite - mean).sum())
        count = self.count + len(finite)
        apart = mean - self.mean
        self._squares += squares + apart * apart * self.count * len(finite) / count
        self.mean += apart * len(finite) / count
        self.count = count
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        self._keep(finite[:: max(1, len(finite) // _SAMPLE)])

    @property
    def sd(self) -> float:
        """Return the standard deviation of all numbers (the divisor is their count)."""
        return math.sqrt(self._squares / self.count) if self.count else math.nan

    def percentiles(self, shares: tuple[float, ...]) -> dict[str, float]:
        """Return percentiles of the sample by name, such as {"50": 1.2}."""
        every = np.concatenate(self._sample) if self._sample else np.zeros(0)
        if not len(every):
            return {}
        return {f"{share:g}": float(value) for share, value in zip(shares, np.percentile(every, shares), strict=True)}

    def _keep(self, values: npt.NDArray[np.float64]) -> None:
        self._sample.append(values)
        if sum(map(len, self._sample)) > _HELD:  # keep every second number of all batches
            self._sample = [np.concatenate(self._sample)[::2]]
