"""Templates with slots: what they yield, and what is refused."""

import pytest

from dptext_etl.corpora.shipped.everyday_30k import Draws, expand, parse

SOURCE = """
# a comment
pet = dog | old (cat|owl)
  | {color} hen
color = red | blue

[praise]
what a {pet}
I like a {color} and a {color} hat, really
[question]
is it (a|a very) honest {pet}
"""


def _all(kind, row, draws=200, end="."):
    source = parse(SOURCE)
    return {expand(source.templates[kind][row], source.lists, Draws(f"{draw}"), end) for draw in range(draws)}


def test_slots_nest_and_every_phrase_is_drawn():
    assert _all("praise", 0) == {
        "What a dog.", "What an old cat.", "What an old owl.", "What a red hen.", "What a blue hen.",
    }  # fmt: skip


def test_two_slots_of_a_list_differ():
    assert _all("praise", 1) == {"I like a red and a blue hat, really.", "I like a blue and a red hat, really."}


def test_a_question_gets_its_mark_and_articles_follow_the_sound():
    found = _all("question", 0, end="?")
    assert {"Is it an honest dog?", "Is it a very honest dog?"} <= found


def test_draws_are_uniform_and_fixed_by_the_label():
    draws, again = Draws("label"), Draws("label")
    first = [draws.below(7) for _ in range(70_000)]
    assert first[:100] == [again.below(7) for _ in range(100)]
    assert all(abs(first.count(value) - 10_000) < 400 for value in range(7))  # 4.3 standard deviations


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[praise]\na (b", "line 2"),
        ("[praise]\na) b", "line 2"),
        ("[praise]\n\na {b", "line 3"),
        ("[praise]\na | b", "line 2"),
        ("a b", "line 1"),
        ("a = b\na = c", "line 2"),
    ],
)
def test_a_malformed_source_is_refused_by_line(text, line):
    with pytest.raises(ValueError, match=line):
        parse(text)
