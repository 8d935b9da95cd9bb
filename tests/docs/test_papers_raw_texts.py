"""The figures of raw texts on the page of the papers: each block without given weights, at the block's own size."""

import re
import sys
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"
PAGE = (STUDIES / "reports" / "papers.md").read_text(encoding="utf-8")
CELLS = [
    ("000", r"^\| (\w+) \| \S+ / (-?\d\S*) \| ", {"digits": 1}),
    ("000", r"^\| (\w+), Pearson \| \S+ / (-?\d\S*) \| ", {"digits": 1, "measure": "Pearson"}),
    ("000", r"^\| (\w+), Spearman \| \S+ / (-?\d\S*) \| ", {"digits": 1, "measure": "Spearman"}),
    ("001", r"^\*\*Table 1: (\w+).*; attacker on raw texts \S+ / (-?\d[^,;*]*)", {"digits": 1, "secret": True}),
    ("001", r"^\*\*Table 1: (\w+).*, use \S+ / (-?\d[^,;*]*)", {"digits": 1}),
    ("002", r"^\*\*Table 1: (\w+).*; attacker on raw texts \S+ / (-?\d[^;*]*)", {"digits": 1, "secret": True}),
    ("003", r"^\*\*Table 5: (\w+).*; raw texts \S+ / (-?\d[^;*]*)", {"digits": 2, "measure": "macro-F1"}),
    ("004", r"^\*\*Table 1: (\w+), accuracy; raw texts \S+ / (-?\d[^;*]*)", {"digits": 3}),
]
"""Where a block has a set and our figure of its raw texts, and how the command computes and writes that figure."""


@pytest.fixture
def setups(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    from frontier import setups

    yield setups
    for name in [name for name in sys.modules if name.partition(".")[0] in {"frontier", "papers"}]:
        del sys.modules[name]


@pytest.mark.parametrize(("paper", "pattern", "asked"), CELLS)
def test_the_figures_of_raw_texts_are_those_of_the_command(setups, paper, pattern, asked):
    pytest.importorskip("dptext_etl_models")
    if not setups.DATA.is_dir():
        pytest.skip("the public data sets are not next to this checkout")
    block = re.search(f"<!-- paper-{paper}: start -->(.*?)<!-- paper-{paper}: end -->", PAGE, re.DOTALL)[1]
    command = re.search(r'PAPER="--size (\w+)(?: --rows (\d+))?(?: --tests (\d+))? --seed (\d+)"(.*)`', block)
    if command is None or "=" in command[5]:
        pytest.skip("no block of this paper was run without given weights")
    size, rows, tests, seed = command.groups()[:4]
    setup = setups.Setup(paper, size, rows and int(rows), tests and int(tests), seed=int(seed))
    shown, digits = re.findall(pattern, block.split("Table 2")[0], re.MULTILINE), asked["digits"]
    scale, secret = 1 if digits == 1 else 100, asked.get("secret", False)
    again = []
    for name, _ in shown:
        task = setup.task(name, slow=paper in setups.SLOW)
        measure = asked.get("measure", "Pearson" if task.numbers else "accuracy")
        (figure,) = setups.figures(setup, task, *task.texts, measures=(measure,), secret=secret)
        again.append((name, f"{figure / scale:,.{digits}f}"))
    assert again
    assert again == shown
