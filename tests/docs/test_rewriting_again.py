"""The figures of `studies/rewriting_again.py` on texts whose figures are known, and its page from invented figures."""

import itertools

import polars as pl
import pytest

from tests.study import study

again = study("rewriting_again")


def test_fluency_is_a_probability_and_knows_the_order_of_words(again):
    texts = ["the old film was good", "the old city was good", "a film of the old city"]
    fluency = again.Fluency(texts)
    words = sorted({word for text in texts for word in text.split()} | {">"})
    for before in (("the", "old"), ("<", "<"), ("never", "seen")):
        known = sum(fluency.chance((*before, word)) for word in words)
        unknown = (100_000 - len(words)) * fluency.chance((*before, "zzz"))
        assert known + unknown == pytest.approx(1.0)
    assert fluency.perplexity(["the old film"]) < fluency.perplexity(["film the old"])
    assert fluency.perplexity(["zzz yyy"]) > 10_000


def test_the_page_compares_each_release_with_itself(again):
    rows = [{"set": "s", "mechanism": "raw", "rewriter": "-", "draw": 0, **dict.fromkeys(again.NAMES, 1.0)}]
    for draw, (rewriter, factor) in itertools.product(range(2), (("-", 1.0), ("ships", 0.5))):
        figures = dict.fromkeys(again.NAMES, (1.0 + draw) * factor)
        rows.append({"set": "s", "mechanism": "M", "rewriter": rewriter, "draw": draw, **figures})
    found = pl.DataFrame(rows)
    changes = again.changes(found)
    assert changes["perplexity"].to_list() == [0.5, 0.5]
    assert changes.sort("draw")["BLEU"].to_list() == [-0.5, -1.0]
    page = again.page(found, 200)
    assert "| M | ships | 0.50 (0.50 … 0.50) | -0.8 (-1.0 … -0.5) |" in page
    assert "| raw | - | 1 | 1.0 | 1.000 | 1.000 | 1.000 |" in page
