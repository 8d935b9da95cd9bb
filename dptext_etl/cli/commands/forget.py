"""`dptext forget POLICY --subject ID`: take people out of what is published."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dptext_etl.cli.confirming import Yes, require_confirmation
from dptext_etl.cli.options import Json, Partition, PolicyFile

EXAMPLE = "dptext forget privacy.toml --subject u17"
KEYS = ("version", "removed", "rows", "versions", "staged")


def forget(
    policy: PolicyFile,
    *,
    subject: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A subject, all of whose records go; repeat as needed.")
    ] = None,
    record: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A record that goes; repeat as needed.")
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Every published record goes that the source no longer holds.")
    ] = False,
    partition: Partition = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Publish a version without some people, retire the older versions in the ledger, and delete their files.

    Take their rows out of the source first. Charges stay in the ledger, as HMACs; copies that readers or an object
    store's versioning keep are out of reach.
    """
    from dptext_etl.cli.render import terminal
    from dptext_etl.policy import Policy
    from dptext_etl.runner.publish import forgetting

    loaded = Policy.load(policy)
    question = f"Rewrite what {loaded.dataset} has published, and delete the files of all its older versions?"
    require_confirmation(question, yes=yes)
    done = forgetting.forget(loaded, partition=partition, subjects=subject or (), records=record or (), missing=missing)
    if as_json:
        terminal.emit(asdict(done))
        return
    terminal.say(f"{done.removed} records were taken out; version {done.version} holds {done.rows} rows")
    deleted = ", ".join(done.versions) or "none"
    terminal.say(f"deleted versions: {deleted}; files changed in staging: {done.staged}")
