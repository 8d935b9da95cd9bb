"""Compare the refusal that a plan foretells with that by a run."""

from contextlib import nullcontext

import pytest

from dptext_etl.errors import DPTextError
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.ledger import ledger_exists
from dptext_etl.runner import plan


def head(job, **entries):
    """The head of a job's ledger; None where there is none."""
    spec = job.policy(**entries).ledger
    try:
        if not ledger_exists(spec.url):
            return None
        with Ledger.open(spec.url, spec.id_key, read_only=True, create=False) as ledger:
            return str(ledger.anchor())
    except DPTextError:  # a folder, or a server that refuses this user
        return None


_PARTS = ("code", "exit_code", "message", "hint", "fields")


def foretold(job, planning=plan, **entries):
    """The refusal that a plan foretells, raised or in its summary."""
    try:
        found = planning(job.policy(**entries)).refusal
    except DPTextError as error:
        found = dict(zip(_PARTS, (error.code, error.exit_code, error.message, error.hint, error.fields), strict=True))
    if not found:
        return found
    return _of_first(*found.values())


def _of_first(*parts):
    """The parts of a refusal without the messages of others: a plan looks for more of them than a run."""
    *others, fields = parts
    return (*others, {name: value for name, value in fields.items() if name != "also"})


def same_refusal(job, entries, kind, around=nullcontext, running=None, planning=plan):
    """Return the error of a run, which its plan foretold; the ledger stays as it is."""
    before = head(job, **entries)
    with around():
        said = foretold(job, planning, **entries)
        with pytest.raises(kind) as caught:
            (running or job.run)(**entries)
    error = caught.value
    assert said == _of_first(error.code, error.exit_code, error.message, error.hint, error.fields)
    assert head(job, **entries) == before, "the ledger is as it was"
    return error
