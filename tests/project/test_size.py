"""The code and a small run stay below their ceilings. Each ceiling has its goal next to it, and only goes down."""

import importlib
from pathlib import Path

import pytest

LINES = {"core": 50_250, "runner and engines": 14_000, "ledger": 7_020}  # goals: 44,500, 10,500, and 6,300
WORDS = 45_000
RUN = {
    "files": 98,  # goal: 55; threads decide about one or two
    "functions": 1_275,  # goal: 650; a named anchor store adds some
    "files without those that are only imported": 78,
    "functions without bodies of classes": 1_010,
    "files that receive raw texts": 12,
    "changes of file from the charge until the first shard is staged": 65,  # goal: 80
    "ledger opened": 1,
    "manifest read": 2,
    "anchor files written with fsync": 3,  # goal: 3
}


@pytest.fixture
def size(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "studies"))
    return importlib.import_module("size")


def test_each_part_of_the_core_stays_below_its_ceiling(size):
    lines = size.room_lines()
    assert {title: count for title, count in lines.items() if count > LINES[title]} == {}


def test_the_pages_stay_below_their_ceiling(size):
    assert 30_000 < size.page_words() <= WORDS


def test_a_first_run_stays_below_its_ceilings(size):
    figures = size.run_figures()
    assert {title: figures[title] for title, ceiling in RUN.items() if figures[title] > ceiling} == {}
    assert min(figures[title] for title in RUN) > 0, "a figure that counts nothing holds no ceiling"
