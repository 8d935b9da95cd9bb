"""Define `dptext plan`, which says what a run would cost, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl.cli import startup, terminal
from dptext_etl.cli.commands.run import progress_bar
from dptext_etl.cli.options import AcceptLowerCap, Command, Engine, Json, Partition, epilog, load_policy
from dptext_etl.errors import DPTextError, UsageError, refusal_of

app = typer.Typer()
KEYS = (
    "dataset", "release", "partition", "rows", "already_published", "draws", "columns", "component", "per_record",
    "per_subject", "subjects", "together", "cap", "cap_change", "over_cap", "left_out", "changed", "log10_odds",
    "on_cap", "dropped", "hosts", "refusal", "refusals", "table", "notes",
)  # fmt: skip


@app.command(cls=Command, epilog=epilog("dptext plan privacy.toml", KEYS))
def plan(
    policy: Annotated[
        list[Path], typer.Argument(metavar="POLICY", help="The policy file; several are planned in this order.")
    ],
    *,
    partition: Partition = None,
    delta: Annotated[
        float, typer.Option(help="The delta for the statement about all records of one person, such as 1e-9.")
    ] = 1e-6,
    accept_lower_cap: AcceptLowerCap = False,
    engine: Engine = "polars",
    as_json: Json = False,
) -> None:
    """Report the most that a run would cost, and why it would be refused, before anything is drawn or charged.

    The exit code is that of `dptext run`, as far as it is known without a draw. With an engine other than polars, the
    plan also checks that the engine can carry out the run. The numbers depend on the words of your texts: keep them
    inside your boundary, like those of the ledger.

    Several policies are planned as if the runs followed each other: each meets the caps that those before it charged.
    Then the keys are plans, joint, refusal.
    """
    if engine == "polars":
        startup.skip_pandas()
    elif len(policy) > 1:
        raise UsageError("several policies are planned in this process", f"plan each one with --engine {engine}")
    from dptext_etl import engines
    from dptext_etl.runner import planning

    with ExitStack() as opened:
        loaded = [load_policy(each) for each in policy]
        started = None if engine == "polars" else engines.named(engine).started(loaded[0], partition)
        require = None if started is None else opened.enter_context(started).open
        choices: dict[str, Any] = {"partition": partition, "delta": delta, "accept_lower_cap": accept_lower_cap}
        choices["progress"] = opened.enter_context(progress_bar())
        try:
            if len(loaded) > 1:
                forecast = planning.plan_in_order(loaded, **choices)
            else:
                forecast = planning.plan(*loaded, **choices, require=require).as_dict()
        except DPTextError as refusal:
            opened.close()  # the progress bar goes before the counts
            if not as_json:  # else the fields of the refusal hold them
                _show_counts(refusal.fields.get("counts", {}))
            raise
    if as_json:
        terminal.emit(forecast)
    elif "plans" in forecast:
        _show_in_order(forecast["plans"], forecast["joint"])
    else:
        _show(forecast)
    if forecast["refusal"] is not None:
        raise refusal_of(forecast["refusal"])


def _show_in_order(plans: list[Mapping[str, Any]], joint: Mapping[str, Any]) -> None:
    from dptext_etl.runner.shard.charging import at_most

    columns = ("dataset", "release", "rows", "of", "per record", "per subject", "over the cap", "refused")
    rows = [
        (
            *(item[name] for name in ("dataset", "release", "rows", "component")),
            *((item[name] or {}).get("max") for name in ("per_record", "per_subject")),
            item["over_cap"].get("records", 0),
            item["refusal"]["message"] if item["refusal"] else None,
        )
        for item in plans
    ]
    terminal.heading("At most, in this order")
    terminal.table(columns, rows)
    for shared in joint["scopes"]:
        terminal.heading(f"Together in {shared['scope']}, per {shared['unit']}: {' and '.join(shared['plans'])}")
        places = next(iter(shared["charged"].values()))
        terminal.table(("", *places), [(name, *found.values()) for name, found in shared["charged"].items()])
    if joint["apart"]:
        terminal.say("not all of these runs share a scope: no single cap bounds what they charge one person together")
    whole = joint["together"]
    by = " or ".join(whole["units"])
    amount = f"epsilon {at_most(whole['epsilon'])} at delta {at_most(whole['delta'])}"
    terminal.say(f"all records of one {by} in all runs: {amount}, the sums")


def _show_counts(counts: Mapping[str, int]) -> None:
    """Show what a plan counted before the ids of the source stopped it."""
    if counts:
        terminal.pairs({title: counts[name] for name, title in _COUNTS.items() if name in counts})


_VACUOUS = 13.0
"""Power of ten of the odds from which on a bound says nothing in practice: e^30 (docs/spec/privacy.md#odds)."""
_COUNTS = {
    "rows": "rows",
    "null_ids": "rows without an id",
    "doubled_ids": "ids that occur more than once",
    "null_subjects": "rows without a person",
}
_THEN = {"quarantine": "left out", "refuse": "a reason to refuse the run"}
_LEFT_OUT = {"without_subject": "left out without a person", "changed_left_out": "left out with a changed text"}


def _show(forecast: Mapping[str, Any]) -> None:
    from dptext_etl.device import Computing
    from dptext_etl.runner.shard.charging import at_most

    odds = forecast["log10_odds"]
    cap_odds = _odds(odds.get("cap"))
    if cap_odds is not None and "delta" in forecast["cap"]:
        cap_odds += ", plus delta"
    if cap_odds is not None and float(odds["cap"]) >= _VACUOUS:  # "inf" included
        cap_odds += " (bounds nothing in practice)"
    models = [
        f"{item['name']}: {Computing(**item['computing'])}" for item in forecast["columns"] if "computing" in item
    ]
    budgets = [
        f"{item['name']}: epsilon {part['epsilon']:g} for {part['pays']}"
        for item in forecast["columns"]
        for part in item.get("budget", ())
    ]
    terminal.pairs(
        {
            "dataset": forecast["dataset"],
            "release": forecast["release"],
            "rows": f"{forecast['rows']:,}, of {forecast['subjects']:,} subjects"
            if forecast["subjects"]
            else forecast["rows"],
            "draws": forecast["draws"],
            "columns": [f"{item['name']}: {item['mechanism']}, {item['class']}" for item in forecast["columns"]],
            "discloses": [meaning for item in forecast["columns"] for meaning in item["meanings"].values()],
            **({"budget of a record": budgets} if budgets else {}),
            **({"models compute": models} if models else {}),
            "dropped columns": [
                *forecast["dropped"],
                *["names not shown: nothing of them is read"] * bool(forecast["dropped"]),
            ],
            "contacts": forecast["hosts"] or "no other host",
            "cap": forecast["cap"] and {**forecast["cap"], "odds at most": cap_odds},
            "over the cap": {**forecast["over_cap"], "they are": _THEN[forecast["on_cap"]]}
            if forecast["cap"]
            else None,
            **{title: forecast["left_out"][name] for name, title in _LEFT_OUT.items() if name in forecast["left_out"]},
            **({"changed since they were released": forecast["changed"]} if forecast["changed"] else {}),
        }
    )
    places = list(forecast["per_record"])
    rows = [("record", *forecast["per_record"].values(), _odds(odds.get("largest_record")))]
    if forecast["per_subject"]:
        rows.append(("subject", *forecast["per_subject"].values(), _odds(odds.get("largest_subject"))))
    terminal.heading(f"At most, in {forecast['component']}")
    terminal.table(("per", *places, "odds at max"), rows)
    terminal.say(
        f"one {' or '.join(sorted({item['unit'] for item in forecast['columns']}))} moves the odds between two texts by"
        f" {_odds(odds['per_word'])} at most; beyond 10^13 a bound says little"
    )
    together = forecast["together"]
    epsilon = together["epsilon"]
    terminal.say(
        f"all records of one {together['unit']} together: epsilon"
        f" {epsilon if isinstance(epsilon, str) else at_most(epsilon)}"
        f" at delta {together['delta']:g} (rule {together['rule']})"
    )
    show_table(forecast["table"])
    for line in forecast["notes"]:
        terminal.say(line)
    for later in forecast["refusals"][1:]:  # the first one ends the command
        terminal.say(f"also in the way of a run: {later['message']}")


def show_table(table: Mapping[str, Any]) -> None:
    """Show what the checks of the table around the texts found."""
    from dptext_etl.runner import table_check
    from dptext_etl.runner.source import guessing

    parts = {
        "traceable": table_check.traceable_lines,
        "spellings": guessing.spelling_lines,
        "selection": table_check.selection_lines,
        "scopes": table_check.scope_lines,
    }
    said = [line for name, lines in parts.items() for line in lines(table.get(name, {}))]
    if said:
        terminal.heading("The table")
    for line in said:
        terminal.say(line)


def _odds(power: float | str | None) -> str | None:
    return None if power is None else f"10^{power}"
