"""Print the report of `dptext demo` for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dptext_etl.cli.render import terminal
from dptext_etl.guarantee import PURE


def show(facts: Mapping[str, Any]) -> None:
    """Print the report: rows, spend, budget, gates, the bug that was stopped, and the paths of the files."""
    forms = facts["three_forms"]
    terminal.say(
        f"{forms['rows']:,} requests to a help desk, each of another user, invented by us and public.\n"
        "With real data, no line below would show a raw text."
    )
    _three_forms(forms)
    _topics(forms["topics"])
    _rows(facts["rows"], forms["forms"]["rows"])
    _money(facts)
    _gates(facts["gates"])
    _bug(facts["planted_bug"])
    terminal.heading("Files")
    terminal.pairs(facts["files"])
    policy, ledger = facts["files"]["policy"], facts["files"]["ledger"]
    terminal.say(
        f"\nGo on with:\n  dptext plan {policy} --partition 2026-09"
        f"\n  dptext run {policy} --partition 2026-09      (costs nothing: these rows were released before)"
        f"\n  dptext ledger remaining --ledger {ledger}"
    )
    if "dagster" in facts["files"]:
        terminal.say(
            f"  DAGSTER_HOME=$PWD/{facts['files']['dagster']} dagster-webserver --empty-workspace"
            "      (the runs, in a browser)"
        )


def _three_forms(facts: Mapping[str, Any]) -> None:
    terminal.heading("One table, three forms, epsilon 1 or less per person")
    rows, unlinked, synthetic = (facts["forms"][form] for form in ("rows", "unlinked", "synthetic"))
    terminal.table(
        ("form", "epsilon", "delta", "published", "F1 of a classifier"),
        [
            ("row by row", f"{rows['epsilon']:g}", "0", ", ".join(rows["columns"]), f"{rows['f1']:.2f}"),
            _central("unlinked", unlinked, "none: it has no labels"),
            _central("synthetic", synthetic, f"{synthetic['f1']:.2f}, nearest mean {synthetic['f1_nearest_mean']:.2f}"),
            ("label names alone", "0", "0", "nothing", f"{facts['f1_label_names']:.2f}"),
            ("raw requests", "", "", "", f"{facts['f1_raw']:.2f}"),
        ],
    )
    terminal.say(
        "\nRow by row, each text is protected on its own; ids, dates, and topics stay in clear. The other two protect\n"
        "a record among all others, from readers of the published table; the synthetic table protects topics, too.\n"
        "Row by row at epsilon 1 is worth about as much as the names of the topics: publish a synthetic table instead."
    )


def _central(form: str, facts: Mapping[str, Any], score: str) -> tuple[str, ...]:
    """Return the row of a form whose epsilon holds among all records, rounded up."""
    epsilon = math.ceil(facts["epsilon"] * 100) / 100
    return form, f"{epsilon:g}", f"{facts['delta']:g}", ", ".join(facts["columns"]), score


def _topics(topics: list[dict[str, Any]]) -> None:
    terminal.heading("Requests per topic")
    rows = [
        (item["topic"], f"{item['raw']:,}", f"{item['synthetic']:,.0f}", f"{item['near_share']:,.0f}")
        for item in topics
    ]
    terminal.table(("topic", "raw", "synthetic, noisy count", "unlinked, near share"), rows)
    terminal.say(
        "A near share counts public texts near the requests. It is not the number of requests with the topic, because\n"
        "texts near a request may have other topics."
    )


def _rows(rows: list[dict[str, Any]], row_wise: Mapping[str, Any]) -> None:
    terminal.heading("Some requests, raw, released row by row, and released word by word")
    for row in rows:
        terminal.say(f"  {row['id']}  raw                    {row['raw']}")
        terminal.say(f"          surrogate  ε {row_wise['epsilon']:>5g}    {row['surrogate']}")
        terminal.say(f"          CusText    ε {row['epsilon_by_words']:>5g}    {row['custext']}")
    terminal.say("\nCusText draws every word at ε 2: the cost grows with the text, and from ε 30 on it bounds little.")


def _money(facts: Mapping[str, Any]) -> None:
    release, left = facts["releases"][0], facts["remaining"]
    by = "the Dagster job (raw, staged, gates, published)" if facts["engine"] == "dagster" else "dptext run"
    terminal.heading("Spend of the release by CusText")
    terminal.pairs(
        {
            "released by": by,
            "mechanism": f"{release['mechanism']}, {release['class']}, discloses {', '.join(release['disclosures'])}",
            "records": f"{release['committed']:,} committed, {release['canaries']:,} of them planted, never published",
            "most per record": f"epsilon {terminal.number(release[f'max_{PURE}'])} (odds 10^{release['log10_odds']})",
            "cap": f"{_amounts(left['limits'])} per {left['unit']}, {left['scope']}",
            "left": "; ".join(f"{name} " + _amounts(at) for name, at in left["left"].items()),
            "left out": f'{facts["left_out"]:,} records over the cap: on_cap = "quarantine"',
            "at the cap": f"{left['exhausted']:,} of {left['units']:,} {left['unit']}s",
            "ledger": "whole" if facts["verify"]["ok"] else "NOT whole: " + "; ".join(facts["verify"]["problems"]),
        }
    )


def _gates(gates: list[dict[str, Any]]) -> None:
    terminal.heading("Gates")
    rows = [
        (gate["partition"], gate["name"], "passed" if gate["passed"] else "FAILED", gate["message"]) for gate in gates
    ]
    terminal.table(("partition", "gate", "", "what it saw"), rows)


def _bug(stopped: Mapping[str, Any]) -> None:
    terminal.heading("A planted bug")
    terminal.say(
        "One changed word (cli/demo/fault.py) releases words outside the vocabulary in clear: names, addresses.\n"
        "The mechanism still claims to be CusText, and goes through the same run and gates. Every run holds planted\n"
        "rows of words that no vocabulary has. These words came out in clear, so nothing was published:\n"
    )
    terminal.say(f"  $ {stopped['command']}")
    for line in stopped["message"].splitlines():
        terminal.say(f"  {line}")
    terminal.say(f"  $ echo $?\n  {stopped['exit_code']}")


def _amounts(amounts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {terminal.number(amount)}" for name, amount in amounts.items())
