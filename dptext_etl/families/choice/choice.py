"""Replace a whole text by a text of a public corpus, drawn near it by subset selection.

Every text x has a set N(x) of d near texts; each weighs W, and every other text of the corpus weighs w. The sum of all
weights is the same for every x, so between any two texts the loss is ln(W / w) at most, whatever computes N: this is
the whole theorem (docs/spec/surrogate.md#theorem). A text without a known word is drawn uniformly, at the same cost.
"""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from dptext_etl import _kernel
from dptext_etl.artifacts import Artifact
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.encoder import MOST_WORDS
from dptext_etl.errors import PolicyError
from dptext_etl.families.certificate import Certificate
from dptext_etl.families.choice.weights import Weights, near_texts, usual_hit, weights
from dptext_etl.families.in_kernel import InKernel
from dptext_etl.families.spends import spend_of_draws
from dptext_etl.guarantee import MICRO, Disclosure, Guarantee, GuaranteeClass, Spend, exact, micro
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import DEFAULT_N_MAX, Released

ENCODERS = frozenset({"words", "task"})
"""Kinds of encoders that are sums of vectors of words, which the kernel computes."""
MOST_DRAWS = 1024
"""Draws of one text, at most."""
Count = Annotated[PositiveInt, Field(le=MOST_DRAWS)]


class ChoiceMechanism(InKernel):
    """A mechanism that replaces every text by a public text of a corpus; epsilon is per text.

    Attributes:
        epsilon: Epsilon of one text, whatever its length: all parts and draws of it share it.
        n_max: Words of a text that are read; the rest is cut.
        corpus: A folder that `dptext corpus build` wrote, its file, or the name of a corpus that comes with the
            library.
        hit: Wanted probability of a draw to fall to the near texts; it says how many are near. None takes what was
            calibrated for the corpus, or else a usual value.
        parts: Number of consecutive parts of a text that become a public text each, at epsilon / parts; for long texts.
        surrogates: Number of public texts for each text, at epsilon / surrogates each; for experiments, as one keeps
            more.
        null_as_empty: True if a null is released as an empty text would be, so that nulls do not show.
    """

    reproducible: ClassVar[bool] = True
    artifact_fields: ClassVar[frozenset[str]] = frozenset({"corpus"})
    hub_fields: ClassVar[frozenset[str]] = frozenset({"corpus"})
    shown_epsilons: ClassVar[tuple[float, ...]] = (1.0, 2.0, 4.0, 6.0, 8.0)

    n_max: Annotated[PositiveInt, Field(le=MOST_WORDS)] = DEFAULT_N_MAX
    corpus: str
    hit: Annotated[float, Field(gt=0, lt=1)] | None = None
    parts: Count = 1
    surrogates: Count = 1
    null_as_empty: bool = False

    @model_validator(mode="after")
    def _draws_cost_something(self) -> Self:
        if self.mode != "strict":
            msg = 'no paper is reproduced here: leave mode out, it is "strict"'
            raise ValueError(msg)
        if self.parts > 1 and self.surrogates > 1:
            msg = "a text is cut into parts or released several times: give parts or surrogates"
            raise ValueError(msg)
        if not self.epsilon_per_draw:
            msg = f"epsilon is less than a millionth for each of {self.most_positions} draws: raise it"
            raise ValueError(msg)
        return self

    @cached_property
    def opened(self) -> Corpus:
        """Return the corpus, found on this machine.

        Raises:
            ArtifactError: There is no such corpus, or its file is none.
            PolicyError: A model encoded it, and this mechanism has none.
        """
        corpus = Corpus.open(self.corpus)
        if corpus.encoder_kind not in ENCODERS:
            allowed = " or ".join(sorted(ENCODERS))
            raise PolicyError(
                f"a model encoded the corpus, and every text would be drawn uniformly; encoders are {allowed}",
                "build the corpus with such an encoder",
            )
        return corpus

    @property
    def table(self) -> Artifact:
        """Return the corpus' file."""
        return self.opened.artifact

    def artifacts(self) -> dict[str, Artifact]:
        """Return the corpus as the only artifact."""
        return {"corpus": self.table}

    @cached_property
    def size(self) -> int:
        """Return the number of texts of the corpus."""
        return len(self.opened)

    @property
    def epsilon_per_draw(self) -> Fraction:
        """Return epsilon of one draw; of several, each takes an equal share, cut to millionths."""
        if self.most_positions == 1:
            return exact(self.epsilon)
        return Fraction(int(exact(self.epsilon) * MICRO / self.most_positions), MICRO)

    @property
    def _decimal(self) -> Decimal:
        epsilon = self.epsilon_per_draw
        if self.most_positions == 1:
            return Decimal(repr(self.epsilon))
        return Decimal(epsilon.numerator) / Decimal(epsilon.denominator)

    @property
    def hit_rate(self) -> float:
        """Return the wanted probability of a draw to fall to the near texts."""
        return float(self._hit)

    @property
    def _hit(self) -> Decimal:
        if self.hit is not None:
            return Decimal(repr(self.hit))
        known = {Decimal(repr(epsilon)): Decimal(repr(hit)) for epsilon, hit in self.opened.hits.items()}
        return usual_hit(self._decimal, known)

    @cached_property
    def near(self) -> int:
        """Return d, the number of near texts, which follows from size, epsilon and hit rate."""
        return near_texts(self.size, self._decimal, self._hit)

    @cached_property
    def weights(self) -> Weights:
        """Return the weights of near texts and of all others."""
        return weights(self.size, self.near, self._decimal)

    @property
    def epsilon_tight(self) -> Fraction:
        """Return the exact loss of one draw, rounded up."""
        return self.weights.loss

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between any two texts; nothing of the column is disclosed beside which rows are null."""
        told = frozenset() if self.null_as_empty else frozenset({Disclosure.NULLNESS})
        return Guarantee(GuaranteeClass.PURE_LDP, told, "any two texts of one record, of any lengths", "text")

    @property
    def most_positions(self) -> int:
        """Return the draws of every text, whatever its length."""
        return self.parts * self.surrogates

    def spend(self, positions: int) -> Spend:
        """Return the spend of that many draws; a text takes `most_positions`.

        A draw is pure but not range-bounded: between two texts its loss goes from -epsilon to epsilon.
        """
        epsilon, tight = self.epsilon_per_draw, self.epsilon_tight
        return spend_of_draws(self.guarantee, positions, epsilon, tight, positions=positions, bounded_range=False)

    def worst_case(self, positions: int | None = None) -> Spend:
        """Return the cost of one text, for any length; a null that passes as null costs nothing."""
        return self.spend(self.most_positions if positions is None else min(positions, self.most_positions))

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the number of draws and epsilon of each."""
        if self.most_positions == 1 and positions == 1:
            return {"ε": self.epsilon_per_draw}
        return {"n": positions, "ε/k" if self.most_positions > 1 else "ε": self.epsilon_per_draw}

    def unit_micro(self) -> int:
        """Return the declared epsilon of one draw in millionths."""
        return int(micro(self.epsilon_per_draw))

    def input_policy(self) -> dict[str, Any]:
        """Return, as data, how texts are read and drawn."""
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

    @cached_property
    def _kernel_corpus(self) -> _kernel.Corpus:
        return _kernel.Corpus.open(str(self.table.path), self.table.sha256)

    def vectors(self, texts: pa.Array) -> pa.Array | None:  # noqa: ARG002
        """Return the vectors of all parts of texts where a model makes them, int8, row after row; None for words."""
        return None

    def positions(self, texts: pa.Array) -> pa.Array:
        """Return the draws of a text for every text, and none for a null that passes as null."""
        drawn = np.full(len(texts), True) if self.null_as_empty else texts.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(drawn.astype(np.uint32) * np.uint32(self.most_positions))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw a public text for every text or part, in parallel, without the GIL."""
        vectors = self.vectors(texts)
        out = pa.array(
            self._kernel_corpus.release(keys.release, texts, keys.ids, self._policy_json, keys.nonce, vectors)
        )
        return Released(out.field("text"), out.field("positions"))

    def release_with_keys(self, texts: pa.Array, record_keys: pa.Array) -> Released:
        """Release with given record keys, for tests that fix the stream; everything else calls `release`."""
        out = pa.array(
            self._kernel_corpus.release_with_keys(record_keys, texts, self._policy_json, self.vectors(texts))
        )
        return Released(out.field("text"), out.field("positions"))

    def near_to(self, text: str) -> list[int] | None:
        """Return the numbers of the texts near one text (or part), nearest first; None if it says nothing."""
        return self._kernel_corpus.near(text, self._policy_json)

    def transition(self, text: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one draw: all texts of the corpus, and their probabilities.

        Args:
            text: A text, or a part of one.
        """
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

    @property
    def _total(self) -> int:
        return self.size * self.weights.outside + self.near * (self.weights.inside - self.weights.outside)

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

    def out_of_vocabulary_chance(self) -> float:
        """Return 0: a release holds public texts alone."""
        return 0.0

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
