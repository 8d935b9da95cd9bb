"""`everyday-30k`: 30,000 sentences, the same bytes everywhere, each fit to take the place of a private text."""

import hashlib
import re
from collections import Counter

import polars as pl
import pytest

from dptext_etl.corpora.shipped import everyday_30k
from dptext_etl.corpora.shipped.everyday_30k import (
    KINDS,
    LONGEST,
    SHORTEST,
    SIZE,
    everyday_artifact,
    everyday_texts,
    generate,
)

PINNED = "343d17c21e4139364299823a1acc03792db11940ef626c2c064adef0eef18414"
LETTERS = re.compile(r"[A-Za-z ,.?!'-]+")
ARTICLE = re.compile(r"\b(an?) (\w+)", re.IGNORECASE)
SAID_LIKE_YOU = ("uni", "use", "usu", "euro", "one", "once")  # a university, a used car, a one way ticket
SILENT_H = ("hour", "honest", "honour", "heir")


@pytest.fixture(scope="module")
def sentences():
    return generate()


def test_the_bytes_are_pinned():
    assert everyday_artifact().sha256 == PINNED


def test_the_hash_of_a_text_file_is_that_of_its_sentences(sentences):
    content = "".join(f"{made.text}\n" for made in sentences).encode()
    assert hashlib.sha256(content).hexdigest() == PINNED


def test_the_artifact_holds_the_sentences_in_order(sentences):
    assert everyday_texts() == tuple(made.text for made in sentences)


def test_there_are_as_many_distinct_sentences_as_promised(sentences):
    assert len({made.text.lower() for made in sentences}) == len(sentences) == SIZE


def test_every_length_is_in_the_range(sentences):
    lengths = {len(made.text.split()) for made in sentences}
    assert min(lengths) == SHORTEST
    assert LONGEST - 5 < max(lengths) <= LONGEST


def test_domains_and_kinds_are_balanced(sentences):
    cells = Counter((made.domain, made.kind) for made in sentences)
    domains = {domain for domain, _ in cells}
    assert len(domains) >= 40
    assert set(cells) == {(domain, kind) for domain in domains for kind in KINDS}
    assert max(cells.values()) - min(cells.values()) <= 1


def test_every_domain_has_many_templates():
    _, domains = everyday_30k.sources()
    assert min(sum(map(len, source.templates.values())) for source in domains.values()) >= 60


def test_sentences_hold_letters_and_marks_alone(sentences):
    """No slot is left open; nothing can be a number, an address or a link."""
    assert [made.text for made in sentences if not LETTERS.fullmatch(made.text)] == []


def test_sentences_begin_with_a_capital_and_end_with_one_mark(sentences):
    assert [m.text for m in sentences if not re.fullmatch(r"[A-Z].*[A-Za-z][.?!]", m.text)] == []
    assert [m.text for m in sentences if re.search(r"  | [,.?!']|,[^ ]|[,.?!] *[,.?!]", m.text)] == []


def test_questions_end_with_a_question_mark(sentences):
    assert [made.text for made in sentences if made.kind == "question" and made.text[-1] != "?"] == []


def test_a_and_an_follow_the_next_word(sentences):
    wrong = []
    for made in sentences:
        for article, word in ARTICLE.findall(made.text):
            lower = word.lower()
            vowel = lower.startswith(SILENT_H) or (lower[0] in "aeiou" and not lower.startswith(SAID_LIKE_YOU))
            vowel = vowel or lower.startswith(("uninsp", "unint"))
            if vowel != (article.lower() == "an"):
                wrong.append(made.text)
    assert wrong == []


def test_no_word_stands_twice_in_a_row(sentences):
    assert [m.text for m in sentences if re.search(r"\b(\w+) \1\b", m.text, re.IGNORECASE)] == []


@pytest.mark.thorough
def test_no_sentence_stands_in_a_data_set(sentences, shared_data):
    """Only ours: no text of a public data set, and no sentence of one, is a sentence of the corpus."""
    ours = _plain(pl.Series([made.text for made in sentences]))
    copies = set()
    for path in sorted(shared_data.glob("*/*.parquet")):
        table = pl.scan_parquet(path)
        for name, kind in table.collect_schema().items():
            if kind == pl.String:
                texts = table.select(name).collect().to_series().drop_nulls()
                pieces = texts.str.replace_all(r"([.?!])\s+|\n", "$1\u0001").str.split("\u0001").explode()
                found = pl.concat([_plain(texts), _plain(pieces)])
                copies |= {(path.parent.name, text) for text in found.filter(found.is_in(ours.implode()))}
    assert copies == set()


def _plain(texts):
    return texts.str.to_lowercase().str.replace_all("[^a-z']+", " ").str.strip_chars()
