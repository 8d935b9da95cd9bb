"""A run prints every verdict as it was computed, and a report beyond its bound once more in the last line."""

import pytest

from dptext_etl.checks.text_counts import COPIES, CopyReport
from dptext_etl.cli.commands import run
from dptext_etl.runner.report import RunSummary


def summary(*reports):
    largest = {"eps_pure": 1.0, "eps_approx": 1.0, "log10_odds": 0.4}
    remaining = {
        "scope": "s", "unit": "record", "period": None, "limits": {}, "used": {}, "left": {}, "units": 0,
        "exhausted": 0, "asked": [],
    }  # fmt: skip
    facts = {"spend": {"largest_record": largest}, "rows": {"released": 9, "new": 9}, "remaining": remaining}
    counts = dict.fromkeys(("draws", "seconds", "draws_per_second", "published_rows"), 9)
    names = dict.fromkeys(("dataset", "release", "published", "manifest", "staging"), "name")
    rest = {"partition": None, "version": 1, "changed": True, "gates": [], "notes": ["published version 1"]}
    return RunSummary(**facts, **counts, **names, **rest, reports=[item.verdict().as_dict() for item in reports])


@pytest.mark.parametrize("gating", [False, True])
@pytest.mark.parametrize(("copies", "outcome"), [(6, "within chance"), (11, "BEYOND CHANCE")])
def test_a_report_says_where_it_stands_to_its_bound(capsys, copies, outcome, gating):
    found = summary(CopyReport(COPIES, "review", 512, copies, 1.5, 6, 1e-9, gating=gating))
    run.show(found.as_dict())
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.startswith(COPIES))
    assert outcome in line
    assert "passed" not in shown
    beyond = outcome == "BEYOND CHANCE"
    assert shown.splitlines()[-1].startswith("BEYOND CHANCE: copies_within_chance") == beyond
    assert ("BEYOND CHANCE" in found._repr_html_()) == beyond


def test_a_run_without_a_pure_epsilon_is_shown(capsys):
    """Gaussian noise and statistics have none, and without a cap the balance counts it."""
    found = summary().as_dict()
    found["remaining"] |= {"units": 9, "used": {"eps_pure": {"max": "inf"}}}
    run.show(found)
    assert "most charged" not in capsys.readouterr().out


def test_a_count_without_a_bound_is_no_verdict(capsys):
    run.show(summary(CopyReport(COPIES, "review", 512, 400, 500.0, None, 1e-9, gating=False)).as_dict())
    assert "counted" in capsys.readouterr().out
