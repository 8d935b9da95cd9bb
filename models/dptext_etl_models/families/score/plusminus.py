"""Replace words, and also delete and add words (algorithm 3 of the paper on DP-MLM).

A plan is drawn first, independently of the text: it says which words are deleted, and which are followed by another
word. Remaining words and added words take one draw each, so the worst case is two draws per word; a cap can be charged
for the draws that were made. The printed algorithm leaves original words at the end of the text, because it counts
deletions but never makes them. Specification: docs/spec/privacy.md#dpmlm-plusminus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from dptext_etl.families.reading import Read
from dptext_etl.guarantee import Guarantee, GuaranteeClass, Spend, exact, fine, micro
from dptext_etl_models.families.score.masked import MaskedMechanism
from dptext_etl_models.inference.masked.plan import draw_plans, likely_draws, planned
from dptext_etl_models.inference.masked.steps import Script

Probability = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class PlusMinusMechanism(MaskedMechanism):
    """A masked mechanism with a variant that deletes and adds words.

    Attributes:
        variant: "plain" replaces every word; "plusminus" also deletes and adds words.
        addition: Probability that another word follows a word, for "plusminus".
        deletion: Probability that a word is deleted, for "plusminus".
        delta: For "plusminus": also state (epsilon, delta) for the number of draws that is exceeded with probability
            delta.
        n_rec: Public bound on the records of the table, never its size; strict mode needs it for a delta.
    """

    variant: Literal["plain", "plusminus"] = "plain"
    addition: Probability = 0.1
    deletion: Probability = 0.05
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    n_rec: PositiveInt | None = None

    @model_validator(mode="after")
    def _plans_are_of_plusminus(self) -> Self:
        fields = type(self).model_fields
        changed = any(getattr(self, name) != fields[name].default for name in ("addition", "deletion", "delta"))
        if self.delta is not None and self.allocation is not None:
            raise ValueError("delta bounds how many draws are likely, but an allocation costs the same for any number")
        if self.variant == "plain" and changed:
            raise ValueError('addition, deletion and delta are for variant "plusminus"')
        if self.delta is None and self.n_rec is not None:
            raise ValueError("n_rec bounds the records that a delta is stated for: leave it out, or give delta")
        return self

    @property
    def used_delta(self) -> float:
        """The delta of the draws that are likely, where one is given."""
        return self.delta or 0.0

    @property
    def _length_is_told_by(self) -> str | None:
        told = 'variant "plusminus" releases another number of words' if self.variant == "plusminus" else None
        return super()._length_is_told_by or told

    @property
    def in_place(self) -> bool:
        """Return True unless words are added and deleted, or more than words is released."""
        return super().in_place and self.variant == "plain"

    @property
    def refundable(self) -> bool:
        """Return True for "plusminus": the plan decides the number of draws, independently of the text."""
        return self.variant == "plusminus" and self.allocation is None

    @property
    def draws_per_position(self) -> int:
        """Return 2 for "plusminus", for a remaining word and an added one; otherwise 1."""
        return 2 if self.variant == "plusminus" else 1

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors, with two draws per word for "plusminus"."""
        twice: dict[str, float | Fraction] = {"2": 2} if self.refundable else {}
        return {**twice, **super().cost_factors(positions)}

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of masked mechanisms, with a delta if one is stated."""
        stated = super().guarantee
        return stated if self.delta is None else replace(stated, guarantee_class=GuaranteeClass.COND_APPROX)

    def spend(self, positions: int) -> Spend:
        """Return the worst case; with `delta`, also the cost of the draws that are likely."""
        cost = super().spend(positions)
        if self.delta is None or not positions:
            return cost
        likely = likely_draws(positions, self.deletion, self.addition, self.delta)
        return replace(cost, eps_approx=micro(likely * exact(self.epsilon)), delta=fine(self.delta))

    def scripts(self, reads: Sequence[Read], counts: npt.NDArray[np.int64], keys: pa.Array) -> list[Script]:
        """Return the script of each text; for "plusminus" it follows a plan from a stream of its own."""
        if self.variant == "plain":
            return super().scripts(reads, counts, keys)
        drawn = draw_plans(keys, counts, self.deletion, self.addition)
        return [planned(read.words, read.kept, plan) for read, plan in zip(reads, drawn, strict=True)]
