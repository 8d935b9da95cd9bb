"""Define `dptext ledger jobs|revoke|readmit|expire|abort`, which end or admit by hand and journal it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli.command import LedgerCommand, epilog
from dptext_etl.cli.commands.ledger import opened
from dptext_etl.cli.commands.ledger_keeping import Dataset, tell
from dptext_etl.cli.commands.ledger_keeping import commands as _commands
from dptext_etl.cli.confirming import Yes, require_confirmation
from dptext_etl.cli.options import IdKey, Json, LedgerUrl

if TYPE_CHECKING:
    from dptext_etl.ledger import Ledger

commands = _commands
"""All commands of `dptext ledger`: those that read (`ledger`), maintain (`ledger_keeping`), and end jobs."""

Job = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job; `dptext ledger jobs` lists them.")]
Reason = Annotated[str, typer.Option(metavar="WORDS", help="The reason in a few plain words, which the journal keeps.")]


@commands.command(cls=LedgerCommand, epilog=epilog("dptext ledger jobs --ledger ledger.db", ("jobs",)))
def jobs(*, ledger: LedgerUrl, id_key: IdKey = None, as_json: Json = False) -> None:
    """List the jobs with open reservations, which are neither committed, expired nor given back."""
    from dptext_etl.cli.render import terminal

    with opened(ledger, id_key) as book:
        found = [job for job in book.jobs() if job["pending"]]
    if as_json:
        terminal.emit({"jobs": found})
        return
    columns = ("job", "since", "dataset", "releases", "records", "pending")
    terminal.table(columns, [[job[name] for name in columns] for job in found])
    if not found:
        terminal.say("nothing is open")


@commands.command(
    cls=LedgerCommand,
    epilog=epilog(
        'dptext ledger revoke reviews 2026-11 --reason "wrong table" --ledger ledger.db',
        ("revoked", "dataset", "records", "published"),
    ),
)
def revoke(
    dataset: Dataset,
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="The release name, in all columns of the dataset.")],
    *,
    ledger: LedgerUrl,
    reason: Reason,
    yes: Yes = False,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Revoke a release name permanently, so that nothing more is released under it. Its charges stay."""
    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.ledger.anchor_files import anchored

    with Ledger.open(ledger, id_key, create=False) as book:
        held = [row for row in book.show() if (row["dataset"], row["release"]) == (dataset, release)]
        records = sum(row["records"] for row in held)
        versions = sorted({version["version"] for row in held for version in row["published"]})
        if held and not all(row["burnt"] for row in held):
            shown = f", published as {' and '.join(versions)}" if versions else ""
            question = f"Revoke release {release!r} of {dataset} ({records:,} charged records{shown}) for good?"
            require_confirmation(question, yes=yes)
        with anchored(book, Scope(dataset, "all"), release):
            book.revoke_name(dataset, release, reason)
    said = f"release {release!r} of {dataset} is revoked; its charges stay"
    facts = {"revoked": release, "dataset": dataset, "records": records, "published": versions}
    tell(facts, said + (", and what was published must be taken down by hand" if versions else ""), as_json=as_json)


@commands.command(
    cls=LedgerCommand,
    epilog=epilog(
        'dptext ledger readmit reviews --record r17 --reason "came back with consent" --ledger ledger.db',
        ("dataset", "readmitted"),
    ),
)
def readmit(
    dataset: Dataset,
    *,
    ledger: LedgerUrl,
    record: Annotated[list[str], typer.Option(metavar="ID", help="A forgotten record; repeat as needed.")],
    reason: Reason,
    yes: Yes = False,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Let forgotten records be released again, in all releases of the dataset. Earlier charges still count."""
    import pyarrow as pa

    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.ledger.anchor_files import anchored

    require_confirmation(f"Let {len(set(record))} forgotten records of {dataset} be released again?", yes=yes)
    ids = pa.array(sorted(set(record)), pa.large_string())
    with Ledger.open(ledger, id_key, create=False) as book, anchored(book, Scope(dataset, "all")):
        count = book.readmit(dataset, ids, reason)
    tell({"dataset": dataset, "readmitted": count}, f"{count:,} records may be released again", as_json=as_json)


@commands.command(
    cls=LedgerCommand,
    epilog=epilog('dptext ledger expire JOB --reason "will not be run again" --ledger ledger.db', ("job", "expired")),
)
def expire(
    job: Job, *, ledger: LedgerUrl, reason: Reason, yes: Yes = False, id_key: IdKey = None, as_json: Json = False
) -> None:
    """Turn the open reservations of a job into permanent charges. They can still be committed, but not given back."""
    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.ledger.anchor_files import anchored

    with Ledger.open(ledger, id_key, create=False) as book:
        found = _job(book, job)
        question = f"Make {found['pending']:,} open reservations of job {job} ({_whose(found)}) charges for good?"
        require_confirmation(question, yes=yes)
        with anchored(book, Scope(found["dataset"], "all")):
            count = book.expire(job, reason=reason)
    tell({"job": job, "expired": count}, f"{count:,} reservations expired: their charges stay", as_json=as_json)


@commands.command(
    cls=LedgerCommand,
    epilog=epilog('dptext ledger abort JOB --reason "never computed" --ledger ledger.db', ("job", "given_back")),
)
def abort(
    job: Job, *, ledger: LedgerUrl, reason: Reason, yes: Yes = False, id_key: IdKey = None, as_json: Json = False
) -> None:
    """Give back the open reservations of a job, if you know that no text of it was ever scored.

    The command refuses a job with committed records, a job on which another job relies, and a job whose unlinked
    release or synthetic table was pinned: draws may have been seen, so `dptext ledger expire JOB` keeps its charges.
    """
    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.ledger.anchor_files import anchored

    with Ledger.open(ledger, id_key, create=False) as book:
        found = _job(book, job)
        question = (
            f"Do you know that the job {job} ({_whose(found)}) has ended, and that it scored no text? "
            f"Then {found['pending']:,} reservations are given back"
        )
        require_confirmation(question, yes=yes)
        with anchored(book, Scope(found["dataset"], "all")):
            count = book.abort(job, compute_never_started=True, reason=reason)
    tell({"job": job, "given_back": count}, f"{count:,} reservations given back", as_json=as_json)


def _job(book: Ledger, name: str) -> dict[str, Any]:
    """Return the facts of a job in the ledger.

    Raises:
        LedgerError: The ledger has no job of this name.
    """
    from dptext_etl.errors import LedgerError

    for job in book.jobs():
        if job["job"] == name:
            return job
    raise LedgerError("the ledger knows no job of this name", "`dptext ledger jobs` lists those with open reservations")


def _whose(job: dict[str, Any]) -> str:
    return f"{job['dataset']}, release {' and '.join(job['releases'])}, since {job['since']}"
