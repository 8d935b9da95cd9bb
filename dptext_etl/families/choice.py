"""Replace a whole text by a near public text, drawn by subset selection, with ids or as a multiset.

With labels it is one multiset for each label, in one table.

Every text has d near texts, which weigh W each; every other text of the corpus weighs w. The sum of all weights is the
same for every text, so the loss is ln(W / w) at most, whatever computes nearness (docs/spec/surrogate.md#theorem).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from dptext_etl import _kernel
from dptext_etl.accounting import Approximate, Event, PureDraws, computed
from dptext_etl.accounting.shuffling import Law, Shuffled
from dptext_etl.arrays import to_arrow
from dptext_etl.artifacts import Artifact
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import MOST_WORDS, Encoder, fetched, is_remote, nearest, products
from dptext_etl.corpora.frequencies import Weights, near_texts, usual_hit, weights
from dptext_etl.device import Computing
from dptext_etl.guarantee import (
    MICRO,
    SCORES_LOCAL,
    Disclosure,
    Guarantee,
    GuaranteeClass,
    exact,
)
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import (
    DEFAULT_N_MAX,
    PROBE_TEXT,
    Loss,
    Mechanism,
    Released,
    count_words,
    refuse_model,
    require_charge,
)
from dptext_etl.parameters import PositiveInt

SHUFFLED_NEIGHBORS = "two tables that differ in one record's text, where readers get the multiset of released texts"
_LABELED = " of each label, and labels are the same in both"
MOST_DRAWS = 1024  # draws of one text, at most
Count = Annotated[PositiveInt, Field(le=MOST_DRAWS)]


class ChoiceMechanism(Mechanism):
    """A mechanism that replaces every text by a public text of a corpus, drawn near it; epsilon is per text.

    Attributes:
        epsilon: Epsilon of one text, which all parts and draws share.
        n_max: Words of a text that are read; the rest is cut.
        corpus: A folder of `dptext corpus build` or its file, also by URL; or the name of an included corpus.
        hit: Probability that a draw is a near text; None uses the rate that was calibrated for the corpus, or else a
            usual value.
        parts: Consecutive parts of a text, each replaced by a public text at epsilon / parts; for long texts.
        surrogates: Public texts for each text, at epsilon / surrogates each; one keeps more.
        null_as_empty: Release a null as an empty text, so that nulls do not show.
        shuffled: Settings of a shuffled release, from `[shuffled]` of a policy.
    """

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"corpus"})
    hub_fields: ClassVar[frozenset[str]] = frozenset({"corpus"})
    preview_epsilons: ClassVar[tuple[float, ...]] = (1.0, 2.0, 4.0, 6.0, 8.0)
    cannot_divide: ClassVar[str] = "a text is one draw of a whole public text; parts and surrogates share it evenly"

    n_max: Annotated[PositiveInt, Field(le=MOST_WORDS)] = DEFAULT_N_MAX
    corpus: str
    hit: Annotated[float, Field(gt=0, lt=1)] | None = None
    parts: Count = 1
    surrogates: Count = 1
    null_as_empty: bool = False
    shuffled: Shuffled | None = None

    @model_validator(mode="after")
    def _draws_cost_something(self) -> Self:
        if self.mode != "strict":
            raise ValueError('no paper is reproduced here: leave mode out, it is "strict"')
        if self.parts > 1 and self.surrogates > 1:
            raise ValueError("a text is cut into parts or released several times: give parts or surrogates")
        if self.shuffled is not None and self.most_positions > 1:
            raise ValueError("a shuffled release has one draw per record: leave out parts and surrogates")
        if not self.epsilon_per_draw:
            raise ValueError(f"epsilon is less than a millionth for each of {self.most_positions} draws: raise it")
        return self

    @cached_property
    def opened(self) -> Corpus:
        return Corpus.open(self.corpus)

    def fetch_inputs(self, options: Mapping[str, str]) -> Self:
        if not is_remote(self.corpus):
            return self
        return self.model_copy(update={"corpus": str(fetched(self.corpus, options))})

    @property
    def has_model(self) -> bool:
        """Return True if a model or a tokenizer encodes texts, not the kernel."""
        return not self.opened.in_kernel

    @property
    def table(self) -> Artifact:
        return self.opened.artifact

    def artifacts(self) -> dict[str, Artifact]:
        return {"corpus": self.table}

    @cached_property
    def size(self) -> int:
        return len(self.opened)

    @property
    def epsilon_per_draw(self) -> Fraction:
        """Return epsilon of one draw; of several, each has an equal share, cut to millionths."""
        if self.most_positions == 1:
            return exact(self.epsilon)
        return Fraction(int(exact(self.epsilon) * MICRO / self.most_positions), MICRO)

    @property
    def _decimal(self) -> Decimal:
        if self.most_positions == 1:
            return Decimal(repr(self.epsilon))
        epsilon = self.epsilon_per_draw
        return Decimal(epsilon.numerator) / Decimal(epsilon.denominator)

    @property
    def hit_rate(self) -> Decimal:
        if self.hit is not None:
            return Decimal(repr(self.hit))
        rates = {Decimal(repr(epsilon)): Decimal(repr(hit)) for epsilon, hit in self.opened.hits.items()}
        return usual_hit(self._decimal, rates)

    @cached_property
    def near(self) -> int:
        """Return d, the number of near texts, which follows from size, epsilon and hit rate."""
        return near_texts(self.size, self._decimal, self.hit_rate)

    @cached_property
    def weights(self) -> Weights:
        return weights(self.size, self.near, self._decimal)

    @property
    def epsilon_tight(self) -> Fraction:
        return self.weights.loss

    def require_charge(self) -> None:
        require_charge(self, Loss.of(self.weights.loss))

    @property
    def law(self) -> Law:
        """Return how one public text is drawn, without the text."""
        return Law(self.size, self.near, *self.weights)

    @property
    def used_delta(self) -> float:
        """Return the delta that one record is charged; 0 unless the release is shuffled."""
        return 0.0 if self.shuffled is None else float(self.shuffled.charged_delta(self.law))

    @property
    def n_rec(self) -> int | None:
        """Return the number of records that the delta allows; None without a delta."""
        return None if self.shuffled is None else self.shuffled.most_records(self.law)

    @property
    def most_positions(self) -> int:
        return self.parts * self.surrogates

    def input_policy(self) -> dict[str, Any]:
        return {
            "near": self.near,
            "inside": self.weights.inside,
            "outside": self.weights.outside,
            "parts": self.parts,
            "draws": self.surrogates,
            "n_max": self.n_max,
            "null": "empty" if self.null_as_empty else "pass",
        }

    @property
    def _policy_json(self) -> str:
        return json.dumps(self.input_policy(), sort_keys=True)

    @property
    def _total(self) -> int:
        return self.size * self.weights.outside + self.near * (self.weights.inside - self.weights.outside)

    @property
    def reproducible(self) -> bool:  # type: ignore[override]
        """Return True unless a model encodes texts: its floats differ by machine."""
        return not self.has_model

    @property
    def computing(self) -> Computing | None:
        return self.opened.computing

    @cached_property
    def sentence_model(self) -> Encoder:
        return self.opened.encoder

    def probe(self) -> None:
        if self.has_model:
            probe_encoder(self.sentence_model)

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between any two texts; nothing of the column is disclosed next to which rows are null."""
        disclosed = frozenset() if self.null_as_empty else frozenset({Disclosure.NULLNESS})
        if self.shuffled is not None:
            labeled = self.shuffled.labels is not None
            disclosed |= {Disclosure.OTHER_COLUMNS} if labeled else frozenset()
            neighbors = SHUFFLED_NEIGHBORS + _LABELED * labeled
            return Guarantee(GuaranteeClass.SHUFFLED_APPROX, disclosed, neighbors, "text")
        claim = Guarantee(GuaranteeClass.PURE_LDP, disclosed, "any two texts of one record, of any lengths", "text")
        return replace(claim, assumptions=claim.assumptions | {SCORES_LOCAL}) if self.has_model else claim

    def event(self, positions: int) -> Event:
        """Return that many draws; a text has `most_positions`.

        A draw is pure but not range-bounded: between two texts its loss goes from -epsilon to epsilon. Where only the
        multiset of draws is published, the pair (epsilon, delta) is the central one (docs/spec/shuffled.md#spend).
        """
        draws = PureDraws(self.epsilon_per_draw, positions, computed(self.epsilon_tight), range_bounded=False)
        if self.shuffled is None or not positions:
            return draws
        return Approximate(draws, self.shuffled.epsilon(self.law), self.shuffled.charged_delta(self.law))

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        if self.most_positions == 1 and positions == 1:
            return {"ε": self.epsilon_per_draw}
        return {"n": positions, "ε/k" if self.most_positions > 1 else "ε": self.epsilon_per_draw}

    @cached_property
    def _kernel_corpus(self) -> _kernel.Corpus:
        return _kernel.Corpus.open(str(self.table.path), self.table.sha256)

    def positions(self, texts: pa.Array) -> pa.Array:
        drawn = np.full(len(texts), True) if self.null_as_empty else texts.is_valid().to_numpy(zero_copy_only=False)
        return to_arrow(drawn.astype(np.uint32) * np.uint32(self.most_positions))

    def count_known_words(self, texts: pa.Array) -> npt.NDArray[np.uint32] | None:
        """Count the words that the encoder knows among those read, shape (texts,); None where a model encodes."""
        return None if self.has_model else count_words(texts, self.n_max, self._lexicon)

    @cached_property
    def _lexicon(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(self.opened.word_encoder.words)

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Release texts; where a model encodes, say on which rows it failed.

        The vector of a text depends on this text only (docs/spec/privacy.md#batch-independence). A text on which a
        model fails has the zero vector, which is drawn uniformly (docs/spec/surrogate.md#missing-inputs).
        """
        vectors = failed = None
        if self.has_model:
            pieces = [piece for text in texts.to_pylist() for piece in cut(text or "", self.parts, self.n_max)]
            encoded, failures = self.sentence_model.encode(pieces), np.zeros(len(texts), np.uint32)
            if self.opened.in_floats:
                wrong = np.array([bool(piece.strip()) for piece in pieces], np.bool_) & ~encoded.any(axis=1)
                failures += wrong.reshape(-1, self.parts).any(axis=1)
            vectors, failed = to_arrow(encoded.ravel()), to_arrow(failures)
        columns = pa.array(
            self._kernel_corpus.release(keys.release, texts, keys.ids, self._policy_json, keys.nonce, vectors)
        )
        return Released(columns.field("text"), columns.field("positions"), failed=failed)

    def near_to(self, text: str) -> list[int] | None:
        """Return the numbers of the texts near one text (or part), nearest first; None if it says nothing."""
        if not self.has_model:
            return self._kernel_corpus.near(text, self._policy_json)
        vector = self.sentence_model.encode([text]) if text.strip() else np.zeros((1, 1), np.int8)
        near = nearest(products(vector, self.opened.vectors), self.near)[0] if vector.any() else None
        return None if near is None else [int(number) for number in near]

    def transition(self, text: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one draw: all texts of the corpus, and their probabilities."""
        chances = [Fraction(1, self.size)] * self.size
        near, (inside, outside) = self.near_to(text), self.weights
        if near is not None:
            chances = [Fraction(outside, self._total)] * self.size
            for number in near:
                chances[number] = Fraction(inside, self._total)
        return list(self.opened.texts), chances

    def survival(self, number: int) -> Fraction:
        """Return the probability that one draw for text `number` of the corpus gives that text."""
        # a text may not be near itself: vectors may coincide, and rounding makes some longer
        near = self.near_to(self.opened.texts[number])
        if near is None:
            return Fraction(1, self.size)
        return Fraction(self.weights.inside if number in near else self.weights.outside, self._total)

    def collision(self, number: int) -> Fraction:
        if self.near_to(self.opened.texts[number]) is None:
            return Fraction(1, self.size)
        inside, outside = self.weights
        return Fraction(self.near * inside**2 + (self.size - self.near) * outside**2, self._total**2)

    def largest_probability(self) -> Fraction:
        return Fraction(self.weights.inside, self._total)

    def described(self) -> dict[str, dict[str, Any]]:
        inside, outside = self.weights
        return {
            "draw": {
                "kind": "subset selection among the texts of a public corpus",
                "texts of the corpus": self.size,
                "near texts (d)": self.near,
                "probability of a near text": round(float(self.near * self.largest_probability()), 6),
                "probability of a near text over the probability of another": float(Fraction(inside, outside)),
                "encoder": self.opened.encoder_kind,
            }
        }


def probe_encoder(encoder: Encoder) -> None:
    """Refuse an encoder that fails on a public text."""
    try:
        works = bool(encoder.encode([PROBE_TEXT])[0].any())
    except Exception:  # noqa: BLE001
        works = False
    if not works:
        refuse_model()


def cut(text: str, parts: int, n_max: int) -> list[str]:
    """Cut a text into consecutive parts of nearly equal numbers of words; words after the first `n_max` are excluded.

    >>> cut("one, two three!", 2, 100)
    ['one, ', 'two three!']
    """
    segments = _kernel.split(text)
    places = [place for place, (_, is_word) in enumerate(segments) if is_word]
    end = places[n_max] if len(places) > n_max else len(segments)
    count = min(len(places), n_max)
    edges = [places[part * count // parts] if part * count // parts < count else end for part in range(parts)]
    edges[0] = 0
    return ["".join(segment for segment, _ in segments[a:b]) for a, b in zip(edges, [*edges[1:], end], strict=True)]
