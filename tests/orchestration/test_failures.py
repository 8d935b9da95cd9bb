"""What reaches an event log when a step fails: our sentence, an exit code, no chain."""

import traceback

import pytest

from dptext_etl.errors import (
    BudgetError,
    BusyError,
    DiskError,
    GateError,
    InputError,
    LedgerError,
    LockedLedgerError,
    UnavailableError,
)
from tests.later import later

dg = later("dagster", reason="dagster is not installed")
errors = later("dagster._utils.error")
steps = later("dptext_etl.orchestration.steps")
SENTINEL = "zzqsentinelqzz"


def fail(error):
    try:
        raise ValueError(SENTINEL)  # noqa: TRY301
    except ValueError as cause:
        raise error from cause


def caught(error):
    with pytest.raises(dg.Failure) as found, steps.as_failure("staging"):
        fail(error)
    return found.value


@pytest.mark.parametrize(("error", "code"), [(InputError, 5), (BudgetError, 3), (GateError, 4)])
def test_our_errors_keep_their_sentence_and_exit_code(error, code):
    failure = caught(error("3 rows are wrong", "mend them"))
    assert failure.description == "3 rows are wrong\nHint: mend them"
    assert (failure.metadata["exit_code"].value, failure.metadata["error"].value) == (code, error.__name__)
    assert not failure.allow_retries


@pytest.mark.parametrize("error", [KeyError(SENTINEL), UnicodeDecodeError("utf-8", SENTINEL.encode(), 0, 1, SENTINEL)])
def test_other_errors_lose_their_words(error):
    failure = caught(error)
    assert type(error).__name__ in failure.description
    assert failure.metadata["exit_code"].value == 1
    assert failure.allow_retries


@pytest.mark.parametrize(
    ("kind", "again"),
    [(LockedLedgerError, True), (UnavailableError, True), (BusyError, True), (DiskError, True), (LedgerError, False)],
)
def test_what_broke_down_may_be_tried_again(kind, again):
    assert caught(kind("it is so")).allow_retries is again


@pytest.mark.parametrize("error", [InputError("wrong"), RuntimeError(SENTINEL)])
def test_nothing_of_the_chain_is_left(error):
    failure = caught(error)
    assert failure.__cause__ is None
    assert failure.__context__ is None
    stored = errors.serializable_error_info_from_exc_info((type(failure), failure, failure.__traceback__))
    assert SENTINEL not in stored.to_string()
    assert stored.cause is None
    assert stored.context is None
    assert SENTINEL not in "".join(traceback.format_exception_only(failure))


def test_an_interrupt_passes_and_a_failure_is_told_once():
    with pytest.raises(KeyboardInterrupt), steps.as_failure("staging"):
        raise KeyboardInterrupt
    with pytest.raises(dg.Failure, match="inner"), steps.as_failure("outer"), steps.as_failure("inner"):
        fail(RuntimeError(SENTINEL))
