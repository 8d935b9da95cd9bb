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
Device = Annotated[
    Literal["auto", "cpu", "cuda"] | None,
    typer.Option(help="Where models compute; auto takes a GPU if there is one. A setting of this machine alone."),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"] | None,
    typer.Option(help="In what models compute; auto takes bfloat16 where the hardware has it."),
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
