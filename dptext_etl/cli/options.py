"""Define the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dptext_etl.guarantee import Disclosure

AcceptLowerCap = Annotated[
    bool, typer.Option("--accept-lower-cap", help="Lower the pinned cap to the policy's; it stays low.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
Profile = Annotated[bool, typer.Option("--profile", help="Print what each stage took; --json has it always.")]
PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY", help="The policy file, such as privacy.toml.")]
Partition = Annotated[
    str | None, typer.Option(metavar="NAME", help='Text that replaces "{partition}" in the policy\'s source and sink.')
]
Engine = Annotated[
    Literal["polars", "spark"],
    typer.Option(
        help="Compute in this process (polars), or on the executors of the Spark that is configured here (spark)."
    ),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"] | None,
    typer.Option(help="Device of models; auto takes a GPU if there is one. It is a setting of this machine alone."),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"] | None,
    typer.Option(help="Number type of models; auto takes bfloat16 if the hardware has it."),
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
    list[str] | None, typer.Option(help='Accept a guarantee without a finite epsilon, by its class: "UMLDP".')
]
LedgerUrl = Annotated[
    str,
    typer.Option("--ledger", metavar="URL", help="sqlite:///PATH, a path, postgresql://HOST/DATABASE, or env:NAME."),
]
IdKey = Annotated[
    str | None,
    typer.Option(
        metavar="REF", help="Key of the ledger's ids (env:NAME or file:PATH); by default the file next to the ledger."
    ),
]
AllocationScores = Annotated[
    str | None,
    typer.Option(
        "--allocation",
        metavar="SCORES|SHARES",
        help="Divide one budget by scores of words (ic,pos,ner,wi,sd), or by position (uniform, or shares: 3,2,1).",
    ),
]
UnlinkedRows = Annotated[
    int | None,
    typer.Option(
        "--unlinked",
        metavar="ROWS",
        min=2,
        help="Show the epsilon of a record if at least so many texts are published without ids and order.",
    ),
]
FirstRelease = Annotated[
    float | None,
    typer.Option(
        "--first", help="With scores in --allocation: epsilon of a first release, whose words are scored instead."
    ),
]
