"""Define `dptext check`, which judges a published table without its raw data."""

from __future__ import annotations

from typing import Annotated

import typer

from dptext_etl.cli.options import Json, Partition, PolicyFile

EXAMPLE = "dptext check privacy.toml"
KEYS = (
    "passed",
    "gates",
)


def check(
    policy: PolicyFile,
    *,
    partition: Partition = None,
    released: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASED", help="The published folder or object-store URL; by default the policy's sink."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate all gates for a published table: files, columns, output words, committed spends, absence of canaries.

    Exits with 4 if a gate fails.
    """
    from dptext_etl.checks import require
    from dptext_etl.checks.published import check_published
    from dptext_etl.cli.render import terminal
    from dptext_etl.cli.running import show_gates
    from dptext_etl.policy import Policy
    from dptext_etl.runner.layout import Layout
    from dptext_etl.runner.publish.own_ids import finder

    loaded = Policy.load(policy)
    layout = Layout.of(loaded, partition)
    verdicts = check_published(released or layout.sink, loaded, own_ids=finder(layout.staging))
    if as_json:
        passed = all(verdict.passed for verdict in verdicts)
        terminal.emit({"passed": passed, "gates": [verdict.as_dict() for verdict in verdicts]})
    else:
        show_gates([verdict.as_dict() for verdict in verdicts])
    require(verdicts)
