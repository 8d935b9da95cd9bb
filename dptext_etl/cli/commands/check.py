"""Define `dptext check`, which judges a published table without its raw data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext check published/reviews --policy privacy.toml"
KEYS = (
    "passed",
    "gates",
)


def check(
    released: Annotated[
        str,
        typer.Argument(metavar="RELEASED", help="The published folder or object-store URL, as `dptext run` wrote it."),
    ],
    *,
    policy: Annotated[Path, typer.Option(metavar="POLICY", help="The policy file that it was published under.")],
    as_json: Json = False,
) -> None:
    """Evaluate all gates for published tables: files, columns, output words, committed spends, absence of canaries.

    Exits with 4 if a gate fails.
    """
    from dptext_etl.checks import require
    from dptext_etl.checks.published import check_published
    from dptext_etl.cli.render import terminal
    from dptext_etl.cli.running import show_gates
    from dptext_etl.policy import Policy

    verdicts = check_published(released, Policy.load(policy))
    if as_json:
        passed = all(verdict.passed for verdict in verdicts)
        terminal.emit({"passed": passed, "gates": [verdict.as_dict() for verdict in verdicts]})
    else:
        show_gates([verdict.as_dict() for verdict in verdicts])
    require(verdicts)
