"""The figures of `studies/allocation_utility.py` on cells whose figures are known, and the page's own figure."""

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


def test_use_and_protection_are_counted_beyond_the_spread(utility, cells):
    assert utility.clear([0.5, 0.6], [0.55, 0.7]) == 0.0
    assert utility.clear([0.5, 0.6], [0.7, 0.8]) == pytest.approx(-0.2)
    counted = utility.counts({"toy": cells})
    assert counted["use"] == (0, 1, 4), "one of four figures of use is clearly lower"
    assert counted["protection"] == (2, 0, 2)


def test_at_equal_use_the_even_division_has_another_budget(utility, cells):
    """At 20 the scores leave a use of 0.5, which the even division has halfway, where attacks find 0.4."""
    assert utility.level([(0.4, 0.2), (0.6, 0.6)], 0.5) == pytest.approx(0.4)
    assert utility.level([(0.4, 0.2), (0.6, 0.6)], 0.7) is None
    pairs = utility.at_level(cells, utility.SCORED, "read", "found")
    assert [(round(ours, 6), round(even, 6)) for ours, even in pairs] == [(0.1, 0.2), (0.5, 0.4)]
    assert utility.counts({"toy": cells})["protection at equal use"] == (1, 1, 2)
    assert utility.NOTHING in utility.conclusion({"custext": {"toy": cells}}), "half of the cells are no gain"
    better = {cell: figures for cell, figures in cells.items() if cell != (utility.SCORED, 20.0)}
    assert utility.NOTHING not in utility.conclusion({"custext": {"toy": better}})


def test_the_page_leaves_no_figure_out_and_has_the_librarys_own(utility):
    names = ("figure", "custext", "single", "dpmlm", "conclusion", "when", "longest")
    page = utility.page({name: f"<{name}>" for name in names})
    assert "[[" not in page
    assert all(f"<{name}>" in page for name in names)
    # The page that is read is the one that the code makes, without WordNet, which not everybody has
    made = utility.figure(Path("nowhere")).splitlines()
    shown = (ROOT / "studies" / "reports" / "allocation.md").read_text(encoding="utf-8").splitlines()
    assert (len(made), [line for line in made if line not in shown]) == (10, [])


def test_a_release_is_measured_through_the_library(utility):
    """Raw texts as their own release: everything stays, and every text is found."""
    texts = ["play a song of the band now", "book a nice hotel room for us", "a loud song by the band", "rooms here"]
    data = utility.measures.DataSet("toy", texts * 6, ["music", "hotel"] * 12, None, "", texts * 3, ["m", "h"] * 6)
    found = utility.measures.figures(data, data.texts)
    assert (found["kept"], set(found)) == (1.0, {"kept", "learnt", "read", "found"})
    assert utility.measures.cut("one, two three " * 20).count("one") == 11
