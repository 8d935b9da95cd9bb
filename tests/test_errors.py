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
    InputError,
    LedgerError,
    PolicyError,
    seam,
    without_panics,
)

SENTINEL = "a private sentence about lupus"


def test_messages_and_pickles_hold_what_was_said():
    error = PolicyError("the column is missing", "name another")
    assert (str(error), str(PolicyError("plain"))) == ("the column is missing\nHint: name another", "plain")
    error = pickle.loads(pickle.dumps(BudgetError("over", "wait", {"rows": 3})))
    assert (type(error), error.message, error.hint, error.fields) == (BudgetError, "over", "wait", {"rows": 3})
    again = {1: True, 2: False, 3: False, 4: False, 5: False, 6: True, 7: True, 8: False}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DPTextError)]
    assert {kind.exit_code: kind.transient for kind in kinds} == again


class GenericError(Exception):
    """As obstore names it."""


GenericError.__module__ = "obstore.exceptions"
AWAY = "Generic S3 error: Error performing GET http://host/b in 5 ms - Server returned non-2xx status code: {}: "


@pytest.mark.parametrize(
    "error",
    [
        GenericError(AWAY.format("503 Service Unavailable")),
        GenericError(
            "Generic S3 error: Error performing GET http://host/b in 1 ms - HTTP error: error sending request"
        ),
        OSError(f"object-store error: {AWAY.format('429 Too Many Requests')}"),
        OSError(AWAY.replace(": {}", "\n  \x1b[31m↳\x1b[0m {}").format("500 Internal Server Error")),  # delta-rs
        ConnectionRefusedError(111, SENTINEL),
        TimeoutError(SENTINEL),
    ],
)
def test_a_store_that_is_away_is_unavailable(error):
    with pytest.raises(errors.UnavailableError) as caught, seam("reading", InputError, "is the file whole?"):
        raise error
    assert re.search("^reading failed: it cannot be reached now, or cannot serve", str(caught.value))
    assert (caught.value.exit_code, caught.value.__cause__) == (6, None)
    assert SENTINEL not in str(caught.value)
    assert "whole" not in str(caught.value)


class AuthorizationExpiredError(Exception):
    """As pyiceberg names it."""


AuthorizationExpiredError.__module__ = "pyiceberg.exceptions"


def test_an_expired_token_is_named():
    with pytest.raises(errors.UnavailableError, match="the store answers AuthorizationExpired"), seam("publishing"):
        raise AuthorizationExpiredError(SENTINEL)
    said = AWAY.format("400 Bad Request") + "<Error><Code>ExpiredToken</Code><Message>It has expired.</Message></Error>"
    named = pytest.raises(errors.UnavailableError, match=r"the store answers ExpiredToken\nHint: renew the credentials")
    with named, seam("reading the source", InputError, "is the file whole?"):
        raise OSError(said)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(AWAY.format("503 Slow Down")),
        OSError(AWAY.format("403 Forbidden")),
        OSError("Error performing GET http://host/b in 70 ms - HTTP error: builder error"),  # a URL that is not allowed
        FileNotFoundError(2, SENTINEL),
    ],
)
def test_a_cell_with_the_words_of_a_store_and_a_store_that_refuses_are_permanent(error):
    with pytest.raises(InputError) as caught, seam("reading"):
        raise error
    assert (caught.value.exit_code, caught.value.transient) == (5, False)


def test_seam_drops_what_the_library_said_and_its_context():
    with pytest.raises(InputError) as caught, seam("reading the source", hint="look at the file"):
        raise ValueError(SENTINEL)
    error = caught.value
    assert str(error) == "reading the source failed (ValueError)\nHint: look at the file"
    assert error.__cause__ is None
    assert error.__context__ is None

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
