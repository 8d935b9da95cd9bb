"""`dptext preview` shows how one budget is divided among the words of a public sentence."""

import pytest

from dptext_etl.allocation import Allocation
from dptext_etl.cli.commands import explain
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.custext import CusText

from ..command_line import dptext, facts, refused

ENTRIES = ("{total = 9.0, template = [2, 1]}", '{"total": 9.0, "template": [2, 1]}')
TEXT = "The doctor changed Anna's medicine"


def test_preview_shows_what_each_word_would_get(small_vectors):
    named = ("preview", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5", "--public-text", TEXT)
    named += ("--allocation", "ic", "--epsilon", 30)
    (row,) = facts(*named)["sentences"]
    found = row["allocation"]
    allocation = Allocation(scores=("ic",), total=30.0)
    words = TEXT.split()
    assert [item["word"] for item in found["words"]] == words
    assert [round(item["epsilon"] * 1e6) for item in found["words"]] == allocation.over(words)
    assert found["sum"] <= found["total"] == 30
    assert found["words"][0]["epsilon"] > found["words"][1]["epsilon"], "an article gets more than a doctor"
    assert all(set(item["scores"]) == {"ic"} for item in found["words"])
    assert row["after"][0]["spend"] == 30, "a text costs the total, whatever its length"
    said = dptext(*named).stdout
    assert "A score of 1 asks for the least." in said
    (line,) = (line for line in said.splitlines() if line.startswith("doctor "))
    assert line.split()[2] == f"{found['words'][1]['epsilon']:.3f}".rstrip("0")


def test_an_explanation_of_an_entry(small_vectors):
    named = ("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5")
    written = [facts(*named, "-p", f"allocation={entry}")["configuration"]["allocation"] for entry in ENTRIES]
    assert written == [{"template": ["2.0", "1.0"], "total": "9.0"}] * 2
    assert "write it as in a policy" in refused(*named, "-p", "allocation={total: 9")


@pytest.mark.parametrize("scores", ["nonsense", "", "ic,ic"])
def test_scores_that_are_none_are_refused_by_name(scores):
    assert "Hint:" in refused("preview", "custext", "--allocation", scores)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("surrogate", "no allocation divides the budget of a text here"),
        ("madlib", "divide by something public: template = [3, 2, 1] by position"),
    ],
)
def test_a_mechanism_whose_budget_cannot_be_divided_says_why(name, said):
    assert said in refused("preview", name, "--allocation", "ic")


def shown(mechanism, text=TEXT):
    found = explain.division(mechanism, text)
    return found, [item["epsilon"] for item in found["words"]]


def test_shares_are_shown_as_a_template_a_first_part_and_chances(capsys):
    assert explain.allocation_of("uniform", 9.0) == {"template": "uniform", "total": 9.0}
    found, parts = shown(CusText(allocation=explain.allocation_of("3, 2,1", 9.0)))
    assert [part / parts[-1] for part in parts] == pytest.approx([3, 2, 1, 1, 1], rel=1e-5)
    assert (found["divided_by"], found["words"][0]["scores"]) == ("template", {})
    explain.show_division(found)
    assert "whatever the text" in capsys.readouterr().out
    given = explain.allocation_of("ic", 30.0, 10.0)
    assert given == {"scores": ["ic"], "first": 10.0, "total": 20.0}
    found, parts = shown(CusText(allocation=given))
    assert (sum(parts) <= 20, found["before"], found["first_each"]) == (True, 10.0, 2.0)
    explain.show_division(found)
    assert "The first spends 2 for each part, 10 in all" in capsys.readouterr().out
    with pytest.raises(PolicyError, match="leaves nothing"):
        explain.allocation_of("ic", 10.0, 10.0)
    made = CusText(allocation={"scores": ["ic"], "templates": [[9, 1], [1, 9]], "choosing": 20.0, "total": 30.0})
    found, parts = shown(made, "the Miller")
    first, second = (item["chance"] for item in found["templates"])
    assert first > 0.9
    assert (first + second, parts) == (pytest.approx(1), [27.0, 3.0])
    explain.show_division(found)
    assert "Template 9, 1 is drawn with probability 0.9" in capsys.readouterr().out


def test_sentences_and_steps_take_the_shares_where_these_are_drawn():
    from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
    from dptext_etl_models.mechanisms.dpbart import DPBart

    made = DPBart(model="x", n_rec=10, sentences=3, epsilon=600.0, allocation=explain.allocation_of("3,2,1", 600.0))
    found, parts = shown(made, "It rained. We left!")
    assert [item["word"] for item in found["words"]] == ["It rained.", "We left!", ""]
    assert parts == [300.0, 200.0, 100.0]
    found, parts = shown(DPPrompt(model="x", l_max=10, allocation=explain.allocation_of("uniform", 10.0)))
    assert [item["word"] for item in found["words"]] == [f"{word} (2 steps)" for word in TEXT.split()]
    assert parts == [2.0] * 5
