"""Describe a column that is published next to the texts: as it is, or coarsened so that it singles out fewer rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dptext_etl.families.unlinked import OTHER
from dptext_etl.policy.terms import Checked, Name

Bound = Annotated[int, Field(strict=True)] | Annotated[float, Field(allow_inf_nan=False, strict=True)]
_NONE: dict[str, Any] = {"default": None, "exclude_if": lambda value: value is None}


class Kept(Checked):
    """Name a column of the source and how it is coarsened before it is published; nulls stay null.

    Attributes:
        column: Name of the column.
        as_: Of a date or a time (written `as`): "month" publishes a string such as "2026-03", "year" a whole number.
            Moments with a time zone count in UTC, whatever the zone.
        bins: Of numbers: ascending bounds of half-open bins, published as "<0", "0 to <18", "18+"; not-a-number
            becomes null.
        top: Of strings: public values that are published as they are; all others become "other".
    """

    column: Name
    as_: Literal["month", "year"] | None = Field(alias="as", **_NONE)
    bins: Annotated[tuple[Bound, ...], Field(min_length=1)] | None = Field(**_NONE)
    top: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(**_NONE)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(way is not None for way in (self.as_, self.bins, self.top)) > 1:
            msg = "a column is coarsened in one way: as, bins, or top"
            raise ValueError(msg)
        if self.bins is not None and any(low >= high for low, high in pairwise(self.bins)):
            msg = "bins must ascend"
            raise ValueError(msg)
        if self.top is not None and (len(set(self.top)) < len(self.top) or OTHER in self.top):
            msg = f'top lists different values, and not "{OTHER}", which stands for all others'
            raise ValueError(msg)
        return self

    @property
    def rule(self) -> dict[str, Any]:
        """The coarsening as plain data; empty for a column that is published unchanged."""
        return self.model_dump(mode="json", by_alias=True, exclude={"column"})
