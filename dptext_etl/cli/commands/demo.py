"""Define `dptext demo`, which releases invented requests, plants a bug that the gates stop, and prints a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.options import command
from dptext_etl.errors import DPTextError
from dptext_etl.guarantee import PURE

if TYPE_CHECKING:
    from dptext_etl.cli.demo_folder import DemoFolder
    from dptext_etl.policy import Policy

app = typer.Typer()
KEYS = (
    "engine", "synthetic", "three_forms", "rows", "gates", "releases", "remaining", "excluded", "verify",
    "planted_bug", "files",
)  # fmt: skip


@command(app, "dptext demo demo-output", KEYS)
def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new folder, or the folder of an earlier demo.")
    ] = Path("demo-output"),
    *,
    dagster: Annotated[
        bool, typer.Option("--dagster/--no-dagster", help="Run the Dagster job if Dagster is installed.")
    ] = True,
    planted_bug: Annotated[
        bool, typer.Option("--planted-bug", help="Run only the planted bug, in the folder of a demo; exits with 4.")
    ] = False,
    sample: Annotated[
        bool, typer.Option("--sample", help="Only write two tables of invented requests, for your own first policy.")
    ] = False,
) -> None:
    """Generate a public table, release it in three forms and word by word, and show the gates stopping a planted bug.

    All texts are invented by us and public. Only for this reason may the demo show them next to the released texts.
    """
    from dptext_etl.cli import demo_folder

    if sample:
        paths = [str(path) for path in demo_folder.write_sample(folder)]
        terminal.report({"files": paths}, f"wrote {' and '.join(paths)}: invented requests with topics")
        return
    place = demo_folder.DemoFolder(folder)
    if planted_bug:
        demo_folder.run(place)
        return
    terminal.note(f"writing {place.path}: invented requests, a key, policies")
    place.prepare()
    terminal.note("releasing 10,000 requests in three forms: row by row, shuffled, as a synthetic table")
    three_forms = demo_folder.release(place)
    engine = "dagster" if dagster and find_spec("dagster") else "run"
    by = "the Dagster job" if engine == "dagster" else "dptext run"
    terminal.note(f"releasing two months word by word with {by}")
    facts = _release(place, engine, three_forms)
    terminal.note("releasing one month again, with a planted bug")
    facts["planted_bug"] = demo_folder.stopped(place)
    files = {
        "raw": place.path / "raw",
        "three forms": place.forms,
        "policy": place.policy,
        "published": place.path / "published",
        "ledger": place.ledger,
        "dagster": place.home,
    }
    facts["files"] = {name: str(path) for name, path in files.items() if path.exists()}
    if not terminal.emitted(facts):
        _show(facts)


def _release(place: DemoFolder, engine: str, three_forms: Mapping[str, Any]) -> dict[str, Any]:
    """Run both months, and collect facts from the ledger, the gates and the published tables."""
    from dptext_etl import engines
    from dptext_etl.cli.demo_folder import MONTH_ROWS, MONTHS
    from dptext_etl.ledger import Ledger, Scope
    from dptext_etl.policy import Policy

    policy = Policy.load(place.policy)
    if engine == "dagster":
        from dptext_etl.orchestration import materialize

        done = materialize(place.policy, home=place.home)
        for run in done.runs:
            if not run.success:
                msg = f"the Dagster job stopped in partition {run.partition}: {run.message}"
                failure = DPTextError(msg, "`dptext demo --no-dagster` runs the demo without Dagster")
                failure.exit_code = run.exit_code
                raise failure
        gates = [{"applicable": True, **asdict(check)} for check in done.gates]
    else:
        summaries = {month: engines.run(policy, partition=month).as_dict() for month in MONTHS}
        gates = [{"partition": month, **gate} for month, summary in summaries.items() for gate in summary["gates"]]
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        releases = terminal.releases(item for item in ledger.reports.show() if item["dataset"] == policy.dataset)
        remaining = terminal.balance(ledger.remaining(Scope.of(policy)).as_dict())
        verified = ledger.verify().as_dict()
    return {
        "engine": engine,
        "synthetic": True,
        "three_forms": three_forms,
        "rows": _some_rows(place, policy),
        "gates": gates,
        "releases": releases,
        "remaining": remaining,
        "excluded": len(MONTHS) * MONTH_ROWS - sum(item["committed"] for item in releases),
        "verify": verified,
    }


def _some_rows(place: DemoFolder, policy: Policy) -> list[dict[str, Any]]:
    """Return some raw texts next to two releases of them; this is only allowed because the demo's rows are public."""
    import polars as pl
    import pyarrow as pa

    mechanism = policy.column_policies()[0].mechanism
    raw = place.requests().select("id", "topic", raw="request")
    by_words = place.months().select("id", custext="request")
    row_wise = place.published("rows").select("id", surrogate="request")
    both = raw.join(by_words, on="id", how="inner").join(row_wise, on="id", how="inner")
    personal = both.filter(pl.col("raw").str.contains("@|555|name is") & (pl.col("custext") != "")).sort("id")
    examples = personal.unique("topic", keep="first", maintain_order=True).drop("topic").head(4)
    draws = mechanism.positions(pa.array(examples["raw"].to_list(), pa.large_string())).to_pylist()
    return examples.with_columns(
        epsilon_by_words=pl.Series([mechanism.spend(count).epsilon for count in draws], dtype=pl.Float64)
    ).to_dicts()


def _show(facts: Mapping[str, Any]) -> None:
    demo_folder = facts["three_forms"]
    terminal.say(
        f"{demo_folder['rows']:,} requests to a help desk, each of another user, invented by us and public.\n"
        "With real data, no line below would show a raw text."
    )
    _show_forms(demo_folder)
    terminal.heading("Some requests, raw, released row by row, and released word by word")
    for row in facts["rows"]:
        terminal.say(f"  {row['id']}  raw                    {row['raw']}")
        terminal.say(f"          surrogate  ε {demo_folder['forms']['rows']['epsilon']:>5g}    {row['surrogate']}")
        terminal.say(f"          CusText    ε {row['epsilon_by_words']:>5g}    {row['custext']}")
    terminal.say("\nCusText draws every word at ε 2: the cost grows with the text, and from ε 30 on it bounds little.")
    release, left = facts["releases"][0], facts["remaining"]
    terminal.heading("Spend of the release by CusText")
    terminal.pairs(
        {
            "released by": "dptext run"
            if facts["engine"] == "run"
            else "the Dagster job (raw, staged, gates, published)",
            "mechanism": f"{release['mechanism']}, {release['class']}, discloses {', '.join(release['disclosures'])}",
            "records": f"{release['committed']:,} committed; {release['canaries']:,} planted ones, never published",
            "most per record": f"epsilon {terminal.number(release[f'max_{PURE}'])} (odds 10^{release['log10_odds']})",
            "cap": f"{terminal.number(left['limits'])} per {left['unit']}, {left['scope']}",
            "left": "; ".join(f"{name} {terminal.number(at)}" for name, at in left["left"].items()),
            "excluded": f'{facts["excluded"]:,} records over the cap: on_cap = "quarantine"',
            "at the cap": f"{left['exhausted']:,} of {left['units']:,} {left['unit']}s",
            "ledger": "intact" if facts["verify"]["ok"] else "NOT intact: " + "; ".join(facts["verify"]["problems"]),
        }
    )
    from dptext_etl.checks.verdict import status

    terminal.heading("Gates")
    rows = [(gate["partition"], gate["name"], status(gate), gate["message"]) for gate in facts["gates"]]
    terminal.table(("partition", "gate", "", "details"), rows)
    terminal.heading("A planted bug")
    terminal.say(
        "One changed word (cli/demo_folder.py) releases words outside the vocabulary unchanged: names, addresses.\n"
        "The mechanism still claims to be CusText, and goes through the same run and gates. Every run holds planted\n"
        "rows of words that no vocabulary has. These words came out unchanged, so nothing was published:\n"
    )
    stopped = facts["planted_bug"]
    for line in (f"$ {stopped['command']}", *stopped["message"].splitlines(), "$ echo $?", stopped["exit_code"]):
        terminal.say(f"  {line}")
    terminal.heading("Files")
    terminal.pairs(facts["files"])
    policy, ledger = facts["files"]["policy"], facts["files"]["ledger"]
    terminal.say(
        f"\nContinue with:\n  dptext plan {policy} --partition 2026-09"
        f"\n  dptext run {policy} --partition 2026-09      (costs nothing: these rows were released before)"
        f"\n  dptext ledger remaining --ledger {ledger}"
    )
    if "dagster" in facts["files"]:
        terminal.say(
            f"  DAGSTER_HOME={Path(facts['files']['dagster']).absolute()} dagster-webserver --empty-workspace"
            "      (the runs, in a browser)"
        )


def _show_forms(facts: Mapping[str, Any]) -> None:
    terminal.heading("One table, three forms, epsilon 1 or less per person")
    rows, shuffled, synthetic = (facts["forms"][form] for form in ("rows", "shuffled", "synthetic"))
    terminal.table(
        ("form", "epsilon", "delta", "published", "F1 of a classifier"),
        [
            ("row by row", f"{rows['epsilon']:g}", "0", ", ".join(rows["columns"]), f"{rows['f1']:.2f}"),
            _central("shuffled", shuffled, "none: it has no labels"),
            _central("synthetic", synthetic, f"{synthetic['f1']:.2f}, classifier {synthetic['f1_classifier']:.2f}"),
            ("label names only", "0", "0", "nothing", f"{facts['f1_label_names']:.2f}"),
            ("raw requests", "", "", "", f"{facts['f1_raw']:.2f}"),
        ],
    )
    terminal.say(
        "\nRow by row, each text is protected on its own; ids, dates, and topics stay unchanged. The other two\n"
        "protect a record among all others, from readers of the published table; the synthetic table also protects\n"
        "topics. Row by row at epsilon 1 is worth about as much as the names of the topics: publish a synthetic table."
    )
    terminal.heading("Requests per topic")
    counts = [
        (item["topic"], f"{item['raw']:,}", f"{item['synthetic']:,.0f}", f"{item['neighborhood_share']:,.0f}")
        for item in facts["topics"]
    ]
    terminal.table(("topic", "raw", "synthetic, noisy count", "shuffled, neighborhood share"), counts)
    terminal.say(
        "A neighborhood share counts public texts near the requests. It is not the number of requests with the topic,\n"
        "because texts near a request may have other topics."
    )


def _central(form: str, facts: Mapping[str, Any], score: str) -> tuple[str, ...]:
    """Return the row of a form whose epsilon holds among all records, rounded up."""
    epsilon = math.ceil(facts["epsilon"] * 100) / 100
    return form, f"{epsilon:g}", f"{facts['delta']:g}", ", ".join(facts["columns"]), score
