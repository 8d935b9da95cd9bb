"""How much of a public corpus is in the raw table is a count for people inside, logged, and refuses nothing."""

from __future__ import annotations

import json

import polars as pl
import pytest

from dptext_etl import _kernel
from dptext_etl.corpora import Corpus
from dptext_etl.engines import stage
from dptext_etl_eval.raw_reports import QUERIES, in_corpus
from tests.policy_files import custext_column, policy_in


@pytest.fixture
def run(tmp_path, small_vectors):
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    public = Corpus.open("example").texts
    texts = [f"a private text of patient {n}" for n in range(20)]
    texts[3:6] = [public[0], f"  {public[0].replace(' ', '  ')}", public[9]]
    texts[7] = None
    pl.DataFrame({"id": range(20), "text": texts, "note": texts}).write_parquet(tmp_path / "raw.parquet")
    column = {"name": "text", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}
    return stage(policy_in(tmp_path, column, custext_column(small_vectors, "note")))


def test_texts_of_the_corpus_in_the_raw_table_are_counted_and_logged(run):
    size = len(Corpus.open("example"))
    assert in_corpus(run) == {"text": {"corpus": size, "standing": 2, "rows": 3}}
    asked = (run.layout.staging.folder / QUERIES).read_text()
    assert [json.loads(line)["query"] for line in asked.splitlines()] == ["corpus"]
    assert "patient" not in asked
