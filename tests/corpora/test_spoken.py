"""Contractions and American words: where they are, and where they must not."""

import pytest

from dptext_etl.corpora.shipped.everyday_30k import american, spoken


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("I am sure that it is not here.", "I'm sure that it's not here."),
        ("Do not ask who that is.", "Don't ask who that is."),
        ("Tell me how it is going there.", "Tell me how it is going there."),
        ("It will rain until noon.", "It'll rain till noon."),
        ("Let us see what is on television tonight.", "Let's see what's on TV tonight."),
    ],
)
def test_speech_contracts_where_a_word_follows(written, said):
    assert spoken(written) == said


@pytest.mark.parametrize(
    ("british", "other"),
    [
        ("Films and theatres in gray colors.", "Movies and theaters in gray colors."),
        ("Neighbors like the neighborhood.", "Neighbors like the neighborhood."),
        ("A filmed program.", "A filmed program."),
    ],
)
def test_american_words_take_the_place_of_whole_words(british, other):
    assert american(british) == other
