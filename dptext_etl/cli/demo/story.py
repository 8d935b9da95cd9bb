"""Print the report of `dptext demo` for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dptext_etl.cli.render import terminal


def tell(facts: Mapping[str, Any]) -> None:
    """Print the report: rows, spend, budget, gates, the bug that was stopped, and the paths of the files."""
    terminal.say("400 reviews, invented by us and public. With real data, no line below would show a raw text.")
    _rows(facts["rows"], facts["surrogate"])
    _topics(facts["surrogate"]["topics"])
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


def _rows(rows: list[dict[str, Any]], surrogate: Mapping[str, Any]) -> None:
    terminal.heading("Some rows, raw and released in two ways")
    for row in rows:
        terminal.say(f"  {row['id']}  raw                    {row['before']}")
        terminal.say(f"         surrogate  ε {surrogate['epsilon']:>5g}    {row['surrogate']}")
        terminal.say(f"         CusText    ε {row['epsilon_by_words']:>5g}    {row['after']}")
    terminal.say(
        f"\nSurrogate draws one of {surrogate['corpus']:,} public texts near the raw one, at "
        f"ε {surrogate['epsilon']:g} per text ({surrogate['class']}),\nwhatever its length; it discloses "
        f"{', '.join(surrogate['disclosures'])} alone. CusText draws every word, at ε 2 per word:\nthe cost grows with "
        "the text, and from ε 30 on it bounds little."
    )


def _topics(topics: list[dict[str, Any]]) -> None:
    terminal.heading("What analysts see: topics of the surrogates")
    rows = [
        (
            item["topic"],
            f"{item['raw']:.0%}",
            f"{item['released']:.0%}",
            f"{item['near_share']:.0%} ± {1.96 * item['standard_error']:.0%}",
        )
        for item in topics
    ]
    terminal.table(("topic", "raw reviews", "released", "near share, estimated"), rows)
    terminal.say(
        "A near share is the mean share of a topic among the public texts near the raw ones. It takes away what the\n"
        "draw adds; it is not the share of raw reviews with the topic, since texts near a review may have other topics."
    )


def _money(facts: Mapping[str, Any]) -> None:
    release, left = facts["releases"][0], facts["remaining"]
    by = "the Dagster job (raw, staged, gates, published)" if facts["engine"] == "dagster" else "dptext run"
    terminal.heading("Spend of the release by CusText")
    terminal.pairs(
        {
            "released by": by,
            "mechanism": f"{release['mechanism']}, {release['class']}, discloses {', '.join(release['disclosures'])}",
            "records": f"{release['committed']:,} committed, {release['canaries']:,} of them planted, never published",
            "most per record": f"epsilon {terminal.number(release['max_eps_pure'])} (odds 10^{release['log10_odds']})",
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
