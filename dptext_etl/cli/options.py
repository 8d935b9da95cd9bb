"""Options that several commands share, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dptext_etl.guarantee import Disclosure

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY", help="The policy file, such as privacy.toml.")]
Partition = Annotated[
    str | None, typer.Option(metavar="NAME", help='What replaces "{partition}" in the policy\'s source and sink.')
]
Engine = Annotated[
    Literal["polars", "spark"],
    typer.Option(help="What computes: this process (polars), or the executors of the Spark that is configured here."),
]
MechanismName = Annotated[str, typer.Argument(metavar="NAME", help="A mechanism; `dptext mechanisms` lists them.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A parameter of the mechanism; repeat as needed."),
]
Allow = Annotated[
    list[Disclosure] | None,
    typer.Option(help="Consent to a disclosure of the mechanism; repeat as needed (`dptext explain NAME` lists them)."),
]
Accept = Annotated[
    list[str] | None, typer.Option(help='Take a guarantee without a finite epsilon by its class: "UMLDP".')
]
LedgerUrl = Annotated[
    str,
    typer.Option("--ledger", metavar="URL", help="sqlite:///PATH, a path, postgresql://HOST/DATABASE, or env:NAME."),
]
IdKey = Annotated[
    str | None,
    typer.Option(metavar="REF", help="Key of the ledger's ids (env:NAME or file:PATH); beside the ledger if absent."),
]
