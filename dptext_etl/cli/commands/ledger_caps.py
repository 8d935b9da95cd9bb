"""Define `dptext ledger set-cap|accept-units`: caps and units change on purpose, with confirmation and journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dptext_etl.cli.command import LedgerCommand, epilog
from dptext_etl.cli.commands.ledger_ending import Reason
from dptext_etl.cli.commands.ledger_ending import commands as _commands
from dptext_etl.cli.commands.ledger_keeping import Dataset, loss, said_of, tell
from dptext_etl.cli.confirming import Yes, require_confirmation
from dptext_etl.cli.options import IdKey, Json, LedgerUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dptext_etl.ledger import Scope
    from dptext_etl.policy import Cap

commands = _commands
"""All of `dptext ledger`."""


@commands.command(
    name="set-cap",
    cls=LedgerCommand,
    epilog=epilog(
        "dptext ledger set-cap reviews --epsilon 700 --period 2026 --ledger ledger.db",
        ("scope", "before", "after", "changed"),
    ),
)
def set_cap(
    dataset: Dataset,
    *,
    ledger: LedgerUrl,
    epsilon: Annotated[float | None, typer.Option(help="The cap in epsilon: pure, or with --delta approx.")] = None,
    delta: Annotated[float | None, typer.Option(help="The cap's delta, with --epsilon.")] = None,
    rho: Annotated[float | None, typer.Option(help="The cap in rho (zCDP).")] = None,
    period: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The period that the cap covers; charges of other periods do not count in it."
        ),
    ] = "all",
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="The group, where the dataset's spends add up in one.")
    ] = None,
    unit: Annotated[
        Literal["subject", "record"], typer.Option(help="Who has the budget: as the policy says.")
    ] = "subject",
    yes: Yes = False,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Pin, raise or lower the cap of a scope, or open a new period. Policies must ask for exactly the pinned cap.

    A first cap counts what was charged in the same period before. It does not count what was charged in other periods,
    in "all" or in another group: everybody starts at zero, which the command says before it asks. In "all" nothing is
    charged any more once a named period has a cap.
    """
    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.ledger.anchor_files import anchored
    from dptext_etl.policy import Cap

    measure = "zcdp" if rho is not None else "pure" if delta is None else "approx"
    cap = Cap(measure=measure, epsilon=epsilon, delta=delta, rho=rho, period=period, group=group)
    scope = Scope(dataset, period, group, unit)
    with Ledger.open(ledger, id_key, create=False) as book:
        change, before = book.cap_change(scope, cap), _pinned(book.caps(), scope)
        uncounted = book.uncounted(scope)
        changed = before is None or change is not None or bool(uncounted)
        if changed:
            require_confirmation(_question(scope, before, cap, uncounted), yes=yes)
            with anchored(book, scope):
                book.set_cap(scope, cap, raising=True)
        after = _pinned(book.caps(), scope)
    facts = {"scope": str(scope), "before": before, "after": after, "changed": changed}
    then = f"is now {_shown(after)}; write it into the policy" if changed else "is that already"
    tell(facts, f"the cap of {scope} {then}", as_json=as_json)


@commands.command(
    name="accept-units",
    cls=LedgerCommand,
    epilog=epilog(
        'dptext ledger accept-units reviews --lost eps_pure=40 --reason "accounts were merged" --ledger ledger.db',
        ("caps", "accepted"),
    ),
)
def accept_units(
    dataset: Dataset,
    *,
    ledger: LedgerUrl,
    reason: Reason,
    lost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMPONENT=AMOUNT",
            help="The most that a subject was charged under another name, such as eps_pure=40; one for each component "
            "of the dataset's caps. 0 where columns were renamed and no subject was.",
        ),
    ] = None,
    yes: Yes = False,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Let known records arrive under other subjects, another subject column, or another spelling.

    The caps of the dataset are lowered by the amounts that people may have been charged under another name. Subjects,
    columns and spelling of the next run are pinned then.
    """
    from dptext_etl.cli.render.amounts import each as plain
    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.ledger.anchor_files import anchored

    amounts = dict(loss(text) for text in lost or ())
    with Ledger.open(ledger, id_key, create=False) as book:
        question = (
            f"May all known records of {dataset} have other subjects, with caps lowered by {_shown(amounts) or 0}?"
        )
        require_confirmation(question, yes=yes)
        with anchored(book, Scope(dataset, "all")):
            caps = plain(book.accept_units(dataset, amounts, reason))
    said = f"records of {dataset} may have other subjects, under new caps ({said_of(caps)}); write these into policies"
    tell({"caps": caps, "accepted": dataset}, said, as_json=as_json)


def _pinned(caps: list[dict[str, Any]], scope: Scope) -> Mapping[str, float] | None:
    """Return the pinned cap of a scope in units of epsilon, rho and delta, or None."""
    from dptext_etl.cli.render.amounts import each

    for found in caps:
        if f"{found['scope']}, period {found['period']}" == str(scope) and found["measure"] is not None:
            return each(found["limits"])
    return None


def _question(scope: Scope, before: Mapping[str, float] | None, cap: Cap, uncounted: list[str]) -> str:
    wanted = {name: getattr(cap, name) for name in ("epsilon", "delta", "rho") if getattr(cap, name) is not None}
    was = f"it is {_shown(before)} now" if before else "it has none now, and earlier charges of this scope count"
    if uncounted:
        was += f"; what was charged in {' and '.join(uncounted)} does NOT count: everybody starts at zero"
    return f"Set the cap of {scope} to {_shown(wanted)} ({was})?"


def _shown(amounts: Mapping[str, float] | None) -> str:
    return " and ".join(f"{name} {amount:g}" for name, amount in (amounts or {}).items())
