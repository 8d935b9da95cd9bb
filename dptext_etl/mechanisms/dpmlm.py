"""DP-MLM: every word is replaced by a draw from what a masked language model expects in its place.

Paper: Meisenbacher, Chevli, Vladika and Matthes 2024, "DP-MLM: Differentially Private Text Rewriting Using Masked
Language Models" (algorithms 1 to 3, appendix A). The model reads the text, then the text again with a mask in the place
of one word; its scores for the mask, clipped to a public range, decide the draw. What holds here
(docs/spec/privacy.md#dpmlm, docs/spec/privacy.md#dpmlm-plusminus, docs/spec/privacy.md#length-options,
docs/spec/privacy.md#batch-independence):

* One position is one word, one mask and one draw; n words cost n times epsilon, between any two texts of n words. There
  is no smaller price for two texts that differ in one word: every draw reads the whole text.
* The paper leaves unsaid that the number of words is released, and its code keeps stopwords, punctuation and capitals
  in clear. Strict mode draws every word and drops the rest; stopwords are kept only as a disclosure. The length can be
  hidden by filling every text up to a public or a noisy number of words.
* The output set is public: all tokens of the model's tokenizer that are one whole word in lower case. Faithful mode
  draws from all tokens, as the paper does, pieces of words included.
* Words are drawn one after the other ("sequential", the paper), in blocks, or all at once ("parallel"). The guarantee
  is the same; later words know what earlier ones became only across blocks.
* Algorithm 3 (variant "plusminus") adds and deletes words. As printed it leaves original words at the end of the text:
  deletions are counted but never made. Here a plan is drawn first, words that are left and words that are added take a
  draw each, and the worst case is two draws per word; a cap can be charged for the draws that were made.
* The score of appendix A (likeness of words plus a small weight of the model's) is unbounded in the paper; with `alpha`
  it is clipped to a range of its own. Likeness is that of the model's word embeddings.
* A long text is read through a window around the position. What cannot be scored is drawn uniformly, at the same spend.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from dptext_etl import _kernel, sampling, scoring
from dptext_etl.accounting import Draws
from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import stopwords
from dptext_etl.families.antonyms import antonyms_among
from dptext_etl.families.by_word import WordByWord
from dptext_etl.families.score import SCORES_LOCAL, ScoreMechanism
from dptext_etl.families.words import LONGEST_PADDED
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend, micro
from dptext_etl.inference import language_model
from dptext_etl.inference.masked.plan import coins, likely_draws, planned
from dptext_etl.inference.masked.scorer import Adjustment, Lexicon, MaskedScorer
from dptext_etl.inference.masked.steps import Law, Numbers, Progress, Scorer, Script, draw
from dptext_etl.inference.masked.texts import Read, read_faithful, read_strict, write_faithful, write_strict
from dptext_etl.inference.masked.vocabulary import MaskedVocabulary
from dptext_etl.inference.sampler import Clip, Sampler
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Epsilon, Released

Chance = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

AT_ONCE = 2**20
"""Words that are worked on at once."""
_SCORERS: dict[tuple[Any, ...], MaskedScorer] = {}
_KEPT = 2
_FAITHFUL = frozenset({Disclosure.PUNCT, Disclosure.CASE})


class DPMLM(ScoreMechanism, WordByWord):
    """DP-MLM (Meisenbacher et al. 2024).

    Attributes:
        epsilon: Per word.
        variant: "plain" replaces every word (algorithms 1 and 2); "plusminus" also deletes and adds words (3).
        model: A masked language model: RoBERTa, BERT, ModernBERT, DeBERTa and their like.
        decoding: "sequential": every word knows what the words before it became; "block": so many words at once;
            "parallel": all words at once.
        block: Words of a block, for decoding "block" alone.
        window: Most tokens that the model reads at once, both copies of the text together.
        length: The number of words is disclosed ("disclose"), or every text is cut and filled to `n_max` draws
            ("fixed"), or to a noisy number up to `n_max` ("noisy").
        epsilon_length: What the noisy length costs per text.
        stopwords: Public list ("english" or a path) of words that are kept in clear, a disclosure; None draws them.
            Faithful mode keeps the English ones where none is given.
        addition: Chance that a word is followed by another, for "plusminus".
        deletion: Chance that a word is deleted, for "plusminus".
        delta: For "plusminus": also state the (epsilon, delta) of the draws that are likely.
        alpha: Weight of the model's score beside the likeness of words (appendix A; the paper has 0.003).
        antonyms: Path of NLTK's wordnet.zip: antonyms of a word score lowest in its place; faithful mode alone.

    Example:
        >>> mechanism = DPMLM.example()
        >>> mechanism.spend(12).epsilon
        300.0
    """

    contextual: ClassVar[bool] = True
    artifact_fields: ClassVar[frozenset[str]] = ScoreMechanism.artifact_fields | {"stopwords", "antonyms"}
    small_model: ClassVar[str | None] = "english-small"
    model_source: ClassVar[str] = "fetch the usual one where there is a network: `hf download FacebookAI/roberta-base`"

    variant: Literal["plain", "plusminus"] = "plain"
    model: str = "FacebookAI/roberta-base"
    decoding: Literal["sequential", "block", "parallel"] = "sequential"
    block: PositiveInt | None = None
    window: Annotated[int, Field(ge=32, le=8192)] = 512
    length: Literal["disclose", "fixed", "noisy"] = "disclose"
    epsilon_length: Epsilon | None = None
    stopwords: str | None = None
    addition: Chance = 0.1
    deletion: Chance = 0.05
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    alpha: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] | None = None
    antonyms: str | None = None

    @model_validator(mode="after")
    def _options_go_together(self) -> Self:
        if (self.block is not None) != (self.decoding == "block"):
            raise ValueError('block is the size of blocks of decoding "block": give both or neither')
        if (self.epsilon_length is not None) != (self.length == "noisy"):
            raise ValueError('epsilon_length is the price of length "noisy": give both or neither')
        fields = type(self).model_fields
        changed = any(getattr(self, name) != fields[name].default for name in ("addition", "deletion", "delta"))
        if self.variant == "plain" and changed:
            raise ValueError('addition, deletion and delta are for variant "plusminus"')
        if self.antonyms is not None and self.mode == "strict":
            raise ValueError('the filter of antonyms belongs to mode "faithful"')
        if self.hides_length:
            self._check_hidden_length()
        return self

    def _check_hidden_length(self) -> None:
        if self.variant == "plusminus" or self.mode == "faithful" or self.stopwords is not None:
            msg = f'length "{self.length}" would hide nothing beside variant "plusminus", stopwords or faithful mode'
            raise ValueError(msg)
        least = 2 if self.length == "noisy" else 1
        if "n_max" not in self.model_fields_set or not least <= self.n_max <= LONGEST_PADDED:
            msg = f'length "{self.length}" needs n_max, the public length to fill to, from {least} to {LONGEST_PADDED}'
            raise ValueError(msg)

    @property
    def in_place(self) -> bool:
        """Word i is drawn for word i, unless words are added and deleted, or more than words is released."""
        return self.variant == "plain" and self.mode == "strict"

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Which stopwords stand where, if they are kept."""
        return frozenset({Disclosure.STOPWORDS}) if self._kept_source is not None else frozenset()

    @property
    def hides_length(self) -> bool:
        """Whether the number of words is kept from the reader."""
        return self.length != "disclose"

    @property
    def guarantee(self) -> Guarantee:
        """Between texts of as many words that agree on what is kept; between any two texts if the length is hidden."""
        told = {Disclosure.NULLNESS}
        kind = GuaranteeClass.PURE_LDP
        neighbours = "any two texts of one record"
        if not self.hides_length:
            kind = GuaranteeClass.COND_PURE if self.delta is None else GuaranteeClass.COND_APPROX
            neighbours = "two texts of one record that agree on everything disclosed and differ in any words"
            told |= {Disclosure.LENGTH} | (_FAITHFUL if self.mode == "faithful" else frozenset())
        if self._kept_source is not None:
            told |= {Disclosure.STOPWORDS}
        stated = Guarantee(kind, frozenset(told), neighbours, "word")
        return replace(stated, assumptions=stated.assumptions | {SCORES_LOCAL})

    @property
    def refundable(self) -> bool:
        """With "plusminus" the plan decides how many draws are made, and no text decides the plan."""
        return self.variant == "plusminus"

    @property
    def _length_cost(self) -> Fraction:
        return Fraction(0) if self.epsilon_length is None else Fraction(repr(self.epsilon_length))

    def spend(self, positions: int) -> Spend:
        """N draws, or twice as many for "plusminus", and the draw of a noisy length."""
        draws = positions * (2 if self.variant == "plusminus" else 1)
        length = self._length_cost if positions else Fraction(0)
        cost = self.spend_of(draws, self.guarantee, positions=positions, beside=length)
        if self.delta is None or not positions:
            return cost
        likely = likely_draws(positions, self.deletion, self.addition, self.delta)
        return replace(cost, eps_approx=micro(likely * Fraction(repr(self.epsilon))), delta=micro(self.delta))

    def draws(self, positions: int) -> Draws | None:
        """One draw per position, two for "plusminus"; None where a length is drawn beside them."""
        if self.epsilon_length is not None:
            return None
        return Draws(self.epsilon, positions * (2 if self.variant == "plusminus" else 1))

    @property
    def score_range(self) -> Clip:
        """The range of what is drawn from; with `alpha`, likeness from -1 to 1 and the weighted score together."""
        low, high = self.clip_range
        return (low, high) if self.alpha is None else (-1 + self.alpha * low, 1 + self.alpha * high)

    @cached_property
    def vocabulary(self) -> MaskedVocabulary:
        """The model's tokenizer."""
        return MaskedVocabulary.of(self.model_files)

    @cached_property
    def _words_and_tokens(self) -> tuple[tuple[str, ...], Numbers]:
        """The outputs as texts and as token numbers: whole words, or every token of the model."""
        if self.mode == "strict":
            return self.vocabulary.whole_words()
        size = int(json.loads(self.model_files["model/config.json"].path.read_bytes())["vocab_size"])
        texts = [*self.vocabulary.texts()[:size], *[""] * max(0, size - self.vocabulary.size)]
        return tuple(texts), np.arange(size)

    @cached_property
    def output_texts(self) -> tuple[str, ...]:
        """What each output releases, in the order of the model's token numbers; a filling of hidden lengths last."""
        return (*self._words_and_tokens[0], PAD) if self.hides_length else self._words_and_tokens[0]

    @property
    def outputs(self) -> int:
        """How many outputs a draw chooses among."""
        return len(self.output_texts)

    @property
    def _kept_source(self) -> str | None:
        """The list of words that are kept in clear."""
        return "english" if self.stopwords is None and self.mode == "faithful" else self.stopwords

    @cached_property
    def _kept(self) -> frozenset[str]:
        return frozenset() if self._kept_source is None else frozenset(stopwords(self._kept_source).words)

    def artifacts(self) -> dict[str, Artifact]:
        """The model's files, and the lists that are read beside."""
        found = super().artifacts()
        if self._kept_source is not None:
            found["stopwords"] = stopwords(self._kept_source).artifact
        if self.antonyms is not None:
            found["antonyms"] = Artifact.open(self.antonyms, provenance="WordNet", licence="WordNet's own")
        return found

    def output_words(self) -> frozenset[str] | None:
        """The words that a released text can hold; None in faithful mode, which releases more than words."""
        if self.mode == "faithful":
            return None
        return frozenset(self._words_and_tokens[0]) | self._kept

    def input_words(self) -> tuple[str, ...]:
        """Return the words that can come back as themselves, in public order; every word takes one draw."""
        return tuple(word for word in self._words_and_tokens[0] if word and word not in self._kept)

    def survival(self, word: str) -> Fraction:
        """Return an upper bound of the probability that `word` comes back in its own place, whatever the text."""
        if word in self._kept:
            return Fraction(1)
        return self._most if word in self._words_and_tokens[0] else Fraction(0)

    def collision(self, word: str) -> float:  # noqa: ARG002  (the same for every word)
        """Return an upper bound of the probability that two independent draws agree."""
        return self.largest_probability()

    def largest_probability(self) -> float:
        """Return an upper bound of the probability with which a position gives any one word; 1 where some are kept."""
        if self._kept_source is not None or self.mode == "faithful":
            return 1.0
        return min(1.0, float(self._most) * (1 + 1e-12))

    @cached_property
    def _most(self) -> Fraction:
        """The largest probability that the sampler's integers allow (docs/spec/privacy.md#exponential-mechanism)."""
        top = 2 ** sampling.weight_bits(self.outputs)
        return Fraction(top, top + (self.outputs - 1) * sampling.smallest_weight(self.epsilon, self.outputs))

    @cached_property
    def _reader(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(["a", PAD], sorted(self._kept))

    @cached_property
    def _input_policy(self) -> str:
        faithful = self.mode == "faithful"
        policy: dict[str, Any] = {
            "case": "keep" if faithful else "lower",
            "punctuation": "keep" if faithful else "drop",
            "numbers": "uniform",
            "oov": "uniform",
            "null": "pass",
            "n_max": self.n_max,
        }
        if self.length == "fixed":
            policy["length"] = "fixed"
        elif self.length == "noisy":
            rate = self._length_cost / (self.n_max - 1)
            policy["length"] = {"noisy": [rate.numerator, rate.denominator]}
        return json.dumps(policy, sort_keys=True)

    def positions(self, texts: pa.Array) -> pa.Array:
        """Count words that take a draw, or `n_max` where the length is hidden; "plusminus" draws twice that at most."""
        return pa.array(self._reader.positions(texts, self._input_policy))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw every word of every text, each from its own position of its record's stream."""
        record_keys = pa.array(_kernel.record_keys(keys.release, keys.ids, texts, keys.nonce))
        return self.release_with(self.scorer(), scoring, texts, record_keys)

    def release_with(
        self, scorer: Scorer, sampler: Sampler, texts: pa.Array, record_keys: pa.Array, progress: Progress | None = None
    ) -> Released:
        """Release with another scorer or sampler: for tests; everything else calls `release`.

        Args:
            scorer: What scores positions.
            sampler: What draws.
            texts: Strings, nulls allowed.
            record_keys: Fixed-size binary of 32 bytes, one per text.
            progress: Told after every batch.
        """
        encoded = self._reader.encode(texts, self._input_policy, record_keys)
        offsets = pa.array(encoded[1]).to_numpy().astype(np.int64)
        counts = np.diff(offsets)
        released: list[str | None] = []
        steps = np.zeros(len(texts), np.uint32)
        law = Law(self.epsilon, *self.score_range)
        for first, last in _parts(offsets):
            some, keys = texts.slice(first, last - first), record_keys.slice(first, last - first)
            values = some.to_pylist()
            scripts = self._scripts(values, counts[first:last], keys)
            size = self._block_size(counts[first:last])
            chosen = draw(scorer, sampler, scripts, keys, law=law, block=size, progress=progress)
            steps[first:last] = [script.draws for script in scripts]
            released.extend(
                None if text is None else self._written(text, script, outputs)
                for text, script, outputs in zip(values, scripts, chosen, strict=True)
            )
        charged = self.positions(texts)
        made = pa.array(steps) if self.refundable else None
        return Released(pa.array(released, pa.large_string()), charged, made)

    def _block_size(self, counts: npt.NDArray[np.int64]) -> int:
        """Return how many draws see the same transcript: a function of the configuration, whatever the texts."""
        if self.decoding == "parallel":
            return max(1, 2 * int(counts.max(initial=1)))
        return self.block or 1

    def _scripts(self, texts: list[str | None], counts: npt.NDArray[np.int64], keys: pa.Array) -> list[Script]:
        reads = [self._read(text, int(count)) for text, count in zip(texts, counts, strict=True)]
        if self.variant == "plusminus":
            plans = coins(keys, counts, self.deletion, self.addition)
            return [planned(read.words, read.kept, plan) for read, plan in zip(reads, plans, strict=True)]
        if not self.hides_length:
            return [Script.plain(read.words, read.kept) for read in reads]
        return [
            Script.plain(read.words[:count], padding=count - min(count, len(read.words)))
            for read, count in zip(reads, counts.tolist(), strict=True)
        ]

    def _read(self, text: str | None, count: int) -> Read:
        """Read a text; as many words take a draw as the kernel counted, whatever is read."""
        reading = read_strict if self.mode == "strict" else read_faithful
        read = reading(text or "", self._kept, self.n_max) if text is not None else Read([], [])
        if self.hides_length or sum(not keep for keep in read.kept) == count:
            return read
        return Read([""] * count, [False] * count)

    def _written(self, text: str, script: Script, outputs: scoring.Choices) -> str:
        if self.mode == "strict":
            return write_strict(script, outputs, self.output_texts)
        return write_faithful(text, self.n_max, script, outputs, self.output_texts)

    def scorer(self) -> MaskedScorer:
        """Return the model as a scorer on this machine's device, built once per process.

        Raises:
            PolicyError: The model cannot be loaded, or it is no masked language model.
        """
        files, computing = self.model_files, self.computing
        settings = (self.mode, self.hides_length, self.window, self.clip_range, self.alpha, self.antonyms)
        key = (language_model.identity(files), computing.device, computing.dtype, *settings)
        if key not in _SCORERS:
            if len(_SCORERS) >= _KEPT:
                del _SCORERS[next(iter(_SCORERS))]
            _SCORERS[key] = self._scorer(language_model.masked_model(files, computing.device, computing.dtype))
        return _SCORERS[key]

    def _scorer(self, model: Any) -> MaskedScorer:
        from dptext_etl.inference.masked.model import MaskedModel

        words, tokens = self._words_and_tokens
        scored = MaskedModel(model, tokens, self.window)
        known = self.vocabulary
        pieces = [[int(token)] for token in tokens] if self.mode == "strict" else known.encode(words)
        pieces = [*pieces, []] if self.hides_length else list(pieces)
        lexicon = Lexicon(known.encode, pieces, tokens, self.hides_length)
        excluded = None if self.antonyms is None else antonyms_among(self.antonyms, words)
        return MaskedScorer(
            scored, known.frame(scored.window), lexicon, self.clip_range, Adjustment(self.alpha, excluded)
        )

    @classmethod
    def example(cls) -> Self:
        """Epsilon 25 with a tiny model of random weights, which every machine can build, eight words at once."""
        return cls(epsilon=25.0, model="example-masked", decoding="block", block=8)


def _parts(offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of at most `AT_ONCE` draws, longer rows alone."""
    first, rows = 0, len(offsets) - 1
    while first < rows:
        last = int(np.searchsorted(offsets, offsets[first] + AT_ONCE, side="right")) - 1
        last = max(first + 1, min(last, rows))
        yield first, last
        first = last
