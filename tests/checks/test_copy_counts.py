"""Copies are counted by their definition, in texts of every script."""

import unicodedata

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.checks.text_counts import CopyCount, count_copies

PIECES = (
    *"aB7\u00e9\u0130\u03a3\u00df\u24b6\u0301\u093e\u2019'_-.", "it's", "\u2026", "\U0001f600", " ", " ", " ", "\n",
    "\xa0",
)  # fmt: skip
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=24).map("".join),
    st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=24),
)


def words_of(text):
    """The words of an original, as they are defined."""
    lowered = pl.Series([text]).str.to_lowercase().str.replace_all("\u2019", "'", literal=True)
    return lowered.str.extract_all(r"[\p{L}\p{M}\p{N}']+")[0].to_list()


def plain(raw, released, draws, ngram):
    """Count the copies of a row word by word."""
    if draws == 0:
        return CopyCount()
    before, after = words_of(raw), released.split(" ")
    kept = sum(one == other for one, other in zip(before, after, strict=True)) if len(before) == len(after) else 0
    compared = len(before) if len(before) == len(after) else 0
    known, shared = before[:draws], False
    if ngram is not None:
        stretches = [known[at : at + ngram] for at in range(len(known) - ngram + 1)]
        shared = any(after[at : at + ngram] in stretches for at in range(len(after) - ngram + 1))
    return CopyCount(int(before == after), {draws: 1}, kept, compared, int(shared))


@st.composite
def releases(draw):
    """A text, and another one, its own words with some replaced, or all of them after others."""
    raw, other = draw(texts), draw(texts)
    words = words_of(raw)
    some = [draw(st.sampled_from([word, word, "a", "", "\u00e9"])) for word in words]
    return raw, draw(st.sampled_from([other, " ".join(some), " ".join(["x", *words]), " ".join(words)]))


@given(st.lists(st.tuples(releases(), st.integers(0, 30)), max_size=6), st.sampled_from([None, 1, 2, 3, 4, 5]))
def test_counts_are_those_of_a_plain_search(rows, ngram):
    raw, released, draws = ([row[0][0] for row in rows], [row[0][1] for row in rows], [row[1] for row in rows])
    columns = (pl.Series(raw, dtype=pl.String), pl.Series(released, dtype=pl.String), pl.Series(draws, dtype=pl.UInt32))
    each = [plain(*row, ngram) for row in zip(raw, released, draws, strict=True)]
    assert count_copies(*columns, ngram) == sum(each, CopyCount())


def test_every_character_is_in_words_where_its_category_says_so():
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in {"Cs", "Cn"}]
    letters = pl.Series(known).str.contains(r"[\p{L}\p{M}\p{N}'\u2019]")
    words = pl.Series(known).filter(letters)
    lowered = words.str.to_lowercase().str.replace_all("\u2019", "'", literal=True)
    found = count_copies(words, lowered, pl.repeat(1, len(words), dtype=pl.UInt32, eager=True))
    assert found.copies == found.words_kept == len(words)
    between = "a" + pl.Series(known).filter(~letters) + "b"
    found = count_copies(between, pl.repeat("a b", len(between), eager=True), pl.repeat(2, len(between), eager=True))
    assert found.copies == len(between)
    assert min(len(words), len(between)) > 5_000


def test_shared_stretches_are_counted_at_every_place_and_length():
    raw = pl.Series([" ".join(row) for row in ("abcdefg", "abcdefg", "abc", "", "xyzabc", "aaaa")])
    released = pl.Series([" ".join(row) for row in ("zzcdeyy", "abxcdxef", "abc", "abc", "abcxyz", "baaab")])
    draws = pl.Series([7] * 6)
    assert count_copies(raw, released, draws, 3).shared_ngrams == 4  # rows 0, 2, 4, 5
    assert count_copies(raw, released, draws, 4).shared_ngrams == 0
    assert count_copies(raw.head(0), released.head(0), draws.head(0), 3) == CopyCount()
    # Every place of a stretch, in texts whose other words are all different
    before = [f"b{at}" for at in range(40)]
    for ngram in range(1, 14):
        raw, released = [], []
        for at in range(len(before) - ngram + 1):
            for common in (ngram, ngram - 1):
                raw.append(" ".join(before))
                released.append(" ".join([*"xyz"[: at % 4], *before[at : at + common], "x"]))
        draws = pl.repeat(40, len(raw), eager=True)
        assert count_copies(pl.Series(raw), pl.Series(released), draws, ngram).shared_ngrams == len(raw) // 2
