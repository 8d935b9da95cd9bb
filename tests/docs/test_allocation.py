"""The page of `studies/allocation_utility.py` has every figure, and the library's own."""

from pathlib import Path

import pytest

from tests.later import later
from tests.study import study

later("nltk", reason="nltk is not installed (extra: allocation)")
later("sklearn", reason="scikit-learn is not installed (extra: eval)")
ROOT = Path(__file__).resolve().parents[2]
utility = study("allocation_utility")


def held(**figures):
    return {name: [value - 0.01, value, value + 0.01] for name, value in figures.items()}


@pytest.fixture
def cells(utility):
    even = {10.0: (0.4, 0.2), 20.0: (0.6, 0.6)}
    scored = {10.0: (0.4, 0.1), 20.0: (0.5, 0.5)}
    return {
        (way, total): held(read=use, learnt=0.5, found=attack)
        for way, table in ((utility.UNIFORM, even), (utility.SCORED, scored))
        for total, (use, attack) in table.items()
    }


def test_the_page_leaves_no_figure_out_and_has_the_librarys_own(utility):
    names = ("figure", "custext", "single", "dpmlm", "conclusion", "when", "longest")
    page = utility.page({name: f"<{name}>" for name in names})
    assert "[[" not in page
    assert all(f"<{name}>" in page for name in names)
    # The page that is read is the one that the code makes, without WordNet, which not everybody has
    made = utility.figure(Path("nowhere")).splitlines()
    shown = (ROOT / "studies" / "reports" / "allocation.md").read_text(encoding="utf-8").splitlines()
    assert (len(made), [line for line in made if line not in shown]) == (10, [])
