"""Define `dptext forget`, which removes people from a published table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dptext_etl.cli.confirming import Yes, require_confirmation
from dptext_etl.cli.options import Json, Partition, PolicyFile
from dptext_etl.errors import UNCHANGED

if TYPE_CHECKING:
    from dptext_etl.runner.publish.forgetting import Forgotten

EXAMPLE = "dptext forget privacy.toml --subject u17"
KEYS = ("version", "removed", "rows", "versions", "staged", "noted")


def forget(
    policy: PolicyFile,
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
    partition: Partition = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Publish a version without some people, retire the older versions in the ledger, and delete their files.

    Remove their rows from the source first. Charges stay in the ledger, as HMACs. Records that come back are left out
    until `dptext ledger readmit` names them. If no row was taken out, the command says so and exits with 8. It cannot
    reach copies of readers, or copies in an object store's versioning.
    """
    from dptext_etl.cli.render import terminal
    from dptext_etl.policy import Policy
    from dptext_etl.runner.publish import forgetting

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
