"""The guard on texts that are null where the raw text is not: which texts are null reveals no raw text."""

import random

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl.errors import GateError
from tests.examples import examples

from .guarded import FRAME, col, guard, release

pytestmark = pytest.mark.usefixtures("secret")
lit, when = pl.lit, pl.when
review = col("review")
has = review.str.contains("good")
MAY_BE_NULL = {
    "when without otherwise": when(has).then(review),
    "otherwise None": when(has).then(review).otherwise(None),
    "two whens": when(has).then(review).when(review == "x").then(lit("x")),
    "a null where it matches": when(has).then(None).otherwise(review),
    "emptied in a case": when(has).then(lit("")).otherwise(review.str.extract("(b)")),
    "text of another column": when(has).then(col("stars").cast(pl.String)).otherwise(lit("")),
    "extracted": review.str.extract("(good)"),
    "groups": review.str.extract_groups("(good)").struct.field("1"),
    "found": review.str.find("good").cast(pl.String),
    "a replacement by null": review.replace("good film", None),
    "replacements by null": review.replace({"good film": None, "x": "y"}),
    "a strict replacement": review.replace_strict({"good film": "y"}, default=None),
    "members with a null": review.is_in(["good film", None]).cast(pl.String),
    "a cast": review.cast(pl.Int64, strict=False).cast(pl.String),
    "a cast to an Enum": review.cast(pl.Enum(["good film"]), strict=False).cast(pl.String),
    "filled with a value that the Enum lacks": (
        review.cast(pl.Enum(["good film"]), strict=False).fill_null("").cast(pl.String)
    ),
    "coalesce with a value that the Enum lacks": pl.coalesce(
        review.cast(pl.Enum(["good film"]), strict=False), lit("")
    ).cast(pl.String),
    "bytes that are no text": review.cast(pl.Binary).cast(pl.String, strict=False),
    "a place": review.str.split(" ").list.get(1, null_on_oob=True),
    "the first of nothing": review.str.extract_all("good").list.first(),
    "the last of nothing": review.str.extract_all("good").list.last(),
    "a null among words": pl.concat_list(review, review.str.extract("(x)")).list.join(" ", ignore_nulls=False),
    "words that run out": review.str.splitn(" ", 5).struct.field("field_4"),
    "words that run out exactly": review.str.split_exact(" ", 5).struct.field("field_4"),
    "a path in JSON": review.str.json_path_match("$.a"),
    "a field of JSON": review.str.json_decode(pl.Struct({"a": pl.String})).struct.field("a"),
    "a division": (review.str.len_chars() // (review.str.len_chars() - 9)).cast(pl.String),
    "a rest": (review.str.len_chars() % review.str.count_matches("good")).cast(pl.String),
    "a pattern that is none": review.str.contains(review, strict=False).cast(pl.String),
    "kept by a later function": when(has).then(review).str.to_lowercase().str.head(20),
    "kept next to a column": pl.concat_str(when(has).then(review), "stars"),
    "kept by coalesce": pl.coalesce(when(has).then(review), review.str.extract("(x)")),
    "filled with what may be null": review.str.extract("(g)").fill_null(review.str.extract("(x)")),
    "values of a list, or joined": when(has)
    .then(pl.concat_list("review", col("stars").cast(pl.String)).list.join(""))
    .otherwise(pl.concat_str("review", "stars")),
    "lists, or values of a list": when(has)
    .then(pl.concat_list("tags", review.str.split(" ")).list.join(""))
    .otherwise(pl.concat_list(col("tags").list.join(""), "review").list.join("")),
    "kept in a struct": pl.struct(a=when(has).then(review)).struct.field("a"),
    "a choice of structs": when(has).then(pl.struct("review")).struct.field("review"),
}
WRAPPED = {
    "otherwise": when(has).then(review).otherwise(lit("")),
    "two whens": when(has).then(review).when(review == "x").then(lit("x")).otherwise(lit("")),
    "filled": review.str.extract("(good)").fill_null(""),
    "coalesce": pl.coalesce(review.str.extract("(good)"), lit("")),
    "coalesce with the text": pl.coalesce(review.str.extract("(good)"), review),
    "filled with the text": review.str.extract("(good)").fill_null(review),
    "cut where it is long": when(review.str.len_chars() > 5).then(review.str.head(5)).otherwise(review),
    "null where another column says so": when(col("stars") > 3).then(review),
    "a word where it is null": when(review.is_null()).then(lit("none")).otherwise(review),
    "a replacement": review.replace("good film", ""),
    "replacements": review.replace({"good film": "", "x": "y"}),
    "next to a column": pl.concat_str("review", "stars"),
    "next to a column, without nulls": pl.concat_str("review", "stars", ignore_nulls=True),
    "a strict cast": review.cast(pl.Enum(["good film", "bad plot"])).cast(pl.String),
}
WRITTEN = [
    pl.Series([-(2**63), 2**63 - 1, None]),
    pl.Series([2**127 - 1, None], dtype=pl.Int128),
    pl.Series([0.0, -0.0, float("nan"), float("inf"), 5e-324, None]),
    pl.Series(["1.10", "99999999.99", None]).cast(pl.Decimal(10, 2)),
    pl.Series([True, False, None]),
    pl.Series(["", "é\0", None]),
    pl.Series(["a", "", None], dtype=pl.Categorical),
    pl.Series(["a", "", None], dtype=pl.Enum(["", "a"])),
]


@pytest.mark.parametrize("values", WRITTEN, ids=lambda values: str(values.dtype))
def test_a_cast_to_text_gives_no_nulls(policy, values):
    for strict in (True, False):
        assert values.cast(pl.String, strict=strict).null_count() == values.null_count() == 1
        frame = pl.LazyFrame({"id": range(len(values)), "review": values})
        guard(frame.select(release(policy, review.cast(pl.String, strict=strict))), policy)


@pytest.mark.parametrize("name", MAY_BE_NULL)
def test_a_text_that_may_be_null_is_refused(policy, name):
    text = MAY_BE_NULL[name]
    plans = (
        FRAME.lazy().select(release(policy, text)),
        FRAME.lazy().with_columns(review=text).select(release(policy)),
        FRAME.lazy().select("id", s=pl.struct(review=text)).unnest("s").select(release(policy)),
        FRAME.lazy().select("id", review=text).join(FRAME.lazy().select("id"), on="id").select(release(policy)),
        pl.concat([FRAME.lazy().with_columns(review=text)] * 2).select(release(policy)),
        FRAME.lazy().with_columns(review=text).dptext.privatize(policy, id="id"),
    )
    for plan in plans:
        with pytest.raises(GateError, match="may be null although its source is not") as caught:
            guard(plan, policy)
        assert 'fill_null("")' in str(caught.value)
    guard(FRAME.lazy().select(release(policy, text.fill_null(""))), policy)
    guard(FRAME.lazy().with_columns(review=text).with_columns(release(policy, review.fill_null(""))), policy)


@pytest.mark.parametrize("name", WRAPPED)
def test_a_text_that_is_null_only_where_its_source_is_passes(policy, name):
    plan = FRAME.lazy().select("id", release(policy, WRAPPED[name]))
    assert guard(plan, policy) is plan
    plan.collect()


JOINED = {
    "left": lambda lf, other: lf.join(other, on="id", how="left"),
    "right": lambda lf, other: other.join(lf, on="id", how="right"),
    "full": lambda lf, other: lf.join(other, on="id", how="full", coalesce=True),
    "nearest": lambda lf, other: lf.sort("stars").join_asof(
        other.sort("stars"), on="stars", by="id", check_sortedness=False
    ),
    "side by side": lambda lf, other: pl.concat([lf, other.select("word")], how="horizontal_extend"),
}


@pytest.mark.parametrize("name", JOINED)
def test_a_constant_of_another_table_may_be_null_after_a_join(policy, name):
    """It is null where the other table has no row, so a condition on the raw text must not choose it."""
    other = FRAME.lazy().select("id", "stars", word=lit("w")).filter(col("id") == "b")
    joined = JOINED[name](FRAME.lazy(), other)
    assert joined.collect()["word"].null_count() == 1
    text = when(has).then("word").otherwise(lit(""))
    with pytest.raises(GateError, match="may be null although its source is not"):
        guard(joined.with_columns(review=text).select(release(policy)), policy)
    guard(joined.with_columns(review=text.fill_null("")).select(release(policy)), policy)


def test_keys_of_joins_and_sql_that_give_nulls_are_refused(policy):
    # It has values where the other columns of its table have none
    keyed = pl.LazyFrame({"n": [1]}).select(key=lit("x"), word=lit("w"))
    joined = keyed.join(
        FRAME.lazy().with_columns(other="id"), left_on="key", right_on="other", how="full", coalesce=True
    )
    text = when(has).then("key").otherwise("word")
    assert joined.filter(col("id").is_not_null()).select(text).collect().to_series().null_count() == 1
    with pytest.raises(GateError, match="may be null although its source is not"):
        guard(joined.with_columns(review=text).select(release(policy)), policy)
    sql = pl.SQLContext(t=FRAME.lazy())
    for text in (
        "CASE WHEN review LIKE '%good%' THEN review END",
        "NULLIF(review, 'good film')",
        "CAST(TRY_CAST(review AS INT) AS VARCHAR)",
    ):
        with pytest.raises(GateError, match="may be null although its source is not"):
            guard(sql.execute(f"SELECT id, {text} AS review FROM t").select(release(policy)), policy)
        guard(sql.execute(f"SELECT id, COALESCE({text}, '') AS review FROM t").select("id", release(policy)), policy)


RAW = ("review", "note")
PLANS = examples(800).max_examples


def tables(draw):
    """Two tables that agree on all that is not raw and on which raw cells are null; then the second one with one row of
    the first."""
    ids = list("abcdef")
    public = {
        "id": ids,
        "stars": [draw.choice([1, 2, 5, None]) for _ in ids],
        "kind": draw.choices(["x", "y", None], k=6),
    }
    null = {name: [draw.random() < 0.3 for _ in ids] for name in RAW}
    first, second = (
        {
            name: [None if is_null else draw.choice(["a", "b", "a b", "b c", ""]) for is_null in null[name]]
            for name in RAW
        }
        for _ in range(2)
    )
    mixed = {name: [first[name][0], *second[name][1:]] for name in RAW}
    types = {"kind": pl.String, "stars": pl.Int64, **dict.fromkeys(RAW, pl.String)}
    return [pl.DataFrame({**public, **raw}, schema_overrides=types).lazy() for raw in (first, second, mixed)]


def text(draw, depth):
    """An expression over raw and other columns that gives strings."""
    if depth == 0:
        names = ["review", "review", "review", "note", "kind", "more", "more"]
        return draw.choice([col(draw.choice(names)), lit("z"), lit("z"), lit(None, dtype=pl.String)])
    one, other = text(draw, depth - 1), text(draw, draw.randint(0, depth - 1))
    made = [
        lambda: one,
        *[lambda: when(condition(draw, depth - 1)).then(one).otherwise(other)] * 5,
        lambda: when(condition(draw, depth - 1)).then(one),
        lambda: one.fill_null(other),
        lambda: pl.coalesce(one, other, text(draw, 0)),
        lambda: pl.concat_str(one, other, ignore_nulls=draw.random() < 0.3),
        lambda: one + other,
        lambda: one.str.extract("(b)"),
        lambda: one.str.head(1),
        lambda: one.str.replace("b", other, literal=True),
        lambda: one.str.strip_chars(other),
        lambda: one.replace("b", draw.choice(["y", None])),
        lambda: one.str.split(" ").list.head(1).list.join("-"),
        lambda: pl.concat_list(one, other).list.join("-", ignore_nulls=draw.random() < 0.5),
        lambda: pl.struct(a=one, b=other).struct.field("a"),
        lambda: one.cast(pl.Categorical).cast(pl.String),
        lambda: pl.coalesce(one.cast(pl.Int64, strict=False), other).cast(pl.String),
        lambda: condition(draw, depth - 1).cast(pl.String),
        lambda: draw.choice([one.max(), one.replace(col("review"), "y"), one.set_sorted()]),
    ]
    return draw.choice(made)()


def condition(draw, depth):
    one, other = text(draw, depth), text(draw, 0)
    made = [
        *[lambda: one.str.contains("b")] * 4, lambda: one == other, lambda: one.eq_missing(other), one.is_null,
        one.is_not_null, lambda: col("stars") > 2, lambda: one.is_in(draw.choice([["b", "a"], other.implode()])),
        lambda: (one == "b") & (col("stars") > 2), lambda: ~one.str.contains("b"),
    ]  # fmt: skip
    return draw.choice(made)()


def prepared(draw, base):
    """A table with the columns of `base`, and a column "more" that is not raw, or made from raw columns."""
    other = base.select("id", more=lit("k")).filter(col("id") > "b")
    ways = [
        lambda: base.with_columns(more=lit("k")),
        lambda: base.join(other, on="id", how="left"),
        lambda: base.filter(col("stars") > 1).join(other, on="id", how="full", coalesce=True),
        lambda: other.join(base, on="id", how="left"),
        lambda: other.join(base, on="id", how="right"),
        lambda: pl.concat([base, other.select("more")], how="horizontal_extend"),
        lambda: pl.concat([base.with_columns(more=lit("k")), base.with_columns(more=lit("k"))]),
        lambda: base.with_columns(more=lit("k")).with_columns(review=text(draw, 2)),
    ]
    return draw.choice(ways)()


def test_a_text_that_passes_is_of_its_row_and_its_nulls_depend_on_no_raw_text(policy):
    passed = revealing = 0
    for seed in range(PLANS):
        texts = [_text(seed, at) for at in range(3)]
        try:
            first, second, mixed = (text.collect().sort("id", "review") for text in texts)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            continue
        nulls = [found.select("id", col("review").is_null()).sort("id", "review") for found in (first, second)]
        rows = [found.filter(col("id") == "a") for found in (first, mixed)]
        reveals = not (nulls[0].equals(nulls[1]) and rows[0].equals(rows[1]))
        try:
            dptext_etl.polars.guard(texts[0].select(release(policy)), raw=RAW)
        except GateError:
            revealing += reveals
        else:
            passed += 1
            assert not reveals, f"the plan of seed {seed} passed, and which texts are null depends on raw texts"
    assert passed > PLANS / 8
    assert revealing > PLANS / 50


def _text(seed, at):
    draw = random.Random(seed)
    frame = prepared(draw, tables(draw)[at])
    return frame.select("id", review=text(draw, draw.randint(1, 4)))
