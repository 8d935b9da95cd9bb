"""Define `dptext ledger show|remaining|verify|export|query`, which read a ledger: spends, balances, integrity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli.command import LedgerCommand, epilog
from dptext_etl.cli.options import IdKey, Json, LedgerUrl

if TYPE_CHECKING:
    from dptext_etl.ledger import Ledger

app = typer.Typer(
    no_args_is_help=True, help="Make, read, check and repair a ledger: releases, balances, integrity, the public view."
)
_NOT_HELD = "the journal does not hold the anchor of event {}: it was cut, rewritten, or is an old copy"


@app.command(cls=LedgerCommand, epilog=epilog("dptext ledger show --ledger ledger.db", ("releases",)))
def show(*, ledger: LedgerUrl, id_key: IdKey = None, as_json: Json = False) -> None:
    """List the releases: class, disclosures, records, largest spend of a record. Internal, not for publication."""
    from dptext_etl.cli.render import amounts, terminal

    with opened(ledger, id_key) as book:
        releases = amounts.releases(book.show())
    if as_json:
        terminal.emit({"releases": releases})
        return
    columns = (
        "dataset",
        "column",
        "release",
        "mechanism",
        "class",
        "records",
        "canaries",
        "committed",
        "pending",
        "expired",
        "aborted",
    )
    rows = [
        (
            *(item[name] for name in columns),
            terminal.number(item["max_eps_pure"]),
            "draws made" if item["expost"] else "worst case",
            f"10^{item['log10_odds']}",
            [f"{version['version']} ({version['rows']:,} rows)" for version in item["published"]],
            item["burnt"],
        )
        for item in releases
    ]
    terminal.table((*columns, "most per record", "pure caps charge", "odds", "published", "revoked"), rows)
    if any(item["canaries"] for item in releases):
        terminal.say("records are without canary rows; committed, pending, expired and aborted count these, too")


@app.command(cls=LedgerCommand, epilog=epilog("dptext ledger remaining --ledger ledger.db --subject u17", ("scopes",)))
def remaining(
    *,
    ledger: LedgerUrl,
    subject: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Also show this subject (or record) alone; repeat as needed.")
    ] = None,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Show for each scope how much of their cap subjects (or records) have used, and how much is left."""
    from dptext_etl.cli.render import amounts, terminal

    with opened(ledger, id_key) as book:
        scopes = [amounts.balance(_balance(book, pinned, subject)) for pinned in book.caps()]
    if as_json:
        terminal.emit({"scopes": scopes})
        return
    for found in scopes:
        terminal.show_balance(found)
    if not scopes:
        terminal.say("nothing has been charged yet")


@app.command(
    cls=LedgerCommand,
    epilog=epilog("dptext ledger verify --ledger ledger.db --anchor $(cat safe/anchor)", ("ok", "problems", "counts")),
)
def verify(
    *,
    ledger: LedgerUrl,
    anchor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ANCHOR",
            help="An earlier output of `dptext ledger anchor`, which the journal must hold; repeatable.",
        ),
    ] = None,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Compute every balance again from the journal and its sealed batches; exit with 4 if anything disagrees."""
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import GATE
    from dptext_etl.ledger import Anchor

    anchors = [Anchor.parse(text) for text in anchor or ()]
    with opened(ledger, id_key) as book:
        report = book.verify()
        report.problems.extend(_NOT_HELD.format(item.seq) for item in anchors if not book.holds(item))
    if as_json:
        terminal.emit(report.as_dict())
    else:
        terminal.pairs(report.counts)
        terminal.say("the ledger is whole" if report.ok else "the ledger does NOT agree with its own journal:")
        for problem in report.problems:
            terminal.say(f"  {problem}")
    if not report.ok:
        raise typer.Exit(GATE)


@app.command(
    cls=LedgerCommand,
    epilog=epilog("dptext ledger export tables --ledger ledger.db", ("folder", "tables")),
)
def export(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A new folder for the tables; without it, the public view.")
    ] = None,
    *,
    ledger: LedgerUrl,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Write a ledger as Parquet tables, or print its public view as JSON.

    The tables record, balance, event, release and publication are internal: ids are keyed hashes, but amounts may
    depend on texts. The public view holds claims and constants, no number that depends on a text.
    """
    from dptext_etl.cli.render import amounts, terminal

    with opened(ledger, id_key) as book:
        if directory is None:
            terminal.emit(amounts.public_view(book.export()))
            return
        tables = book.write_tables(directory)
    if as_json:
        terminal.emit({"folder": str(directory), "tables": tables})
        return
    terminal.table(("table", "rows"), tables.items())
    terminal.say(f"written to {directory}: internal, not for publication")


@app.command(
    cls=LedgerCommand,
    epilog=epilog(
        'dptext ledger query "SELECT kind, COUNT(*) AS n FROM event GROUP BY kind" --ledger ledger.db',
        ("columns", "rows"),
    ),
)
def query(
    sql: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT over the tables that `export DIR` writes.")],
    *,
    ledger: Annotated[
        str | None, typer.Option("--ledger", metavar="URL", help="The ledger, as other commands take it.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Tables that were exported before, instead of --ledger.")
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="An id whose keyed hashes the table asked(hash) holds; repeat as needed. Needs --ledger.",
        ),
    ] = None,
    id_key: IdKey = None,
    as_json: Json = False,
) -> None:
    """Answer a question in SQL over the tables of a ledger. Internal, not for publication.

    The tables are record, balance, event, release and publication, as `dptext ledger export DIR` writes them, and
    asked(hash), the keyed hashes of the ids in --id.
    """
    from tempfile import TemporaryDirectory

    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import UsageError
    from dptext_etl.ledger.query import answer
    from dptext_etl.ledger.query import named as tables_in

    if (ledger is None) == (tables is None):
        raise UsageError("a query reads a ledger or exported tables", "give POLICY, --ledger URL, or --tables DIR")
    if tables is not None:
        if named:
            raise UsageError("exported tables hold no id key", "give POLICY or --ledger URL with --id")
        found = answer(sql, tables)
    else:
        with opened(ledger or "", id_key) as book, TemporaryDirectory(prefix="dptext-ledger-") as folder:
            place = Path(folder) / "tables"
            book.write_tables(place, tables_in(sql))
            found = answer(sql, place, book.hashes(named or ()))
    if as_json:
        terminal.emit({"columns": found.columns, "rows": found.rows()})
        return
    terminal.table(found.columns, [[cell if cell is None else str(cell) for cell in row] for row in found.rows()])


def opened(url: str, id_key: str | None) -> Ledger:
    """Open a ledger to read it."""
    from dptext_etl.ledger import Ledger

    return Ledger.open(url, id_key, create=False, read_only=True)


def _balance(book: Ledger, pinned: Mapping[str, Any], asked: list[str] | None) -> dict[str, Any]:
    import pyarrow as pa

    from dptext_etl.id_forms import normalized
    from dptext_etl.ledger.types import Scope

    kind, _, name = pinned["scope"].partition(":")
    scope = Scope(pinned["datasets"][0], pinned["period"], name if kind == "group" else None, pinned["unit"])
    if not asked:
        return book.remaining(scope).as_dict()
    form = book.pinned_forms(scope, ()).get(scope.unit)
    units = normalized(pa.array(asked, pa.large_string()), () if form is None else form.normalize)
    return book.remaining(scope, units).as_dict()
