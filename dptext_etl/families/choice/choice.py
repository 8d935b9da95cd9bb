"""Replace a whole text by a text of a public corpus, drawn near it by subset selection.

Every text x has a set N(x) of d near texts; each weighs W, and every other text of the corpus weighs w. The sum of all
weights is the same for every x, so between any two texts the loss is ln(W / w) at most, whatever computes N: this is
the whole theorem (docs/spec/surrogate.md#theorem). A text without a known word is drawn uniformly, at the same cost.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.accounting import Approximate, Event, PureDraws, computed
from dptext_etl.corpora.encoder import SentenceModel, nearest, products
from dptext_etl.device import Computing, computing
from dptext_etl.families.certificate import Certificate
from dptext_etl.families.choice import sentences
from dptext_etl.families.choice.parameters import ChoiceParameters
from dptext_etl.families.choice.sentences import Encoded, Encoder
from dptext_etl.guarantee import SCORES_LOCAL, Disclosure, Guarantee, GuaranteeClass
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import Released

UNLINKED_NEIGHBORS = "two tables that differ in one record's text, where readers get the multiset of released texts"


class ChoiceMechanism(ChoiceParameters):
    """A mechanism that replaces every text by a public text of a corpus; epsilon is per text."""

    @property
    def reproducible(self) -> bool:  # type: ignore[override]
        """Return True unless a model encodes texts: its floats differ by machine."""
        return not self.has_model

    @property
    def computing(self) -> Computing | None:
        """Return device and number type of the model; None where the kernel encodes."""
        return computing() if self.has_model else None

    @cached_property
    def sentence_model(self) -> Encoder:
        """Load the model that the corpus names."""
        return SentenceModel(str(self.opened.description["encoder"]["name"]))

    def probe(self) -> None:
        """Encode a public text, where a model does it."""
        if self.has_model:
            sentences.probe(self.sentence_model)

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between any two texts; nothing of the column is disclosed next to which rows are null."""
        told = frozenset() if self.null_as_empty else frozenset({Disclosure.NULLNESS})
        if self.unlinked is not None:
            return Guarantee(GuaranteeClass.UNLINKED_APPROX, told, UNLINKED_NEIGHBORS, "text")
        claim = Guarantee(GuaranteeClass.PURE_LDP, told, "any two texts of one record, of any lengths", "text")
        return replace(claim, assumptions=claim.assumptions | {SCORES_LOCAL}) if self.has_model else claim

    def event(self, positions: int) -> Event:
        """Return that many draws; a text takes `most_positions`.

        A draw is pure but not range-bounded: between two texts its loss goes from -epsilon to epsilon. Where only the
        multiset of draws is published, the pair (epsilon, delta) is the central one (docs/spec/unlinked.md#spend).
        """
        draws = PureDraws(self.epsilon_per_draw, positions, computed(self.epsilon_tight), range_bounded=False)
        if self.unlinked is None or not positions:
            return draws
        return Approximate(draws, self.unlinked.epsilon(self.law), self.unlinked.charged_delta(self.law))

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the number of draws and epsilon of each."""
        if self.most_positions == 1 and positions == 1:
            return {"ε": self.epsilon_per_draw}
        return {"n": positions, "ε/k" if self.most_positions > 1 else "ε": self.epsilon_per_draw}

    @cached_property
    def _kernel_corpus(self) -> _kernel.Corpus:
        return _kernel.Corpus.open(str(self.table.path), self.table.sha256)

    def vectors(self, texts: pa.Array) -> Encoded | None:
        """Return the vectors of all parts of texts where a model makes them; None where the kernel does."""
        if not self.has_model:
            return None
        return sentences.encoded(self.sentence_model, texts, self.parts, self.n_max, self.opened.vectors.shape[1])

    def positions(self, texts: pa.Array) -> pa.Array:
        """Return the draws of a text for every text, and none for a null that passes as null."""
        drawn = np.full(len(texts), True) if self.null_as_empty else texts.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(drawn.astype(np.uint32) * np.uint32(self.most_positions))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw a public text for every text or part, in parallel, without the GIL."""
        given, failed = _handed(self.vectors(texts))
        out = self._kernel_corpus.release(keys.release, texts, keys.ids, self._policy_json, keys.nonce, given)
        return _released(out, failed)

    def release_with_keys(self, texts: pa.Array, record_keys: pa.Array) -> Released:
        """Release with given record keys, for tests that fix the stream; everything else calls `release`."""
        given, failed = _handed(self.vectors(texts))
        return _released(self._kernel_corpus.release_with_keys(record_keys, texts, self._policy_json, given), failed)

    def near_to(self, text: str) -> list[int] | None:
        """Return the numbers of the texts near one text (or part), nearest first; None if it says nothing."""
        if not self.has_model:
            return self._kernel_corpus.near(text, self._policy_json)
        found = self.sentence_model.encode([text]) if text.strip() else np.zeros((1, 1), np.int8)
        near = nearest(products(found, self.opened.vectors), self.near)[0] if found.any() else None
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
        """Return the probability that one draw for text `number` of the corpus gives that text.

        It is not certain that a text is near itself: vectors may coincide, and rounding makes some longer.
        """
        near = self.near_to(self.opened.texts[number])
        if near is None:
            return Fraction(1, self.size)
        return Fraction(self.weights.inside if number in near else self.weights.outside, self._total)

    def collision(self, number: int) -> Fraction:
        """Return the probability that two independent draws for text `number` of the corpus agree."""
        if self.near_to(self.opened.texts[number]) is None:
            return Fraction(1, self.size)
        inside, outside = self.weights
        return Fraction(self.near * inside**2 + (self.size - self.near) * outside**2, self._total**2)

    def largest_probability(self) -> Fraction:
        """Return the largest probability of any text in one draw."""
        return Fraction(self.weights.inside, self._total)

    def certificate(self) -> Certificate:
        """Compute the loss of one draw from the integer weights, and name two far texts of the corpus."""
        return Certificate(
            f"the weights of {self.near:,} near texts among {self.size:,}",
            float(self.weights.loss),
            exact=True,
            words=self.far_texts(),
        )

    def far_texts(self) -> tuple[str, str]:
        """Return two texts of the corpus that are easy to distinguish: the first one that says something, and another.

        The other shares the fewest near texts with it, of a hundred spread over the corpus.
        """
        texts = self.opened.texts
        spread = [texts[number] for number in range(0, self.size, max(1, self.size // 100))]
        said = [(text, set(near)) for text in spread if (near := self.near_to(text)) is not None]
        if len(said) < 2:
            return texts[0], texts[-1]
        (first, own), *others = said
        return first, min(others, key=lambda other: len(own & other[1]))[0]

    def described(self) -> dict[str, dict[str, Any]]:
        """Return facts about one draw: how many texts are near, how often it falls to them, what one of them gains."""
        inside, outside = self.weights
        return {
            "draw": {
                "kind": "subset selection among the texts of a public corpus",
                "texts of the corpus": self.size,
                "near texts (d)": self.near,
                "probability of a near text": round(float(self.near * self.largest_probability()), 6),
                "probability of a near text over that of another": float(Fraction(inside, outside)),
                "encoder": self.opened.encoder_kind,
            }
        }


def _handed(found: Encoded | None) -> tuple[pa.Array | None, pa.Array | None]:
    return (None, None) if found is None else (pa.array(found.vectors.ravel()), pa.array(found.failed))


def _released(out: _kernel.Column, failed: pa.Array | None) -> Released:
    columns = pa.array(out)
    return Released(columns.field("text"), columns.field("positions"), failed=failed)
