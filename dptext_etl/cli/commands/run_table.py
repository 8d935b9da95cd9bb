"""Define `dptext run-table`, which releases one column without a policy file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dptext_etl.cli.commands import run
from dptext_etl.cli.options import Accept, Allow, Device, Dtype, IdKey, Json, LedgerUrl, Parameters

EXAMPLE = (
    "dptext run-table raw.parquet out --dataset d --text text --id id --release r1 --mechanism custext"
    " -p epsilon=2 --allow cluster --ledger ledger.db --key file:noise.key"
)
KEYS = run.KEYS


def run_table(
    source: Annotated[str, typer.Argument(help="The raw table: a file, a glob or an object-store URL.")],
    sink: Annotated[str, typer.Argument(help="The folder or object-store URL of the published table.")],
    *,
    dataset: Annotated[str, typer.Option(help="Name of the dataset; part of every key and of the budget's scope.")],
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The text column.")],
    record_id: Annotated[str, typer.Option("--id", help="The column of record ids: unique, never null.")],
    release: Annotated[str, typer.Option(help="Name of the release; it pins one configuration.")],
    mechanism: Annotated[str, typer.Option(help="A mechanism; `dptext mechanisms` lists them.")],
    ledger: LedgerUrl,
    key: Annotated[
        str, typer.Option(metavar="REF", help="The noise key: env:NAME or file:PATH; `dptext key new` makes one.")
    ],
    parameter: Parameters = None,
    subject: Annotated[
        str | None,
        typer.Option(help="The column of the person behind a record; by default every record is a unit."),
    ] = None,
    allow: Allow = None,
    accept: Accept = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="A column that passes in clear; repeat as needed. All other columns are dropped."),
    ] = None,
    cap: Annotated[float | None, typer.Option(help="The largest epsilon that a subject (or record) may spend.")] = None,
    id_key: IdKey = None,
    staging: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Local folder for files that are not published yet; by default next to the sink."
        ),
    ] = None,
    storage_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the object store; write secrets as NAME=env:VARIABLE."),
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    as_json: Json = False,
) -> None:
    """Release one text column and publish it, as `dptext run` does, with options instead of a policy file."""
    from dptext_etl import catalog
    from dptext_etl.cli import parameters
    from dptext_etl.cli.running import compute_on, execute
    from dptext_etl.policy import Policy

    given = parameters.parse(catalog.load(mechanism), mechanism, parameter)
    values: dict[str, Any] = {
        "dataset": dataset,
        "release": release,
        "source": source,
        "sink": sink,
        "id": record_id,
        "unit": "record" if subject is None else "subject",
        "subject": subject,
        "keep": keep or [],
        "key": key,
        "ledger": {"url": ledger, "id_key": id_key},
        "cap": None if cap is None else {"measure": "pure", "epsilon": cap},
        "staging": staging,
        "storage_options": parameters.pairs(storage_option),
        "column": [
            {
                "name": column,
                "mechanism": {"name": mechanism, **given},
                "allow": allow or [],
                "accept_unbounded": accept or [],
            }
        ],
    }
    compute_on(device, dtype)
    execute(Policy.parse(values), partition=None, as_json=as_json)
