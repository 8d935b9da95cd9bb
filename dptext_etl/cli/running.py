"""Run a policy for a command, with a progress bar for people, and print the summary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dptext_etl.cli import lean
from dptext_etl.cli.render import terminal

if TYPE_CHECKING:
    from dptext_etl.policy import Policy
    from dptext_etl.runner import Progress, RunSummary
    from dptext_etl.runner.progress import Listener


SAID = {
    "ids": "reading",
    "reserve": "reserving",
    "release": "releasing",
    "gates": "gating",
    "publish": "publishing",
    "plan": "planning",
}
"""What the phases are called for people."""


def compute_on(device: str | None, dtype: str | None) -> None:
    """Set device and number type of models for this process and its children; None leaves the environment as it is."""
    for name, value in (("DPTEXT_DEVICE", device), ("DPTEXT_DTYPE", dtype)):
        if value is not None:
            os.environ[name] = value


def execute(
    policy: Policy,
    *,
    partition: str | None,
    as_json: bool,
    engine: str = "polars",
    accept_lower_cap: bool = False,
    profile: bool = False,
) -> None:
    """Run a policy and print the results: counts, spends and verdicts, never a text or an id."""
    if engine == "polars":
        lean.without_pandas()
    from dptext_etl import engines
    from dptext_etl.cli.render import amounts

    run = _on_spark if engine == "spark" else engines.run
    try:
        with progress_bar() as progress:
            summary = run(policy, partition=partition, accept_lower_cap=accept_lower_cap, progress=progress).as_dict()
        summary["remaining"] = amounts.balance(summary["remaining"])
    except KeyboardInterrupt:
        terminal.note("stopped: nothing is lost; run the same command again to continue")
        raise
    if as_json:
        terminal.emit(summary)
    else:
        show(summary)
        if profile:
            show_profile(summary["profile"])


def _on_spark(
    policy: Policy, *, partition: str | None, accept_lower_cap: bool, progress: Listener | None
) -> RunSummary:
    """Run a policy on the Spark that is configured here, or otherwise on all cores of this machine."""
    from dptext_etl.engines.spark.session import require_spark, session

    require_spark()
    from dptext_etl.engines import run
    from dptext_etl.engines.spark.engine import SparkEngine
    from dptext_etl.engines.spark.session import read_source

    with session() as spark:
        engine = SparkEngine(read_source(spark, policy, partition))
        return run(policy, engine=engine, partition=partition, accept_lower_cap=accept_lower_cap, progress=progress)


def show(summary: Mapping[str, Any]) -> None:
    """Print a run's summary for people."""
    terminal.pairs(
        {
            "dataset": summary["dataset"],
            "release": summary["release"],
            **({"partition": summary["partition"]} if summary["partition"] else {}),
            "rows": summary["rows"],
            "draws": f"{summary['draws']:,} in {summary['seconds']:.1f} s, {summary['draws_per_second']:,.0f} a second",
            "largest record": summary["spend"]["largest_record"],
            "published": summary["published"] and f"{summary['published']}, version {summary['version']}",
            "manifest": summary["manifest"],
        }
    )
    if summary["gates"]:
        terminal.heading("Gates")
        show_gates(summary["gates"])
        planted = sum(gate["counts"].get("planted", 0) for gate in summary["gates"])
        if planted:
            terminal.say(f"gates also count the {planted:,} canary rows, which are never published")
    if summary["reports"]:
        terminal.heading("Reports (inside the boundary; they decide nothing)")
        rows = [(item["name"], _outcome(item), item["message"]) for item in summary["reports"]]
        terminal.table(("report", "", "what it saw"), rows)
    terminal.show_balance(summary["remaining"])
    terminal.say()
    for line in summary["notes"]:
        terminal.say(line)
    beyond = sorted({item["name"] for item in summary["reports"] if not item["passed"]})
    if beyond:
        more = "more raw text came back than chance explains; look for a defect before you share this release"
        terminal.warn(f"{terminal.BEYOND_CHANCE}: {', '.join(beyond)}: {more}")


def _outcome(report: Mapping[str, Any]) -> str:
    """Say where a count stands to its bound; some counts have none."""
    if "threshold" not in report["counts"]:
        return "counted"
    return "within chance" if report["passed"] else terminal.BEYOND_CHANCE


def show_gates(gates: Iterable[Mapping[str, Any]]) -> None:
    """Print verdicts, one per line."""
    rows = [(gate["name"], "passed" if gate["passed"] else terminal.FAILED, gate["message"]) for gate in gates]
    terminal.table(("gate", "", "what it saw"), rows)


def show_profile(stages: Iterable[Mapping[str, Any]]) -> None:
    """Print what each stage of a run took, one per line, and the sum."""
    stages = list(stages)
    rows = [_stage(one["name"], one) for one in stages]
    total = {name: sum(one[name] for one in stages) for name in ("seconds", "cpu_seconds")}
    most = max((one["peak_memory"] for one in stages), default=0)
    rows.append(_stage("all", {**total, "rows": 0, "bytes": 0, "peak_memory": most}))
    terminal.heading("Profile (stages that run side by side share the time)")
    terminal.table(("stage", "seconds", "CPU-seconds", "rows", "MiB", "peak MiB by then"), rows)


def _stage(name: str, cost: Mapping[str, Any]) -> tuple[Any, ...]:
    rows = f"{cost['rows']:,}" if cost["rows"] else ""
    size = f"{cost['bytes'] / 2**20:,.1f}" if cost["bytes"] else ""
    return (
        name,
        f"{cost['seconds']:.2f}",
        f"{cost['cpu_seconds']:.2f}",
        rows,
        size,
        f"{cost['peak_memory'] / 2**20:,.0f}",
    )


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None] | None]:
    """Give a callback that draws one bar on stderr for all phases of a run; None if stderr is not a terminal."""
    screen = terminal.console(err=True)
    if not screen.is_terminal:
        yield None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("{task.fields[counts]}"),
    )
    with progress.Progress(*columns, console=screen, transient=True) as bar:
        whole = bar.add_task("", total=1.0, counts="")

        def draw(seen: Progress) -> None:
            bar.update(whole, description=SAID.get(seen.phase, seen.phase), completed=seen.share, counts=str(seen))

        yield draw
