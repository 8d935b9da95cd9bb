"""Define `dptext clean`, which removes files that neither readers nor runs need."""

from __future__ import annotations

from typing import Annotated

import typer

from dptext_etl.cli.options import Json, Partition, PolicyFile

EXAMPLE = "dptext clean privacy.toml --dry-run"
KEYS = ("versions", "stopped", "staged", "quarantined", "kept", "busy", "removed")


def clean(
    policy: PolicyFile,
    *,
    partition: Partition = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files, and remove nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Remove the staging of runs that a gate stopped, and files that the policy's `retention` no longer keeps.

    Readers and runs lose nothing: the current version, the ledger, and the files of a running run stay.
    """
    from dptext_etl.cli.render import terminal
    from dptext_etl.policy import Policy
    from dptext_etl.runner import cleaning

    found = cleaning.clean(Policy.load(policy), partition=partition, dry_run=dry_run)
    lists = {name: [str(path) for path in getattr(found, name)] for name in KEYS[:-1]}
    if as_json:
        terminal.emit({**lists, "removed": not dry_run})
        return
    said = "would be removed" if dry_run else "removed"
    for name, paths in lists.items():
        if paths:
            terminal.say(f"{name}{'' if name == 'busy' else f', {said}'}: {', '.join(paths)}")
    if not found.removed:
        terminal.say("nothing to remove")
