"""Parts as readers get them: equal rows give equal bytes, and a large part has row groups to read side by side."""

import io
from typing import get_args

import polars as pl
import pyarrow.parquet as pq
import pytest

from dptext_etl.policy.terms import Compression
from dptext_etl.runner.publish.parts import GROUP_BYTES, sink_of


def rows(size, each=1000):
    texts = ["a word " * (each // 7) + " " * (each % 7)] * (size // each)
    return pl.DataFrame({"id": range(len(texts)), "text": texts})


def written(frame, file_format="parquet", **compression):
    file = io.BytesIO()
    sink_of(frame, file_format, **compression)(file)
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
