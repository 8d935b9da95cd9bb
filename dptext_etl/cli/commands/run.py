"""Define `dptext run`, which takes a table to its release: charge, draw, check, publish."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli import failures, startup, terminal
from dptext_etl.cli.options import (
    AcceptLowerCap,
    Command,
    Device,
    Dtype,
    Engine,
    Full,
    Json,
    LogFormat,
    LogLevel,
    Partition,
    PolicyFile,
    Profile,
    epilog,
    load_policy,
)

if TYPE_CHECKING:
    from dptext_etl.policy import Policy
    from dptext_etl.runner import Progress

app = typer.Typer()
KEYS = (
    "dataset", "release", "partition", "version", "changed", "rows", "draws", "seconds", "draws_per_second", "spend",
    "remaining", "gates", "reports", "published", "published_rows", "manifest", "staging", "notes", "profile", "table",
)  # fmt: skip
_PHASES = {
    "ids": "reading",
    "reserve": "reserving",
    "release": "releasing",
    "gates": "gating",
    "publish": "publishing",
    "plan": "planning",
}


@app.command(cls=Command, epilog=epilog("dptext run privacy.toml --partition 2026-10", KEYS))
def run(
    policy: PolicyFile,
    *,
    partition: Partition = None,
    all_partitions: Annotated[
        bool, typer.Option("--all-partitions", help="Run every partition that the source has, in order.")
    ] = False,
    accept_lower_cap: AcceptLowerCap = False,
    engine: Engine = "polars",
    device: Device = None,
    dtype: Dtype = None,
    profile: Profile = False,
    log_level: LogLevel = None,
    log_format: LogFormat = "text",
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Release the policy's columns, charge the ledger, check the gates, and publish.

    A run that was stopped continues where it stopped. A run over rows that were released before costs nothing and gives
    the same bytes. All engines give a record the same text.

    With --all-partitions, the first partition that fails ends the command with its exit code. The message says how many
    are done. --json then prints an object whose only key, `partitions`, lists the objects of the partitions.
    """
    if engine == "polars":
        startup.skip_pandas()
    compute_on(device, dtype)
    loaded = load_policy(policy)
    names = _all_partitions(loaded, partition) if all_partitions else [partition]
    summaries = list[dict[str, Any]]()
    for name in names:
        failures.log_run(
            log_level, log_format, {"dataset": loaded.dataset, "release": loaded.release, "partition": name}
        )
        with _counting(name, names, len(summaries)) if all_partitions else nullcontext():
            summaries.append(_execute(engine, loaded, name, accept_lower_cap=accept_lower_cap))
        if not as_json:
            show(summaries[-1], full=full)
        if profile and not as_json:
            _show_profile(summaries[-1]["profile"])
    if as_json:
        terminal.emit({"partitions": summaries} if all_partitions else summaries[0])


def _all_partitions(policy: Policy, partition: str | None) -> Sequence[str]:
    """Return the partitions of the source; a name that cannot be part of a path is refused before any of them runs."""
    from dptext_etl.errors import InputError, PolicyError, UsageError
    from dptext_etl.policy import PARTITION
    from dptext_etl.runner.layout import check_partition
    from dptext_etl.runner.source.table import partitions_of_source

    if partition is not None:
        raise UsageError("--all-partitions and --partition do not go together", "give one of them")
    if PARTITION not in policy.source:
        raise PolicyError(f"the source has no {PARTITION}", "leave out --all-partitions")
    found = partitions_of_source(policy)
    if not found:
        raise InputError("no file matches the source", f"is the source of the policy right, up to {PARTITION}?")
    for name in found:
        check_partition(policy, name)
    return found


@contextmanager
def _counting(name: str | None, names: Sequence[str | None], done: int) -> Iterator[None]:
    """Say on stderr which partition runs, and, if it fails, how many are done."""
    failures.note(f"partition {name} ({done + 1} of {len(names)})")
    try:
        yield
    except BaseException:
        failures.note(f"stopped at partition {name}; done: {done} of {len(names)}. The same command goes on from there")
        raise


def compute_on(device: str | None, dtype: str | None) -> None:
    """Set device and number type of models for this process and its children; None leaves the environment as it is."""
    for name, value in (("DPTEXT_DEVICE", device), ("DPTEXT_DTYPE", dtype)):
        if value is not None:
            os.environ[name] = value


def _execute(engine: str, policy: Policy, partition: str | None, *, accept_lower_cap: bool) -> dict[str, Any]:
    """Run a policy and return the results: counts, spends and verdicts, never a text or an id."""
    from dptext_etl import engines

    try:
        with progress_bar() as progress, engines.named(engine).started(policy, partition) as started:
            done = engines.run(
                policy, engine=started, partition=partition, accept_lower_cap=accept_lower_cap, progress=progress
            )
        summary = done.as_dict()
        summary["remaining"] = terminal.balance(summary["remaining"])
    except KeyboardInterrupt:
        failures.note("stopped: nothing is lost; run the same command again to continue")
        raise
    return summary


def show(summary: Mapping[str, Any], *, full: bool = False) -> None:
    """Show what a run did; `full` lists every gate that passed, and every report within its bound."""
    from dptext_etl.runner.summary import shown_rows

    gates = [gate for gate in summary["gates"] if full or not gate["passed"]]
    passed = sum(gate["passed"] for gate in summary["gates"])
    terminal.pairs(
        {
            "dataset": summary["dataset"],
            "release": summary["release"],
            **({"partition": summary["partition"]} if summary["partition"] else {}),
            "rows": shown_rows(summary["rows"]),
            "draws": f"{summary['draws']:,} in {summary['seconds']:.1f} s, {summary['draws_per_second']:,.0f} a second",
            "largest record": summary["spend"]["largest_record"],
            "published": summary["published"] and f"{summary['published']}, version {summary['version']}",
            "manifest": summary["manifest"],
            **({} if full or not summary["gates"] else {"gates": f"{passed} passed; --full lists them"}),
        }
    )
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
            seen.setdefault((item["name"], _report_verdict(item)), []).append(item["message"])
        for named, said in seen.items():
            if not (full or len(said) == 1 or terminal.BEYOND_CHANCE in named):
                seen[named] = [f"{len(said)} text columns"]
        rows = [(*named, line) for named, said in seen.items() for line in said]
        terminal.table(("report", "", "what it saw"), rows)
    terminal.show_balance(summary["remaining"])
    from dptext_etl.cli.commands.plan_command import show_table

    show_table(summary["table"])
    terminal.say()
    for line in summary["notes"]:
        terminal.say(line)
    beyond = sorted({item["name"] for item in summary["reports"] if not item["passed"]})
    if beyond:
        more = "more raw text came back than chance explains; look for a defect before you share this release"
        terminal.warn(f"{terminal.BEYOND_CHANCE}: {', '.join(beyond)}: {more}")


def _report_verdict(report: Mapping[str, Any]) -> str:
    if "threshold" not in report["counts"]:
        return "counted"
    return "within chance" if report["passed"] else terminal.BEYOND_CHANCE


def show_gates(gates: Iterable[Mapping[str, Any]]) -> None:
    rows = [(gate["name"], "passed" if gate["passed"] else terminal.FAILED, gate["message"]) for gate in gates]
    terminal.table(("gate", "", "what it saw"), rows)


def _show_profile(stages: list[Mapping[str, Any]]) -> None:
    """Print what each stage of a run took, one per line, and the sum."""
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
