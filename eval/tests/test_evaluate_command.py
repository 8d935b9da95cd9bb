"""The command that evaluates: reports without texts, bad tables, missing libraries."""

import json
import stat
import sys
import traceback

import polars as pl
import pytest

from dptext_etl.errors import InputError
from dptext_etl_eval import Pairs, evaluate
from dptext_etl_eval.measure import metrics
from eval.tests.release_tables import NAMED, ROWS, SENTINEL, figures, pairs, saved, table
from tests.command_line import dptext

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")


@pytest.mark.parametrize("shown", [False, True])
def test_a_report_holds_texts_only_where_they_were_asked_for(tmp_path, shown):
    words = saved(tmp_path)
    done = dptext(*words, *NAMED, "--label", "stars", "--rows", 40, *(["--show-texts"] if shown else []))
    assert done.exit_code == 0, done.output
    page, facts = tmp_path / "report" / "evidence.html", tmp_path / "report" / "evidence.json"
    for path in (page, facts):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SENTINEL not in done.output + facts.read_text()
    assert (SENTINEL in page.read_text()) is shown
    assert "://" not in page.read_text()
    (column,) = json.loads(facts.read_text())["columns"]
    assert (column["rows"], column["of"]) == (40, ROWS)
    assert "Inside the boundary" in page.read_text()
    assert "Inside the boundary" in column["warning"]


@pytest.mark.parametrize(("changed", "said"), [
    (lambda frame: frame.with_columns(id=pl.col("id") + 10**6), "have ids that the raw table lacks"),
    (lambda frame: pl.concat([frame, frame[:3]]), "3 ids of the released table are repeated"),
    (lambda frame: frame.with_columns(id=pl.lit(None, pl.Int64)), "ids of the released table are null"),
    (lambda frame: frame[:10], "10 rows are in both tables"),
    (lambda frame: frame.rename({"text": "other"}), "the released table has no column 'text'"),
])  # fmt: skip
def test_tables_that_do_not_fit_get_a_sentence(tmp_path, changed, said):
    done = dptext(*saved(tmp_path, changed(table().select("id", "text"))), *NAMED)
    assert done.exit_code == 5
    assert said in done.output
    assert SENTINEL not in done.output


@pytest.mark.parametrize(
    ("raw", "released", "said"),
    [
        ({"text": pl.lit("")}, {}, "no raw text has a word"),
        ({}, {"text": pl.lit(None, pl.String)}, "no released text has a word"),
        ({"stars": pl.lit(None, pl.Int64)}, {}, "the label column is null in"),
    ],
    ids=["raw", "released", "label"],
)
def test_tables_of_nothing_get_a_sentence(tmp_path, raw, released, said):
    words = saved(tmp_path, table().select("id", "text").with_columns(**released))
    table().with_columns(**raw).write_parquet(words[1])
    done = dptext(*words, *NAMED, "--label", "stars")
    assert (done.exit_code, said in done.output) == (5, True), done.output


def test_a_report_into_a_file_is_refused_before_anything_is_measured(tmp_path):
    words = saved(tmp_path)
    done = dptext(*words[:3], "--out", words[1], *NAMED)
    assert (done.exit_code, "is a file" in done.output, "1 of" in done.output) == (5, True, False), done.output


def test_columns_that_say_nothing_get_a_sentence(tmp_path):
    table().with_columns(stars=pl.lit(1), city=pl.col("id")).write_parquet(tmp_path / "flat.parquet")
    words = saved(tmp_path)
    words[1] = tmp_path / "flat.parquet"
    for given, said in ((("--label", "stars"), "has one value"), (("--attribute", "city"), "200 are the most")):
        done = dptext(*words, *NAMED, *given)
        assert (done.exit_code, said in done.output) == (5, True), done.output


def test_an_error_of_a_library_quotes_no_text(monkeypatch):
    def quote(_, given):
        raise ValueError(given.raw[0])

    monkeypatch.setattr(type(metrics()[0]), "of", quote)
    with pytest.raises(InputError, match="measuring: Labels") as caught:
        evaluate(pairs(lambda text: text))
    seen, error = "", caught.value
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if "dptext_etl" in frame.f_code.co_filename:
            seen += repr(frame.f_locals)
    assert SENTINEL not in str(error) + seen
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_report_never_lies_beside_what_is_published(tmp_path):
    words = saved(tmp_path)
    (tmp_path / "sink").mkdir()
    (tmp_path / "released.parquet").rename(tmp_path / "sink" / "part.parquet")
    words[2] = tmp_path / "sink"
    for folder in ("sink", "sink/report", "sink.versions/report"):
        done = dptext(*words[:3], "--out", tmp_path / folder, *NAMED)
        assert (done.exit_code, "in the published table" in done.output) == (5, True), done.output


def test_empty_texts_are_measured():
    empty = evaluate(
        Pairs(raw=tuple(table()["text"]), released=("",) * ROWS, label=table()["stars"].to_numpy().astype(str))
    )
    assert figures(empty)["Downstream", "accuracy, learned from released texts, tested on raw texts"].value <= 0.7
    with pytest.raises(InputError, match="20 are the fewest"):
        Pairs(raw=("a",) * 3, released=("a",) * 3)


def test_missing_libraries_are_named_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    asked = ("absent.parquet", "absent-too.parquet", "--id", "id", "--text", "text")
    done = dptext("evaluate", *asked, "--out", tmp_path / "report")
    assert done.exit_code == 5
    assert "needs sacrebleu" in done.output
    assert "pip install 'dptext-etl[eval]'" in done.output
