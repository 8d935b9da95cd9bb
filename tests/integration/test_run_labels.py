"""An unlinked release with labels is one multiset for each label, in one run and at one charge."""

import json

import polars as pl
import pytest

from dptext_etl import run
from dptext_etl.accounting.shuffling import central_epsilon
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.published import check_published
from dptext_etl.engines import stage
from dptext_etl.errors import GateError, InputError, PolicyError
from dptext_etl.guarantee import micro
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.roles import coarsened
from dptext_etl.runner.statement import facts, markdown

from ..quick import quick
from ..refusals import same_refusal
from ..review_jobs import SURROGATE, make_reviews

UNLISTED = "zzqunlistedqzz"
LABELS = {"column": "topic", "values": ["food", "room", "other"]}
LABELED = {"rows": 60, "delta": 1e-12, "per_subject": 6, "labels": LABELS}
TWO = {**LABELED, "labels": {**LABELS, "values": ["room", "food"]}}


def labeled(frame):
    """Of 240 rows 120 of food, 60 of room, 30 of a label that no policy names, and 30 without a label."""
    place = pl.int_range(pl.len())
    topic = pl.when(place % 2 == 0).then(pl.lit("food")).when(place % 4 == 1).then(pl.lit("room"))
    return frame.with_columns(topic=topic.when(place % 8 == 3).then(pl.lit(UNLISTED)).otherwise(None))


@pytest.fixture
def make_labeled(make_unlinked, save):
    def made(name="job", frame=None, **changes):
        job = make_unlinked(name)
        save(labeled(make_reviews()) if frame is None else frame, job.folder / "raw.parquet")
        job.values |= {"unlinked": LABELED, **changes}
        return job

    return made


def drawn(job, **changes):
    """Labels and texts of what a run of this policy drew, by what the source says of each record."""
    staged = stage(job.policy(publish=False, **changes))
    staging = Staging(staged.layout.staging)
    rows = pl.concat([staging.read(shard) for shard in staged.shards]).filter(~pl.col(CANARY))
    raw = pl.read_parquet(job.folder / "raw.parquet").select("id", "topic")
    topic = pl.when(pl.col("topic").is_in(["food", "room"])).then("topic").otherwise(pl.lit("other"))
    found = rows.select("id", "review").join(raw, on="id").drop_nulls("review")
    return found.select(topic.alias("topic"), "review").sort("topic", "review")


def edit(job, *changes):
    path = job.folder / "raw.parquet"
    pl.read_parquet(path).with_columns(*changes).write_parquet(path)


def test_the_table_is_the_sorted_multiset_of_labels_with_draws(make_labeled, sentinel):
    job = make_labeled()
    expected = drawn(job)
    summary = job.run()
    assert summary.published_rows == 240
    assert job.published().equals(expected)
    assert dict(job.published()["topic"].value_counts().iter_rows()) == {"food": 120, "room": 60, "other": 60}
    files = b"".join(job.files("published").values())
    assert UNLISTED.encode() not in files
    assert sentinel.encode() not in files
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert (manifest["id"], manifest["schema"]) == (None, {"topic": "String", "review": "String"})
    (claim,) = manifest["columns"]
    assert claim["disclosures"] == ["nullness", "other_columns"]
    assert claim["unlinked"]["labels"] == LABELS
    assert [part["rows"] for part in manifest["parts"]] == [100, 100, 40], "parts follow from the number of rows"
    said = markdown(facts(policy=job.policy()))
    assert "No id is published. Only topic of the other columns of the source is published." in said
    assert "agree on which texts are null and on topic, the label" in said
    assert "at least 60 texts of each label are published together" in said
    assert "than topic (top food, room): this page promises nothing about it" in said


def test_counts_hold_the_same_multiset(make_labeled):
    job = make_labeled(unlinked={**LABELED, "form": "counts"})
    expected = drawn(job).group_by("topic", "review").agg(pl.len().cast(pl.Int64).alias("count"))
    job.run()
    assert job.published().equals(expected.sort("topic", "review"))
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


def test_each_record_is_charged_once_for_the_rows_of_a_label(make_labeled):
    job = make_labeled()
    found = plan(job.policy())
    mechanism = job.policy().column_policy().mechanism
    epsilon = central_epsilon(60, mechanism.law, 1e-12)
    assert mechanism.spend(1).eps_approx == micro(epsilon)
    assert found.refusal is None
    assert "the label in 'topic' is not protected" in " ".join(found.notes)


def test_ids_order_shards_and_other_labels_do_not_show(make_labeled, save):
    """Records under "other" may have any label that is not listed, and rows may come in any order."""
    one, other = make_labeled("one"), make_labeled("other")
    rows = labeled(make_reviews()).with_columns(topic=pl.col("topic").replace(UNLISTED, None))
    save(rows.sample(fraction=1.0, shuffle=True, seed=3), other.folder / "raw.parquet")
    one.run()
    run(other.policy(shard_bytes=2000))
    theirs = {name.split("/")[-1]: data for name, data in other.files("published").items()}
    assert {name.split("/")[-1]: data for name, data in one.files("published").items()} == theirs


def test_a_text_whose_label_is_not_published_is_not_drawn(make_labeled):
    job = make_labeled(unlinked=TWO)
    expected = drawn(job).filter(pl.col("topic") != "other")
    summary = job.run()
    assert (summary.published_rows, summary.rows["null"]) == (180, 60)
    assert job.published().equals(expected)
    assert summary.draws == 180
    found = facts(policy=job.policy())
    assert found["left_out"] == {"read": 240, "null": 60}
    assert "| without a text to publish | 60 records |" in markdown(found)
    with job.ledger() as ledger:
        used = ledger.remaining(Scope.of(job.policy())).as_dict()["used"]["eps_approx"]
    assert (used["min"], used["p25"]) == (0, 0), "a quarter of the persons have no other records"
    assert used["max"] > 0


def test_canary_rows_have_no_label_and_keep_their_texts(make_labeled):
    """Executors of Spark coarsen rows among which canary rows are planted already."""
    texts, canary = ["a", "b", "c", "d"], [True, False, False, False]
    rows = pl.DataFrame({"topic": [None, None, "food", UNLISTED], "review": texts, CANARY: canary})
    found = coarsened(rows.lazy(), rows.schema, make_labeled(unlinked=TWO).policy()).collect()
    assert found["topic"].to_list() == [None, None, "food", "other"]
    assert found["review"].to_list() == ["a", None, "c", None]


FEW = {
    "one label": ({**LABELED, "rows": 61}, "60 texts of 'room', 60 texts of 'other' would be published"),
    "a label without rows": ({**LABELED, "labels": {**LABELS, "values": ["food", "pets"]}}, "0 texts of 'pets'"),
    "all": ({**LABELED, "rows": 241}, "240 texts would be published"),
}


@pytest.mark.parametrize("case", quick(FEW, first=2))
def test_a_label_with_fewer_rows_is_refused_before_any_charge(make_labeled, case):
    unlinked, message = FEW[case]
    error = same_refusal(make_labeled(unlinked=unlinked), {}, InputError)
    assert message in error.message
    assert UNLISTED not in str(error)


def test_what_a_cap_leaves_out_counts_for_its_label(make_labeled):
    """A plan counts records over the cap in all; the run counts them by label, and gives its reservations back."""
    used = {"measure": "pure", "epsilon": 11.0, "period": "2026"}  # 5 records of 6 of a person
    job = make_labeled(cap=used, min_released=0.1)
    with pytest.raises(InputError, match=r"texts of '(room|other)'.* would be published"):
        job.run()
    with job.ledger() as ledger:
        assert ledger.records(ledger.releases.find(job.policy().column_policy())) == 0
        assert ledger.verify().ok


@pytest.mark.parametrize("changed", quick(["label", "text", "other label"]))
def test_a_release_holds_one_table_with_its_labels(make_labeled, changed):
    job = make_labeled()
    job.run()
    before = job.files("published")
    first = pl.col("id") == "r00000"  # of food
    edit(
        job,
        {
            "label": pl.when(first).then(pl.lit("room")).otherwise("topic").alias("topic"),
            "text": pl.when(first).then(pl.lit("another")).otherwise("review").alias("review"),
            "other label": pl.when(first).then(pl.lit(UNLISTED)).otherwise("topic").alias("topic"),
        }[changed],
    )
    error = same_refusal(job, {}, InputError)
    assert "the texts or labels of 1 record changed" in error.message
    assert job.files("published") == before


def test_a_label_that_the_policy_does_not_list_fires_a_gate(make_labeled, monkeypatch):
    monkeypatch.setattr("dptext_etl.runner.source.roles.coarse", lambda kept, _: pl.col(kept.column))
    job = make_labeled(unlinked={**LABELED, "rows": 30})
    with pytest.raises(GateError, match="labels_in_list") as caught:
        job.run()
    assert UNLISTED not in str(caught.value)
    assert not (job.folder / "published.manifest.json").exists()


def test_a_label_that_the_policy_does_not_list_is_found_in_what_is_published(make_labeled):
    job = make_labeled()
    job.run()
    table = job.published().with_columns(topic=pl.lit(UNLISTED))
    failed = {gate.name for gate in check_published(table, job.policy()) if not gate.passed}
    assert failed == {"labels_in_list"}


def test_numbers_are_no_labels(make_labeled):
    labels = {**LABELED, "labels": {"column": "stars", "values": ["1"]}}
    error = same_refusal(make_labeled(unlinked=labels), {}, InputError)
    assert "the column of labels, 'stars', must hold strings" in error.message
    missing = {**LABELED, "labels": {"column": "sector", "values": ["a"]}}
    with pytest.raises(InputError, match="no column 'sector'"):
        plan(make_labeled("other", unlinked=missing).policy())


REFUSED = [
    ({**LABELS, "values": []}, {}, "one label or more"),
    ({**LABELS, "values": ["other"]}, {}, "one label or more"),
    ({**LABELS, "values": ["food", "food"]}, {}, "a label twice"),
    ({**LABELS, "values": ["food", ""]}, {}, "unlinked.labels.values.1: must not be empty"),
    ({**LABELS, "names": {"food": "meals"}}, {}, "unlinked.labels.names: there is no such entry"),
    ({**LABELS, "column": "review"}, {}, "two roles"),
    ({**LABELS, "column": "id"}, {}, "two roles"),
    ({**LABELS, "column": "user_id"}, {}, "coarsens the subject"),
    ({**LABELS, "column": "count"}, {}, "must not be called"),
    (LABELS, {"keep": ["stars"]}, "keep must be empty"),
    (
        {**LABELS, "values": ["food"]},
        {"column": [{"name": "review", "mechanism": {**SURROGATE, "null_as_empty": True}}]},
        'must list "other"',
    ),
]


@pytest.mark.parametrize(("labels", "changes", "message"), REFUSED)
def test_bad_labels_are_refused_by_name(make_labeled, labels, changes, message):
    with pytest.raises(PolicyError, match=message):
        make_labeled(unlinked={**LABELED, "labels": labels}, **changes).policy()
