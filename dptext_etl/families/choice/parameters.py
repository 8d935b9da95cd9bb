"""Say how whole texts are drawn: the corpus, how many of its texts are near, and the weights that follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PositiveInt, model_validator

from dptext_etl.accounting.shuffling import Law
from dptext_etl.artifacts import Artifact
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import fetched, is_remote
from dptext_etl.corpora.encoder import MOST_WORDS
from dptext_etl.corpora.weights import Weights, near_texts, usual_hit, weights
from dptext_etl.guarantee import MICRO, exact
from dptext_etl.mechanism import DEFAULT_N_MAX, Mechanism
from dptext_etl.unlinked import Unlinked

_MODEL = "sentence-transformers"
MOST_DRAWS = 1024
"""Draws of one text, at most."""
Count = Annotated[PositiveInt, Field(le=MOST_DRAWS)]


class ChoiceParameters(Mechanism):
    """Parameters of a draw of whole public texts, and what follows from them; epsilon is per text.

    Attributes:
        epsilon: Epsilon of one text, whatever its length: all parts and draws of it share it.
        n_max: Words of a text that are read; the rest is cut.
        corpus: A folder that `dptext corpus build` wrote, its file, or the name of a corpus that comes with the
            library; or the URL of a folder or a file in an object store.
        hit: Wanted probability of a draw to fall to the near texts; it says how many are near. None takes what was
            calibrated for the corpus, or else a usual value.
        parts: Number of consecutive parts of a text that become a public text each, at epsilon / parts; for long texts.
        surrogates: Number of public texts for each text, at epsilon / surrogates each; for experiments, as one keeps
            more.
        null_as_empty: True if a null is released as an empty text would be, so that nulls do not show.
        unlinked: What is published of the draws, if only their multiset is; the table `[unlinked]` of a policy sets it.
    """

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"corpus"})
    hub_fields: ClassVar[frozenset[str]] = frozenset({"corpus"})
    shown_epsilons: ClassVar[tuple[float, ...]] = (1.0, 2.0, 4.0, 6.0, 8.0)
    cannot_divide: ClassVar[str] = "a text is one draw of a whole public text; parts and surrogates share it evenly"

    n_max: Annotated[PositiveInt, Field(le=MOST_WORDS)] = DEFAULT_N_MAX
    corpus: str
    hit: Annotated[float, Field(gt=0, lt=1)] | None = None
    parts: Count = 1
    surrogates: Count = 1
    null_as_empty: bool = False
    unlinked: Unlinked | None = None

    @model_validator(mode="after")
    def _draws_cost_something(self) -> Self:
        if self.mode != "strict":
            msg = 'no paper is reproduced here: leave mode out, it is "strict"'
            raise ValueError(msg)
        if self.parts > 1 and self.surrogates > 1:
            msg = "a text is cut into parts or released several times: give parts or surrogates"
            raise ValueError(msg)
        if self.unlinked is not None and self.most_positions > 1:
            msg = "an unlinked release has one draw per record: leave out parts and surrogates"
            raise ValueError(msg)
        if not self.epsilon_per_draw:
            msg = f"epsilon is less than a millionth for each of {self.most_positions} draws: raise it"
            raise ValueError(msg)
        return self

    @cached_property
    def opened(self) -> Corpus:
        """Return the corpus, found on this machine."""
        return Corpus.open(self.corpus)

    def fetched(self, options: Mapping[str, str]) -> Self:
        """Return this mechanism with the corpus on this machine, if it is named by a URL."""
        if not is_remote(self.corpus):
            return self
        return self.model_copy(update={"corpus": str(fetched(self.corpus, options))})

    @property
    def has_model(self) -> bool:
        """Return True if a model encodes texts, not the kernel."""
        return self.opened.encoder_kind == _MODEL

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
    def law(self) -> Law:
        """Return how one public text is drawn, without the text."""
        return Law(self.size, self.near, *self.weights)

    @property
    def used_delta(self) -> float:
        """Return the delta that one record is charged; 0 unless the release is unlinked."""
        return 0.0 if self.unlinked is None else float(self.unlinked.charged_delta(self.law))

    @property
    def n_rec(self) -> int | None:
        """Return the number of records that the delta allows; None without a delta."""
        return None if self.unlinked is None else self.unlinked.most_records(self.law)

    @property
    def most_positions(self) -> int:
        """Return the draws of every text, whatever its length."""
        return self.parts * self.surrogates

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

    @property
    def _total(self) -> int:
        return self.size * self.weights.outside + self.near * (self.weights.inside - self.weights.outside)
