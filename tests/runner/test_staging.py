"""Staged shards: what is durable when one is staged, and what its record holds."""

import polars as pl
import pytest

from dptext_etl.runner import durable
from dptext_etl.runner.shard.records import Facts, StagedShard
from dptext_etl.runner.shard.staging import Staging

ROWS = pl.DataFrame({"id": ["a", "b"], "text": ["one", "two"], "__dptext_canary": [False, True]})
DRAWS = pl.DataFrame({"text": [1, 1]}, schema={"text": pl.UInt32})
FACTS = Facts({"rows": 1, "words": 2}, {"sum_eps_pure": 3}, {"text": {"rows_by_draws": {"1": 1}}}, {}, {})


@pytest.fixture
def staging(tmp_path):
    staging = Staging(tmp_path / "release" / "part" / "staging")
    staging.prepare()
    return staging


def test_all_names_of_a_shard_are_durable_when_it_is_staged(staging, monkeypatch):
    listed = []
    flush = durable.flush
    monkeypatch.setattr(
        durable, "flush", lambda folder: (listed.append({p.name for p in folder.iterdir()}), flush(folder))
    )
    staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    there = {path.name for path in staging.folder.iterdir()}
    assert there == {"shard-00003.parquet", "shard-00003.draws", "shard-00003.json"}
    assert listed == [there], "the folder is flushed once, and after the last of its files has its name"


def test_a_record_reads_as_it_was_written(staging):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    assert staging.find(3, "inputs") == [saved]
    assert StagedShard.from_json(staging.path(saved).with_suffix(".json").read_text()) == saved
    assert list(saved.as_dict()) == ["version", "index", "sha256", "inputs", "counts", "spends", "copies", "tag"]


@pytest.mark.parametrize("lost", [".parquet", ".draws"])
def test_a_record_without_its_files_is_no_shard(staging, lost):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    staging.path(saved).with_suffix(lost).unlink()
    assert staging.find(3, "inputs") == []
