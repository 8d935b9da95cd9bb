"""Staged shards: what is durable when one is staged, and what its record holds."""

from types import SimpleNamespace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dptext_etl.errors import InputError
from dptext_etl.runner import durable
from dptext_etl.runner.publish import parts
from dptext_etl.runner.publish.parts import write_part
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


def test_the_names_of_all_parts_are_durable_before_the_version_has_its_name(staging, tmp_path, monkeypatch):
    versions, listed = tmp_path / "versions", []
    versions.mkdir()
    layout = SimpleNamespace(remote_sink=False, local=SimpleNamespace(versions=versions), sink_format="parquet")
    shards = [staging.save(number, ROWS, DRAWS, "inputs", FACTS, as_published=True) for number in range(3)]
    monkeypatch.setattr(parts, "flush", lambda folder: listed.append((folder.name, {p.name for p in folder.iterdir()})))
    with parts.Writer(layout, staging, 1) as writer:
        parts.write_here(writer, shards, lambda _: None)
        writer.finish()
    names = {f"part-0000{number}.parquet" for number in range(3)}
    assert listed == [(".v1.incomplete", names), ("versions", {"v1"})]
    assert {path.name for path in (versions / "v1").iterdir()} == names


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


def test_a_part_is_written_once_and_copied(staging, tmp_path):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS, as_published=True)
    there = {path.name for path in staging.folder.iterdir()}
    assert there == {"shard-00003.parquet", "shard-00003.canaries", "shard-00003.draws", "shard-00003.json"}
    assert staging.find(3, "inputs") == [saved]
    assert_frame_equal(staging.read(saved), ROWS)
    target = tmp_path / "part-00000.parquet"
    assert write_part(staging, saved, target, "parquet") == (1, saved.sha256)
    assert target.read_bytes() == staging.path(saved).read_bytes()
    assert_frame_equal(pl.read_parquet(target), ROWS.filter(~pl.col("__dptext_canary")).drop("__dptext_canary"))


@pytest.mark.parametrize("file_format", ["parquet", "csv", "ndjson"])
def test_both_ways_of_staging_publish_the_same_bytes(staging, tmp_path, file_format):
    parts = []
    for index, as_published in enumerate((True, False)):
        saved = staging.save(index, ROWS, DRAWS, "inputs", FACTS, as_published=as_published)
        path = tmp_path / str(index)
        rows, digest = write_part(staging, saved, path, file_format)
        parts.append((rows, digest, path.read_bytes()))
    assert parts[0] == parts[1]


@pytest.mark.parametrize("suffix", [".parquet", ".canaries"])
def test_a_part_that_changed_since_it_was_staged_is_not_published(staging, tmp_path, suffix):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS, as_published=True)
    changed = staging.path(saved).with_suffix(suffix)
    changed.write_bytes(changed.read_bytes() + b"x")
    assert staging.find(3, "inputs") == []
    with pytest.raises(InputError, match=f"shard-00003{suffix} has changed"):
        staging.require(saved)
    if suffix == ".parquet":
        with pytest.raises(InputError, match="has changed"):
            write_part(staging, saved, tmp_path / "part", "parquet")
        assert not list(tmp_path.glob("*part")), "not even a draft is left"


def test_a_shard_staged_in_another_way_leaves_no_file_of_the_first(staging):
    staging.save(3, ROWS, DRAWS, "inputs", FACTS, as_published=True)
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    assert not staging.path(saved).with_suffix(".canaries").exists()
    assert_frame_equal(staging.read(saved), ROWS)
