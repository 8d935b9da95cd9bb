"""Define `dptext export` and `dptext verify-export`, which hand a published version to readers elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.options import Command, Json, Partition, PolicyFile, epilog, load_policy

app = typer.Typer()
KEYS = (
    "export", "dataset", "release", "partition", "version", "rows", "files", "classes", "manifest_sha256",
    "sums_sha256",
)  # fmt: skip


@app.command(cls=Command, epilog=epilog("dptext export privacy.toml --to reviews.zip", KEYS))
def export(
    policy: PolicyFile,
    *,
    to: Annotated[Path, typer.Option(metavar="FOLDER|FILE.zip", help="A new folder, or a new zip file.")],
    partition: Partition = None,
    as_json: Json = False,
) -> None:
    """Write the published version for readers elsewhere: data, manifest, public statement, data contract, checksums.

    It first runs the gates of `dptext check`, and exits with 4 if one fails. The same version under the same
    caps gives the same bytes.
    """
    from dptext_etl.runner.publish import export as exports

    _show(exports.export(load_policy(policy), to, partition), "wrote", as_json=as_json)


@app.command(cls=Command, epilog=epilog("dptext verify-export reviews.zip", KEYS))
def verify_export(
    place: Annotated[Path, typer.Argument(metavar="FOLDER|FILE.zip", help="What `dptext export` wrote.")],
    *,
    as_json: Json = False,
) -> None:
    """Check an export without its policy, key, or ledger: files, checksums, manifest, contract, types, rows, classes.

    Exits with 4 if anything differs. Compare the SHA-256 of SHA256SUMS, which covers every file, with the one that the
    sender names: without it, the export may be the work of anyone.
    """
    from dptext_etl.runner.publish import export as exports

    _show(exports.verify(place), "verified", as_json=as_json)


def _show(found: dict[str, Any], done: str, *, as_json: bool) -> None:
    if as_json:
        terminal.emit(found)
        return
    terminal.say(f"{done} {found['export']}")
    terminal.pairs({name: found[name] for name in KEYS[1:] if found[name] is not None and name != "classes"})
    terminal.say(f"guarantee: {', '.join(found['classes'])}")
