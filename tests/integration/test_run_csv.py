"""A CSV file with other separators, quotes and encodings is the same release, in one process and on Spark."""

import re

import polars as pl
import pytest

from dptext_etl import runner
from dptext_etl.engines import run
from dptext_etl.engines.local import LocalEngine
from dptext_etl.engines.spark.session import read_source
from dptext_etl.errors import InputError
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard import charging as cutting
from dptext_etl.runner.source.roles import open_table
from tests.command_line import dptext
from tests.quick import quick

from .bad_input import refused


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


def test_a_separator_that_is_not_the_files_is_named(job, jobs):
    _, other = jobs(";", "utf-8", '"')
    with pytest.raises(InputError, match=r"Is csv\.separator right") as caught:
        other.run(csv={"separator": "|"})
    assert caught.value.fields == {"line": 3}
    assert "worda" not in str(caught.value)


BROKEN = {
    "a separator without quotes": (
        "id,review,stars,note\nr7,zzqsentinelqzz is Okafor, 555-0134 is her number,4,x\n",
        "1 row has another number of fields than the header of the file {}: the first, in line 2, has 5",
    ),
    "too few fields": (
        "id,review,stars,note\nr1,zzqsentinelqzz,4,x\nr2,zzqsentinelqzz\n",
        "1 row has another number of fields than the header of the file {}: the first, in line 3, has 2",
    ),
    "a quote that never closes": (
        'id,review,stars,note\nr1,"zzqsentinelqzz,4,x\nr2,b,5,y\n',
        "line 2 of the file {} opens a quote that never closes",
    ),
    "a mark of UTF-8 and another byte": (
        "\ufeffid,review,stars,note\nr1,é,4,x\nr2,zzqsentinelqzz \udcff,5,y\n",
        "the file {} is not in utf-8: the first other byte is in line 3",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_rows_that_do_not_fit_the_header_are_refused_before_anything_is_charged(make_job, case):
    """Every command says the same, by counts and lines (docs/spec/boundary.md#boundary), and no cell."""
    content, said = BROKEN[case]
    job = make_job(suffix=".csv")
    job.values |= {"subject": None, "unit": "record"}
    place = job.folder / "raw.csv"
    place.write_bytes(content.encode(errors="surrogateescape"))
    said = said.format(place)
    refused(job, InputError, said)
    assert not list(job.folder.glob("published*/*"))
    with pytest.raises(InputError) as caught:
        runner.plan(job.policy())
    assert said in caught.value.message
    policy = job.write_policy()
    for words in (("run", policy), ("plan", policy), ("init", place, "--out", job.folder / "first.toml")):
        done = dptext(*words)
        assert done.exit_code == 5, done.output
        printed = " ".join(done.output.split())
        assert said.partition(" of the file")[0] in printed or (words[0] == "init" and "line 3 holds" in printed)
        assert not re.search("zzqsentinelqzz|Okafor|555-0134", printed)
    assert not (job.folder / "first.toml").exists()


def test_a_file_that_is_written_while_it_is_read_is_checked_again(make_job):
    job, engine = make_job(suffix=".csv"), LocalEngine()
    layout = Layout.of(job.policy())
    table = engine.open(job.policy(), layout)
    with (job.folder / "raw.csv").open("a") as file:
        file.write("r9,u9,5,zzqsentinelqzz is Ok")
    with pytest.raises(InputError, match="1 row has another number of fields") as caught:
        engine.examine(table, job.policy(), layout, None)
    assert "zzqsentinelqzz" not in str(caught.value)


def test_nothing_is_published_of_a_file_that_is_replaced_before_it_is_read(make_job, reviews, monkeypatch):
    monkeypatch.setattr(cutting, "KEPT_BYTES", 0)  # rows of a small source are kept in memory
    job = make_job(frame=reviews().with_columns(stars=pl.lit("five")), suffix=".csv")
    *rows, _ = (job.folder / "raw.csv").read_text().splitlines()
    broken = "\n".join([*rows, "r00239,u039,zzqsentinelqzz, said Okafor"])

    def replace(step):
        if step == "registered":
            (job.folder / "raw.csv").write_text(broken)

    with pytest.raises(InputError, match="1 row has another number of fields"):
        run(job.policy(), checkpoint=replace)
    assert not (job.folder / "published.manifest.json").exists()


@pytest.mark.thorough
def test_spark_refuses_them_before_it_reads(spark, make_job):
    job = make_job(suffix=".csv")
    (job.folder / "raw.csv").write_text(BROKEN["a separator without quotes"][0])
    with pytest.raises(InputError, match="has another number of fields than the header"):
        read_source(spark, job.policy())


ALIKE = {
    ".csv": 'id,user_id,stars,review,note\r\nr1,u1,1,"a\r\nb",say "x" there\r\n#2,u2,,c,\r\nr3,u1,3,"",\\\r\n',
    ".ndjson": '{"id":"r1","user_id":"u1","stars":1,"review":"a","note":{"x":  1}}\r\n'
    '{"id":"r2","user_id":"u2","review":"c","note":"y"}\r\n'
    '{"id":"r3","stars":3,"user_id":"u1","note":"z","review":"b"}\r\n',
}


@pytest.mark.parametrize("suffix", quick(ALIKE))
def test_spark_reads_the_same_cells(spark, make_job, suffix):
    """Line breaks within quotes, and cells of several kinds are the same in both engines."""
    job = make_job(suffix=suffix)
    place = job.folder / f"raw{suffix}"
    place.write_bytes(ALIKE[suffix].encode())
    here = open_table(job.policy(), Layout.of(job.policy())).frame.collect()
    there = read_source(spark, job.policy()).select(here.columns).collect()
    assert [tuple(row) for row in there] == here.rows()


@pytest.mark.thorough
def test_spark_reads_columns_from_the_names_of_folders(spark, make_job, reviews):
    job, table = make_job(), reviews(20)
    for day, rows in (("1", table.head(8)), ("b%20c", table.tail(12))):
        (job.folder / "raw" / f"day={day}").mkdir(parents=True)
        rows.write_csv(job.folder / "raw" / f"day={day}" / "part 0.csv")
    policy = job.policy(source=str(job.folder / "raw"), keep=["day"])
    here = open_table(policy, Layout.of(policy)).frame.collect()
    there = read_source(spark, policy).select(here.columns).collect()
    assert sorted(map(tuple, there)) == sorted(here.rows())
    assert {row["day"] for row in there} == {"1", "b c"}


def test_keys_that_differ_in_case_are_refused(make_job):
    job = make_job(suffix=".ndjson")
    (job.folder / "raw.ndjson").write_text(
        '{"id":"r1","user_id":"u","stars":1,"review":"a","note":"b"}\n{"id":"r2","Review":"zzqsentinelqzz"}\n'
    )
    refused(job, InputError, "columns 4, 6 of the source have the same name")
