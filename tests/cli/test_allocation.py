"""`dptext explain` and `dptext preview` show how one budget is divided among the words of a public sentence."""

import pytest

from dptext_etl.allocation import Allocation
from dptext_etl.cli.commands import preview
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.custext import CusText

from ..command_line import dptext, facts, refused

ENTRIES = ("{total = 9.0, template = [2, 1]}", '{"total": 9.0, "template": [2, 1]}')
TEXT = "The doctor changed Anna's medicine"


@pytest.fixture(scope="module")
def explained(small_vectors):
    named = ("-p", f"vectors={small_vectors}", "-p", "k=5")
    return facts("explain", "custext", *named, "--allocation", "ic,sd", "--total", 30, "--public-text", TEXT)


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


def test_an_explanation_without_allocation_or_with_an_entry(small_vectors):
    assert facts("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5")["allocation"] is None
    named = ("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5", "--public-text", TEXT)
    written = [facts(*named, "-p", f"allocation={entry}")["configuration"]["allocation"] for entry in ENTRIES]
    assert written == [{"template": ["2.0", "1.0"], "total": "9.0"}] * 2
    assert "write it as in a policy" in refused(*named, "-p", "allocation={total: 9")


@pytest.mark.parametrize("scores", ["nonsense", "", "ic,ic"])
def test_scores_that_are_none_are_refused_by_name(scores):
    assert "Hint:" in refused("explain", "custext", "--allocation", scores)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("surrogate", "no allocation divides the budget of a text here"),
        ("madlib", "divide by something public: template = [3, 2, 1] by position"),
    ],
)
def test_a_mechanism_whose_budget_cannot_be_divided_says_why(name, said):
    assert said in refused("explain", name, "--allocation", "ic")


def test_preview_tells_every_word_with_its_epsilon(small_vectors):
    named = ("preview", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5", "--allocation", "ic", "--epsilon", 30)
    (row,) = facts(*named, "--public-text", TEXT)["sentences"]
    assert sum(item["epsilon"] for item in row["allocation"]["words"]) <= 30
    assert row["after"][0]["spend"] == 30
    said = dptext(*named, "--public-text", TEXT).stdout
    line = next(line for line in said.splitlines() if line.startswith("The["))
    assert line.split()[1] == f"doctor[{row['allocation']['words'][1]['epsilon']:.2f}]"
    assert preview.LEGEND in said


def test_colors_go_from_the_least_epsilon_to_the_most(monkeypatch, capsys):
    found = preview.division(CusText(allocation=Allocation(scores=("ic",), total=30.0)), TEXT)
    colors = dict(zip(TEXT.split(), preview.colors(found["words"]), strict=True))
    assert (colors["The"], colors["Anna's"]) == ("green", "red")
    monkeypatch.setattr(preview.sys.stdout, "isatty", lambda: True, raising=False)
    preview.show_colored(found["words"])
    said = capsys.readouterr().out
    assert "\x1b[32mThe" in said
    assert "\x1b[31mAnna's" in said
    assert "[" not in said.replace("\x1b[", ""), "on a terminal colors say it, not numbers"


def shown(mechanism, text=TEXT):
    found = preview.division(mechanism, text)
    return found, [item["epsilon"] for item in found["words"]]


def test_shares_are_shown_as_a_template_a_first_part_and_chances(capsys):
    assert preview.allocation_of("uniform", 9.0) == {"template": "uniform", "total": 9.0}
    found, parts = shown(CusText(allocation=preview.allocation_of("3, 2,1", 9.0)))
    assert [part / parts[-1] for part in parts] == pytest.approx([3, 2, 1, 1, 1], rel=1e-5)
    assert (found["divided_by"], found["words"][0]["scores"]) == ("template", {})
    preview.show_division(found)
    assert "whatever the text" in capsys.readouterr().out
    given = preview.allocation_of("ic", 30.0, 10.0)
    assert given == {"scores": ["ic"], "first": 10.0, "total": 20.0}
    found, parts = shown(CusText(allocation=given))
    assert (sum(parts) <= 20, found["beside"], found["first_each"]) == (True, 10.0, 2.0)
    preview.show_division(found)
    assert "The first spends 2 for each part, 10 in all" in capsys.readouterr().out
    with pytest.raises(PolicyError, match="leaves nothing"):
        preview.allocation_of("ic", 10.0, 10.0)
    made = CusText(allocation={"scores": ["ic"], "templates": [[9, 1], [1, 9]], "choosing": 20.0, "total": 30.0})
    found, parts = shown(made, "the Miller")
    first, second = (item["chance"] for item in found["templates"])
    assert first > 0.9
    assert (first + second, parts) == (pytest.approx(1), [27.0, 3.0])
    preview.show_division(found)
    assert "Template 9, 1 is drawn with probability 0.9" in capsys.readouterr().out


def test_sentences_and_steps_take_the_shares_where_these_are_drawn():
    from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
    from dptext_etl_models.mechanisms.dpbart import DPBart

    made = DPBart(model="x", n_rec=10, sentences=3, epsilon=600.0, allocation=preview.allocation_of("3,2,1", 600.0))
    found, parts = shown(made, "It rained. We left!")
    assert [item["word"] for item in found["words"]] == ["It rained.", "We left!", ""]
    assert parts == [300.0, 200.0, 100.0]
    found, parts = shown(DPPrompt(model="x", l_max=10, allocation=preview.allocation_of("uniform", 10.0)))
    assert [item["word"] for item in found["words"]] == [f"{word} (2 steps)" for word in TEXT.split()]
    assert parts == [2.0] * 5
