"""Staged shards and published parts: durable files, records, equal bytes for equal rows, groups of rows."""

import io
import json
import re
from types import SimpleNamespace
from typing import get_args

import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from dptext_etl import _kernel, files
from dptext_etl.errors import InputError
from dptext_etl.file_formats import FORMATS, GROUP_BYTES
from dptext_etl.policy.terms import Compression
from dptext_etl.runner.publish import parts
from dptext_etl.runner.publish.parts import rows_of, write_part
from dptext_etl.runner.shard.staging import Staging, opened, sealed, staging_key
from dptext_etl.storage import Storage

ROWS = pl.DataFrame({"id": ["a", "b"], "text": ["one", "two"], "__dptext_canary": [False, True]})
DRAWS = pl.DataFrame({"text": [1, 1]}, schema={"text": pl.UInt32})
FACTS = {
    "counts": {"rows": 1, "words": 2},
    "spends": {"sum_eps_pure": 3},
    "copies": {"text": {"rows_by_draws": {"1": 1}}},
}


@pytest.fixture
def staging(tmp_path):
    staging = Staging(Storage(str(tmp_path / "release" / "part" / "staging")), b"key")
    staging.storage.prepare()
    return staging


def test_all_names_of_a_shard_are_durable_when_it_is_staged(staging, monkeypatch):
    listed = []
    flush = files.flush
    monkeypatch.setattr(
        files, "flush", lambda folder: (listed.append({p.name for p in folder.iterdir()}), flush(folder))
    )
    staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    there = {path.name for path in staging.folder.iterdir()}
    assert there == {"shard-00003.parquet", "shard-00003.draws", "shard-00003.json"}
    assert listed == [there], "the folder is flushed once, and after the last of its files has its name"


def test_the_names_of_all_parts_are_durable_before_the_version_has_its_name(staging, tmp_path, monkeypatch):
    versions, listed = tmp_path / "versions", []
    versions.mkdir()
    layout = SimpleNamespace(
        remote_sink=False,
        plain=True,
        local=SimpleNamespace(versions=versions),
        sink_format="parquet",
        compression="none",
    )
    shards = [staging.save(number, ROWS, DRAWS, "inputs", FACTS) for number in range(3)]
    monkeypatch.setattr(
        parts.files, "flush", lambda folder: listed.append((folder.name, {p.name for p in folder.iterdir()}))
    )
    with parts.Writer(layout, staging, 1, most=(1, 1000)) as version:
        version.add(shards, lambda _: None)
        version.finish()
    hashes = [files.sha256(path)[:16] for path in sorted((versions / "v1").iterdir())]
    names = {f"part-0000{number}-{digest}.parquet" for number, digest in enumerate(hashes)}
    (drafts, named), shown = listed
    assert re.fullmatch(r"\.v1-[0-9a-f]{16}\.incomplete", drafts)
    assert (named, shown) == (names, ("versions", {"v1"}))
    assert {path.name for path in (versions / "v1").iterdir()} == names


def test_a_record_reads_as_it_was_written(staging):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    assert staging.find(3, "inputs") == [saved]
    assert list(saved.as_dict()) == [
        "version", "index", "sha256", "draws", "inputs", "counts", "spends", "copies", "tag",
    ]  # fmt: skip


@pytest.mark.parametrize("lost", [".parquet", ".draws"])
def test_a_record_without_its_files_is_no_shard(staging, lost):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    staging.path(saved).with_suffix(lost).unlink()
    assert staging.find(3, "inputs") == []


@pytest.mark.parametrize("file_format", ["parquet", "csv", "ndjson"])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_part_holds_the_rows_of_a_shard_without_its_canary_rows(staging, tmp_path, file_format, keeps):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS, keeps=keeps)
    assert_frame_equal(staging.read(saved), ROWS)
    target, again = tmp_path / "part", tmp_path / "again"
    assert write_part(rows_of(staging, saved), target, file_format, staging.storage, None)[0] == 1
    FORMATS[file_format].writer(ROWS.head(1).drop("__dptext_canary").lazy(), "zstd-1")(again.open("wb"))
    assert target.read_bytes() == again.read_bytes()


def test_a_shard_that_changed_since_it_was_staged_is_not_published(staging, tmp_path):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    changed = staging.path(saved)
    changed.write_bytes(changed.read_bytes() + b"x")
    assert staging.find(3, "inputs") == []
    with pytest.raises(InputError, match=r"shard-00003\.parquet has changed"):
        staging.require(saved)
    with pytest.raises(InputError, match="has changed"):
        rows_of(staging, saved)


def test_a_record_of_an_earlier_way_of_staging_is_no_shard(staging):
    saved = staging.save(3, ROWS, DRAWS, "inputs", FACTS)
    record = staging.path(saved).with_suffix(".json")
    earlier = {name: value for name, value in saved.as_dict().items() if name != "draws"} | {"version": 4}
    for content in (json.dumps(saved.as_dict()).encode(), sealed(b"key", "shard", earlier)):
        record.write_bytes(content)
        assert staging.find(3, "inputs") == []


def test_a_seal_is_the_one_of_the_specification():
    secret = _kernel.Secret.from_bytes(bytes(range(32)))
    key = staging_key(secret, "demo", Storage("published.staging/sink/2025-01/_"))
    content = sealed(key, "shard", {"version": 5})
    seal = "3769fde53e9fa53b46bbe871683fcad7624fc89f28613abd0d98bdaa572263d5"
    assert json.loads(content) == {"version": 5, "seal": seal}
    assert opened(key, "shard", content) == {"version": 5}
    for changed in (content.replace(b"5", b"4", 1), content[:-1], b"", None):
        assert opened(key, "shard", changed) is None
    assert opened(key, "synthetic", content) is None
    for other in ("sink/2025-02/_", "elsewhere/2025-01/_", "sink/2025-01/2026-01"):
        key = staging_key(secret, "demo", Storage(f"published.staging/{other}"))
        assert opened(key, "shard", content) is None


def rows(size, each=1000):
    texts = ["a word " * (each // 7) + " " * (each % 7)] * (size // each)
    return pl.DataFrame({"id": range(len(texts)), "text": texts})


def written(frame, file_format="parquet", compression="zstd-1"):
    file = io.BytesIO()
    FORMATS[file_format].writer(frame.lazy(), compression)(file)
    return file.getvalue()


def groups(data):
    found = pq.ParquetFile(io.BytesIO(data)).metadata
    return [found.row_group(at).num_rows for at in range(found.num_row_groups)]


@pytest.mark.parametrize(("size", "expected"), [(0.2, 1), (1.4, 1), (1.6, 2), (2, 2), (3.2, 3)])
def test_a_row_group_has_about_so_many_bytes_of_strings(size, expected):
    frame = rows(int(size * GROUP_BYTES))
    found = groups(written(frame))
    assert len(found) == expected
    assert max(found) - min(found) < expected
    assert pl.read_parquet(io.BytesIO(written(frame))).equals(frame)


@pytest.mark.parametrize("file_format", ["parquet", "csv", "ndjson"])
def test_equal_rows_give_equal_bytes_however_they_lie_in_memory(file_format):
    frame = rows(2 * GROUP_BYTES)
    pieces = pl.concat([frame[:7], frame[7:900], frame[900:]], rechunk=False)
    assert pieces.n_chunks() > 1
    assert written(pieces, file_format) == written(frame, file_format)
    assert written(pl.concat([frame, frame])[: frame.height], file_format) == written(frame, file_format)


def test_a_policy_may_choose_the_compression_of_parquet_files():
    frame, sizes = rows(GROUP_BYTES), dict[str, int]()
    for compression in get_args(Compression):
        data = written(frame, compression=compression)
        codec = {"none": "UNCOMPRESSED", "snappy": "SNAPPY"}.get(compression, "ZSTD")
        assert pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1).compression == codec
        assert pl.read_parquet(io.BytesIO(data)).equals(frame)
        sizes[compression] = len(data)
    assert sizes["zstd-9"] < sizes["zstd-1"] < sizes["snappy"] < sizes["none"]
    assert written(frame) == written(frame, compression="zstd-1")


def test_numbers_and_nothing_have_one_group():
    assert groups(written(pl.DataFrame({"n": range(300_000)}).head(1000))) == [1000]
    assert sum(groups(written(rows(0).cast({"text": pl.String})))) == 0
