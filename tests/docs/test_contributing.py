"""The ten tasks of CONTRIBUTING.md open as many files as the page states, and these files exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.study import study

ROOT = Path(__file__).resolve().parents[2]
counter = study("contributor_tasks")


def test_tasks_open_existing_files_and_as_many_as_the_page_states(counter):
    counts = counter.tasks()
    assert len(counts) == 9  # a message is in one module, see below
    assert {task: both for task, both in counts.items() if both[0] != both[1]} == {}
    named = {"dptext_etl/mechanisms/", "CONTRIBUTING.md"}
    assert counter.files("one in `dptext_etl/mechanisms/`, `CONTRIBUTING.md`") == named
    with pytest.raises(FileNotFoundError):
        counter.files("`gone/away.py`")
    modules = counter.messages().values()
    assert len(modules) > 150
    assert sum(len(names) > 1 for names in modules) <= len(modules) // 40
