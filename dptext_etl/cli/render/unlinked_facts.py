"""Show what a record costs if only the multiset of released texts is published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl.mechanism import Mechanism

DELTA = 1e-8
ROWS = (1_000, 10_000, 100_000, 1_000_000)


def of(mechanisms: Iterable[Mechanism], rows: int) -> list[dict[str, Any]]:
    """Return the central epsilon of each mechanism over `rows` rows and the usual numbers of rows.

    Raises:
        PolicyError: A mechanism cannot be released unlinked.
    """
    from dptext_etl.errors import PolicyError
    from dptext_etl.families.choice import ChoiceMechanism
    from dptext_etl.unlinked import Unlinked

    found = []
    for mechanism in mechanisms:
        if not isinstance(mechanism, ChoiceMechanism):
            msg = f"{mechanism.name} is released row by row: only surrogate has a bound for unlinked releases"
            raise PolicyError(msg, "`dptext explain surrogate --unlinked 10000`")
        for count in sorted({*ROWS, rows}):
            central = Unlinked(rows=count, delta=DELTA).epsilon(mechanism.law)
            local = {"epsilon": mechanism.epsilon, "rows": count, "delta": DELTA}
            found.append({**local, "central_epsilon": float(central)})
    return found


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print the central epsilons, a line per epsilon of a draw."""
    from dptext_etl.cli.render import terminal
    from dptext_etl.runner.amounts import at_most

    counts = sorted({item["rows"] for item in found})
    rows = []
    for epsilon in dict.fromkeys(item["epsilon"] for item in found):
        mine = {item["rows"]: at_most(item["central_epsilon"]) for item in found if item["epsilon"] == epsilon}
        rows.append((epsilon, *(mine[count] for count in counts)))
    terminal.heading(f"Published unlinked, without ids and order: epsilon of a record at delta = {DELTA:g}")
    terminal.table(("epsilon of a draw", *(f"{count:,} rows" for count in counts)), rows)
    terminal.say("The bound relies on you: drafts, key, and ledger stay inside your boundary.")
