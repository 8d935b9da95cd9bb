"""Arrays cross between Arrow and NumPy as PyArrow's own ways do it, without a look for pandas."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.arrays import distinct_counts, starts, to_arrow, to_numpy

TYPES = (pa.int16(), pa.uint32(), pa.int64(), pa.uint64(), pa.float64(), pa.bool_())


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("values", [[1, 0, 1, 1, 0], [], [0]], ids=["some", "none", "one"])
def test_both_ways_agree_with_pyarrow(kind, values):
    array = pa.array(values, pa.int64()).cast(kind)
    for part in (array, array[1:3], pa.chunked_array([array[:2], array[2:]])):
        expected = part.to_numpy(zero_copy_only=False) if isinstance(part, pa.Array) else part.to_numpy()
        found = to_numpy(part)
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
        assert to_arrow(found).equals(pa.array(expected))


def test_nulls_of_numbers_are_nan_and_words_become_strings():
    assert np.isnan(to_numpy(pa.array([1, None, 3])))[1]
    assert to_arrow(["ä", ""]).to_pylist() == ["ä", ""]


def test_polars_takes_an_arrow_array_without_an_import_of_numpys():
    asked = "import sys, numpy, polars; from dptext_etl.arrays import to_arrow; "
    asked += "polars.Series(to_arrow(numpy.array([1, 1]) == 1)); print('numpy.ma' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("counts", [[], [0], [3, 1, 3, 0], [1 << 40, 7, 7], [-2, 5, -2]])
def test_distinct_counts_and_starts_are_those_of_numpy(counts):
    counts = np.array(counts, np.int64)
    expected, places = np.unique(counts, return_inverse=True)
    distinct, where = distinct_counts(counts)
    assert (distinct.tolist(), where.tolist()) == (expected.tolist(), places.tolist())
    assert distinct.dtype == counts.dtype
    ordered = np.sort(counts)
    assert starts(ordered).tolist() == np.unique(ordered, return_index=True)[1].tolist()
