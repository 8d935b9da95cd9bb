"""Define `dptext demo`, which runs the whole job on invented reviews, then a planted bug that the gates stop."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli.options import Json

if TYPE_CHECKING:
    from dptext_etl.cli.demo.folder import DemoFolder
    from dptext_etl.policy import ColumnPolicy

_FOLDER = Path("demo-output")
_SHOWN = 4
_PERSONAL = "@|555|name is"


EXAMPLE = "dptext demo demo-output"
KEYS = (
    "engine",
    "synthetic",
    "three_forms",
    "rows",
    "gates",
    "releases",
    "remaining",
    "left_out",
    "verify",
    "planted_bug",
    "files",
)


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new folder, or the folder of an earlier demo.")
    ] = _FOLDER,
    *,
    dagster: Annotated[
        bool, typer.Option("--dagster/--no-dagster", help="Run the Dagster job if Dagster is installed.")
    ] = True,
    planted_bug: Annotated[
        bool, typer.Option("--planted-bug", help="Run only the planted bug, in the folder of a demo; exits with 4.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Generate a public table, release it in three forms and word by word, and show the gates stopping a planted bug.

    All texts are invented by us and public. Only for this reason may the demo show them next to the released texts.
    """
    from dptext_etl.cli.demo import fault
    from dptext_etl.cli.demo.folder import DemoFolder

    place = DemoFolder(folder)
    if planted_bug:
        fault.run(place)
        return
    from dptext_etl.cli.render import terminal

    terminal.note(f"writing {place.path}: invented requests, a key, policies")
    place.prepare()
    terminal.note("releasing 10,000 requests in three forms: row by row, unlinked, as a synthetic table")
    from dptext_etl.cli.demo import forms

    three_forms = forms.release(place)
    engine = "dagster" if dagster and find_spec("dagster") else "run"
    terminal.note(
        "releasing two months word by word with " + ("the Dagster job" if engine == "dagster" else "dptext run")
    )
    facts = _release(place, engine, three_forms)
    terminal.note("releasing one month again, with a planted bug")
    facts["planted_bug"] = fault.stopped(place)
    facts["files"] = _files(place)
    if as_json:
        terminal.emit(facts)
    else:
        from dptext_etl.cli.demo.story import show

        show(facts)


def _release(place: DemoFolder, engine: str, three_forms: Mapping[str, Any]) -> dict[str, Any]:
    """Run both months, and collect facts from the ledger, the gates and the published tables."""
    from dptext_etl.cli.demo.requests import MONTH_ROWS, MONTHS
    from dptext_etl.cli.render import amounts
    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.policy import Policy

    policy = Policy.load(place.policy)
    gates = _with_dagster(place) if engine == "dagster" else _with_run(policy)
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        released, balance, report = (
            amounts.releases(item for item in ledger.show() if item["dataset"] == policy.dataset),
            amounts.balance(ledger.remaining(Scope.of(policy)).as_dict()),
            ledger.verify().as_dict(),
        )
    return {
        "engine": engine,
        "synthetic": True,
        "three_forms": three_forms,
        "rows": _some_rows(place, policy.column_policies()[0]),
        "gates": gates,
        "releases": released,
        "remaining": balance,
        "left_out": len(MONTHS) * MONTH_ROWS - sum(item["committed"] - item["canaries"] for item in released),
        "verify": report,
    }


def _with_dagster(place: DemoFolder) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from dptext_etl.errors import DPTextError
    from dptext_etl.orchestration import materialize

    done = materialize(place.policy, home=place.home)
    for run in done.runs:
        if not run.success:
            failure = DPTextError(f"the Dagster job stopped in partition {run.partition}: {run.message}")
            failure.exit_code = run.exit_code
            raise failure
    return [asdict(check) for check in done.gates]


def _with_run(policy: Any) -> list[dict[str, Any]]:
    from dptext_etl import engines
    from dptext_etl.cli.demo.requests import MONTHS

    found = []
    for partition in MONTHS:
        summary = engines.run(policy, partition=partition).as_dict()
        found += [{"partition": partition, **gate} for gate in summary["gates"]]
    return found


def _some_rows(place: DemoFolder, words: ColumnPolicy) -> list[dict[str, Any]]:
    """Return some raw texts next to two releases of them; this is only allowed because the demo's rows are public.

    Args:
        place: The folder of the demo.
        words: The policy of the release word by word; it says what a text costs there.
    """
    import polars as pl
    import pyarrow as pa

    raw = place.requests().select("id", "topic", raw="request")
    by_words = place.months().select("id", custext="request")
    row_wise = place.published("rows").select("id", surrogate="request")
    both = raw.join(by_words, on="id", how="inner").join(row_wise, on="id", how="inner")
    personal = both.filter(pl.col("raw").str.contains(_PERSONAL) & (pl.col("custext") != "")).sort("id")
    shown = personal.unique("topic", keep="first", maintain_order=True).drop("topic").head(_SHOWN)
    draws = words.mechanism.positions(pa.array(shown["raw"].to_list(), pa.large_string())).to_pylist()
    return shown.with_columns(
        epsilon_by_words=pl.Series([words.mechanism.spend(count).epsilon for count in draws], dtype=pl.Float64)
    ).to_dicts()


def _files(place: DemoFolder) -> dict[str, str]:
    found = {
        "raw": place.path / "raw",
        "three forms": place.forms,
        "policy": place.policy,
        "published": place.path / "published",
        "ledger": place.ledger,
        "dagster": place.home,
    }
    return {name: str(path) for name, path in found.items() if path.exists()}
