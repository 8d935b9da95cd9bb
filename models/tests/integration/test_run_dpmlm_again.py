"""`dptext run` with DP-MLM from the command line: the ledger verifies, the same run again costs and scores nothing."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl import load
from dptext_etl.cli.app import app
from tests.quick import quick

pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")

POLICY = """
dataset = "films"
release = "2026-11"
source = "raw.parquet"
sink = "published"
id = "id"
unit = "record"
key = "file:noise.key"
shard_rows = 16
[ledger]
url = "ledger.db"
[[column]]
name = "review"
allow = ["length"]
mechanism = {{ name = "dpmlm", epsilon = 10, model = "example-masked", decoding = "{decoding}"{block} }}
"""


def facts(*words):
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def published(folder):
    return {path.name: path.read_bytes() for path in (folder / "published").rglob("*") if path.is_file()}


@pytest.mark.parametrize(("decoding", "block"), quick([("block", ", block = 4"), ("sequential", ""), ("parallel", "")]))
def test_a_second_run_is_free_and_byte_identical(tmp_path, monkeypatch, decoding, block):
    monkeypatch.chdir(tmp_path)
    texts = ["a good film", "the people of this city saw it again and again", "", None, "a <mask> and </s> time 😀"]
    pl.DataFrame({"id": range(40), "review": [texts[row % 5] for row in range(40)]}).write_parquet("raw.parquet")
    (tmp_path / "privacy.toml").write_text(POLICY.format(decoding=decoding, block=block))
    facts("key", "new", "noise.key")
    first = facts("run", "privacy.toml")
    assert (first["rows"]["released"], first["version"]) == (40, 1)
    files, ledger = published(tmp_path), facts("ledger", "show", "--ledger", "ledger.db")
    assert facts("ledger", "verify", "--ledger", "ledger.db")["ok"]

    def scored(*_):
        raise AssertionError("a second run scores nothing")

    monkeypatch.setattr(load("dpmlm"), "release", scored)
    second = facts("run", "privacy.toml")
    assert (second["rows"]["new"], second["rows"]["replayed"], second["changed"]) == (0, 40, False)
    assert published(tmp_path) == files
    assert facts("ledger", "show", "--ledger", "ledger.db") == ledger
    table = pl.concat([pl.read_parquet(path) for path in (tmp_path / "published").rglob("*.parquet")]).sort("id")
    counts = table["review"].str.split(" ").list.eval(pl.element().filter(pl.element() != "")).list.len()
    assert counts.to_list()[:5] == [3, 10, 0, None, 5]
