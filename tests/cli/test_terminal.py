"""Readable on a terminal, plain in a pipe, JSON that every reader accepts."""

import json
import math

import pytest

from dptext_etl.cli import terminal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), ("", "-"), ([], "-"), (True, "yes"), (12345, "12,345"), (12345.0, "12,345"), (0.12839, "0.12839"),
        (1e300, "1e+300"), (math.inf, "inf"), (["a", "b"], "a, b"), ({"a": 1, "b": None}, "a 1, b -"),
        ("[bold]x", "[bold]x"), (2.0000001, "2.000001"), (12.345678, "12.345678"), (1234567.25, "1,234,567.25"),
        (0.0999999999, "0.1"), (1.00000001e-7, "1.00001e-07"), (-1.23456789, "-1.234567"),
        (1.0000001e15, "1.00001e+15"), (math.nan, "nan"), (999.999999999, "1,000"),
    ],
)  # fmt: skip
def test_cells(value, text):
    assert terminal.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.2345679, "1.234567"), (0.0123456789, "0.0123456"), (0.0, "0"), (2.0, "2"), (1.9999999, "1.999999")],
)
def test_lower_bounds_are_rounded_down(value, text):
    assert terminal.at_least(value) == text


def test_tables_are_plain_in_a_pipe_and_json_holds_no_nan(capsys):
    terminal.table(("name", "value"), [("[red]a" * 60, 1), ("b", None)])
    terminal.pairs({"long": "x" * 500})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["name", "value"], ["[red]a" * 60, "1"], ["b", "-"], ["long", "x" * 500],
    ]  # fmt: skip
    assert all(line == line.rstrip() and "\x1b" not in line for line in lines)
    terminal.emit({"a": math.inf, "b": [math.nan, {1, 2}], "c": {"d": (1, None)}})
    out = capsys.readouterr().out
    found = json.loads(out, parse_constant=pytest.fail)
    assert found == {"a": "inf", "b": ["nan", [1, 2]], "c": {"d": [1, None]}}
