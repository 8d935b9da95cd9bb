"""The pictures of a terminal and of usefulness show commands of README and measured figures."""

import json
from pathlib import Path

from tests.study import study

ROOT = Path(__file__).resolve().parents[2]


pictures = study("generators.pictures")
session = study("recorded_session")


def test_the_recorded_terminal_has_the_commands_of_readme(session):
    record = json.loads(session.SESSION.read_text(encoding="utf-8"))
    assert [step["command"] for step in record] == session.commands()
    assert len(record) == 3
    assert any("published version 1: 10,000 rows" in line for line in record[-1]["lines"])


def test_the_chart_of_usefulness_has_the_figures_of_the_tidy_file(pictures):
    drawn = (ROOT / "docs" / "images" / "usefulness.svg").read_text(encoding="utf-8")
    for name, best, curves in pictures._measured_curves():
        assert name in drawn
        assert f"best baseline {best:.2f}" in drawn
        assert all(f"{value:.2f}" in drawn for values in curves for value in values)
