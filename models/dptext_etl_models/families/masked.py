"""Replace every word by a draw from the words that a masked language model expects in its place.

The model reads the text, then the text again with a mask in the place of one word. Its scores for the mask, clipped to
a public range, decide the draw. Specification: docs/spec/privacy.md#dpmlm, docs/spec/privacy.md#length-options,
docs/spec/privacy.md#batch-independence.

* One position is one word, one mask and one draw. n words cost n times epsilon, between any two texts of n words. Two
  texts that differ in one word cost as much, because every draw reads the whole text.
* Words are drawn one after the other, in blocks, or all at once, with the same guarantee. The scores of a word depend
  on the draws of earlier blocks, not on draws of the same block.
* The model reads a long text through a window around the position. Positions that cannot be scored are drawn uniformly,
  at the same spend.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from dptext_etl import _kernel, device, sampling
from dptext_etl.accounting import Composed, Event, PureDraws
from dptext_etl.allocation import Epsilons, Marked, draw_in_passes
from dptext_etl.artifacts import Artifact
from dptext_etl.device import drops_with_gpu
from dptext_etl.embeddings import stopwords
from dptext_etl.families.words import STRICT_INPUT, Read, WordByWord, lookup_forms, parts, read_faithful, read_strict
from dptext_etl.guarantee import SCORES_LOCAL, Disclosure, Guarantee
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, PROBE_WORDS, Released, refuse_model
from dptext_etl.parameters import PositiveInt
from dptext_etl.sampling import Sampler
from dptext_etl_models.families.score import ScoreMechanism
from dptext_etl_models.inference import device_draws, language_model
from dptext_etl_models.inference.device_draws import Undrawn
from dptext_etl_models.inference.masked.scorer import Adjustment, Lexicon
from dptext_etl_models.inference.masked.script import (
    Numbers,
    Script,
    Scripts,
    bounds,
    marked,
    marked_again,
    within,
    write_faithful,
    write_strict,
)
from dptext_etl_models.inference.masked.session import MaskedScorer
from dptext_etl_models.inference.masked.steps import Drawn, DrawParameters, Scorer, draw
from dptext_etl_models.inference.masked.vocabulary import MaskedVocabulary
from dptext_etl_models.inference.running import Listener

log = logging.getLogger("dptext_etl.score")

AT_ONCE = 2**20
"""Words that are processed at once."""
_SCORERS: dict[tuple[Any, ...], MaskedScorer] = drops_with_gpu({})
_SCORERS_HELD = 2


class MaskedMechanism(ScoreMechanism, WordByWord):
    """A mechanism that replaces words by draws from a masked language model's scores.

    The output set is public: all tokens of the model's tokenizer that are one whole word in lower case. Faithful mode
    draws from all tokens, pieces of words included.

    Attributes:
        epsilon: Epsilon per word.
        model: A masked language model, such as RoBERTa, BERT, ModernBERT or DeBERTa.
        stopwords: Public list ("english" or a path) of words that are kept, which is a disclosure; None draws them,
            except in faithful mode.
        decoding: "sequential" draws each word given the draws before; "block" draws a block at once; "parallel" all
            words at once.
        block: Words of a block; only for decoding "block".
        window: Most tokens that the model reads at once, for both copies of the text.
    """

    artifact_fields: ClassVar[frozenset[str]] = ScoreMechanism.artifact_fields | {"stopwords"}
    _faithful_disclosures: ClassVar[frozenset[Disclosure]] = frozenset({Disclosure.PUNCT, Disclosure.CASE})
    model_place: ClassVar[str] = "scorer_in_place"

    model: str = "FacebookAI/roberta-base"
    stopwords: str | None = None
    decoding: Literal["sequential", "block", "parallel"] = "sequential"
    block: PositiveInt | None = None
    window: Annotated[int, Field(ge=32, le=8192)] = 512

    @model_validator(mode="after")
    def _block_has_a_size(self) -> Self:
        if (self.block is not None) != (self.decoding == "block"):
            raise ValueError('block is the size of blocks of decoding "block": give both or neither')
        return self

    @property
    def _kept_source(self) -> str | None:
        return "english" if self.stopwords is None and self.mode == "faithful" else self.stopwords

    @cached_property
    def kept_words(self) -> frozenset[str]:
        """Return the words that are released unchanged."""
        return frozenset() if self._kept_source is None else frozenset(stopwords(self._kept_source).words)

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosure of stopwords if they are kept."""
        return frozenset({Disclosure.STOPWORDS}) if self._kept_source is not None else frozenset()

    def artifacts(self) -> dict[str, Artifact]:
        """Return the model's files, and the list of words that are kept, by role."""
        if self._kept_source is None:
            return super().artifacts()
        return {**super().artifacts(), "stopwords": stopwords(self._kept_source).artifact}

    @cached_property
    def vocabulary(self) -> MaskedVocabulary:
        """The model's tokenizer."""
        return MaskedVocabulary.of(self.model_files)

    @cached_property
    def words_and_tokens(self) -> tuple[tuple[str, ...], Numbers]:
        """Return the outputs as texts and as token ids, shape (m,): whole words, or every token of the model."""
        if self.mode == "strict":
            return self.vocabulary.whole_words()
        size = int(language_model.config(self.model_files)["vocab_size"])
        texts = [*self.vocabulary.texts()[:size], *[""] * max(0, size - self.vocabulary.size)]
        return tuple(texts), np.arange(size)

    @cached_property
    def output_texts(self) -> tuple[str, ...]:
        """Return the text of each output in the order of the token ids; the padding of hidden lengths comes last."""
        return (*self.words_and_tokens[0], PAD) if self.length != "disclose" else self.words_and_tokens[0]

    @property
    def outputs(self) -> int:
        """Return the size of the output set."""
        return len(self.output_texts)

    def output_words(self) -> frozenset[str] | None:
        """Return the words that a released text can hold; None in faithful mode, which releases more than words."""
        if self.mode == "faithful":
            return None
        return frozenset(self.words_and_tokens[0]) | self.kept_words

    def input_words(self) -> tuple[str, ...]:
        """Return the words that can come back as themselves, in public order; every word has one draw."""
        return tuple(word for word in self.words_and_tokens[0] if word and word not in self.kept_words)

    def survival(self, word: str) -> Fraction:
        """Return an upper bound of the probability that `word` comes back in its own place, for any text."""
        if word in self.kept_words:
            return Fraction(1)
        return self._most if word in self.words_and_tokens[0] else Fraction(0)

    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word; 1 if some words are kept."""
        if self._kept_source is not None or self.mode == "faithful":
            return 1.0
        return min(1.0, float(self._most) * (1 + 1e-12))

    @cached_property
    def _most(self) -> Fraction:
        """Bound a probability by the sampler's integers (docs/spec/privacy.md#exponential-mechanism)."""
        top = 2 ** sampling.weight_bits(self.outputs)
        return Fraction(top, top + (self.outputs - 1) * sampling.smallest_weight(self.largest_epsilon, self.outputs))

    def configuration(self) -> dict[str, Any]:
        """As for all mechanisms; where words are kept between masks of one row, long texts are read otherwise since 2.

        Rows of version 1 spanned more than the window held, and draws were lost: they were uniform.
        """
        settings = super().configuration()
        spans = self._kept_source is not None and self.decoding != "sequential"
        return {**settings, "mechanism_version": self.version + 1} if spans else settings

    @property
    def _in_place(self) -> bool:
        """Return True unless faithful mode releases more than words."""
        return self.mode == "strict"

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between texts with as many words and equal kept words, or any if the length is hidden."""
        stated = super().guarantee
        return replace(stated, assumptions=stated.assumptions | {SCORES_LOCAL})

    @property
    def draws_per_position(self) -> int:
        """Return the largest number of draws of one position."""
        return 1

    def event(self, positions: int) -> Event:
        """Return the largest number of draws, and the draw of a noisy length."""
        words = self._draws(positions * self.draws_per_position)
        if self.length != "noisy":
            return words
        return Composed((words, PureDraws(self._length_cost, min(positions, 1), range_bounded=False)))

    @property
    def most_draws(self) -> int:
        return self.n_max * self.draws_per_position

    def input_policy(self) -> dict[str, Any]:
        """Return the input policy: every word has a draw, and faithful mode keeps capitals and punctuation."""
        faithful = {"case": "keep", "punctuation": "keep"} if self.mode == "faithful" else {}
        return {**STRICT_INPUT, **faithful, **self._length_policy()}

    @cached_property
    def _reader(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(["a", PAD], sorted(self.kept_words))

    @cached_property
    def _writer(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(["a", PAD], sorted(self.kept_words), list(self.output_texts))

    def positions(self, texts: pa.Array) -> pa.Array:
        """Count the words that take part; `n_max` if the length is hidden."""
        return pa.array(self._reader.positions(texts, self._input_policy_json))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw every word of every text, each at its own position of its record's stream."""
        return self.release_with(self.scorer(), device_draws, texts, keys.of(texts))

    def release_with(
        self, scorer: Scorer, sampler: Sampler, texts: pa.Array, record_keys: pa.Array, progress: Listener | None = None
    ) -> Released:
        """Release with another scorer or sampler, for tests; everything else calls `release`."""
        encoded = self._reader.encode(texts, self._input_policy_json, record_keys)
        offsets = pa.array(encoded[1]).to_numpy().astype(np.int64)
        counts = np.diff(offsets)
        released: list[pa.Array] = []
        steps, failed = np.zeros(len(texts), np.uint32), np.zeros(len(texts), np.uint32)
        for first, last in parts(offsets, AT_ONCE):
            batch, keys = texts.slice(first, last - first), record_keys.slice(first, last - first)
            scripts, block = self._scripts(batch, counts[first:last], keys), self._block_size(counts[first:last])
            most = (counts[first:last] * self.draws_per_position).tolist()
            passes = self._passes(scorer, sampler, scripts, keys, most=most, block=block, progress=progress)
            steps[first:last] = scripts.draws
            failed[first:last] = [sum(drawn.failed for drawn in of_row) for of_row in zip(*passes, strict=True)]
            released.append(self._written(batch, scripts, passes[-1]))
        if failed.any():
            log.warning("the model failed on %d draws: they are uniform, at the same spend", failed.sum())
        steps_made = pa.array(steps) if self.refundable else None
        text = pa.concat_arrays([pa.array([], pa.large_string()), *released])
        return Released(text, self.positions(texts), steps_made, pa.array(failed))

    def _passes(
        self,
        scorer: Scorer,
        sampler: Sampler,
        scripts: Scripts,
        keys: pa.Array,
        *,
        most: Sequence[int],
        block: int,
        progress: Listener | None,
    ) -> list[list[Drawn]]:
        def once(epsilons: Sequence[Epsilons] | None = None, purpose: int = sampling.TOKEN) -> list[Drawn]:
            law = DrawParameters(self.epsilon, *self.score_range, purpose)
            how: dict[str, Any] = {"block": block, "epsilons": epsilons, "progress": progress}
            return draw(scorer, sampler, scripts, keys, parameters=law, **how)

        def of_drawn(drawn: list[Drawn]) -> list[Marked]:
            rows = zip(scripts, drawn, most, strict=True)
            return [
                marked_again(script, [self.output_texts[at] for at in draws.outputs], n) for script, draws, n in rows
            ]

        if self.allocation is None:
            return [once()]
        of_words = [marked(script, script.words, limit) for script, limit in zip(scripts, most, strict=True)]
        return draw_in_passes(self.allocation, of_words, keys, sampler, once=once, words=of_drawn)

    def probe(self) -> None:
        """Score masks of a short public text, and of one that fills the window."""
        keys = pa.array([bytes(32)] * 2, pa.binary(32))
        beyond = PROBE_WORDS * (self.window // len(PROBE_WORDS))
        kept = [False] * len(PROBE_WORDS) + [True] * len(beyond)
        scripts = [Script.plain(PROBE_WORDS), Script.plain(PROBE_WORDS + beyond, kept)]
        law = DrawParameters(self.epsilon, *self.score_range)
        drawn = draw(self.scorer(), Undrawn(), scripts, keys, parameters=law, block=len(PROBE_WORDS))
        if any(draws.failed for draws in drawn):
            refuse_model()

    def _block_size(self, counts: npt.NDArray[np.int64]) -> int:
        """Return the draws per block, which follow from the configuration and not from the texts' contents."""
        if self.decoding == "parallel":
            return max(1, 2 * int(counts.max(initial=1)))
        return self.block or 1

    def _scripts(self, texts: pa.Array, counts: Numbers, keys: pa.Array) -> Scripts:  # noqa: ARG002
        """Return the script of each text: it has `counts` draws."""
        if self.mode == "faithful":
            reads = map(self._read, texts.to_pylist(), counts.tolist())
            return Scripts.of([Script.plain(read.words, read.kept) for read in reads])
        words, *encoded = map(pa.array, self._reader.words(texts, self._input_policy_json))
        drawn, numbers, offsets = (part.to_numpy(zero_copy_only=False) for part in encoded)
        lengths = np.diff(offsets.astype(np.int64))
        if self.length != "disclose":
            numbers = numbers[within(lengths) < np.repeat(counts, lengths)]
            lengths = np.minimum(lengths, counts)
        padding = counts - lengths if self.length != "disclose" else np.zeros_like(lengths)
        return Scripts.plain(
            lookup_forms(words.to_pylist()), numbers.astype(np.int64), lengths, drawn[numbers], padding
        )

    def _read(self, text: str | None, count: int) -> Read:
        reading = read_strict if self.mode == "strict" else read_faithful
        read = reading(text or "", self.kept_words, self.n_max) if text is not None else Read([], [])
        if self.length != "disclose" or len(read.kept) - sum(read.kept) == count:
            return read
        return Read([""] * count, [False] * count)

    def _written(self, texts: pa.Array, scripts: Scripts, drawn: Sequence[Drawn]) -> pa.Array:
        """Return the released texts, large_string."""
        if self._in_place:
            offsets = pa.array(bounds(scripts.draws).astype(np.uint64))
            chosen = pa.array(np.concatenate([np.zeros(0, np.uint32), *(draws.outputs for draws in drawn)]))
            written = pa.array(self._writer.assemble(texts, offsets, chosen, self._input_policy_json))
            return written.field("text")
        of_text = zip(texts.to_pylist(), scripts, drawn, strict=True)
        texts_or_none = [
            None if text is None else self._text(text, script, draws.outputs) for text, script, draws in of_text
        ]
        return pa.array(texts_or_none, pa.large_string())

    def _text(self, text: str, script: Script, outputs: sampling.Choices) -> str:
        if self.mode == "strict":
            return write_strict(script, outputs, self.output_texts)
        return write_faithful(text, self.n_max, script, outputs, self.output_texts)

    def _adjustment(self) -> Adjustment:
        """Return the change of the model's scores before they are clipped: none."""
        return Adjustment()

    @property
    def _adjusted_by(self) -> tuple[Any, ...]:
        return ()

    @property
    def computing(self) -> device.Computing:
        """Return device and number type of this machine's settings: models of several are kept."""
        return device.computing()

    def scorer(self) -> Scorer:
        """Return the model as a scorer on this machine's device, built once per process, or its substitute."""
        if self.model_place in self.__dict__:
            given: Scorer = self.__dict__[self.model_place]
            return given
        files, machine = self.model_files, (self.computing.device, self.computing.dtype)
        settings = (self.mode, self.length != "disclose", self.window, self.clip_range, *self._adjusted_by)
        key = (language_model.identity(files), *machine, *settings)
        if key not in _SCORERS:
            from dptext_etl_models.inference.masked import roberta

            if len(_SCORERS) >= _SCORERS_HELD:
                del _SCORERS[next(iter(_SCORERS))]
            _SCORERS[key] = self._scorer(roberta.masked_model(files, *machine))
        return _SCORERS[key]

    def _scorer(self, model: Any) -> MaskedScorer:
        from dptext_etl_models.inference.masked.model import MaskedModel

        words, tokens = self.words_and_tokens
        scored = MaskedModel(model, tokens, self.window)
        vocabulary = self.vocabulary
        pieces = [[int(token)] for token in tokens] if self.mode == "strict" else list(vocabulary.encode(words))
        pieces = [*pieces, []] if self.length != "disclose" else pieces
        lexicon = Lexicon(vocabulary.encode, pieces, tokens, self.length != "disclose")
        return MaskedScorer(scored, vocabulary.frame(scored.window), lexicon, self.clip_range, self._adjustment())
