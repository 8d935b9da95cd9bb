"""A CSV file with other separators, quotes and encodings is the same release, in one process and on Spark."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dptext_etl.engines.spark.session import read_source
from dptext_etl.errors import InputError
from dptext_etl.runner import scan_published
from dptext_etl.spark import run_frame

WRITTEN = [(";", "cp1252", '"'), ("\t", "utf-16", "'"), ("|", "latin-1", '"'), (";", "utf-8", '"')]


@pytest.fixture
def jobs(make_job, reviews):
    """Make two jobs of one table: as Polars writes it, and as a policy's entry says."""
    texts = [(f"Größe {i}; worda{chr(97 + i % 26)}", "two\nlines | é", "", None)[i % 4] for i in range(240)]
    raw = reviews().with_columns(review=pl.Series(texts))

    def make(separator, encoding, quote):
        plain, other = make_job("plain", raw, ".csv"), make_job("other", raw, ".csv")
        place = other.folder / "raw.csv"
        place.write_bytes(raw.write_csv(separator=separator, quote_char=quote).encode(encoding))
        other.values["csv"] = {"separator": separator, "encoding": encoding, "quote": quote}
        return plain, other

    return make


@pytest.mark.parametrize("written", WRITTEN)
def test_a_run_reads_it(jobs, written):
    plain, other = jobs(*written)
    assert plain.run().rows == other.run().rows
    assert {name: found for name, found in plain.files().items() if name.endswith(".csv")} == {
        name: found for name, found in other.files().items() if name.endswith(".csv")
    }


@pytest.mark.thorough
@pytest.mark.parametrize("written", WRITTEN)
def test_spark_reads_it(spark, jobs, written):
    plain, other = jobs(*written)
    plain.run()
    run_frame(read_source(spark, other.policy()), other.policy())
    found = [scan_published(str(job.folder / "published")).collect().sort("id") for job in (plain, other)]
    assert_frame_equal(*found)


def test_a_separator_that_is_not_the_files_is_named(job, jobs):
    _, other = jobs(";", "utf-8", '"')
    with pytest.raises(InputError, match=r"Is csv\.separator right") as caught:
        other.run(csv={"separator": "|"})
    assert caught.value.fields["columns"] == 1
    assert "worda" not in str(caught.value)
