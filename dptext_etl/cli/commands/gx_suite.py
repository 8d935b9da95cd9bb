"""Define `dptext gx-suite`, which writes the suite of a policy for Great Expectations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptext_etl.cli.options import Json, PolicyFile

EXAMPLE = "dptext gx-suite privacy.toml"
KEYS = ("suite", "file")


def gx_suite(
    policy: PolicyFile,
    *,
    output: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="PATH", help="Folder of the suites of a file context, or a .json file."),
    ] = Path("gx/expectations"),
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Write the suite of tables that are made from the release.")
    ] = False,
    public: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of such a table that holds other text; repeat as needed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the suite of a policy as a file of Great Expectations, for a checkpoint of yours.

    It names the policy file as you gave it, and reads it at each evaluation: from the working folder, or from the
    folder that the environment variable DPTEXT_POLICIES names.
    """
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import PolicyError
    from dptext_etl.extras import install

    try:
        from dptext_etl.checks.great_expectations.expectations import write_suite
    except ModuleNotFoundError as missing:
        raise PolicyError(f"{missing.name} is not installed", install("gx")) from None
    name, path = write_suite(policy, output, downstream=downstream or bool(public), public=public or ())
    if as_json:
        terminal.emit({"suite": name, "file": str(path)})
        return
    terminal.say(f"wrote {path}")
    terminal.say(f"in a checkpoint: context.suites.get({name!r})")
