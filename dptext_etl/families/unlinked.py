"""Describe an unlinked release: draws of public texts that are published as a multiset, without ids or order.

With labels it is one multiset for each label, in one table.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from dptext_etl.accounting.shuffling import Law, central_epsilon
from dptext_etl.guarantee import LARGEST_DELTA, LARGEST_SUM, exact

COUNT = "count"  # the column that says how often a text was drawn, in the form "counts"
OTHER = "other"  # the label of null and unlisted values
_MOST_ROWS = 10**9
_MODEL = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
_Text = Annotated[str, Field(min_length=1, max_length=200)]


class UnlinkedLabels(BaseModel):
    """The labels under which an unlinked release publishes its texts.

    Attributes:
        column: Column of strings that holds them. They are not protected.
        values: The public list of labels. Others, and null, count as "other": their texts are published if the list
            names it, and otherwise left out, uncharged.
    """

    model_config = _MODEL

    column: _Text
    values: tuple[_Text, ...]

    @property
    def named(self) -> tuple[str, ...]:
        """Return the labels that are published as they are."""
        return tuple(value for value in self.values if value != OTHER)

    @model_validator(mode="after")
    def _listed(self) -> Self:
        if len({*self.values}) < len(self.values):
            raise ValueError("values lists a label twice: list each public label once")
        if not self.named:
            raise ValueError(f'values lists one label or more besides "{OTHER}", which takes all others')
        return self


class Unlinked(BaseModel):
    """What a policy says of an unlinked release, in its table `[unlinked]`.

    Attributes:
        rows: Public lower bound on the number of released texts; a run with fewer is refused before any draw. With
            `labels`, that of every label.
        delta: Delta of one record, at most 1e-6.
        per_subject: Records of a person that take part, at most, under all labels together; the others are left out.
        form: "rows" publishes every drawn text as a row, "counts" each distinct one with its count.
        labels: Publish the label of each text next to it: `column`, and `values` (the public list).
    """

    model_config = _MODEL

    rows: Annotated[int, Field(ge=2, le=_MOST_ROWS, strict=True)]
    delta: Annotated[float, Field(gt=0, le=LARGEST_DELTA, allow_inf_nan=False, strict=True)]
    per_subject: PositiveInt = 1
    form: Literal["rows", "counts"] = "rows"
    labels: UnlinkedLabels | None = Field(default=None, exclude_if=lambda labels: labels is None)

    def columns(self, text: str) -> tuple[str, ...]:
        """Return the columns of the published table, by the name of its text column."""
        label = () if self.labels is None else (self.labels.column,)
        return (*label, text) if self.form == "rows" else (*label, text, COUNT)

    def epsilon(self, law: Law) -> Fraction:
        """Return the central epsilon of one record under any label, in whole millionths rounded up."""
        return central_epsilon(self.rows, law, self.delta)

    def charged_delta(self, law: Law) -> Fraction:
        """Return the delta that each record is charged, so that `per_subject` of them cover a person, rounded up."""
        charged = self._multiplied(law)
        if self.per_subject > 1 and charged > LARGEST_DELTA:
            msg = f"per_subject = {self.per_subject} multiplies the delta of a record to {float(charged):.2g}, above "
            raise ValueError(f"{msg}{LARGEST_DELTA:g}: {self._sound(law)}")
        return charged

    def _multiplied(self, law: Law) -> Fraction:
        if self.per_subject == 1:
            return exact(self.delta)
        exponent = float((self.per_subject - 1) * self.epsilon(law))
        return exact(self.delta) * Fraction(math.exp(min(exponent, 100.0)) * (1 + 1e-12))

    def _sound(self, law: Law) -> str:
        """Return what to state instead: the largest delta that works, or the least rows; and the most per_subject."""
        deltas = [{"delta": 10.0**-power} for power in range(7, 12) if 10.0**-power < self.delta]
        rows = [{"rows": 10**power, "delta": min(self.delta, 1e-8)} for power in range(3, 8) if 10**power > self.rows]
        fewer = [{"per_subject": most} for most in range(self.per_subject - 1, 0, -1)]
        one, most = (next(filter(partial(self._works, law), tried), {}) for tried in ([*deltas, *rows], fewer))
        parts = [" and ".join(f"{name} = {value:.9g}" for name, value in found.items()) for found in (one, most)]
        parts[0] += " (if there are so many texts)" if "rows" in one else ""
        return f"{' or '.join(filter(None, parts))} works"

    def _works(self, law: Law, changes: dict[str, Any]) -> bool:
        other = self.model_copy(update=changes)
        return other.per_subject == 1 or other._multiplied(law) <= LARGEST_DELTA  # noqa: SLF001  (of this class)

    def most_records(self, law: Law) -> int:
        """Return for how many records the charged delta may be stated (docs/spec/privacy.md#delta-policy)."""
        return int(LARGEST_SUM / self.charged_delta(law))

    def condition(self, law: Law) -> dict[str, Any]:
        """Return what the bound rests on, all of it public (docs/spec/unlinked.md#bound)."""
        weights = [law.inside, law.outside]
        return {**self.model_dump(mode="json"), "corpus_texts": law.texts, "near_texts": law.near, "weights": weights}


def unlinked_of(mechanism: object) -> Unlinked | None:
    """Return what is published of a mechanism's draws if only their multiset is; None where rows are published."""
    return getattr(mechanism, "unlinked", None)
