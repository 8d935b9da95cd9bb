"""Errors say what and what next, carry exit codes, and keep what libraries say inside."""

import pickle
import re
from pathlib import Path

import pytest
from polars.exceptions import PanicException

from dptext_etl import errors
from dptext_etl.errors import (
    BudgetError,
    DPTextError,
    GateError,
    InputError,
    LedgerError,
    PolicyError,
    seam,
    without_panics,
)

SENTINEL = "a private sentence about lupus"


def test_message_and_hint():
    error = PolicyError("the column is missing", "name another")
    assert str(error) == "the column is missing\nHint: name another"
    assert str(PolicyError("plain")) == "plain"


@pytest.mark.parametrize(
    ("kind", "code"),
    [(DPTextError, 1), (PolicyError, 5), (InputError, 5), (LedgerError, 5), (BudgetError, 3), (GateError, 4)],
)
def test_exit_codes(kind, code):
    assert kind.exit_code == code


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(BudgetError("over", "wait")))
    assert (type(error), error.message, error.hint) == (BudgetError, "over", "wait")


def test_seam_drops_what_the_library_said():
    with pytest.raises(InputError) as caught, seam("reading the source", hint="look at the file"):
        raise ValueError(SENTINEL)
    error = caught.value
    assert str(error) == "reading the source failed (ValueError)\nHint: look at the file"
    assert error.__cause__ is None
    assert error.__context__ is None


def test_seam_drops_context_inside_a_handler():
    def inner():
        try:
            {}[SENTINEL]
        except KeyError:
            with seam("staging", LedgerError):
                raise OSError(SENTINEL) from None

    with pytest.raises(LedgerError) as caught:
        inner()
    assert caught.value.__context__ is None


def test_seam_lets_our_errors_and_interrupts_through():
    with pytest.raises(BudgetError, match="cap"), seam("x"):
        raise BudgetError("cap")
    with pytest.raises(KeyboardInterrupt), seam("x"):
        raise KeyboardInterrupt


def test_messages_count_in_the_singular_and_plural():
    """Counts of records, rows, or texts are written by `counted`; shares such as "3 of 5 rows" are not."""
    root = Path(errors.__file__).parent
    noun = r"(?:changed |forgotten )?(?:records|rows|texts|record ids) (?!of type|and|of public)"
    fixed = re.compile(rf'(?<!\}} of )(?<!"of )(?<!all )(?<!most )\{{[^}}"]*\}} {noun}')
    found = [
        f"{path.relative_to(root)}: {match[0]}"
        for folder in ("runner", "ledger", "checks", "orchestration", "engines", "spark", "polars", "cli")
        for path in sorted((root / folder).rglob("*.py"))
        for match in fixed.finditer(path.read_text())
        if "counted(" not in match[0]
    ]
    assert found == []


@pytest.mark.parametrize(
    ("raised", "left"),
    [
        (PanicException(SENTINEL), DPTextError),
        (ValueError(SENTINEL), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_panic_becomes_an_error_that_quotes_nothing(raised, left):
    with pytest.raises(left) as caught, without_panics():
        raise raised
    if left is DPTextError:
        assert str(caught.value) == "calling compiled code failed (PanicException)"
        assert caught.value.__cause__ is caught.value.__context__ is None
