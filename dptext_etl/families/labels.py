"""Describe public labels of records: a column, or the cells of several, with a list of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import polars as pl

OTHER = "other"  # the label of null and unlisted values
SEPARATOR = " | "  # between the values of a label of several columns
_ESCAPES, _NULL = (("\\", "\\\\"), ("|", "\\|")), "\\0"
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _escaped(value: str) -> str:
    for written, escaped in _ESCAPES:
        value = value.replace(written, escaped)
    return value


class Labels(BaseModel):
    """The labels of the records: one column, or the cells of several.

    Attributes:
        column: Column that holds them; or `columns`.
        columns: Two columns or more, whose values in a row are one label, written "billing | high".
        values: The public list of labels; of several columns lists, such as ["billing", "high"]. Others, and null,
            count as "other", which a list of this value only names.
        names: Public words that describe a label, by label; by default the label itself, in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    column: Name | None = Field(default=None, exclude_if=lambda column: column is None)
    columns: Annotated[tuple[Name, ...], Field(min_length=2)] | None = Field(
        default=None, exclude_if=lambda columns: columns is None
    )
    values: Annotated[tuple[Name | tuple[Name, ...], ...], Field(min_length=1)]
    names: dict[Name, str] = Field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # `names` is a dict

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Return the columns that hold labels."""
        return self.columns or (str(self.column),)

    @property
    def cells(self) -> dict[str, tuple[str, ...]]:
        """Return the values of every listed label, by the label in the statistic."""
        if self.columns is None:
            return {str(value): (str(value),) for value in self.values}
        cells = [tuple(value) for value in self.values]
        return {OTHER if {*cell} == {OTHER} else SEPARATOR.join(map(_escaped, cell)): cell for cell in cells}

    def label_of(self) -> pl.Expr:
        """Return the label of a row; equal only if all values are, null or not. One column is read as it is."""
        import polars as pl  # policies of other releases start without it

        if self.columns is None:
            return pl.col(str(self.column))
        values = [pl.col(name) for name in self.columns]
        for written, escaped in _ESCAPES:
            values = [value.str.replace_all(written, escaped, literal=True) for value in values]
        return pl.concat_str([value.fill_null(_NULL) for value in values], separator=SEPARATOR).alias("label")

    def listed(self) -> pl.Expr:
        """Return the label of a row, "other" for null and unlisted values."""
        import polars as pl

        label = self.label_of()
        return pl.when(label.is_in([*self.cells])).then(label).otherwise(pl.lit(OTHER)).alias("label")

    def published(self) -> list[pl.Expr]:
        """Return the columns of the labels, with "other" in place of null and unlisted values."""
        import polars as pl

        listed = self.label_of().is_in([*self.cells])
        return [pl.when(listed).then(pl.col(name)).otherwise(pl.lit(OTHER)).alias(name) for name in self.all_columns]

    @model_validator(mode="after")
    def _listed(self) -> Self:
        if (self.column is None) == (self.columns is None):
            raise ValueError("name one column of labels as column, or several as columns")
        lengths = {1 if isinstance(value, str) else len(value) for value in self.values}
        whole = all(isinstance(value, str) == (self.columns is None) for value in self.values)
        if not whole or lengths != {len(self.all_columns)} or len({*self.all_columns}) < len(self.all_columns):
            raise ValueError("values lists a text for each label of one column, or a value for each of the columns")
        if len(self.cells) < len(self.values):
            raise ValueError("values lists a label twice: list each public label once")
        unlisted = set(self.names) - set(self.cells)
        if unlisted:
            raise ValueError(f"{len(unlisted)} of the names are of labels that values does not list")
        return self
