"""Recipes of `studies/recipes` turn downloads into the papers' tables; ten invented rows each."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"


@pytest.fixture(autouse=True)
def _studies(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "recipes"]:
        del sys.modules[name]


def lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def made(name, download, tmp_path):
    from recipes.__main__ import main

    main([name, str(download), str(tmp_path / "out.parquet")])
    return pl.read_parquet(tmp_path / "out.parquet")


def counts(table, column):
    return dict(table[column].value_counts().iter_rows())


def test_trustpilot_keeps_a_tenth_of_the_clear_ratings_with_gender(tmp_path):
    users = [
        {
            "gender": ["M", "F", None][user % 3],
            "reviews": [{"text": [f"review {user}", f"part {at}"], "rating": str(1 + at % 5)} for at in range(10)],
        }
        for user in range(10)
    ]
    table = made("trustpilot", lines(tmp_path / "users.jsonl", users), tmp_path)
    assert table.height == 7 * 6 // 10, "seven users with a gender, six clear ratings each, and a tenth of these"
    assert set(table["attribute"]) <= {"M", "F"}
    assert counts(table, "split") == {"train": 3, "test": 1}
    for text, label in table.select("text", "label").iter_rows():
        assert (label == "positive") is (int(text.split()[-1]) % 5 == 4)


def test_both_domains_leave_out_what_the_sets_use(tmp_path):
    users = [
        {"gender": "MF"[user % 2], "reviews": [{"text": [f"review {user} {at}"], "rating": "5"} for at in range(5)]}
        for user in range(6)
    ]
    download = lines(tmp_path / "users.jsonl", users)
    both = [set(made(name, download, tmp_path)["text"]) for name in ("trustpilot", "trustpilot_domain")]
    assert (len(both[0]), len(both[1]), both[0] & both[1]) == (3, 27, set())
    rows = [
        {"user_id": f"u{user:02}", "stars": 5.0, "text": f"text {user} {at}"}
        for user in range(12)
        for at in range(5 if user < 10 else 2)
    ]
    download = lines(tmp_path / "reviews.json", rows)
    assert set(made("yelp_domain", download, tmp_path)["text"]) == {f"text {a} {b}" for a in (10, 11) for b in (0, 1)}


@pytest.mark.parametrize(
    ("name", "header", "row", "texts", "label"),
    [
        ("cola", "", "gj04\t1\t\tA text.", ("A text.",), "acceptable"),
        ("sst2", "sentence\tlabel", "A text.\t1", ("A text.",), "positive"),
        ("qqp", "id\tquestion1\tquestion2\tis_duplicate", "7\tOne?\tTwo?\t1", ("One?", "Two?"), "duplicate"),
        ("stsb", "sentence1\tsentence2\tscore", "One.\tTwo.\t3.8", ("One.", "Two."), "3.8"),
        ("qnli_dev", "question\tsentence\tlabel", 'One?\tA "two.\tentailment', ("One?", 'A "two.'), "entailment"),
        ("wnli", "sentence1\tsentence2\tlabel", "One.\tTwo.\t0", ("One.", "Two."), "0"),
        ("rte", "sentence1\tsentence2\tlabel", "One.\tTwo.\tentailment", ("One.", "Two."), "entailment"),
    ],
)
def test_tasks_of_glue_keep_their_splits(tmp_path, name, header, row, texts, label):
    for part in ("train", "dev"):
        (tmp_path / f"{part}.tsv").write_text("\n".join([*filter(None, [header]), row, row]))
    table = made(name, tmp_path, tmp_path)
    assert counts(table, "split") == {"train": 2, "validation": 2}
    assert set(table.select(["text", "text2"][: len(texts)]).iter_rows()) == {texts}
    assert set(table["label"]) == {label}


def test_corpora_of_folders_and_files_become_tables(tmp_path):
    for place, text in {
        "mnli/train.tsv": "sentence1\tsentence2\tgold_label\nOne.\tTwo.\tneutral",
        "mnli/dev_matched.tsv": "sentence1\tsentence2\tgold_label\nOne.\tTwo.\tneutral",
        "mrpc/msr_paraphrase_train.txt": "Quality\tid\tid\tfirst\tsecond\n1\t7\t8\tOne.\tTwo.",
        "mrpc/msr_paraphrase_test.txt": "Quality\tid\tid\tfirst\tsecond\n0\t7\t8\tOne.\tTwo.",
        "blog/123.male.24.Arts.Leo.xml": "<Blog><post>  urlLink A &amp; B </post><post> </post><post>C</post></Blog>",
        "bbc_news/sport/001.txt": "Title\n\nA text.",
        "docnli/train.json": '[{"premise": "One.", "hypothesis": "Two.", "label": "entailment"}]',
        "docnli/test.json": '[{"premise": "One.", "hypothesis": "Two.", "label": "not_entailment"}]',
        "imdb/train/pos/0_9.txt": "A<br />text",
        "imdb/test/neg/0_1.txt": "B",
        "snips/train/seq.in": "play it",
        "snips/train/label": "PlayMusic",
        "snips/valid/seq.in": "play",
        "snips/valid/label": "PlayMusic",
        "snips/test/seq.in": "rate it",
        "snips/test/label": "RateBook",
        "medsts": "One.\tTwo.\t4.5\nOne.\tThree.\t",
    }.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    found = {
        name: made(name, tmp_path / name, tmp_path).rows()
        for name in ("mnli", "mrpc", "blog", "bbc_news", "docnli", "imdb", "snips", "medsts")
    }
    assert found["mnli"] == [("One.", "Two.", "neutral", "train"), ("One.", "Two.", "neutral", "validation")]
    assert [row[2:] for row in found["mrpc"]] == [("equivalent", "train"), ("not_equivalent", "test")]
    assert found["blog"] == [("A & B", "author 0"), ("C", "author 0")]
    assert found["bbc_news"] == [("A text.", "sport")]
    assert {row[2:] for row in found["docnli"]} == {("entailment", "train"), ("not_entailment", "test")}
    assert found["imdb"] == [("A\ntext", "positive", "train"), ("B", "negative", "test")]
    assert [row[2] for row in found["snips"]] == ["train", "validation", "test"]
    assert found["medsts"] == [("One.", "Two.", 4.5)]
