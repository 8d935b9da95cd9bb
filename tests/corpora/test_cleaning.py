"""What becomes a line of a corpus, and what does not."""

from __future__ import annotations

import pytest

from dptext_etl.corpora.building import Cleaning, clean, normalized, split
from dptext_etl.errors import PolicyError


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Write to me at jane.doe@example.org about the room", "e-mail address"),
        ("Write to me at jane.doe @ example . org about the room", "e-mail address"),
        ("See https://example.org/rooms for all of our rooms", "URL"),
        ("All our rooms are on example.com for you to see", "URL"),
        ("Call the front desk on 030 901 8200 after lunch", "telephone number"),
        ("Call the front desk on (415) 555-2671 after lunch", "telephone number"),
        ("The number of your booking is A1234567 for this week", "long run of digits"),
        ("The room\x07was cold all night long", "control character"),
        ("The room\u202ewas cold all night long", "control character"),
        ("Too cold", "too short"),
        ("word " * 41, "too long"),
    ],
)
def test_lines_that_a_corpus_must_not_hold_are_left_out_and_counted(text: str, reason: str) -> None:
    kept = clean([text, "The room was cold and it cost 1,250 euros in 2019"], Cleaning())
    assert kept.texts == ["The room was cold and it cost 1,250 euros in 2019"]
    assert kept.dropped == {reason: 1}
    assert kept.read == 2


def test_a_text_stays_once_after_normalisation() -> None:
    kept = clean(
        ["Le  café est ferme\u0301 ici", "Le cafe\u0301 est\nfermé ici", "Le café<br />est fermé ici"], Cleaning()
    )
    assert kept.texts == ["Le café est fermé ici"]
    assert kept.dropped == {"there already": 2}


def test_the_order_depends_on_texts_alone() -> None:
    texts = [f"This is sentence number {number}" for number in range(50)]
    assert clean(texts, Cleaning()).texts == clean(texts[::-1] + texts, Cleaning()).texts
    assert clean(texts, Cleaning()).texts != sorted(texts)


def test_texts_are_cut_into_sentences_if_asked() -> None:
    review = 'It rained for a week. "We stayed in our room!" Would we come back here?'
    whole, cut = (clean([review], Cleaning(sentences=asked)) for asked in (False, True))
    assert whole.texts == [normalized(review)]
    assert sorted(cut.texts) == sorted(split(review))
    assert len(cut.texts) == 3


@pytest.mark.parametrize(("fewest", "most"), [(0, 5), (6, 5)])
def test_lengths_are_a_range(fewest: int, most: int) -> None:
    with pytest.raises(PolicyError, match="1 <= fewest <= most"):
        Cleaning(fewest, most)
