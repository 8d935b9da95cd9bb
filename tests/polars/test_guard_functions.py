"""Each function of one row that the guard accepts reads no other row, and is null where its entry says."""

import random
from datetime import datetime
from itertools import product

import polars as pl
import pytest

from dptext_etl.errors import GateError
from dptext_etl.polars.plan_expressions import _ALL, _OF_ROW
from dptext_etl.polars.plan_guard import _as_written

from .guarded import guard, release

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
lit = pl.lit
TEXTS = ["a b", "", "b", 'a "c"', "É a", "12", "{}", None]
NUMBERS = [0, 1, 2, 5, None]
TIMES = [datetime(2026, 1, 31, 23, 59, 59), datetime(1999, 12, 31), None]
COLUMNS = {
    "a": pl.Series(TEXTS, dtype=pl.String),
    "b": pl.Series(["a", "", "b", " ", None, "a b", None, "É"], dtype=pl.String),
    "u": pl.Series(["q", "a b", "r", "b", "s", "É", "v", "w"], dtype=pl.String),
    "n": pl.Series([0, 1, 2, 5, None, 3, 1, 0], dtype=pl.Int64),
    "m": pl.Series([1, None, 0, 2, 7, 1, None, 3], dtype=pl.Int64),
    "x": pl.Series([0.5, -1.5, float("nan"), float("inf"), None, 2.5, 1e300, -0.0], dtype=pl.Float64),
    "t": pl.Series((TIMES * 3)[:8], dtype=pl.Datetime("us")),
    "p": pl.Series([True, False, None, True, False, None, True, False], dtype=pl.Boolean),
    "q": pl.Series([None, False, None, False, True, True, True, False], dtype=pl.Boolean),
    "l": pl.Series([["a", "b"], [], None, ["b"], [None, "a"], ["a", ""], [None], ["c"]], dtype=pl.List(pl.String)),
    "k": pl.Series([["b"], None, [], ["a"], ["c"], [None], ["a", "b"], None], dtype=pl.List(pl.String)),
    "json": pl.Series(['{"a": "x"}', '{"a": null}', "{}", None, '{"a": "y"}', "null", "{}", None], dtype=pl.String),
    "path": pl.Series(["$.a", "$.b", None, "$.a", "$", "$.a", "$.c", "$.b"], dtype=pl.String),
}
FRAME = pl.DataFrame(COLUMNS)


def of_strings(name):
    return f"StringFunction.{name}"


def of_times(name, *arguments):
    return lambda t: getattr(t.dt, name)(*arguments), "t"


CASES = {
    "as_struct": (pl.struct, "a b n"),
    "abs": (pl.Expr.abs, "n"),
    "ceil": (pl.Expr.ceil, "x"),
    "clip": (lambda x, n, m: x.clip(n, m), "x n m"),
    "coalesce": (pl.coalesce, "a b"),
    "fill_null": (pl.Expr.fill_null, "a b"),
    "floor": (pl.Expr.floor, "x"),
    "negate": (lambda n: -n, "n"),
    "round": (lambda x: x.round(1), "x"),
    "sign": (pl.Expr.sign, "x"),
    "replace": (lambda a: a.replace({"a b": "b", "b": ""}), "a"),
    "replace_strict": (lambda a: a.replace_strict({"a b": "b"}, default="c"), "a"),
    "BooleanFunction.IsNotNull": (pl.Expr.is_not_null, "a"),
    "BooleanFunction.IsNull": (pl.Expr.is_null, "a"),
    "BooleanFunction.Not": (lambda p: ~p, "p"),
    "BooleanFunction.IsBetween": (lambda n, m, k: n.is_between(m, k), "n m n"),
    "BooleanFunction.IsFinite": (pl.Expr.is_finite, "x"),
    "BooleanFunction.IsInfinite": (pl.Expr.is_infinite, "x"),
    "BooleanFunction.IsNan": (pl.Expr.is_nan, "x"),
    "BooleanFunction.IsNotNan": (pl.Expr.is_not_nan, "x"),
    "BooleanFunction.IsIn": (lambda a: a.is_in(["a b", "b"]), "a"),
    "ListFunction.Length": (lambda words: words.list.len(), "l"),
    "ListFunction.Slice": (lambda words, n, m: words.list.slice(n, m), "l n m"),
    "ListFunction.Concat": (pl.concat_list, "l k"),
    "ListFunction.Contains": (lambda words, b: words.list.contains(b), "l b"),
    "ListFunction.Get": (lambda words, n: words.list.get(n, null_on_oob=True), "l n"),
    "ListFunction.Join": (lambda words, b: words.list.join(b, ignore_nulls=False), "l b"),
    "ListFunction.Join True": (lambda words, b: words.list.join(b), "l b"),
    of_strings("Base64Encode"): (lambda a: a.str.encode("base64"), "a"),
    of_strings("HexEncode"): (lambda a: a.str.encode("hex"), "a"),
    of_strings("Contains"): (lambda a, b: a.str.contains(b), "a b"),
    of_strings("ContainsAny"): (lambda a: a.str.contains_any(["a", "b"]), "a"),
    of_strings("CountMatches"): (lambda a, b: a.str.count_matches(b), "a b"),
    of_strings("EndsWith"): (lambda a, b: a.str.ends_with(b), "a b"),
    of_strings("EscapeRegex"): (lambda a: a.str.escape_regex(), "a"),
    of_strings("Extract"): (lambda a, b: a.str.extract(b, 0), "a b"),
    of_strings("ExtractAll"): (lambda a, b: a.str.extract_all(b), "a b"),
    of_strings("ExtractGroups"): (lambda a: a.str.extract_groups("(a)(.)?"), "a"),
    of_strings("Find"): (lambda a, b: a.str.find(b), "a b"),
    of_strings("Format"): (lambda a, n: pl.format("{}-{}", a, n), "a n"),
    of_strings("Head"): (lambda a, n: a.str.head(n), "a n"),
    of_strings("Tail"): (lambda a, n: a.str.tail(n), "a n"),
    of_strings("Slice"): (lambda a, n, m: a.str.slice(n, m), "a n m"),
    of_strings("JsonDecode"): (lambda json: json.str.json_decode(pl.Struct({"a": pl.String})), "json"),
    of_strings("JsonPathMatch"): (lambda json, path: json.str.json_path_match(path), "json path"),
    of_strings("LenBytes"): (lambda a: a.str.len_bytes(), "a"),
    of_strings("LenChars"): (lambda a: a.str.len_chars(), "a"),
    of_strings("Lowercase"): (lambda a: a.str.to_lowercase(), "a"),
    of_strings("Uppercase"): (lambda a: a.str.to_uppercase(), "a"),
    of_strings("Titlecase"): (lambda a: a.str.to_titlecase(), "a"),
    of_strings("Normalize"): (lambda a: a.str.normalize("NFKD"), "a"),
    of_strings("PadEnd"): (lambda a, n: a.str.pad_end(n, "*"), "a n"),
    of_strings("PadStart"): (lambda a, n: a.str.pad_start(n, "*"), "a n"),
    of_strings("ZFill"): (lambda a, n: a.str.zfill(n), "a n"),
    of_strings("Replace"): (lambda a, b: a.str.replace_all("a", b), "a lit b"),
    of_strings("ReplaceMany"): (lambda a: a.str.replace_many(["a", "b"], ["b", ""]), "a"),
    of_strings("Reverse"): (lambda a: a.str.reverse(), "a"),
    of_strings("Split"): (lambda a, b: a.str.split(b), "a b"),
    of_strings("SplitExact"): (lambda a, b: a.str.split_exact(b, 1), "a b"),
    of_strings("SplitN"): (lambda a, b: a.str.splitn(b, 2), "a b"),
    of_strings("StartsWith"): (lambda a, b: a.str.starts_with(b), "a b"),
    of_strings("StripChars"): (lambda a, b: a.str.strip_chars(b), "a b"),
    of_strings("StripCharsEnd"): (lambda a, b: a.str.strip_chars_end(b), "a b"),
    of_strings("StripCharsStart"): (lambda a, b: a.str.strip_chars_start(b), "a b"),
    of_strings("StripPrefix"): (lambda a, b: a.str.strip_prefix(b), "a b"),
    of_strings("StripSuffix"): (lambda a, b: a.str.strip_suffix(b), "a b"),
    of_strings("ConcatHorizontal False"): (pl.concat_str, "a b n"),
    of_strings("ConcatHorizontal True"): (lambda a, b: pl.concat_str(a, b, ignore_nulls=True), "a b"),
    "TemporalFunction.Date": of_times("date"),
    "TemporalFunction.Day": of_times("day"),
    "TemporalFunction.Hour": of_times("hour"),
    "TemporalFunction.IsoYear": of_times("iso_year"),
    "TemporalFunction.Minute": of_times("minute"),
    "TemporalFunction.Month": of_times("month"),
    "TemporalFunction.OrdinalDay": of_times("ordinal_day"),
    "TemporalFunction.Quarter": of_times("quarter"),
    "TemporalFunction.Second": of_times("second"),
    "TemporalFunction.Time": of_times("time"),
    "TemporalFunction.ToString": of_times("to_string", "%Y-%m"),
    "TemporalFunction.Truncate": of_times("truncate", "1mo"),
    "TemporalFunction.WeekDay": of_times("weekday"),
    "TemporalFunction.Week": of_times("week"),
    "TemporalFunction.Year": of_times("year"),
}
"""An expression for each entry, and the column of each input; "lit" is for an input that is a constant in it."""
OPERATIONS = {
    "to categories and back": (lambda a: a.cast(pl.Categorical).cast(pl.String), "a"),
    "compared as categories": (lambda a, b: a.cast(pl.Categorical) < b.cast(pl.Categorical), "a b"),
    "equal as categories": (lambda a, b: a.cast(pl.Categorical) == b.cast(pl.Categorical), "a b"),
    "categories and a literal": (lambda a: a.cast(pl.Categorical) > "b", "a"),
    "to an Enum": (lambda a: a.cast(pl.Enum([text for text in TEXTS if text is not None])), "a"),
    "to bytes and back": (lambda a: a.cast(pl.Binary).cast(pl.String), "a"),
    "to a number": (lambda a: a.cast(pl.Int64, strict=False), "a"),
    "from a number": (lambda x: x.cast(pl.String), "x"),
    "from a time": (lambda t: t.cast(pl.String), "t"),
    "a case": (lambda p, a, b: pl.when(p).then(a).otherwise(b), "p a b"),
    "joined by +": (lambda a, b: a + b, "a b"),
    "divided": (lambda n, m: n // m, "n m"),
    "compared": (lambda a, b: a < b, "a b"),
    "logic": (lambda p, q: pl.all_horizontal(p, q) | pl.any_horizontal(p, q) & p, "p q"),
    "the first words": (lambda a: a.str.split(" ").list.head(1).list.join(" "), "a"),
    "the last words": (lambda a: a.str.split(" ").list.tail(1).list.join(" "), "a"),
    "a field of JSON": (
        lambda json: json.str.json_decode(pl.Struct({"a": pl.String})).struct.field("a").fill_null(""),
        "json",
    ),
    "a first part": (lambda a: a.str.splitn(" ", 2).struct.field("field_0"), "a"),
    "a group": (lambda a: a.str.extract_groups("(a)(.)?").struct.field("1"), "a"),
    "encoded": (lambda a: a.str.encode("base64"), "a"),
    "with a year": (lambda t, a: pl.concat_str(t.dt.year(), a), "t a"),
    "with a number": (lambda x, a: pl.when(x.is_finite()).then(pl.concat_str(x.round(1).abs().clip(0, 1), a)), "x a"),
    "said to be sorted": (lambda n, a: pl.concat_str(n.set_sorted(), a), "n a"),
    "values as a list": (lambda a, b: pl.concat_list(a, b).list.join("-"), "a b"),
}
"""Not functions: casts, operators, choices, and whole preparations of a text."""
NOT_OF_ROW = {
    "replacements": (lambda a, u: a.replace(u, "x"), "a u"),
    "new values": (lambda a, u: a.replace(["a b", "", "b", "12", "{}", "É a", "c", "d"], u), "a u"),
    "strict replacements": (lambda a, u: a.replace_strict(u, a, default="x"), "a u"),
    "members": (lambda a, u: a.is_in(u), "a u"),
    "members of a list": (lambda a, u: a.is_in(u.implode()), "a u"),
    "patterns": (lambda a, u: a.str.contains_any(u.implode()), "a u"),
    "replaced patterns": (lambda a, u: a.str.replace_many(u.implode(), ["x"]), "a u"),
    "ranks": (lambda a: a.rank("dense"), "a"),
    "shifted": (lambda a: a.shift(1), "a"),
}
"""What reads other rows, so the guard accepts none of it."""


def made(case, **columns):
    make, names = case
    return make(*(columns.get(name, pl.col(name)) for name in names.split() if name != "lit"))


def functions(expression):
    """The entries of all functions of an expression."""
    nodes = _as_written(FRAME.lazy().select(made=expression))
    waiting, found = [nodes.view_current_node().expr[0].node], set()
    while waiting:
        item = nodes.view_expression(waiting.pop())
        if type(item).__name__ == "Function":
            name, *parameters = map(str, item.function_data)
            found.add(" ".join([name, *parameters[-1:]]) if " ".join([name, *parameters[-1:]]) in _OF_ROW else name)
            waiting += item.input
    return found


def others(at):
    """Frames that have the same row at one place, and other rows at all others."""
    rest = [row for row in range(FRAME.height) if row != at]
    for seed in range(3):
        columns = {}
        for name in FRAME.columns:
            mixed = random.Random(f"{seed} {name}").sample(rest, len(rest))
            columns[name] = FRAME[name].gather([*mixed[:at], at, *mixed[at:]])
        yield pl.DataFrame(columns)
    for row in rest:
        yield FRAME[[at if place == at else row for place in range(FRAME.height)]]


def reads_other_rows(cases):
    """The names of those cases of which a row of the result changes with other rows."""
    expressions, changed = {name: made(case) for name, case in cases.items()}, set()
    values = FRAME.select(**expressions)
    for at in range(FRAME.height):
        for frame in others(at):
            try:
                found = frame.select(**expressions)
            except pl.exceptions.InvalidOperationError:  # such as two replacements of one value
                return set(cases)
            changed |= {name for name in cases if not found[name][[at]].equals(values[name][[at]], null_equal=True)}
    return changed


def test_other_rows_change_nothing():
    assert reads_other_rows(CASES | OPERATIONS) == set()


@pytest.mark.parametrize("name", NOT_OF_ROW)
def test_what_reads_other_rows_is_refused(secret, policy, name):
    assert reads_other_rows({name: NOT_OF_ROW[name]}) == {name}
    text = made(NOT_OF_ROW[name], a=pl.col("review")).cast(pl.String).fill_null("")
    frame = pl.LazyFrame({"id": ["1"], "review": ["a b"], "u": ["a"]})
    with pytest.raises(GateError, match="not made only from its own row"):
        guard(frame.select(release(policy, text)), policy)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_of_one_row_is_accepted(secret, policy, name):
    make, names = OPERATIONS[name]
    *_, text = names.split()
    frame = FRAME.rename({text: "review"}).with_row_index("id").lazy()
    made_of = made((make, names), **{text: pl.col("review")})
    guard(frame.select(release(policy, made_of.cast(pl.String).fill_null(""))), policy)


def test_every_entry_has_a_case():
    assert CASES.keys() == _OF_ROW.keys()
    for name, case in CASES.items():
        assert name in functions(made(case))
        rows, _ = _OF_ROW[name]
        assert rows in {1, _ALL}
        assert rows == _ALL or len(case[1].split()) == rows


@pytest.mark.parametrize("name", [name for name, (_, nulls) in _OF_ROW.items() if nulls is not None])
def test_an_entry_says_what_makes_its_value_null(name):
    case = CASES[name]
    read = [column for column in case[1].split() if column != "lit"]
    frame = pl.DataFrame(
        list(product(*(COLUMNS[column].unique(maintain_order=True).to_list() for column in read))),
        {f"{column}{at}": FRAME.schema[column] for at, column in enumerate(read)},
        orient="row",
    )
    made_of = iter(frame.columns)
    inputs = [None if column == "lit" else next(made_of) for column in case[1].split()][: _OF_ROW[name][1]]
    expected = pl.any_horizontal(lit(value=False), *(pl.col(column).is_null() for column in inputs if column))
    found = frame.select(made=case[0](*map(pl.col, frame.columns)).is_null(), expected=expected)
    assert found["made"].equals(found["expected"])
