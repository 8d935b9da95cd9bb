"""Define the commands of `dptext ledger` that read a ledger, make it, and copy it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dptext_etl.cli import options, terminal
from dptext_etl.cli.options import LEDGER, STORE, LedgerCommand, named_ledger
from dptext_etl.errors import GATE, PolicyError, UnknownIdError, UsageError, counted
from dptext_etl.guarantee import PURE

if TYPE_CHECKING:
    import pyarrow as pa

    from dptext_etl.ledger import Ledger, Scope

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Make, read, check and repair a ledger: releases, balances, integrity, the public view.",
)
command = partial(options.command, app, cls=LedgerCommand)


@command("dptext ledger show --ledger ledger.db", ("releases",))
def show() -> None:
    """List the releases: class, disclosures, records, largest spend of a record. Internal, not for publication."""
    with open_ledger() as handle:
        releases = terminal.releases(handle.reports.show())
    if terminal.emitted({"releases": releases}):
        return
    columns = ["dataset", "column", "release", "mechanism", "class", "records"]
    columns += ["committed", "pending", "expired", "aborted", "canaries"]
    rows = [
        (
            *(item[name] for name in columns),
            item[f"max_{PURE}"],
            "draws made" if item["expost"] else "worst case",
            f"10^{item['log10_odds']}",
            [f"{version['version']} ({counted(version['rows'], 'row')})" for version in item["published"]],
            item["burnt"],
        )
        for item in releases
    ]
    terminal.table((*columns, "most per record", "pure caps charge", "odds", "published", "revoked"), rows)
    if any(item["canaries"] for item in releases):
        terminal.say("canary rows are counted apart: the other counts are of records")


@command("dptext ledger remaining --for privacy.toml", ("scopes", "further"))
def remaining(
    *,
    subject: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Also show this subject (or record), with its charges by release; repeat as needed."
        ),
    ] = None,
    release_of: Annotated[
        Path | None,
        typer.Option("--for", metavar="FILE", help="Only say how many more releases of this policy file fit."),
    ] = None,
) -> None:
    """Show for each scope how much of the cap subjects (or records) have used, and how much is left.

    With --for, it says how many more releases of a policy fit, over the records of the newest release. It reads no
    text. An id of which the ledger holds nothing is an error, which exits with 8.
    """
    from dptext_etl.ledger import Scope

    further = None
    if release_of is not None:
        from dptext_etl.runner import planning

        further = planning.further(release_of)
    with open_ledger() as handle:
        caps, scopes = handle.reports.caps(), list[dict[str, Any]]()
        for pinned in caps:
            scope = Scope.of_cap(pinned)
            units = in_pinned_form(handle, scope, subject) if subject else None
            charges = [] if units is None else handle.reports.charges(scope, units)
            scopes.append(terminal.balance({**handle.remaining(scope, units).as_dict(), "charges": charges}))
        ids = subject or ()
        used = [any(part["used"] for scope in scopes for part in scope["asked"][at].values()) for at in range(len(ids))]
        idle = [person for person, charged in zip(ids, used, strict=True) if not charged]
        ledger_ids = set[str]()
        for cap in caps if idle else ():  # ids with a typing error, for example: nothing is held of them in any scope
            units = in_pinned_form(handle, Scope.of_cap(cap), idle)
            find = handle.people.known_subjects if cap["unit"] == "subject" else handle.people.known_records
            for dataset in cap["datasets"]:
                ledger_ids.update(compress(idle, find(dataset, units)))
        unknown = len({*idle} - ledger_ids)
        if caps and unknown:
            msg = f"{unknown:,} of {counted(len({*ids}), 'id')}: unknown here; nothing was changed"
            raise UnknownIdError(msg, "name ids as the table holds them")
    if terminal.emitted({"scopes": scopes, "further": further}):
        return
    if further is not None:
        terminal.show_further(further)
        return
    for balance in scopes:
        terminal.show_balance(balance)
    if not scopes:
        terminal.say("nothing has been charged yet")


@command("dptext ledger verify --ledger ledger.db --anchor $(cat safe/anchor)", ("ok", "problems", "counts"))
def verify(
    *,
    anchor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ANCHOR",
            help="An earlier output of `dptext ledger anchor`, which the journal must hold; repeatable.",
        ),
    ] = None,
) -> None:
    """Compute every balance again from the journal and its sealed batches; exit with 4 if anything disagrees."""
    from dptext_etl.ledger import Anchor

    anchors = [Anchor.parse(text) for text in anchor or ()]
    with open_ledger() as handle:
        outcome = handle.verify()
        outcome.problems.extend(
            f"the journal does not hold the anchor of event {item.seq}: it was cut, rewritten, or is an old copy"
            for item in anchors
            if not handle.holds(item)
        )
    if not terminal.emitted(outcome.as_dict()):
        terminal.pairs(outcome.counts)
        terminal.say("all counts are of rows, canary rows included")
        _show_problems(outcome.problems)
    if not outcome.ok:
        raise typer.Exit(GATE)


@command(
    "dptext ledger maintain privacy.toml --backup backups", ("ok", "problems", "counts", "anchor", "copy", "removed")
)
def maintain(
    *,
    anchors: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Place of the anchors; by default the policy's place, or DPTEXT_ANCHORS."),
    ] = None,
    backup: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for a backup (SQLite, without the id key).")
    ] = None,
    keep: Annotated[int, typer.Option(min=1, metavar="N", help="Number of backups to keep in that folder.")] = 7,
) -> None:
    """Verify a ledger, then store its anchor apart from it and make a backup; for a schedule.

    It also compares the ledger with the anchors that runs stored. If anything disagrees, it exits with
    4, and changes neither the anchor nor the backups. A ledger or store that does not answer exits with 6, a full disk
    with 7: run it again later.
    """
    from dptext_etl.ledger import anchor_files

    with open_ledger() as handle:
        done = anchor_files.maintain(handle, anchors, terminal.call().get(STORE, {}), backup=backup, keep=keep)
    if not terminal.emitted(done.as_dict()):
        _show_problems(done.problems)
        if done.ok:
            terminal.pairs({"anchor": done.anchor, "backup": done.copy or "none; --backup FOLDER makes one"})
    if not done.ok:
        raise typer.Exit(GATE)


@command("dptext ledger export tables --ledger ledger.db", ("folder", "tables"))
def export(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A new folder for the tables; without it, the public view.")
    ] = None,
    *,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="ID", help="An id whose keyed hashes the table asked(hash) holds; repeat as needed."
        ),
    ] = None,
) -> None:
    """Write a ledger as Parquet tables, or print its public view as JSON.

    The tables record, balance, event, release and publication are internal: ids are keyed hashes, but amounts may
    depend on texts. Query them with DuckDB or Polars. The public view holds claims and constants, no number that
    depends on a text.
    """
    if ids and directory is None:
        raise UsageError("--id writes a table", "name the folder of the tables: dptext ledger export DIR --id ID")
    with open_ledger() as handle:
        if directory is None:
            terminal.emit(terminal.public_view(handle.reports.export()))
            return
        tables = handle.write_tables(directory, ids or ())
    if terminal.emitted({"folder": str(directory), "tables": tables}):
        return
    terminal.table(("table", "rows"), tables.items())
    terminal.say(f"written to {directory}: internal, not for publication")


@command("dptext ledger init --ledger ledger.db", ("ledger_id", "made"))
def init() -> None:
    """Create a ledger; if there is one, nothing changes."""
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.ledger import ledger_exists

    url, id_key = named_ledger()
    is_new = not ledger_exists(url)
    with Ledger.open(url, id_key) as handle:
        facts = {"ledger_id": handle.ledger_id, "made": is_new}
    terminal.report(facts, "made a new ledger" if is_new else "there is a ledger already; nothing was changed")


@command("dptext ledger grants --role writer --to etl --ledger env:DPTEXT_LEDGER_SECRET_URL | psql", ("grants",))
def grants(
    *,
    role: Annotated[
        Literal["writer", "steward", "auditor", "owner"],
        typer.Option(help="The role: charges (writer), changes caps (steward), reads (auditor), or makes it (owner)."),
    ],
    to: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role on the server; by default dptext_writer and so on.")
    ] = None,
    ledger: Annotated[str, typer.Option(metavar="URL", help=LEDGER)],
) -> None:
    """Print the GRANT statements that a role of PostgreSQL needs for a ledger; run them as the owner or a superuser."""
    from dptext_etl.ledger.storage.postgres import database, grants, split_url
    from dptext_etl.ledger.storage.store import POSTGRES, resolve_url

    url = resolve_url(ledger)
    if not url.startswith(POSTGRES):
        raise PolicyError("a SQLite ledger has no roles", "the permissions of its file decide who reads and writes it")
    conninfo, schema = split_url(url)
    statements = grants(role, to or f"dptext_{role}", database(conninfo), schema)
    terminal.report({"grants": statements}, statements)


@command("dptext ledger anchor --ledger ledger.db >> safe/anchors", ("anchor",))
def anchor() -> None:
    """Print the head of the journal for `verify --anchor`; store it where the ledger's operators cannot change it."""
    with open_ledger() as handle:
        head = str(handle.anchor())
    terminal.report({"anchor": head}, head)


@command("dptext ledger history --ledger ledger.db", ("history",))
def history() -> None:
    """List changes of caps, freezes, thaws, revocations, erasures, and ended jobs, with user, time, and reason.

    Users are as the ledger's own events state them. A SQLite file does not protect them.
    """
    with open_ledger() as handle:
        events = handle.reports.history()
    if terminal.emitted({"history": events}):
        return
    columns = ("event", "at", "user", "kind", "of", "change", "before", "after", "reason")
    entries = [event | {at: terminal.amounts_text(event[at]) for at in ("before", "after")} for event in events]
    terminal.table(columns, [[event[name] for name in columns] for event in entries])


@command("dptext ledger backup copy.db --ledger ledger.db", ("copy", "anchor"))
def backup(
    to: Annotated[
        str, typer.Argument(metavar="URL", help="A place without a ledger: a path, postgresql://…, or env:NAME.")
    ],
) -> None:
    """Copy a ledger as of one moment, while runs continue; from SQLite or PostgreSQL, to either; without its id key."""
    with open_ledger() as handle:
        head = str(handle.backup(to))
    terminal.report({"copy": to, "anchor": head}, f"copied, without the id key, up to {head}")


def _show_problems(problems: Sequence[str]) -> None:
    terminal.say("the ledger does NOT agree with its own journal:" if problems else "the ledger is intact")
    for problem in problems:
        terminal.say(f"  {problem}")


def open_ledger(*, write: bool = False) -> Ledger:
    from dptext_etl.ledger import Ledger

    return Ledger.open(*named_ledger(), create=False, read_only=not write)


def in_pinned_form(handle: Ledger, scope: Scope, ids: Sequence[str]) -> pa.Array:
    """Return units of a scope as the ledger hashes them."""
    import pyarrow as pa

    from dptext_etl.keys import normalized

    form = handle.pinned_forms(scope, ()).get(scope.unit)
    return normalized(pa.array(ids, pa.large_string()), () if form is None else form.normalize)
