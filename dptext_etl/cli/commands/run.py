"""Define `dptext plan`, which forecasts a run before anything is spent, and `dptext run`, which releases a table."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli import failures, terminal
from dptext_etl.cli.options import (
    AcceptFewerRows,
    AcceptLowerCap,
    Device,
    Dtype,
    Engine,
    Full,
    LogFormat,
    LogLevel,
    Partition,
    PolicyFile,
    Profile,
    command,
    load_policy,
    skip_pandas,
)
from dptext_etl.errors import DPTextError, UsageError, counted, refusal_of

if TYPE_CHECKING:
    from dptext_etl.policy import Policy
    from dptext_etl.runner import Progress


app = typer.Typer()
KEYS = (
    "dataset", "release", "partition", "version", "changed", "rows", "draws", "seconds", "draws_per_second", "spend",
    "remaining", "gates", "reports", "published", "published_rows", "manifest", "staging", "notes", "profile", "table",
    "audiences",
)  # fmt: skip
_PHASES = {
    "ids": "reading",
    "reserve": "reserving",
    "release": "releasing",
    "gates": "gating",
    "publish": "publishing",
    "plan": "planning",
}


PLAN_KEYS = (
    "dataset", "release", "partition", "rows", "already_published", "draws", "columns", "component", "per_record",
    "per_subject", "subjects", "together", "cap", "cap_change", "over_cap", "excluded", "changed", "log10_odds",
    "on_cap", "dropped", "hosts", "refusal", "refusals", "table", "notes", "audiences",
)  # fmt: skip


@command(app, "dptext plan privacy.toml", PLAN_KEYS)
def plan(
    policy: PolicyFile,
    *,
    partition: Partition = None,
    delta: Annotated[
        float, typer.Option(help="The delta for the statement about all records of one person, such as 1e-9.")
    ] = 1e-6,
    accept_lower_cap: AcceptLowerCap = False,
    accept_fewer_rows: AcceptFewerRows = False,
    engine: Engine = "polars",
) -> None:
    """Report the most that a run would cost, and why it would be refused, before anything is drawn or charged.

    The exit code is the one that `dptext run` would have, as far as it is known without a draw. With an engine other
    than polars, the plan also checks that the engine can carry out the run. The numbers depend on the words of your
    texts: keep them inside your boundary, like the numbers of the ledger.
    """
    if engine == "polars":
        skip_pandas()
    from dptext_etl import engines
    from dptext_etl.runner import planning

    with ExitStack() as opened:
        loaded = load_policy(policy)
        started = None if engine == "polars" else engines.named(engine).started(loaded, partition)
        require = None if started is None else opened.enter_context(started).open
        progress = opened.enter_context(progress_bar())
        try:
            forecast = planning.plan(
                loaded,
                partition=partition,
                delta=delta,
                accept_lower_cap=accept_lower_cap,
                accept_fewer_rows=accept_fewer_rows,
                progress=progress,
                require=require,
            ).as_dict()
        except DPTextError as refusal:
            opened.close()  # the progress bar goes before the counts
            if not terminal.as_json() and (counts := refusal.fields.get("counts")):  # JSON has them in its fields
                terminal.pairs({title: counts[name] for name, title in _COUNTS.items() if name in counts})
            raise
    if not terminal.emitted(forecast):
        labeled = loaded.labels is not None or (loaded.synthetic is not None and loaded.synthetic.labels is not None)
        _show_plan(forecast, policy, labeled=labeled)
    if forecast["refusal"] is not None:
        raise refusal_of(forecast["refusal"])


@command(app, "dptext run privacy.toml --partition 2026-10", KEYS)
def run(
    policy: PolicyFile,
    *,
    partition: Partition = None,
    all_partitions: Annotated[
        bool, typer.Option("--all-partitions", help="Run every partition that the source has, in order.")
    ] = False,
    accept_lower_cap: AcceptLowerCap = False,
    accept_fewer_rows: AcceptFewerRows = False,
    engine: Engine = "polars",
    device: Device = None,
    dtype: Dtype = None,
    profile: Profile = False,
    log_level: LogLevel = None,
    log_format: LogFormat = "text",
    full: Full = False,
) -> None:
    """Release the policy's columns, charge the ledger, check the gates, and publish.

    A run that was stopped continues where it stopped. A run over rows that were released before costs nothing and gives
    the same bytes. All engines give a record the same text.

    With --all-partitions, the first partition that fails ends the command with its exit code. The message says how many
    are done. --json then prints an object whose only key, `partitions`, lists the objects of the partitions.
    """
    if engine == "polars":
        skip_pandas()
    from dptext_etl import engines

    compute_on(device, dtype)
    loaded = load_policy(policy)
    names = _all_partitions(loaded, partition) if all_partitions else [partition]
    summaries = list[dict[str, Any]]()
    for name in names:
        about = {"dataset": loaded.dataset, "release": loaded.release, "partition": name}
        failures.log_run(log_level, log_format, about)
        if all_partitions:
            failures.note(f"partition {name} ({len(summaries) + 1} of {len(names)})")
        try:
            with progress_bar() as progress, engines.named(engine).started(loaded, name) as started:
                done = engines.run(
                    loaded,
                    engine=started,
                    partition=name,
                    accept_lower_cap=accept_lower_cap,
                    accept_fewer_rows=accept_fewer_rows,
                    progress=progress,
                )
        except BaseException as failure:
            if isinstance(failure, KeyboardInterrupt):
                failures.note("stopped: nothing is lost; run the same command again to continue")
            if all_partitions:
                stopped = f"stopped at partition {name}; done: {len(summaries)} of {len(names)}"
                failures.note(f"{stopped}. The same command continues from there")
            raise
        summary = done.as_dict()
        summaries.append(summary | {"remaining": terminal.balance(summary["remaining"])})
        if not terminal.as_json():
            show(summaries[-1], full=full)
            if profile:
                _show_profile(summaries[-1]["profile"])
    terminal.emitted({"partitions": summaries} if all_partitions else summaries[0])


def _all_partitions(policy: Policy, partition: str | None) -> Sequence[str]:
    """Return the partitions of the source; a name that cannot be part of a path is refused before any of them runs."""
    from dptext_etl.errors import InputError, PolicyError
    from dptext_etl.policy import PARTITION
    from dptext_etl.runner.layout import check_partition
    from dptext_etl.runner.source.table import partitions_of_source

    if partition is not None:
        raise UsageError("--all-partitions and --partition do not go together", "give one of them")
    if PARTITION not in policy.source:
        raise PolicyError(f"the source has no {PARTITION}", "leave out --all-partitions")
    names = partitions_of_source(policy)
    if not names:
        raise InputError("no file matches the source", f"is the source of the policy right, up to {PARTITION}?")
    for name in names:
        check_partition(policy, name)
    return names


def compute_on(device: str | None, dtype: str | None) -> None:
    """Set device and number type of models for this process and its children; None leaves the environment as it is."""
    for name, value in (("DPTEXT_DEVICE", device), ("DPTEXT_DTYPE", dtype)):
        if value is not None:
            os.environ[name] = value


def show(summary: Mapping[str, Any], *, full: bool = False) -> None:
    """Show the outcome of a run; `full` lists every gate that passed, and every report within its bound."""
    from dptext_etl.checks.verdict import tally
    from dptext_etl.runner.report import shown_rows

    gates = [gate for gate in summary["gates"] if full or not gate["passed"]]
    terminal.pairs(
        {
            "dataset": summary["dataset"],
            "release": summary["release"],
            **({"partition": summary["partition"]} if summary["partition"] else {}),
            "rows": shown_rows(summary["rows"]),
            "draws": f"{summary['draws']:,} in {summary['seconds']:.1f} s, {summary['draws_per_second']:,.0f} a second",
            **_most_charged(summary["remaining"]),
            "largest record": summary["spend"]["largest_record"],
            "published": summary["published"] and f"{summary['published']}, version {summary['version']}",
            "manifest": summary["manifest"],
            **({} if full or not summary["gates"] else {"gates": f"{tally(summary['gates'])}; --full lists them"}),
        }
    )
    for table in summary["audiences"]:
        terminal.heading(f"Audience {table['audience']}")
        there = table["path"] and f"{table['path']}, version {table['version']}"
        terminal.pairs({"published": there, "manifest": table["manifest"], "gates": tally(table["gates"])})
        if listed := [gate for gate in table["gates"] if full or not gate["passed"]]:
            show_gates(listed)
    if gates:
        terminal.heading("Gates")
        show_gates(gates)
        planted = sum(gate["counts"].get("planted", 0) for gate in gates)
        if planted:
            terminal.say(f"gates also count the {planted:,} canary rows, which are never published")
    if summary["reports"]:
        terminal.heading("Reports (inside the boundary; they decide nothing)")
        seen = dict[tuple[str, str], list[str]]()
        for item in summary["reports"]:
            verdict = "within chance" if item["passed"] else terminal.BEYOND_CHANCE
            verdict = verdict if "threshold" in item["counts"] else "counted"
            seen.setdefault((item["name"], verdict), []).append(item["message"])
        for named, lines in seen.items():
            if not (full or len(lines) == 1 or terminal.BEYOND_CHANCE in named):
                seen[named] = [f"{len(lines)} text columns"]
        terminal.table(("report", "", "details"), [(*named, line) for named, lines in seen.items() for line in lines])
    terminal.show_balance(summary["remaining"])
    show_table(summary["table"])
    terminal.say()
    for line in summary["notes"]:
        terminal.say(line)
    beyond = sorted({item["name"] for item in summary["reports"] if not item["passed"]})
    if beyond:
        more = "more raw text came back than chance explains; look for a defect before you share this release"
        terminal.warn(f"{terminal.BEYOND_CHANCE}: {', '.join(beyond)}: {more}")


def _most_charged(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the loss of the most charged person (or record) over all releases that count under the cap."""
    from dptext_etl.runner.shard.charging import at_most

    name = next(iter(scope["used"]), "")
    if not name.startswith("eps") or not scope["units"]:
        return {}
    epsilon, unit = float(scope["used"][name]["max"]), "person" if scope["unit"] == "subject" else "record"
    if math.isinf(epsilon):  # noise and metric claims have no pure epsilon
        return {}
    delta = ", plus delta" if scope["used"].get("delta", {}).get("max") else ""
    odds = at_most(epsilon / math.log(10), 3)
    return {f"most charged {unit}": f"{name} {at_most(epsilon)} in all, odds move by 10^{odds} at most{delta}"}


def show_gates(gates: Iterable[Mapping[str, Any]]) -> None:
    from dptext_etl.checks.verdict import status

    terminal.table(("gate", "", "details"), [(gate["name"], status(gate), gate["message"]) for gate in gates])


def _show_profile(stages: list[Mapping[str, Any]]) -> None:
    """Print the cost of each stage of a run, one per line, and the sum."""
    total: dict[str, Any] = {name: sum(stage[name] for stage in stages) for name in ("seconds", "cpu_seconds")}
    total["peak_memory"] = max((stage["peak_memory"] for stage in stages), default=0)
    rows = [
        (
            cost["name"],
            f"{cost['seconds']:.2f}",
            f"{cost['cpu_seconds']:.2f}",
            f"{cost['rows']:,}" if cost["rows"] else "",
            f"{cost['bytes'] / 2**20:,.1f}" if cost["bytes"] else "",
            f"{cost['peak_memory'] / 2**20:,.0f}",
        )
        for cost in (*stages, {"name": "all", **total, "rows": 0, "bytes": 0})
    ]
    terminal.heading("Profile (stages that run side by side share the time)")
    terminal.table(("stage", "seconds", "CPU-seconds", "rows", "MiB", "peak MiB by then"), rows)


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None] | None]:
    """Give a callback that draws one bar on stderr for all phases of a run; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("{task.fields[counts]}"),
    )
    with progress.Progress(*columns, console=terminal.console(err=True), transient=True) as bar:
        task = bar.add_task("", total=1.0, counts="")

        def draw(now: Progress) -> None:
            bar.update(task, description=_PHASES.get(now.phase, now.phase), completed=now.share, counts=str(now))

        yield draw


_VACUOUS = 13.0
"""Power of ten of the odds from which on a bound says nothing in practice: e^30 (docs/spec/privacy.md#odds)."""
_COUNTS = {
    "rows": "rows",
    "null_ids": "rows without an id",
    "doubled_ids": "ids that occur more than once",
    "null_subjects": "rows without a person",
}
_THEN = {"quarantine": "excluded", "refuse": "a reason to refuse the run"}
_FEWEST = 20  # rows that a rehearsal needs
_OMITTED = {"without_subject": "excluded without a person", "changed_excluded": "excluded with a changed text"}


def _show_plan(forecast: Mapping[str, Any], policy: Path, *, labeled: bool) -> None:
    """Show a plan, one fact per line: the rows, the loss of one person, then the table."""
    from dptext_etl.device import Computing
    from dptext_etl.runner.shard.charging import at_most
    from dptext_etl.runner.source.first_policy import rehearsal_call

    columns, odds, over = forecast["columns"], forecast["log10_odds"], forecast["over_cap"]
    unread = [f"{', '.join(forecast['dropped'])} (names not shown: nothing of them is read)"]
    budgets = [(item["name"], part) for item in columns for part in item.get("budget", ())]
    terminal.facts(
        [
            ("dataset", forecast["dataset"]),
            ("release", forecast["release"]),
            ("partition", forecast["partition"]),
            ("rows", f"{forecast['rows']:,}"),
            ("people", f"{forecast['subjects']:,}" if forecast["subjects"] else None),
            ("draws", f"{forecast['draws']:,}"),
            ("columns", [f"{item['name']}: {item['mechanism']}, {item['class']}" for item in columns]),
            ("audiences", forecast["audiences"] or None),
            ("reveals", [meaning for item in columns for meaning in item["meanings"].values()] or "nothing unchanged"),
            ("budget", [f"{name}: epsilon {part['epsilon']:g} for {part['pays']}" for name, part in budgets]),
            (
                "computes",
                [
                    f"{column['name']}: {Computing(**column['computing'])}"
                    for column in columns
                    if "computing" in column
                ],
            ),
            ("dropped", unread if forecast["dropped"] else None),
            ("contacts", forecast["hosts"] or "no other host"),
            *((title, forecast["excluded"].get(name)) for name, title in _OMITTED.items()),
            ("changed since they were released", forecast["changed"] or None),
        ]
    )
    together, cap = forecast["together"], forecast["cap"] or {}
    epsilon, person = together["epsilon"], "person" if together["unit"] == "subject" else "record"
    at_cap = odds.get("cap")
    if at_cap is not None:
        vacuous = " (bounds nothing in practice)" if float(at_cap) >= _VACUOUS else ""  # "inf" included
        at_cap = f"odds move by {_odds(at_cap)} at most{', plus delta' if 'delta' in cap else ''}{vacuous}"
    rejected = f"{counted(over['records'], 'record')} of {counted(over['units'], person)}"
    terminal.heading(f"Loss of one {person}")
    terminal.facts(
        [
            ("this run", f"epsilon {epsilon if isinstance(epsilon, str) else at_most(epsilon)} at most"),
            ("at delta", f"{together['delta']:g} (rule {together['rule']})"),
            ("odds move by", _odds(odds.get("largest_subject") or odds.get("largest_record"))),
            ("cap", terminal.number({name: cap[name] for name in cap if name != "measure"}) if cap else None),
            ("at the cap", at_cap),
            ("over the cap", rejected if forecast["cap"] else None),
            ("they are", _THEN[forecast["on_cap"]] if forecast["cap"] and over["records"] else None),
        ]
    )
    places = list(forecast["per_record"])
    rows = [("record", *forecast["per_record"].values(), _odds(odds.get("largest_record")))]
    if forecast["per_subject"]:
        rows.append(("person", *forecast["per_subject"].values(), _odds(odds.get("largest_subject"))))
    terminal.heading(f"At most, in {forecast['component']}")
    terminal.table(("per", *places, "odds at max"), rows)
    unit = " or ".join(sorted({item["unit"] for item in columns}))
    terminal.sentences(
        [
            f"One {unit} moves the odds between two texts by {_odds(odds['per_word'])} at most.",
            "Beyond 10^13, a bound says little.",
        ]
    )
    show_table(forecast["table"])
    terminal.sentences(forecast["notes"])
    released = forecast["rows"] - sum(forecast["excluded"].get(name, 0) for name in ("quarantined", "changed_excluded"))
    if released >= _FEWEST:
        terminal.say("Rehearse on public texts before you run:")
        terminal.say(f"  {rehearsal_call(shlex.quote(str(policy)), released, labeled=labeled)}")
    terminal.sentences(f"also in the way of a run: {later['message']}" for later in forecast["refusals"][1:])


def show_table(table: Mapping[str, Any]) -> None:
    """Show the findings about the table around the texts."""
    from dptext_etl.runner import forecast, table_check

    parts = {
        "published": table_check.published_lines,
        "traceable": table_check.traceable_lines,
        "spellings": forecast.spelling_lines,
        "selection": table_check.selection_lines,
        "at_cap": table_check.at_cap_lines,
        "scopes": table_check.scope_lines,
    }
    lines = [line for name, lines_of in parts.items() if table.get(name) for line in lines_of(table[name])]
    if lines:
        terminal.heading("The table")
    terminal.sentences(lines)


def _odds(power: float | str | None) -> str | None:
    return None if power is None else f"10^{power}"
