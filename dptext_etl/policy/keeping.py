"""Describe a column that is published next to the texts: as it is, or coarsened so that it singles out fewer rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import polars as pl
from pydantic import Field, model_validator

from dptext_etl.data_types import kind_of
from dptext_etl.errors import InputError
from dptext_etl.policy.terms import Checked, Name

_OTHER = "other"
"""The label of the values that `top` does not list."""
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
        if self.top is not None and (len(set(self.top)) < len(self.top) or _OTHER in self.top):
            msg = f'top lists different values, and not "{_OTHER}", which stands for all others'
            raise ValueError(msg)
        return self

    @property
    def rule(self) -> dict[str, Any]:
        """The coarsening as plain data; empty for a column that is published unchanged."""
        return self.model_dump(mode="json", by_alias=True, exclude={"column"})

    def coarse_type(self, dtype: pl.DataType) -> pl.DataType:
        """Return the type under which a column of a type is published.

        Raises:
            InputError: Values of the type cannot be coarsened like this.
        """
        if not self.rule:
            return dtype
        fits, wanted = isinstance(dtype, pl.Date | pl.Datetime), "dates or times"
        if self.bins is not None:
            fits, wanted = dtype.is_numeric(), "numbers"
        if self.top is not None:
            fits, wanted = dtype == pl.String, "strings"
        if not fits:
            (way,) = self.rule
            msg = f"keep: {way!r} needs {wanted}, and column {self.column!r} holds {kind_of(dtype)}; nothing was spent"
            hint = f'cast it in the source; of a CSV file, csv = {{ types = {{ "{self.column}" = "Datetime" }} }}'
            raise InputError(msg, hint if self.as_ else "cast it in the source", {"column": self.column})
        return pl.Int32() if self.as_ == "year" else pl.String()

    def expression(self, dtype: pl.DataType) -> pl.Expr:
        """Return what is published of the column, whose values have a type that `coarse_type` accepts."""
        cell = pl.col(self.column)
        if self.as_ is not None:
            if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
                cell = cell.dt.convert_time_zone("UTC")
            return cell.dt.year() if self.as_ == "year" else cell.dt.strftime("%Y-%m")
        if self.bins is not None:
            if dtype.is_float():
                cell = cell.fill_nan(None)
            label = pl.when(cell < self.bins[0]).then(pl.lit(f"<{self.bins[0]}"))
            for low, high in pairwise(self.bins):
                label = label.when(cell < high).then(pl.lit(f"{low} to <{high}"))
            return label.when(cell.is_not_null()).then(pl.lit(f"{self.bins[-1]}+")).alias(self.column)
        if self.top is not None:
            other = pl.when(cell.is_not_null()).then(pl.lit(_OTHER))
            return pl.when(cell.is_in(self.top)).then(cell).otherwise(other).alias(self.column)
        return cell
