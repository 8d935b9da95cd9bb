"""No function of Polars may read a raw column of a guarded plan; all may read kept and released ones."""

import inspect
import itertools

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl.errors import GateError

from ..quick import THOROUGH
from .guarded import guard, release

pytestmark = [
    pytest.mark.usefixtures("secret"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::polars.exceptions.PolarsInefficientMapWarning"),
]
TYPES = {
    "string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean, "float": pl.Float64, "list": pl.List(pl.String),
    "numbers": pl.List(pl.Int64), "array": pl.Array(pl.Int64, 2), "struct": pl.Struct({"a": pl.String, "b": pl.Int64}),
    "date": pl.Date, "time": pl.Datetime("us"), "zoned": pl.Datetime("us", "UTC"), "duration": pl.Duration,
    "binary": pl.Binary, "category": pl.Categorical, "enum": pl.Enum(["x"]), "clock": pl.Time,
    "flags": pl.List(pl.Boolean), "map": pl.Map(pl.String, pl.Int64),
}  # fmt: skip
"""The type of each raw column, and of each kept column."""
NAMESPACES = ("", "arr", "bin", "cat", "dt", "ext", "list", "map", "name", "str", "struct")
BOUNDS = {"lower_bound", "upper_bound"}
"""Functions of the type of a column: Polars puts a constant in their place."""
NO_COLUMN = {"dptext", "inspect", "pipe", "from_json", "deserialize", "register_plugin", *NAMESPACES, *BOUNDS}
"""Functions that print, call, or read something else."""


def arguments():
    """Values for a required parameter: of each kind that a function of Polars may need."""
    return [
        1, "a", pl.col("kept_string"), [1], ["a"], pl.Int64, pl.String, lambda value: value, True, "1d", pl.element(),
        {"a": "b"}, "UTC", pl.col("kept_integer"), pl.col("kept_time"), "%Y", pl.col("kept_list"), pl.List(pl.String),
        "us", pl.struct("kept_string"), pl.col("kept_numbers"), pl.Struct({"a": pl.String}), "/", [0.5], "ordinal",
    ]  # fmt: skip


def functions():
    """The names of all functions of expressions, with their namespaces."""
    for space in NAMESPACES:
        holder = pl.Expr if not space else type(getattr(pl.col("a"), space))
        for name in sorted(dir(holder)):
            if callable(getattr(holder, name)) and not name.startswith("_") and name not in NO_COLUMN:
                yield f"{space}.{name}".lstrip(".")
    yield from (f"__{name}__" for name in ("add", "and", "eq", "floordiv", "gt", "invert", "mod", "neg", "or"))


def called(name, column, values):
    target = column
    for part in name.split("."):
        target = getattr(target, part)
    return target(*values)


def required(name):
    target = pl.col("a")
    for part in name.split("."):
        target = getattr(target, part)
    parameters = inspect.signature(target).parameters.values()
    positional = [item for item in parameters if item.kind in {item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD}]
    return sum(item.default is item.empty for item in positional)


@pytest.fixture(scope="module")
def table():
    kinds = {f"{role}_{kind}": dtype for role in ("raw", "kept") for kind, dtype in TYPES.items()}
    return pl.LazyFrame(schema={"id": pl.String, "review": pl.String, **kinds})


RAW = [f"raw_{kind}" for kind in TYPES]


def calls(table, name):
    """Yield expressions of a function over a raw column, and over a kept one of the same type, that Polars accepts.

    In `make test`, of the first type that it accepts: the guard has one rule for all types, and all functions.
    """
    try:
        least = required(name)
    except ValueError:
        least = 1
    tuples = list(itertools.islice(itertools.product(arguments(), repeat=least), 25 if least < 2 else 120))
    for kind in TYPES:
        for values in tuples:
            try:
                pair = [called(name, pl.col(f"{role}_{kind}"), values) for role in ("raw", "kept")]
                if not all(isinstance(item, pl.Expr) for item in pair):
                    break
                table.select(x=pair[0]).collect_schema()
            except BaseException as error:  # Polars panics over some values
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                continue
            yield pair
            if not THOROUGH:
                return
            break


def test_every_function_over_a_raw_column_is_refused(table, policy):
    """The same function over a kept column passes after the raw ones are gone: it is post-processing."""
    known, missed = 0, []
    for name in itertools.islice(functions(), 0, None, 1 if THOROUGH else 3):
        found = 0
        for raw, kept in calls(table, name):
            found += 1
            with pytest.raises(GateError, match=r"is used in|reaches the output|computed record ids") as caught:
                dptext_etl.polars.guard(table.select("id", x=raw), raw=RAW)
            assert "\nHint: " in str(caught.value)
            clean = table.select("id", "^kept_.*$", release(policy)).select("id", x=kept)
            assert guard(clean, policy) is clean
        known += found > 0
        missed += [] if found else [name]
    assert known > (300 if THOROUGH else 100)
    assert len(missed) < known / 8, missed


HORIZONTAL = {
    "concat_str": pl.concat_str, "coalesce": pl.coalesce, "concat_list": pl.concat_list, "max": pl.max_horizontal,
    "min": pl.min_horizontal, "format": lambda raw, kept: pl.format("{} {}", raw, kept),
    "when": lambda raw, kept: pl.when(raw == "a").then(1), "then": lambda raw, kept: pl.when(kept == "a").then(raw),
    "otherwise": lambda raw, kept: pl.when(kept == "a").then(kept).otherwise(raw),
    "fold": lambda raw, kept: pl.fold(pl.lit(""), lambda one, other: one, [raw, kept]),
    "map_batches": lambda raw, kept: pl.map_batches([raw, kept], lambda both: both[0], return_dtype=pl.String),
    "argument": lambda raw, kept: kept.str.contains(raw, strict=True),
    "members": lambda raw, kept: kept.is_in(raw.implode()),
    "over": lambda raw, kept: kept.first().over(raw), "order": lambda raw, kept: kept.sort_by(raw),
    "where": lambda raw, kept: kept.filter(raw == "a").first(),
    "SQL": lambda raw, kept: pl.sql_expr("upper(review) AS x"),
}  # fmt: skip


@pytest.mark.parametrize("name", HORIZONTAL)
def test_functions_of_several_columns_and_arguments_are_refused(table, policy, name):
    expression = HORIZONTAL[name](pl.col("review"), pl.col("kept_string"))
    for plan in (table.select("id", x=expression), table.with_columns(review=expression).select(release(policy))):
        with pytest.raises(GateError, match=r"is used in|does not know"):
            guard(plan, policy)


review = pl.col("review")
ATTACKS = {
    "a strict cast to a number": review.cast(pl.Int64).cast(pl.String),
    "a strict cast to a date": review.cast(pl.Date).cast(pl.String),
    "a strict cast to an Enum": review.cast(pl.Enum(["good film"])).cast(pl.String),
    "a strict cast of one person's text": pl.coalesce(
        pl.when((pl.col("id") == "r1") & review.str.contains("w")).then(pl.lit("x")).otherwise(pl.lit("1"))
        .cast(pl.Int64).cast(pl.String), review,
    ),
    "an item that a list lacks": review.str.split(" ").list.get(2),
    "JSON that is none": review.str.json_decode(pl.Struct({"a": pl.String})).struct.field("a"),
    "a pattern from a cell": pl.lit("a").str.contains(review, strict=True).cast(pl.String),
    "a null that a match decides": pl.when(review.str.contains("good")).then(review),
    "a strict replacement": review.replace_strict({"good film": "y"}),
    "cleaned": review.fill_null("").str.strip_chars().str.to_lowercase(),
    "one text for all ids": review.first(),
    "nulls": review.is_null().cast(pl.String),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_a_prepared_text_is_refused(table, policy, name):
    """Whether such a plan fails, and which texts are null, would depend on raw texts at no charge."""
    text = ATTACKS[name]
    plans = (
        table.select("id", release(policy, text)),
        table.with_columns(review=text).select("id", release(policy)),
        table.filter(text == "a").select("id"),
        table.group_by(text).agg(pl.len()).select("len"),
        table.sort(text).select("id"),
        table.join(table, left_on=text, right_on=text).select("id"),
    )
    for plan in plans:
        with pytest.raises(GateError, match=r"is used in|does not know") as caught:
            guard(plan, policy)
        assert "prepare the text in the source" in str(caught.value)
