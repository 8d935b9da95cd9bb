"""A source that is a table of a catalog: of Iceberg on every engine, of Spark's own catalog on Spark."""

import polars as pl
import pytest

from dptext_etl import Policy
from dptext_etl.engines import run
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.runner import scan_published
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.source.table import partitions_of_source
from tests.command_line import dptext

from ..refusals import same_refusal


@pytest.fixture
def job(make_job):
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra: tables)")
    made = make_job()
    made.values |= {
        "source": "table:raw.reviews",
        "source_catalog": {"type": "sql", "uri": f"sqlite:///{made.folder}/catalog.db"},
    }
    return made


def raw(job, frame=None):
    """The raw table in its catalog, with these rows appended."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", **job.values["source_catalog"], warehouse=f"file://{job.folder}/warehouse")
    catalog.create_namespace_if_not_exists("raw")
    rows = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = catalog.create_table_if_not_exists("raw.reviews", rows.schema)
    table.append(rows)
    return table


def test_the_texts_are_those_of_a_run_over_files_and_a_new_snapshot_is_read(job, make_job, reviews):
    raw(job, reviews())
    plain = make_job("plain")
    plain.run()
    assert plan(job.policy()).rows == 240
    job.run()
    before = scan_published(str(job.folder / "published")).collect()
    assert before.sort("id").equals(scan_published(str(plain.folder / "published")).collect().sort("id"))
    assert run(job.policy()).version == 1
    raw(job, reviews(rows=20, first=240))
    assert run(job.policy()).rows["new"] == 20


def test_forget_asks_the_catalog(job, reviews):
    table = raw(job, reviews())
    job.run()
    with pytest.raises(InputError, match="the source still holds 6 of these records"):
        forget(job.policy(), subjects=["u007"])
    table.delete("user_id = 'u007'")
    assert forget(job.policy(), subjects=["u007"]).removed == 6


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"source": "table:raw.missing"}, InputError, "the catalog has no table raw.missing"),
        ({"source_catalog": {}}, InputError, "which only Spark reads"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_before_anything_is_charged(job, reviews, changes, kind, message):
    raw(job, reviews(rows=3))
    assert message in same_refusal(job, changes, kind).message


def test_a_catalog_needs_a_table_and_lists_no_partitions(job):
    with pytest.raises(PolicyError, match="source_catalog: the source is not a table of a catalog"):
        job.policy(source="raw.parquet")
    with pytest.raises(PolicyError, match="source_catalog"):
        job.policy(source_catalog={"type": "sql", "py-io-impl": "os.system"})
    policy = job.policy(source="table:raw.reviews_{partition}", sink=f"{job.folder}/out/{{partition}}")
    with pytest.raises(PolicyError, match="cannot be listed"):
        partitions_of_source(policy)


def test_the_path_of_the_catalog_starts_from_the_policys_folder(job, monkeypatch, tmp_path):
    path = job.write_policy()
    path.write_text(path.read_text().replace(f"sqlite:///{job.folder}/catalog.db", "sqlite:///catalog.db"))
    monkeypatch.chdir(tmp_path)
    loaded = Policy.load(path)
    assert loaded.source == "table:raw.reviews"
    assert loaded.source_catalog["uri"] == f"sqlite:///{job.folder}/catalog.db"


@pytest.mark.thorough
def test_spark_reads_a_table_of_its_catalog(job, make_job, spark):
    plain = make_job("plain")
    plain.run()
    spark.read.parquet(str(plain.folder / "raw.parquet")).createOrReplaceTempView("raw_reviews")
    job.values |= {"source": "table:raw_reviews", "source_catalog": {}}
    done = dptext("run", job.write_policy(), "--engine", "spark")
    assert done.exit_code == 0, done.output
    found, wanted = (scan_published(str(one.folder / "published")).collect().sort("id") for one in (job, plain))
    assert found.equals(wanted)
    job.values["source"] = "table:no_such_table"
    done = dptext("run", job.write_policy(), "--engine", "spark")
    assert (done.exit_code, "reading the table of the source failed" in done.stderr) == (InputError.exit_code, True)
