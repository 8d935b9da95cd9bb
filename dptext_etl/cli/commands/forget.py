"""Define `dptext forget`, which removes people from a published table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptext_etl.cli.confirming import Yes, require_confirmation
from dptext_etl.cli.options import Json, Partition
from dptext_etl.errors import UNCHANGED

if TYPE_CHECKING:
    from dptext_etl.runner.publish.erasing import Erasure, Place
    from dptext_etl.runner.publish.forgetting import Forgotten

EXAMPLE = "dptext forget privacy.toml --subject u17"
KEYS = ("version", "removed", "rows", "versions", "staged", "noted")
"""With --everywhere: dry_run, people, places, elsewhere, noted."""


def forget(
    policy: Annotated[
        Path, typer.Argument(metavar="POLICY", help="The policy file; with --everywhere, or a folder of policy files.")
    ],
    *,
    subject: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A subject whose records are all removed; repeat as needed.")
    ] = None,
    record: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A record to remove; repeat as needed.")
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Remove every published record that the source no longer holds.")
    ] = False,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="In all partitions and releases, of all policies in the folder.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --everywhere: say what would happen, and change nothing.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="With --everywhere: write a report to file, as Markdown.")
    ] = None,
    partition: Partition = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Publish a version without some people, retire the older versions in the ledger, and delete their files.

    Remove their rows from the source first. Charges stay in the ledger, as HMACs. Records that come back are left out
    until `dptext ledger readmit` names them. If no row was taken out, the command says so and exits with 8. It cannot
    reach copies of readers, or copies in an object store's versioning.

    With --everywhere, the command first shows what it will do. A person whom no ledger knows is an error.
    """
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import PolicyError
    from dptext_etl.policy import Policy
    from dptext_etl.runner.publish import forgetting

    if everywhere:
        if missing or partition is not None:
            raise PolicyError("--everywhere names people, in all partitions", "leave out --missing and --partition")
        _everywhere(policy, subject or [], record or [], dry_run=dry_run, out=out, yes=yes, as_json=as_json)
        return
    if dry_run or out is not None:
        raise PolicyError("--dry-run and --out belong to --everywhere", "add --everywhere")
    loaded = Policy.load(policy)
    question = f"Rewrite the published table of {loaded.dataset}, and delete the files of all its older versions?"
    require_confirmation(question, yes=yes)
    done = forgetting.forget(loaded, partition=partition, subjects=subject or (), records=record or (), missing=missing)
    if as_json:
        terminal.emit(asdict(done))
    else:
        _say(done)
    if not done.removed:
        raise typer.Exit(UNCHANGED)


def _say(done: Forgotten) -> None:
    from dptext_etl.cli.render import terminal

    if done.withdrawn:
        terminal.say(f"the unlinked release was withdrawn: version {done.version} is an empty table")
        terminal.say("publish the records that stay under a new release name; they are charged again")
    elif done.stays:
        terminal.say(
            f"the statistic of the synthetic table stays, because it was charged: version {done.version} is current"
        )
        terminal.say("a table without these people takes a new release name; all others are charged again")
    elif done.removed:
        terminal.say(f"{done.removed} records were taken out; version {done.version} holds {done.rows} rows")
    else:
        terminal.say(f"no row of these people is published; version {done.version} holds {done.rows} rows")
    terminal.say(f"records that the ledger newly notes as forgotten: {done.noted}")
    deleted = ", ".join(done.versions) or "none"
    terminal.say(f"deleted versions: {deleted}; files changed in staging: {done.staged}")


def _everywhere(
    where: Path, subjects: list[str], records: list[str], *, dry_run: bool, out: Path | None, yes: bool, as_json: bool
) -> None:
    from dptext_etl.cli.render import terminal
    from dptext_etl.runner.publish.erasing import erase

    plan = erase(where, subjects=subjects, records=records, dry_run=True)
    done = plan
    if not dry_run:
        if not as_json:
            _say_everywhere(plan)
        require_confirmation("Do this? Files of older versions are deleted, too.", yes=yes)
        done = erase(where, subjects=subjects, records=records, progress=None if as_json else _say_place)
    if out is not None:
        _write_report(out, done)
    if as_json:
        terminal.emit(asdict(done))
    elif dry_run:
        _say_everywhere(done)
    else:
        terminal.say(f"records that the ledgers newly note as forgotten: {done.noted}")
        if out is not None:
            terminal.say(f"report: {out}")
    if not any(place.records for place in done.places):
        raise typer.Exit(UNCHANGED)


def _say_everywhere(plan: Erasure) -> None:
    from dptext_etl.cli.render import terminal

    terminal.table(
        ("dataset", "release", "partition", "records", "what happens"), [_row(place) for place in plan.places]
    )
    for line in _other_publications(plan):
        terminal.say(line)


def _say_place(place: Place) -> None:
    from dptext_etl.cli.render import terminal

    terminal.note(" ".join(("done:", *filter(None, (place.dataset, place.release, place.partition)))))


def _row(place: Place) -> tuple[str, ...]:
    return place.dataset, place.release, place.partition or "", f"{place.records:,}", place.outcome


def _other_publications(found: Erasure) -> list[str]:
    return [
        f"the ledger also records {entry['dataset']}, release {entry['release']}, with {entry['records']} of these"
        f" records (versions {', '.join(entry['versions'])}). No policy here has this release: delete copies of it"
        for entry in found.elsewhere
    ]


def _write_report(path: Path, found: Erasure) -> None:
    """Write a report that names no person: what was done, where, and when."""
    from datetime import UTC, datetime

    from dptext_etl.errors import seam

    table = [
        "| dataset | release | partition | records | outcome | version | deleted versions | changed in staging |",
        "|---|---|---|---:|---|---|---|---:|",
    ]
    for place in found.places:
        cells = (*_row(place), str(place.version or ""), ", ".join(place.deleted), str(place.staged))
        table.append(f"| {' | '.join(cells)} |")
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    parts = (
        "# Plan of an erasure: nothing was changed" if found.dry_run else "# Erasure",
        f"{when}. People and records named: {found.people}. Records newly noted as forgotten: {found.noted}.",
        "\n".join(table),
        *_other_publications(found),
        "Charges stay in the ledgers, under keyed hashes, because the texts were released.",
        "Copies of readers, and copies in the versioning of an object store, are out of reach.",
    )
    with seam(f"writing {path}", hint="name a file that you can write"):
        path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
