"""Define `dptext ledger init|migrate|grants|anchor|backup|freeze|thaw`, with which operators maintain a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dptext_etl.cli.command import LedgerCommand, epilog
from dptext_etl.cli.commands.ledger import app as _commands
from dptext_etl.cli.commands.ledger import opened
from dptext_etl.cli.options import IdKey, Json, LedgerUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

commands = _commands
"""All commands of `dptext ledger`: those that read (`cli.commands.ledger`), maintain, and end something."""

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="Name of the dataset in the policies.")]


@commands.command(cls=LedgerCommand, epilog=epilog("dptext ledger init --ledger ledger.db", ("ledger_id", "made")))
def init(*, ledger: LedgerUrl, id_key: IdKey = None, as_json: Json = False) -> None:
    """Make a ledger, unless there is one already, which then stays unchanged."""
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.storage.store import ledger_exists

    made = not ledger_exists(ledger)
    with Ledger.open(ledger, id_key) as book:
        found = {"ledger_id": book.ledger_id, "made": made}
    tell(found, "made a new ledger" if made else "there is a ledger already; nothing was changed", as_json=as_json)


@commands.command(cls=LedgerCommand, epilog=epilog("dptext ledger migrate --ledger ledger.db", ("from", "to")))
def migrate(*, ledger: LedgerUrl, as_json: Json = False) -> None:
    """Migrate a ledger from an older schema to the current one, in one transaction; make a copy first."""
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.storage.store import newest_version

    before = Ledger.migrate(ledger)
    after = max(before, newest_version(ledger))
    said = "nothing to do" if before == after else f"migrated from schema {before} to {after}"
    tell({"from": before, "to": after}, said, as_json=as_json)


@commands.command(
    cls=LedgerCommand,
    epilog=epilog(
        "dptext ledger grants --role writer --to etl --ledger env:DPTEXT_LEDGER_SECRET_URL | psql", ("grants",)
    ),
)
def grants(
    *,
    role: Annotated[
        Literal["writer", "auditor", "owner"],
        typer.Option(help="Who charges (writer), who only reads (auditor), or who makes and migrates it (owner)."),
    ],
    to: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role on the server; by default dptext_writer and so on.")
    ] = None,
    ledger: LedgerUrl,
    as_json: Json = False,
) -> None:
    """Print the GRANT statements that a role of PostgreSQL needs for a ledger; run them as the owner or a superuser."""
    from dptext_etl.errors import PolicyError
    from dptext_etl.ledger.storage.postgres_sql import database, split_url
    from dptext_etl.ledger.storage.postgres_sql import grants as grants_script
    from dptext_etl.ledger.storage.store import POSTGRES, resolve_url

    url = resolve_url(ledger)
    if not url.startswith(POSTGRES):
        raise PolicyError("a SQLite ledger has no roles", "the permissions of its file decide who reads and writes it")
    conninfo, schema = split_url(url)
    printed = grants_script(role, to or f"dptext_{role}", database(conninfo), schema)
    tell({"grants": printed}, printed, as_json=as_json)


@commands.command(
    cls=LedgerCommand, epilog=epilog("dptext ledger anchor --ledger ledger.db >> safe/anchors", ("anchor",))
)
def anchor(*, ledger: LedgerUrl, id_key: IdKey = None, as_json: Json = False) -> None:
    """Print the head of the journal for `verify --anchor`; store it where the ledger's operators cannot change it."""
    with opened(ledger, id_key) as book:
        head = str(book.anchor())
    tell({"anchor": head}, head, as_json=as_json)


@commands.command(
    cls=LedgerCommand, epilog=epilog("dptext ledger backup copy.db --ledger ledger.db", ("copy", "anchor"))
)
def backup(
    to: Annotated[
        str,
        typer.Argument(metavar="URL", help="A place without a ledger: a path, postgresql://…, or env:NAME."),
    ],
    *,
    ledger: LedgerUrl,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Copy a ledger as it is at one moment, while runs go on; from SQLite or PostgreSQL, to either. Not its id key."""
    with opened(ledger, id_key) as book:
        head = str(book.backup(to))
    tell({"copy": to, "anchor": head}, f"copied, without the id key, up to {head}", as_json=as_json)


@commands.command(
    cls=LedgerCommand, epilog=epilog('dptext ledger freeze reviews --reason "restored" --ledger ledger.db', ("frozen",))
)
def freeze(
    dataset: Dataset,
    *,
    ledger: LedgerUrl,
    reason: Annotated[str, typer.Option(metavar="WORDS", help="The reason in a few plain words.")],
    in_use: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RELEASE", help="A release name in use that this ledger may not know; it is revoked. Repeatable."
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP", help="A group that was charged and that this ledger may not know: it freezes, too."
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="No charge was lost (a key leaked, say): nothing else freezes with it.")
    ] = False,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Stop all releases of a dataset, and of all datasets that share a cap with it, as after a restore."""
    from contextlib import suppress

    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.ledger.anchor_files import FrozenError, store

    with Ledger.open(ledger, id_key, create=False) as book:
        book.freeze(dataset, reason, in_use=in_use or (), groups=group or (), alone=alone)
        with suppress(FrozenError):  # it froze because a head is missing: the stored one stays
            store(book, Scope(dataset, "all"))
        frozen = book.frozen()
    tell({"frozen": frozen}, f"frozen: {', '.join(frozen)}", as_json=as_json)


@commands.command(
    cls=LedgerCommand,
    epilog=epilog("dptext ledger thaw reviews --lost eps_pure=40 --ledger ledger.db", ("caps", "thawed")),
)
def thaw(
    dataset: Dataset,
    *,
    ledger: LedgerUrl,
    lost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMPONENT=AMOUNT",
            help="The most that a subject may have been charged since the copy was made, in all datasets that froze "
            "together, such as eps_pure=40; one for each component of their caps.",
        ),
    ] = None,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Unfreeze a dataset and all that froze with it.

    Their release names are revoked, and their caps are lowered by the amounts that may have been lost.
    """
    from dptext_etl.cli.render.amounts import each as plain
    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.ledger.anchor_files import store

    amounts = dict(loss(text) for text in lost or ())
    with Ledger.open(ledger, id_key, create=False) as book:
        before = book.frozen()
        caps = plain(book.thaw(dataset, amounts))
        store(book, Scope(dataset, "all"))
        thawed = sorted({*before} - {*book.frozen()})
    tell(
        {"caps": caps, "thawed": thawed},
        f"thawed {', '.join(thawed)} under new caps ({said_of(caps)}); "
        "write them into the policies, and new release names",
        as_json=as_json,
    )


def said_of(caps: Mapping[str, Mapping[str, float]]) -> str:
    """Return lowered caps in words."""
    said = [f"{scope}: {', '.join(f'{name} {left:g}' for name, left in cap.items())}" for scope, cap in caps.items()]
    return "; ".join(said) or "no cap was set"


def loss(text: str) -> tuple[str, float]:
    """Read an amount that may be missing in balances, with the name of its component.

    Raises:
        PolicyError: It is written in another way, or negative.
    """
    from dptext_etl.errors import PolicyError

    name, _, amount = text.partition("=")
    try:
        return name, float(amount)
    except ValueError:
        msg = "a loss is written COMPONENT=AMOUNT, the amount 0 or more"
    raise PolicyError(msg, "for example --lost eps_pure=40")


def tell(found: dict[str, Any], said: str, *, as_json: bool) -> None:
    """Print facts as JSON, or a line for people."""
    from dptext_etl.cli.render import terminal

    if as_json:
        terminal.emit(found)
    else:
        terminal.say(said)
