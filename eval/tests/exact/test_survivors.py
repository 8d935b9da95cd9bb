"""Reports inside the boundary count only survivors and seals, show no text, and leave a trace."""

import json
import pickle
import re
import sys
from dataclasses import replace

import polars as pl
import pytest

from dptext_etl import ColumnPolicy, _kernel
from dptext_etl.column import release
from dptext_etl.corpora import Corpus
from dptext_etl.engines import stage
from dptext_etl.errors import InputError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl_eval import personal_data
from dptext_etl_eval.personal_data import Span, SurvivorCount, by_patterns, by_presidio, count_spans, count_survivors
from dptext_etl_eval.raw_reports import QUERIES, Seal, in_corpus, sealed, survivors
from tests.policy_files import custext_column, policy_in


@pytest.mark.parametrize(("text", "kinds"), [
    ("write to jane.doe+x@mail.example.org, please", ["EMAIL"]),
    ("see https://example.org/a?b=c and www.example.com.", ["URL", "URL"]),
    ("DE89 3704 0044 0532 0130 00 is an account", ["IBAN"]), ("GB82WEST12345698765432", ["IBAN"]),
    ("card 4111 1111 1111 1111", ["CARD"]), ("call +49 (0)30 9018-2000 or 555-123-4567", ["PHONE", "PHONE"]),
    ("4111 1111 1111 1112 does not check", ["PHONE"]), ("in 2026 we sold 120 of 3.5 kg", []), ("", []),
])  # fmt: skip
def test_patterns_find_what_they_describe(text, kinds):
    assert [span.kind for span in by_patterns(text)] == kinds


def test_a_find_survives_as_a_run_of_words():
    raw = pl.Series(["Mail a.b@c.org!", "Mail a.b@c.org", "call 555-123-4567", None, "nothing"])
    released = pl.Series(["so a b c org it", "a b org c", "call 555 123 4567", None, "nothing"])
    found = count_survivors(raw, released)
    assert found.found == {"EMAIL": 2, "PHONE": 1}
    spans = [[Span("NAME", "Jane Doe")], [Span("NAME", "Jane Doe"), Span("NAME", "...")]]
    assert count_spans(spans, pl.Series(["the jane doe", "jane the doe"])).survived == {"NAME": 1}
    assert count_spans(spans, pl.Series([None, "Doe, JANE! Doe"])).survived == {"NAME": 1}
    with pytest.raises(InputError, match="5 texts, 1 releases"):
        count_survivors(raw, released.head(1))


def test_counts_add_up_and_hold_numbers_alone():
    total = SurvivorCount({"A": 2}, {"A": 1}) + SurvivorCount({"A": 1, "B": 1}, {}) + SurvivorCount()
    assert (total, total.share) == (SurvivorCount({"A": 3, "B": 1}, {"A": 1}), 0.25)
    assert SurvivorCount().share == 0
    assert total.as_dict() == {"found": {"A": 3, "B": 1}, "survived": {"A": 1}}


def test_presidio_where_it_is_installed():
    pytest.importorskip("presidio_analyzer", reason="presidio-analyzer is not installed")
    assert "EMAIL_ADDRESS" in {span.kind for span in by_presidio("mail jane@example.org")}


def test_without_presidio_the_report_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    personal_data._analyzer.cache_clear()
    with pytest.raises(InputError, match="install presidio-analyzer") as caught:
        by_presidio("Jane Sentinelname")
    assert "Sentinelname" not in str(caught.value)


def own_words(text):
    """Words as this test sees them, without the kernel."""
    return re.findall(r"[^\W_]+(?:['\u2019][^\W_]+)*", text.lower().replace("\u2019", "'"))


def test_the_share_of_typed_spans_is_that_of_an_independent_count(shared_data):
    """pii_synth: 2,863 typed spans of invented persons."""
    table = pl.read_parquet(shared_data / "pii_synth" / "pii_synth.parquet")
    spans = [json.loads(row) for row in table["spans"]]
    typed = [[Span(item["entity_type"], item["entity_value"]) for item in row] for row in spans]
    left = []
    names = {"dataset": "pii", "column": "text", "release": "r", "key": "env:DPTEXT_SUITE_SECRET", "allow": {"cluster"}}
    for epsilon in (1.0, 30.0):
        column = ColumnPolicy(mechanism=CusText(epsilon=epsilon), **names)
        out = pl.Series(release(table["text"].to_arrow(), table["id"].to_arrow(), column).text)
        counted = count_spans(typed, out)
        assert sum(counted.found.values()) == 2_863
        independent = 0
        for row, text in zip(spans, out, strict=True):
            for item in row:
                words = own_words(item["entity_value"])
                independent += bool(words) and f" {' '.join(words)} " in f" {text} "
        assert sum(counted.survived.values()) == independent
        left.append(independent)
    assert 0 < left[0] < left[1] < 2_863
    kept = count_spans(typed, table["text"])  # except for endings such as "'s", which make another word
    assert sum(kept.survived.values()) > 0.98 * 2_863


@pytest.fixture
def staged(tmp_path, small_vectors):
    def of(texts, *columns):
        _kernel.Secret().write(str(tmp_path / "noise.key"))
        frame = pl.DataFrame({"id": range(len(texts)), "text": texts, "note": texts})
        frame.write_parquet(tmp_path / "raw.parquet")
        return stage(policy_in(tmp_path, *(columns or [custext_column(small_vectors)]), shard_rows=20))

    return of


def test_reports_over_a_staged_run_are_counts_are_logged_and_need_staged_files(staged):
    texts = [f"good {n} mail jane{n}@example.org now" for n in range(50)]
    texts[7] = None
    run = staged(texts)
    assert survivors(run)["text"].as_dict() == {"found": {"EMAIL": 49}, "survived": {}}
    everything = survivors(run, lambda text: [Span("WORD", word) for word in text.split()[:1]])
    assert everything["text"].found == {"WORD": 49}
    found = sealed(run)["text"]
    assert found["rows"] == 50
    assert found["texts"] == found["with_runs"] == 0
    assert found["sealed"] > 49
    asked = [json.loads(line) for line in (run.layout.staging.folder / QUERIES).read_text().splitlines()]
    assert [item["query"] for item in asked] == ["survivors", "survivors", "seal"]
    assert "jane" not in json.dumps(asked)
    with pytest.raises(InputError, match="nothing is staged"):
        sealed(replace(run, shards=()))
    run.parts[0].unlink()
    with pytest.raises(InputError, match="reading staged files failed"):
        survivors(run)


def test_texts_of_the_corpus_in_the_raw_table_are_counted_and_logged(staged, small_vectors):
    public = Corpus.open("example").texts
    texts = [f"a private text of patient {n}" for n in range(20)]
    texts[3:6] = [public[0], f"  {public[0].replace(' ', '  ')}", public[9]]
    texts[7] = None
    column = {"name": "text", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}
    run = staged(texts, column, custext_column(small_vectors, "note"))
    assert in_corpus(run) == {"text": {"corpus": len(public), "standing": 2, "rows": 3}}
    asked = (run.layout.staging.folder / QUERIES).read_text()
    assert [json.loads(line)["query"] for line in asked.splitlines()] == ["corpus"]
    assert "patient" not in asked


def test_a_seal_tells_values_and_neither_records_nor_numbers():
    secret = _kernel.Secret()
    words = [["the", "good", "doctor", "came", "home", "late"], ["good"], ["good"], []]
    seal = Seal.of(words, secret, "d", "c")
    assert seal.size == 4  # two texts, two runs of five words
    assert seal == Seal.of([*reversed(words), words[1]], secret, "d", "c")
    assert seal.shared([["good"], words[0][:5], words[0], ["doctor"], []]) == {"rows": 5, "texts": 2, "with_runs": 2}
    for other in (Seal.of(words, secret, "d", "e"), Seal.of(words, secret, "e", "c")):
        assert not seal._marks & other._marks
    assert not seal._marks & Seal.of(words, _kernel.Secret(), "d", "c")._marks
    assert "good" not in repr(seal)
    with pytest.raises(TypeError, match="stays in the process"):
        pickle.dumps(seal)
