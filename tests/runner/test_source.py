"""The runner's small parts: paths, batches, ids, canary ids, durable files, progress."""

import stat
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import files
from dptext_etl.checks import comparison
from dptext_etl.errors import DISK_HINT, InputError, PolicyError
from dptext_etl.file_formats import FORMATS, format_of
from dptext_etl.runner.layout import folder_name, is_remote
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.shard.charging import Cutter
from dptext_etl.runner.source import examine
from dptext_etl.runner.source.column_types import logical_types
from dptext_etl.runner.source.table import Files, batches


@given(st.text(min_size=1, max_size=40))
def test_a_release_name_is_one_folder(name):
    folder = folder_name(name) if not any(0xD800 <= ord(c) < 0xE000 for c in name) else "surrogate"
    assert "/" not in folder
    assert "\0" not in folder
    assert folder not in {"", ".", ".."}
    assert not folder.startswith(".")


def test_release_names_keep_apart():
    names = ["a/b", "a%2Fb", "a b", ".hidden", "%2Ehidden", "A", "a"]
    assert len({folder_name(name) for name in names}) == len(names)


def test_formats_and_places():
    kinds = [*map(FORMATS.get, ("parquet", "csv", "ndjson")), None]
    assert [format_of(name) for name in ("a.parquet", "b/*.CSV", "c.jsonl", "d")] == kinds
    assert is_remote("s3://bucket/x")
    assert not is_remote("/tmp/x")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
def test_batches_have_exactly_the_rows_asked_for_in_order(tmp_path, suffix, rows):
    frame = pl.DataFrame({"id": np.arange(1000), "text": [f"text {i}\n" * (i % 50) for i in range(1000)]})
    for at in range(0, 1000, 250):
        piece = frame.slice(at, 250)
        path = tmp_path / f"{at:04d}.{suffix}"
        {"parquet": piece.write_parquet, "csv": piece.write_csv, "ndjson": piece.write_ndjson}[suffix](path)
    scanned = Files.at(str(tmp_path)).scan()
    found = list(batches(scanned, rows))
    assert [item.height for item in found] == [rows] * (1000 // rows) + ([1000 % rows] if 1000 % rows else [])
    assert pl.concat(found)["id"].to_list() == list(range(1000))
    assert pl.concat(found)["text"].fill_null("").to_list() == frame["text"].to_list()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
def test_names_are_no_patterns(tmp_path, suffix):
    frame = pl.DataFrame({"id": [1]})
    path = tmp_path / f"a[1] b?*.{suffix}"
    {"parquet": frame.write_parquet, "csv": frame.write_csv, "ndjson": frame.write_ndjson}[suffix](path)
    for source in (path, tmp_path):
        assert Files.at(str(source)).scan().collect().height == 1


@pytest.mark.parametrize("content", [b"", b"PAR1", None])
def test_a_parquet_file_that_is_empty_or_cut_is_named(tmp_path, content):
    for name in ("a", "b", "c"):
        pl.DataFrame({"id": ["x"] * 100}).write_parquet(tmp_path / f"{name}.parquet")
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(InputError, match=r"opening the file .*/b.parquet failed"):
        logical_types(Files.at(str(tmp_path)))


def test_hidden_files_of_a_folder_are_excluded(tmp_path):
    for name in ("a.parquet", ".b.parquet", "_c.parquet"):
        pl.DataFrame({"id": [name]}).write_parquet(tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    assert Files.at(str(tmp_path)).paths == (str(tmp_path / "a.parquet"),)


def test_repeated_ids_are_found_in_memory_and_on_the_disk(monkeypatch, tmp_path):
    ids = [f"r{i}" for i in range(1000)] + ["r7", "r7", "r11"]
    frame = pl.DataFrame({"id": ids}).lazy()
    monkeypatch.setattr(examine, "BATCH_ROWS", 64)
    for held in (8 * 2000, 8 * 300, 8 * 10):
        monkeypatch.setattr(comparison, "HELD_BYTES", held)
        assert examine.count_ids(frame, "id", None, tmp_path) == (1003, 0, 0, 2)
        assert examine.count_ids(frame.unique(maintain_order=True), "id", None, tmp_path) == (1000, 0, 0, 0)


def test_ids_and_subjects_that_are_null_are_counted():
    frame = pl.DataFrame({"id": ["a", "a", None], "user": [None, "u", None]}).lazy()
    assert examine.count_ids(frame, "id", "user") == (3, 1, 2, None)
    assert examine.count_ids(frame.drop_nulls("id"), "id", "user") == (2, 0, 1, 1)
    assert examine.count_ids(frame.limit(0), "id", "id") == (0, 0, 0, None)


def test_equal_hashes_of_different_ids_are_no_repetition(monkeypatch):
    monkeypatch.setattr(examine, "_hashes", lambda ids: np.zeros(len(ids), dtype=np.uint64))
    assert examine.count_ids(pl.DataFrame({"id": ["a", "b", "c"]}).lazy(), "id", None).repeated == 0
    assert examine.count_ids(pl.DataFrame({"id": ["a", "b", "a"]}).lazy(), "id", None).repeated == 1


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    files.write(path, lambda file: file.write(b"one"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def failing(file):
        file.write(b"half")
        raise OSError(28, "no space")

    with pytest.raises(InputError) as caught:
        files.write(path, failing, action="staging a shard")
    assert caught.value.hint == DISK_HINT
    assert path.read_bytes() == b"one"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_held_by_one(tmp_path):
    refused = pytest.raises(PolicyError, match="another run is under way")
    with files.lock(tmp_path, "is under way"), refused, files.lock(tmp_path, "is under way"):
        pass
    with files.lock(tmp_path, "is under way"):
        pass
    assert not list(tmp_path.iterdir())


def test_progress_counts_and_estimates():
    seen = []
    meter = Meter("release", 100, seen.append)
    meter.add(25)
    meter.add(75)
    assert [item.rows_done for item in seen] == [0, 25, 100]
    assert seen[0].eta is None
    assert seen[1].eta >= 0
    assert seen[2].eta == 0
    assert seen[2].rows_per_second > 0
    Meter("ids", None, None).add(3)


def plainly(sizes, rows, size):
    """Where shards begin, row by row."""
    found, count, total = [], 0, 0
    for at, one in enumerate(sizes):
        if count and (count == rows or total + one > size):
            found.append(at)
            count = total = 0
        count, total = count + 1, total + one
    return found


@given(
    st.lists(st.integers(0, 40), max_size=60),
    st.integers(1, 9),
    st.integers(1, 90),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_shards_end_where_a_plain_loop_ends_them(sizes, rows, size, pauses):
    cutter, found, ends = Cutter(rows, size), [], [0, *sorted(min(at, len(sizes)) for at in pauses), len(sizes)]
    for first, last in pairwise(ends):
        found += [first + at for at in cutter.begins(np.array(sizes[first:last], dtype=np.int64))]
    assert found == plainly(sizes, rows, size)
