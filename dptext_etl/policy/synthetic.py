"""Describe a synthetic table in a policy: public texts with labels that follow one noisy statistic of a column."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dptext_etl.accounting.shuffling import OTHER
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import LARGEST_DELTA, LARGEST_SUM, SCORES_LOCAL, Guarantee, GuaranteeClass, exact
from dptext_etl.parameters import PositiveInt
from dptext_etl.policy.terms import omitted

if TYPE_CHECKING:
    import polars as pl

    from dptext_etl.corpora import Corpus
    from dptext_etl.families.aggregate.statistic import Aggregate

NEIGHBORS = "two tables that differ in the text, the label, or both of one record; ids and subjects are the same"
CLAIM = Guarantee(
    GuaranteeClass.CENTRAL_ZCDP,
    frozenset(),
    NEIGHBORS,
    "record",
    frozenset({"PRF", "NO_CRASH_CHANNEL", "TRUSTED_IDS", "TRUSTED_CURATOR"}),
)
"""The guarantee of every synthetic table."""
_MODEL = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
SEPARATOR = " | "  # between the values of a label of several columns
_ESCAPES, _NULL = (("\\", "\\\\"), ("|", "\\|")), "\\0"
_Text = Annotated[str, Field(min_length=1, max_length=200)]


def _escaped(value: str) -> str:
    for written, escaped in _ESCAPES:
        value = value.replace(written, escaped)
    return value


class Labels(BaseModel):
    """The labels of the records: one column, or the cells of several.

    Attributes:
        column: Column that holds them, of strings, whole numbers ("5"), or booleans ("true"); or `columns`.
        columns: Two columns or more, whose values in a row are one label, written "billing | high".
        values: The public list of labels; of several columns, lists such as ["billing", "high"]. Others, and null,
            count as "other", which a list of this value only names.
        names: Public words that describe a label; by default the label itself.
    """

    model_config = _MODEL

    column: _Text | None = omitted(None)
    columns: Annotated[tuple[_Text, ...], Field(min_length=2)] | None = omitted(None)
    values: Annotated[tuple[_Text | tuple[_Text, ...], ...], Field(min_length=1)]
    names: dict[_Text, str] = Field(default_factory=dict)

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
        """Return the label of a row as text; equal only if all values are, null or not."""
        import polars as pl

        from dptext_etl.data_types import by_name  # policies of other releases start without it

        if self.columns is None:
            return by_name(str(self.column)).cast(pl.String)
        values = [by_name(name).cast(pl.String) for name in self.columns]
        for written, escaped in _ESCAPES:
            values = [value.str.replace_all(written, escaped, literal=True) for value in values]
        return pl.concat_str([value.fill_null(_NULL) for value in values], separator=SEPARATOR).alias("label")

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


class MaxEnt(BaseModel):
    """How the table is made: the noisy statistic, and the public texts that follow it.

    Attributes:
        name: "maxent".
        epsilon: Epsilon of the whole table for one record, at `delta`.
        delta: Delta of that pair, at most 1e-6, and at most 0.01 over the number of records.
        corpus: A corpus with any encoder: its name, folder, or URL.
        width: Coordinates of a text; by default 96, or 192 from 16 labels on.
    """

    model_config = _MODEL

    name: Literal["maxent"]
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
    delta: Annotated[float, Field(gt=0, le=LARGEST_DELTA, allow_inf_nan=False, strict=True)]
    corpus: str
    width: PositiveInt | None = None


SCORES = "scores"  # column of a table with scores


class Synthetic(BaseModel):
    """The table `[synthetic]` of a policy.

    Attributes:
        column: The text column.
        labels: The labels of the records; None without.
        rows: Rows of the table, public; omitted with `scores`.
        scores: Publish every text of the pool once, with its scores for all labels in a column "scores".
        pool: Another public corpus, whose texts are the rows; by default the corpus of the mechanism.
        per_subject: Most records of a person that count.
        mechanism: The mechanism, always "maxent".
    """

    model_config = _MODEL

    column: _Text
    labels: Labels | None = None
    rows: Annotated[int, Field(ge=1, le=2**31, strict=True)] | None = omitted(None)
    scores: bool = omitted(False)
    pool: str | None = omitted(None)
    per_subject: Annotated[PositiveInt, Field(le=10**9)] = 1
    mechanism: MaxEnt

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that are read and published: texts, and labels if there are any."""
        return (self.column,) if self.labels is None else (self.column, *self.labels.all_columns)

    @property
    def published_columns(self) -> tuple[str, ...]:
        """Return the columns of the published table."""
        return (*self.columns, SCORES) if self.scores else self.columns

    @model_validator(mode="after")
    def _one_number_of_rows(self) -> Self:
        if self.scores == (self.rows is not None):
            raise ValueError(
                "rows is the number of drawn texts, and scores = true publishes each once: give one of them"
            )
        if self.scores and (self.labels is None or SCORES in self.columns):
            raise ValueError(f'scores = true needs labels, and no other column has the name "{SCORES}"')
        return self

    @property
    def names(self) -> dict[str, str]:
        """Return the words that describe labels, by label."""
        return {} if self.labels is None else self.labels.names

    @property
    def n_rec(self) -> int:
        """Return for how many records delta may be stated (docs/spec/privacy.md#delta-policy)."""
        return int(LARGEST_SUM / exact(self.mechanism.delta))

    def opened_pool(self, options: dict[str, str]) -> Corpus | None:
        """Return the corpus whose texts are the rows; None if it is the corpus of the mechanism."""
        return None if self.pool is None else _opened(self.pool, tuple(options.items()))

    def aggregate(self, options: dict[str, str]) -> Aggregate:
        """Return the statistic of the column as a mechanism; a process describes it once.

        Args:
            options: Options for object stores, as a policy's `storage_options` has them.
        """
        from dptext_etl.corpora.corpus import fetched, is_remote  # policies of other releases start without it

        self.opened_pool(options)  # one that cannot be read is refused before anything is charged
        mechanism = self.mechanism
        corpus = str(fetched(mechanism.corpus, options)) if is_remote(mechanism.corpus) else mechanism.corpus
        values = () if self.labels is None else tuple(self.labels.cells)
        return _described(mechanism, corpus, values, self.per_subject, self.n_rec)


@lru_cache(maxsize=4)
def _opened(reference: str, options: tuple[tuple[str, str], ...]) -> Corpus:
    from dptext_etl.corpora.corpus import Corpus, fetched, is_remote

    return Corpus.open(fetched(reference, dict(options)) if is_remote(reference) else reference)


@lru_cache(maxsize=8)
def _described(mechanism: MaxEnt, corpus: str, labels: tuple[str, ...], per_subject: int, n_rec: int) -> Aggregate:
    from dptext_etl.families.aggregate import describe  # policies of other releases start without it
    from dptext_etl.families.aggregate.statistic import Aggregate

    epsilon, delta = mechanism.epsilon, mechanism.delta
    sums = describe(corpus, epsilon=epsilon, delta=delta, labels=labels, per_subject=per_subject, width=mechanism.width)
    local = frozenset({SCORES_LOCAL} if sums.corpus.in_floats else ())
    claim = replace(CLAIM, assumptions=CLAIM.assumptions | local)
    return Aggregate(epsilon=epsilon, n_max=sums.n_max, label=mechanism.name, statistic=sums, claim=claim, n_rec=n_rec)


def no_rows(dataset: str) -> PolicyError:
    """Return the refusal of everything that needs the released text of a record."""
    msg = f"the policy of {dataset} publishes a synthetic table, and no text of a record is released"
    return PolicyError(
        msg, "`dptext run`, dptext_etl.run, run_frame of dptext_etl.polars and of dptext_etl.spark publish such tables"
    )
