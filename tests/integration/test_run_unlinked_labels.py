"""An unlinked release with labels: one run, one charge, the multiset of draws of each label, and a bound per label."""

import json

import polars as pl
import pytest

from dptext_etl.accounting.shuffling import central_epsilon
from dptext_etl.checks.published import check_published
from dptext_etl.engines import stage
from dptext_etl.errors import InputError, LedgerError, PolicyError
from dptext_etl.guarantee import micro
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan, scan_published
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.statement import facts, markdown
from tests.refusals import same_refusal

LABELS = {"column": "topic", "values": ["bills", "delivery"]}
UNLINKED = {"rows": 60, "delta": 1e-12, "per_subject": 6, "labels": LABELS}


@pytest.fixture
def make_labeled(make_unlinked, reviews, save):
    """Three labels of 80 rows each: two are listed, the third is null in half of its rows."""

    def make(name="job", **changes):
        job = make_unlinked(name, **{"unlinked": UNLINKED, **changes})
        topics = [("bills", "delivery", "returns" if row % 2 else None)[row % 3] for row in range(240)]
        save(reviews().with_columns(topic=pl.Series(topics, dtype=pl.String)), job.folder / "raw.parquet")
        return job

    return make


def published(job):
    return scan_published(str(job.folder / "published")).collect()


def test_the_table_holds_the_multiset_of_draws_of_each_label(make_labeled):
    job = make_labeled()
    staged = stage(job.policy(publish=False))
    rows = pl.concat(Staging(staged.layout.staging).read(shard) for shard in staged.shards)
    rows = rows.filter(~pl.col("__dptext_canary") & pl.col("review").is_not_null())
    listed = pl.when(pl.col("topic").is_in(LABELS["values"])).then("topic").otherwise(pl.lit("other")).alias("topic")
    expected = rows.select(listed, "review").sort("topic", "review")
    job.run()
    assert published(job).equals(expected)
    assert dict(published(job)["topic"].value_counts().iter_rows()) == {"bills": 80, "delivery": 80, "other": 80}
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
    assert "labels_in_list" in {verdict.name for verdict in check_published(job.folder / "published", job.policy())}
    raw = (job.folder / "published").glob("*.parquet")
    assert not any(b"returns" in file.read_bytes() for file in raw), "an unlisted label is not published"
    text = markdown(facts(policy=job.policy()))
    assert "at least 60 texts are published together under each label" in text
    assert "Labels (topic) are published unchanged and are not protected" in text
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert manifest["schema"] == {"topic": "String", "review": "String"}


def test_counts_stand_next_to_labels(make_labeled):
    rows, counts = make_labeled("rows"), make_labeled("counts", unlinked={**UNLINKED, "form": "counts"})
    rows.run()
    counts.run()
    assert published(counts).columns == ["topic", "review", "count"]
    assert published(counts)["count"].sum() == 240
    assert published(counts)["topic", "review"].is_unique().all()
    assert all(verdict.passed for verdict in check_published(counts.folder / "published", counts.policy()))


def test_the_charge_is_that_of_one_label_once(make_labeled):
    """A record is in one label, so the bound of the label with the fewest rows holds for every record."""
    job = make_labeled(unlinked={**UNLINKED, "per_subject": 1, "rows": 10})
    job.run()
    mechanism = job.policy().column_policy().mechanism
    with job.ledger() as ledger:
        used = ledger.remaining(Scope.of(job.policy())).as_dict()["used"]
    assert used["eps_approx"]["max"] == micro(central_epsilon(10, mechanism.law, 1e-12))


def test_a_label_with_too_few_rows_is_refused_by_name_before_a_charge(make_labeled):
    few = {**UNLINKED, "labels": {**LABELS, "values": ["bills", "delivery", "returns", "hardware"]}}
    job = make_labeled(unlinked=few)
    error = same_refusal(job, {}, InputError)
    assert "3 labels have fewer texts than the bound is stated for, rows = 60" in error.message
    assert error.message.endswith("'hardware' (0), 'other' (40), 'returns' (40)")
    assert not (job.folder / "published").exists()


def test_another_label_of_a_record_is_another_table(make_labeled):
    """Otherwise the next version would show which draw moved with the record."""
    job = make_labeled()
    job.run()
    before = job.files("published")
    frame = pl.read_parquet(job.folder / "raw.parquet")
    first = pl.int_range(pl.len()) == 0
    frame.with_columns(topic=pl.when(first).then(pl.lit("delivery")).otherwise("topic")).write_parquet(
        job.folder / "raw.parquet"
    )
    with pytest.raises((InputError, LedgerError), match="texts or labels of 1 record changed"):
        job.run()
    assert job.files("published") == before


def test_several_columns_are_one_label(make_labeled):
    cells = {"columns": ["topic", "size"], "values": [["bills", "low"], ["delivery", "high"]]}
    job = make_labeled(unlinked={**UNLINKED, "rows": 30, "labels": cells})
    frame = pl.read_parquet(job.folder / "raw.parquet")
    size = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("low")).otherwise(pl.lit("high"))
    frame.with_columns(size=size).write_parquet(job.folder / "raw.parquet")
    job.run()
    cells = dict.fromkeys(published(job).select("topic", "size").iter_rows())
    assert list(cells) == [("bills", "low"), ("delivery", "high"), ("other", "other")]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({**LABELS, "column": "review"}, "two roles"),
        ({**LABELS, "column": "nowhere"}, "no column 'nowhere'"),
        ({**LABELS, "column": "stars"}, "must hold strings"),
        ({**LABELS, "names": {"bills": "invoices"}}, "only synthetic tables use them"),
        ({**LABELS, "values": []}, "at least 1"),
        ({**LABELS, "values": ["bills", "bills"]}, "list each public label once"),
    ],
)
def test_wrong_labels_are_refused_before_a_charge(make_labeled, labels, message):
    job = make_labeled()
    with pytest.raises((PolicyError, InputError), match=message):
        plan(job.policy(unlinked={**UNLINKED, "labels": labels}))
    assert not (job.folder / "ledger.db").exists()
