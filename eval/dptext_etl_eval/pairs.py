"""Hold raw texts next to their releases, joined by id: the input of every metric and attack.

A figure computed from pairs of rows is an exact statistic of raw text. It stays inside the boundary and decides nothing
(docs/spec/privacy.md#no-row-decision).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl import _kernel
from dptext_etl.data_types import by_name
from dptext_etl.errors import InputError, bare, meant, seam
from dptext_etl.families.words import WordMechanism
from dptext_etl.mechanism import Mechanism
from dptext_etl.runner.source.roles import why_hidden
from dptext_etl_eval.evaluators import SMALL, Evaluators

Values = npt.NDArray[np.str_]
Rows = tuple[tuple[str, ...], Values]
"""Texts and their labels."""

RAW, RELEASED, LABEL, ATTRIBUTE, SUBJECT = "raw", "released", "label", "attribute", "subject"
CLASSES = "classes"
WORD_MECHANISM, ROW_LINKS = "word mechanism", "row links"
CLASSIFIER, MASKED_MODEL = "classifier", "masked model"
"""What measures may need next to columns: labels that are classes, not numbers; a mechanism that draws word by word; a
release whose rows belong to records; a model to fine-tune, and one that infers words."""
TRAIN, TEST = "train", "test"
"""Values of a split column; rows with another value are excluded."""
SECOND = {RAW: "second raw", RELEASED: "second released"}
"""Columns of the second texts of pairs in `Pairs.rest`."""
_SPLIT = "split"
FEWEST = 20
"""Rows below which no share says anything."""


@dataclass(frozen=True)
class Free:
    """Public texts and a model to compare a release with, in addition to label names and public data.

    Attributes:
        public: Public texts with labels; None without.
        written: Texts that a model wrote for the labels (`dptext corpus write`); None without.
        model: Causal language model that chooses labels: a folder, a hub's name, or a .gguf file; None without.
        about: One public sentence about the texts, which that model reads.
        names: Public words that describe a label, by label; by default the label in words.
        progress: Called with lines that say how far the model is.
        memory: Labels that the model chose before; inside the boundary, in this process only.
    """

    public: Rows | None = field(default=None, repr=False)
    written: Rows | None = field(default=None, repr=False)
    model: str | None = None
    about: str = "texts"
    names: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str], None] = field(default=lambda _: None, repr=False)
    memory: dict[Any, Values] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Raw texts and their releases, row by row.

    Attributes:
        raw: Raw texts.
        released: Their releases, in the same order.
        label: What analysts want to learn from a text, one value per row; None if not given.
        attribute: The attribute of the person that an attacker infers, one value per row; None if not given.
        subject: The person behind each row; None if not given.
        of: The number of rows that were there before a sample was drawn.
        rest: The rows that the sample leaves out, with the columns of this class as texts: classifiers learn from them,
            too. None without a sample.
        show_texts: Whether raw texts may appear in the report, which stays inside the boundary anyway.
        mechanism: The mechanism that made the releases; attackers know it, and no key. None if it is not known.
        models: Whether measures may run the small language models, which need torch and run for minutes.
        evaluators: The language models that were given; each is used where a measure can use it.
        second: The second texts of pairs, raw and released; None if rows hold one text. Only the label is about both.
        split: Whether the rows are the test rows of a split, and `rest` its training rows: then no row here is learned
            from.
        seed: Number of the random draws: folds, initial weights, orders of rows.
        free: What guesses the labels without any private text.
        memory: What measures share, by name; it depends only on the other attributes.
    """

    raw: tuple[str, ...] = field(repr=False)
    released: tuple[str, ...] = field(repr=False)
    label: Values | None = field(default=None, repr=False)
    attribute: Values | None = field(default=None, repr=False)
    subject: Values | None = field(default=None, repr=False)
    of: int = 0
    rest: pl.DataFrame | None = field(default=None, repr=False)
    show_texts: bool = False
    mechanism: Mechanism | None = None
    models: bool = False
    evaluators: Evaluators = field(default_factory=Evaluators)
    second: tuple[tuple[str, ...], tuple[str, ...]] | None = field(default=None, repr=False)
    split: bool = False
    seed: int = 0
    free: Free = field(default_factory=Free)
    memory: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for values in (self.released, self.label, self.attribute, self.subject, *(self.second or ())):
            if values is not None and len(values) != len(self.raw):
                raise InputError(
                    f"{len(self.raw)} raw texts, but a column of {len(values)} rows", "give one value per row"
                )
        if len(self.raw) < FEWEST:
            msg = f"{len(self.raw)} rows are in both tables; {FEWEST} are the fewest that say anything"
            raise InputError(msg, "do --id and --text name the right columns?")

    def __len__(self) -> int:
        return len(self.raw)

    def texts(self, which: str) -> tuple[str, ...]:
        """Return the raw or the released texts.

        Args:
            which: "raw" or "released".

        Returns:
            One text per row.
        """
        return self.raw if which == RAW else self.released

    def seconds(self, which: str) -> tuple[str, ...] | None:
        """Return the second texts of pairs.

        Args:
            which: "raw" or "released".

        Returns:
            One text per row; None if rows hold one text.
        """
        return None if self.second is None else self.second[which == RELEASED]

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64] | None:
        """The labels as numbers, if all are numbers and some are not whole: then they are regressed on."""
        return None if self.label is None else numbers_of(self.label)

    @property
    def classifier(self) -> str:
        """The model that is fine-tuned."""
        return self.evaluators.classifier or SMALL

    @property
    def masked_model(self) -> str:
        """The masked language model that infers words."""
        return self.evaluators.masked_model or SMALL

    def words(self, which: str) -> list[list[str]]:
        """Return the words of every text in lower case, as mechanisms look them up; computed once.

        Args:
            which: "raw" or "released".

        Returns:
            The words of each row.
        """
        if (which, "words") not in self.memory:
            self.memory[which, "words"] = [words_of(text) for text in self.texts(which)]
        words: list[list[str]] = self.memory[which, "words"]
        return words

    @property
    def has(self) -> frozenset[str]:
        """Return which of the optional columns and of the other things that measures need are there."""
        names = {name for name in (LABEL, ATTRIBUTE, SUBJECT) if getattr(self, name) is not None}
        given = {
            CLASSES: self.label is not None and self.numbers is None,
            WORD_MECHANISM: isinstance(self.mechanism, WordMechanism),
            CLASSIFIER: self.models or self.evaluators.classifier is not None,
            MASKED_MODEL: self.models or self.evaluators.masked_model is not None,
        }
        return frozenset(names | {name for name, there in given.items() if there})


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, in order.

    >>> words_of("Don't panic: it's FINE.")
    ["don't", 'panic', "it's", 'fine']
    """
    return [word.lower().replace("\u2019", "'") for word, is_word in _kernel.split(text) if is_word]


def numbers_of(labels: Values) -> npt.NDArray[np.float64] | None:
    """Return labels as numbers, shape (n,), if all are finite numbers and some are not whole; else None.

    >>> numbers_of(np.array(["3.8", "0"])), numbers_of(np.array(["1.0", "5.0"])), numbers_of(np.array(["low", "0.5"]))
    (array([3.8, 0. ]), None, None)
    """
    try:
        numbers = labels.astype(np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() and (numbers % 1).any() else None


@bare
def join(
    raw: pl.LazyFrame,
    released: pl.LazyFrame,
    *,
    id: str,  # noqa: A002
    text: str,
    released_text: str | None = None,
    label: str | None = None,
    attribute: str | None = None,
    subject: str | None = None,
    split: str | None = None,
    text_pair: str | None = None,
    rows: int = 2_000,
    seed: int = 0,
    show_texts: bool = False,
    mechanism: Mechanism | None = None,
    models: bool = False,
    evaluators: Evaluators | None = None,
) -> Pairs:
    """Join a raw table and its release by id, and draw a sample to test; classifiers also learn from the other rows.

    Rows that the release lacks are excluded: a run may have quarantined them. Null texts count as empty. Rows whose
    label, attribute or subject is null are excluded. With a split, classifiers learn from all rows that say "train",
    and everything is measured on a sample of those that say "test".

    Args:
        raw: Raw table.
        released: Released table.
        id: Column of record ids, in both.
        text: Text column of the raw table.
        released_text: Text column of the released table; None if it has the same name.
        label: Column of labels, in the raw table.
        attribute: Column of attributes of persons, in the raw table.
        subject: Column of persons, in the raw table.
        split: Column of the raw table that says "train" or "test"; other rows are excluded. Subjects may be in both.
        text_pair: Column of second texts, in both tables; a label is then about both texts of a row.
        rows: Largest number of rows to test.
        seed: Number of the sample.
        show_texts: Let raw texts appear in the report.
        mechanism: The mechanism that made the releases.
        models: Let measures run the small language models.
        evaluators: Language models for measures.

    Returns:
        The pairs to test, and the other rows as `rest`.

    Raises:
        InputError: A column is missing or null in nearly all rows, ids repeat or are null, the release has ids that the
            raw table lacks, all texts of a table are empty, or a split lacks rows to learn from or to test.
    """
    after = released_text or text
    roles = {LABEL: label, ATTRIBUTE: attribute, SUBJECT: subject, _SPLIT: split}
    pair = [] if text_pair is None else [text_pair]
    wanted = [name for name in dict.fromkeys((id, text, *pair, *roles.values())) if name is not None]
    left = _columns(raw, wanted, "raw").select(
        by_name(id).cast(pl.String).alias("id"),
        by_name(text).cast(pl.String).fill_null("").alias(RAW),
        *(by_name(name).cast(pl.String).fill_null("").alias(SECOND[RAW]) for name in pair),
        *(by_name(name).cast(pl.String).alias(role) for role, name in roles.items() if name is not None),
    )
    right = _columns(released, [id, after, *pair], "released").select(
        by_name(id).cast(pl.String).alias("id"),
        by_name(after).cast(pl.String).fill_null("").alias(RELEASED),
        *(by_name(name).cast(pl.String).fill_null("").alias(SECOND[RELEASED]) for name in pair),
    )
    with seam("reading the two tables", InputError, "are both files intact and readable?"):
        first, second = left.collect(), right.collect()
    for frame, name in ((first, "raw"), (second, "released")):
        ids = frame["id"]
        if ids.null_count():
            raise InputError(f"{ids.null_count():,} ids of the {name} table are null", "every row needs an id")
        repeated = len(ids) - ids.n_unique()
        if repeated:
            raise InputError(f"{repeated:,} ids of the {name} table are repeated", "ids are unique in both tables")
    joined = second.join(first, on="id", how="inner", maintain_order="left")
    if joined.height < second.height:
        msg = f"{second.height - joined.height:,} of {second.height:,} released rows have ids that the raw table lacks"
        raise InputError(
            msg, "a report compares a release with its own raw table; does --id name the same ids in both?"
        )
    named = [role for role, name in roles.items() if name is not None]
    _refuse_nothing(joined, named)
    joined = joined.drop_nulls(named)
    if split is None:
        taken, rest = _divided(joined, rows, seed)
    else:
        joined, rest = _parts(joined)
        taken, _ = _divided(joined, rows, seed)
    extra: dict[str, Any] = {role: taken[role].to_numpy().astype(str) for role in named if role != _SPLIT}
    extra |= {"show_texts": show_texts, "mechanism": mechanism, "models": models, "split": split is not None}
    if pair:
        extra["second"] = tuple(tuple(taken[SECOND[which]]) for which in (RAW, RELEASED))
    if evaluators is not None:
        extra["evaluators"] = evaluators
    return Pairs(tuple(taken[RAW]), tuple(taken[RELEASED]), of=joined.height, rest=rest, **extra)


def _parts(joined: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the test rows and the training rows of a split."""
    test, train = (joined.filter(pl.col(_SPLIT) == part) for part in (TEST, TRAIN))
    for part, rows_of_part in ((TEST, test), (TRAIN, train)):
        if rows_of_part.height < FEWEST:
            msg = f"{rows_of_part.height} rows of both tables say {part!r} in the split column; {FEWEST} are the fewest"
            raise InputError(msg, f"--split names a column of the raw table that says {TRAIN!r} or {TEST!r}")
    return test, train


def raw_sample(
    frame: pl.DataFrame, text: str, label: str, rows: int, *, what: str, subject: str | None = None
) -> Pairs:
    """Return a sample of raw texts with their labels, for releases whose rows belong to no record."""
    roles = {RAW: text, LABEL: label, **({} if subject is None else {SUBJECT: subject})}
    named = frame.select(by_name(name).cast(pl.String).alias(role) for role, name in roles.items())
    taken, rest = _divided(named.with_columns(pl.lit("").alias(RELEASED)), rows, seed=0)
    if taken.height < FEWEST:
        raise InputError(f"{taken.height} raw rows have {what}; {FEWEST} are the fewest", "use a table with more rows")
    extra: dict[str, Any] = {role: taken[role].to_numpy().astype(str) for role in roles if role != RAW}
    return Pairs(tuple(taken[RAW]), tuple(taken[RELEASED]), of=frame.height, rest=rest, **extra)


def _divided(frame: pl.DataFrame, rows: int, seed: int) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return a sample of rows, and the other rows; None if there are none."""
    shuffled = frame.sample(fraction=1.0, seed=seed, shuffle=True)
    return shuffled[:rows], shuffled[rows:] if rows < frame.height else None


def _columns(frame: pl.LazyFrame, wanted: Sequence[str], which: str) -> pl.LazyFrame:
    with seam(f"reading the columns of the {which} table", InputError):
        columns = frame.collect_schema().names()
    missing = [name for name in wanted if name not in columns]
    if missing:
        msg = f"the {which} table has no column {', '.join(map(repr, missing))}"
        raise InputError(msg, meant(missing, columns, why_hidden(frame)))
    return frame


def _refuse_nothing(joined: pl.DataFrame, named: Sequence[str]) -> None:
    """Refuse tables of which nothing can be said: all texts are empty, or a column is null in nearly all rows."""
    for which in (RAW, RELEASED):
        if joined.height and not joined[which].str.contains(r"\w").any():
            raise InputError(f"no {which} text has a word", "does --text (or --released-text) name the right column?")
    for role in named:
        missing = joined[role].null_count()
        if missing and joined.height - missing < FEWEST:
            msg = f"the {role} column is null in {missing:,} of {joined.height:,} rows; {FEWEST} values are the fewest"
            raise InputError(msg, f"does --{role} name the right column?")
