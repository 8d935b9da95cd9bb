"""`dptext explain` and `dptext preview` show how one budget is divided among the words of a public sentence."""

import pytest

from dptext_etl.allocation import Allocation
from dptext_etl.cli.render import divided

from .saying import dptext, facts

TEXT = "The doctor changed Anna's medicine"


@pytest.fixture(scope="module")
def explained(small_vectors):
    named = ("-p", f"vectors={small_vectors}", "-p", "k=5")
    return facts("explain", "custext", *named, "--allocation", "ic,sd", "--total", 30, "--text", TEXT)


def test_explain_shows_what_each_word_would_get(explained):
    found = explained["allocation"]
    allocation = Allocation(scores=("ic", "sd"), total=30.0)
    words = TEXT.split()
    assert [item["word"] for item in found["words"]] == words
    assert [round(item["epsilon"] * 1e6) for item in found["words"]] == allocation.over(words)
    assert found["sum"] <= found["total"] == 30
    assert found["words"][0]["epsilon"] > found["words"][1]["epsilon"], "an article gets more than a doctor"
    assert all(set(item["scores"]) == {"ic", "sd"} for item in found["words"])
    assert explained["spend"]["epsilon"] == 30, "a text costs the total, whatever its length"


def test_explain_without_allocation_has_none(small_vectors):
    assert facts("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5")["allocation"] is None


@pytest.mark.parametrize("scores", ["nonsense", "", "ic,ic"])
def test_scores_that_are_none_are_refused_by_name(scores):
    done = dptext("explain", "custext", "--allocation", scores)
    assert done.exit_code == 2
    assert "Hint:" in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("surrogate", "no allocation divides the budget of a text here"),
        ("madlib", "divide by what is no private text: template = [3, 2, 1] by position"),
    ],
)
def test_a_mechanism_whose_budget_cannot_be_divided_says_why(name, said):
    done = dptext("explain", name, "--allocation", "ic")
    assert done.exit_code == 2
    assert said in done.stderr


def test_preview_tells_every_word_with_its_epsilon(small_vectors):
    named = ("preview", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5", "--allocation", "ic", "--epsilon", 30)
    (row,) = facts(*named, "--public-text", TEXT)["sentences"]
    assert sum(item["epsilon"] for item in row["allocation"]["words"]) <= 30
    assert row["after"][0]["spend"] == 30
    said = dptext(*named, "--public-text", TEXT).stdout
    line = next(line for line in said.splitlines() if line.startswith("The["))
    assert line.split()[1] == f"doctor[{row['allocation']['words'][1]['epsilon']:.2f}]"
    assert divided.LEGEND in said


def test_colours_go_from_the_least_epsilon_to_the_most(monkeypatch, capsys):
    found = divided.facts(Allocation(scores=("ic",), total=30.0), TEXT)
    colours = dict(zip(TEXT.split(), divided.colours(found["words"]), strict=True))
    assert (colours["The"], colours["Anna's"]) == ("green", "red")
    monkeypatch.setattr(divided.sys.stdout, "isatty", lambda: True, raising=False)
    divided.line(found)
    said = capsys.readouterr().out
    assert "\x1b[32mThe" in said
    assert "\x1b[31mAnna's" in said
    assert "[" not in said.replace("\x1b[", ""), "on a terminal colours say it, not numbers"
