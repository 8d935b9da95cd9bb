"""Describe an unlinked release: draws of public texts that are published as a multiset, without ids or order."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from dptext_etl.accounting.shuffling import Law, central_epsilon
from dptext_etl.families.labels import Labels
from dptext_etl.guarantee import LARGEST_DELTA, LARGEST_SUM, exact

COUNT = "count"  # the column that says how often a text was drawn, in the form "counts"
_MOST_ROWS = 10**9


class Unlinked(BaseModel):
    """What a policy says of an unlinked release, in its table `[unlinked]`.

    Attributes:
        rows: Public lower bound on the number of released texts, of each label if there are labels; a run with fewer is
            refused before any draw.
        delta: Delta of one record, at most 1e-6.
        per_subject: Records of a person that take part, at most; the others are left out.
        form: "rows" publishes every drawn text as a row, "counts" each distinct one with its count.
        labels: A public label next to each text: `column` or `columns`, and `values`; others, and null, are "other".
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    rows: Annotated[int, Field(ge=2, le=_MOST_ROWS, strict=True)]
    delta: Annotated[float, Field(gt=0, le=LARGEST_DELTA, allow_inf_nan=False, strict=True)]
    per_subject: PositiveInt = 1
    form: Literal["rows", "counts"] = "rows"
    labels: Labels | None = Field(default=None, exclude_if=lambda labels: labels is None)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Return the columns of the labels."""
        return () if self.labels is None else self.labels.all_columns

    def columns(self, text: str) -> tuple[str, ...]:
        """Return the columns of the published table, by the name of its text column."""
        return (*self.label_columns, text, *([COUNT] if self.form == "counts" else []))

    def epsilon(self, law: Law) -> Fraction:
        """Return the central epsilon of one record, in whole millionths rounded up."""
        return central_epsilon(self.rows, law, self.delta)

    def charged_delta(self, law: Law) -> Fraction:
        """Return the delta that each record is charged, so that `per_subject` of them cover a person, rounded up."""
        if self.per_subject == 1:
            return exact(self.delta)
        exponent = float((self.per_subject - 1) * self.epsilon(law))
        charged = exact(self.delta) * Fraction(math.exp(min(exponent, 100.0)) * (1 + 1e-12))
        if charged > LARGEST_DELTA:
            msg = f"per_subject = {self.per_subject} multiplies the delta of a record to {float(charged):.2g}, above "
            raise ValueError(f"{msg}{LARGEST_DELTA:g}: state fewer records or a smaller delta")
        return charged

    def most_records(self, law: Law) -> int:
        """Return for how many records the charged delta may be stated (docs/spec/privacy.md#delta-policy)."""
        return int(LARGEST_SUM / self.charged_delta(law))

    def condition(self, law: Law) -> dict[str, Any]:
        """Return what the bound rests on, all of it public (docs/spec/unlinked.md#bound)."""
        weights = [law.inside, law.outside]
        return {**self.model_dump(), "corpus_texts": law.texts, "near_texts": law.near, "weights": weights}


def unlinked_of(mechanism: object) -> Unlinked | None:
    """Return what is published of a mechanism's draws if only their multiset is; None where rows are published."""
    return getattr(mechanism, "unlinked", None)
