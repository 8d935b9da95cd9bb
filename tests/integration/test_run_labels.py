"""A shuffled release is the multiset of its draws, one for each label: nothing says whose text is whose."""

import json
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import Ledger, _kernel, privatize, run
from dptext_etl.accounting.shuffling import central_epsilon
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.published import check_published
from dptext_etl.engines import LocalEngine, stage
from dptext_etl.errors import GateError, InputError, LedgerError, PolicyError, UnknownIdError
from dptext_etl.guarantee import fine, micro
from dptext_etl.ledger import Scope
from dptext_etl.polars import run_frame
from dptext_etl.runner import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.shard.charging import count_shards
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.roles import coarsened
from dptext_etl.runner.statement import facts, markdown
from tests.quick import quick

from ..refusals import same_refusal
from ..review_jobs import SHUFFLED, SURROGATE, make_reviews

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
def make_labeled(make_shuffled, save):
    def made(name="job", frame=None, **changes):
        job = make_shuffled(name)
        save(labeled(make_reviews()) if frame is None else frame, job.folder / "raw.parquet")
        job.values |= {"shuffled": LABELED, **changes}
        return job

    return made


def drawn(job, **changes):
    """Labels and texts that a run of this policy drew, by the labels of the source."""
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
    assert (claim["disclosures"], claim["shuffled"]["labels"]) == (["nullness", "other_columns"], LABELS)
    assert [part["rows"] for part in manifest["parts"]] == [120, 120], "parts follow from the number of rows"
    said = markdown(facts(policy=job.policy()))
    assert "No id is published. Only topic of the other columns of the source is published." in said
    assert "agree on which texts are null and on topic, the label" in said
    assert "at least 60 texts of each label are published together" in said
    assert "than topic (top food, room): this page makes no claim about it" in said


def test_counts_hold_the_same_multiset(make_labeled):
    job = make_labeled(shuffled={**LABELED, "form": "counts"})
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
    job = make_labeled(shuffled=TWO)
    expected = drawn(job).filter(pl.col("topic") != "other")
    summary = job.run()
    assert (summary.published_rows, summary.rows["null"]) == (180, 60)
    assert job.published().equals(expected)
    assert summary.draws == 180
    found = facts(policy=job.policy())
    assert found["excluded"] == {"read": 240, "null": 60}
    assert "| without a text to publish | 60 records |" in markdown(found)
    with job.ledger() as ledger:
        used = ledger.remaining(Scope.of(job.policy())).as_dict()["used"]["eps_approx"]
    assert (used["min"], used["p25"]) == (0, 0), "a quarter of the persons have no other records"
    assert used["max"] > 0


def test_canary_rows_have_no_label_and_keep_their_texts(make_labeled):
    """Executors of Spark coarsen rows among which canary rows are planted already."""
    texts, canary = ["a", "b", "c", "d"], [True, False, False, False]
    rows = pl.DataFrame({"topic": [None, None, "food", UNLISTED], "review": texts, CANARY: canary})
    found = coarsened(rows.lazy(), rows.schema, make_labeled(shuffled=TWO).policy()).collect()
    assert found["topic"].to_list() == [None, None, "food", "other"]
    assert found["review"].to_list() == ["a", None, "c", None]


FEW = {
    "one label": ({**LABELED, "rows": 61}, "60 texts of 'room', 60 texts of 'other' would be published"),
    "a label without rows": ({**LABELED, "labels": {**LABELS, "values": ["food", "pets"]}}, "0 texts of 'pets'"),
    "all": ({**LABELED, "rows": 241}, "120 texts of 'food', 60 texts of 'room', 60 texts of 'other' would be"),
}


@pytest.mark.parametrize("case", quick(FEW, first=2))
def test_a_label_with_fewer_rows_is_refused_before_any_charge(make_labeled, case):
    shuffled, message = FEW[case]
    error = same_refusal(make_labeled(shuffled=shuffled), {}, InputError)
    assert message in error.message
    assert UNLISTED not in str(error)


def test_what_a_cap_leaves_out_counts_for_its_label(make_labeled):
    used = {"measure": "pure", "epsilon": 11.0, "period": "2026"}  # 5 records of 6 of a person
    job = make_labeled(cap=used, min_released=0.1)
    assert "would be published" in same_refusal(job, {}, InputError).message
    assert not (job.folder / "ledger.db").exists()


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
    job = make_labeled(shuffled={**LABELED, "rows": 30})
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


@pytest.mark.parametrize("kind", quick([pl.Boolean, pl.Int8]))
def test_numbers_and_booleans_are_labels_as_text(make_labeled, save, kind):
    good = (pl.int_range(pl.len()) % 3 > 0).cast(kind)
    labels = {"column": "good", "values": ["true", "false"] if kind is pl.Boolean else ["1", "0"]}
    jobs = [
        make_labeled(name, make_reviews().with_columns(good=column), shuffled={**LABELED, "labels": labels})
        for name, column in (("text", good.cast(pl.String)), ("plain", good))
    ]
    files = []
    for job in jobs:
        job.run()
        files.append([*job.files("published").values()])
    assert files[0] == files[1]
    assert dict(jobs[1].published()["good"].value_counts().iter_rows()) == dict(
        zip(labels["values"], (160, 80), strict=True)
    )


def test_fractions_are_no_labels(make_labeled, save):
    labels = {**LABELED, "labels": {"column": "stars", "values": ["1"]}}
    frame = labeled(make_reviews()).with_columns(pl.col("stars").cast(pl.Float64))
    error = same_refusal(make_labeled(frame=frame, shuffled=labels), {}, InputError)
    assert "labels are strings, whole numbers, or booleans, and 'stars' is a column of Float64" in error.message
    missing = {**LABELED, "labels": {"column": "sector", "values": ["a"]}}
    with pytest.raises(InputError, match="no column 'sector'"):
        plan(make_labeled("other", shuffled=missing).policy())


REFUSED = [
    ({**LABELS, "values": []}, {}, "one label or more"),
    ({**LABELS, "values": ["other"]}, {}, "one label or more"),
    ({**LABELS, "values": ["food", "food"]}, {}, "a label twice"),
    ({**LABELS, "values": ["food", ""]}, {}, "shuffled.labels.values.1: must not be empty"),
    ({**LABELS, "names": {"food": "meals"}}, {}, "shuffled.labels.names: there is no such entry"),
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
        make_labeled(shuffled={**LABELED, "labels": labels}, **changes).policy()


WORDS = {"name": "custext", "epsilon": 2.0, "vectors": "english-20k"}


def verified(job):
    """Verify the ledger, and return how many records the release has in it."""
    with job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        return ledger.records(ledger.releases.find(job.policy().column_policy()))


def drawn_shuffled(job, **changes):
    """The multiset of the draws of a run of this policy, from its staged rows."""
    staged = stage(job.policy(publish=False, **changes))
    staging = Staging(staged.layout.staging)
    rows = pl.concat([staging.read(shard) for shard in staged.shards]).filter(~pl.col("__dptext_canary"))
    return rows["review"].drop_nulls().sort()


def test_the_table_is_the_sorted_multiset_of_the_draws(make_shuffled):
    job = make_shuffled()
    expected = drawn_shuffled(job)
    summary = job.run()
    assert (job.published().columns, job.published()["review"].to_list()) == (["review"], expected.to_list())
    assert (summary.rows["new"] + summary.rows["replayed"], summary.published_rows) == (240, 240)
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert manifest["id"] is None
    assert manifest["schema"] == {"review": "String"}
    assert [part["rows"] for part in manifest["parts"]] == [120, 120], "parts follow from the number of rows"
    text = markdown(facts(policy=job.policy()))
    assert "at least 200 texts are published together" in text
    assert "record id pass" not in text
    assert "ε is 2 for every text" in text


def test_each_record_is_charged_the_central_pair_and_the_local_epsilon(make_shuffled):
    job = make_shuffled(shuffled={**SHUFFLED, "per_subject": 1, "rows": 40})
    job.run()
    mechanism = job.policy().column_policy().mechanism
    epsilon = central_epsilon(40, mechanism.law, 1e-9)
    assert 0 < epsilon < 2
    with job.ledger() as ledger:
        assert ledger.verify().ok
        used = ledger.remaining(Scope.of(job.policy())).as_dict()["used"]
        assert used["eps_approx"]["max"] == micro(epsilon)
        assert used["delta"]["max"] == fine(1e-9) / 10**9
        shown = ledger.reports.show()[0]
    assert (shown["max_eps_pure"], shown["class"]) == (2_000_000, "SHUFFLED_APPROX")


def test_a_group_of_records_is_covered_by_the_delta_of_each(make_shuffled):
    mechanism = make_shuffled().policy().column_policy().mechanism
    spend, epsilon = mechanism.spend(1), float(central_epsilon(200, mechanism.law, 1e-9))
    assert spend.delta >= 1e-9 * 2.718281828459045 ** (5 * epsilon) * 10**15
    assert spend.delta <= 1e-9 * 2.718281828459046 ** (5 * epsilon) * 10**15 + 1
    assert mechanism.spend(0).eps_approx == 0
    alone = make_shuffled("alone", shuffled={"rows": 200, "delta": 1e-6, "per_subject": 1})
    assert alone.policy().column_policy().mechanism.n_rec == 10_000, "records for which the delta holds"


@pytest.mark.parametrize(
    "step", quick(["computed", "committed", "recorded", "reserved", "staged", "gated", "shown"], first=3)
)
def test_a_run_that_stopped_goes_on(make_shuffled, step):
    job, whole = make_shuffled(), make_shuffled("whole")
    (whole.folder / "noise.key").write_bytes((job.folder / "noise.key").read_bytes())
    expected = whole.run()
    assert job.stop(step)
    assert job.run().manifest == expected.manifest
    assert verified(job) == 240


def test_the_ledger_is_no_table_of_whose_text_is_whose(make_shuffled):
    """A digest of an output cannot be found by trying all public texts; an equal table costs nothing."""
    job = make_shuffled()
    first = job.run()
    policy = job.policy().column_policy()
    every = {bytes(item) for item in pa.array(_kernel.digests(pl.Series(policy.mechanism.opened.texts))).to_pylist()}
    with job.ledger() as ledger:
        ids = pa.array([f"r{number:05d}" for number in range(240)], pa.large_string())
        committed = ledger.committed(ledger.releases.find(policy), ids)
    assert committed.mask.all()
    held = set(committed.digests.to_pylist())
    assert len(held) == 240
    assert not held & every
    assert not held & set(committed.idem_keys.to_pylist())
    job.forget_that_nothing_changed()
    again = job.run()
    assert (again.version, again.changed, again.manifest, again.rows["new"]) == (1, False, first.manifest, 0)
    with pytest.raises(LedgerError, match="pinned to another configuration"):
        job.run(shuffled=None)


def test_who_is_forgotten_takes_the_whole_release_along(make_shuffled, reviews, save):
    job = make_shuffled()
    job.run()
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    with pytest.raises(UnknownIdError, match="1 of 1 subject: unknown here; nothing was changed"):
        forget(job.policy(), subjects=["nobody"])
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:  # as a call for another table of the dataset does
        ledger.people.forget("reviews", *(pa.array(ids, pa.large_string()) for ids in ([], ["u007"])))
    failed = {
        gate.name: gate.counts for gate in check_published(job.folder / "published", job.policy()) if not gate.passed
    }
    assert {name: counts["forgotten"] for name, counts in failed.items()} == {"published_files": 6}
    done = forget(job.policy(), subjects=["u007"])
    assert (done.withdrawn, done.version, done.rows, done.removed) == (True, 2, 0, 240)
    assert (job.published().height, job.published().columns) == (0, ["review"])
    assert [path.name for path in (job.folder / "published.versions").iterdir()] == ["v2"]
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
    assert forget(job.policy(), subjects=["u007"]).removed == 0
    with pytest.raises(LedgerError, match="holds one complete table"):
        job.run()
    job.values |= {"release": "those who stay", "shuffled": {**SHUFFLED, "rows": 234}}
    assert job.run().published_rows == 234
    verified(job)
    with pytest.raises(InputError, match="holds no ids"):
        forget(job.policy(), missing=True)


SHUFFLED_REFUSED = [
    ({"keep": ["stars"]}, "keep must be empty"),
    ({"ids": "drop"}, "leave out ids"),
    ({"per_subject": 2}, "have their own per_subject"),
    ({"incremental": True}, "a release is one batch"),
    ({"source": "{partition}.parquet", "sink": "published/{partition}"}, "a release is one batch"),
    ({"copy_gate_false_alarm": 1e-9}, "counts draws by record"),
    ({"column": [{"name": name, "mechanism": SURROGATE} for name in ("review", "note")]}, "one text column"),
    ({"column": [{"name": "count", "mechanism": SURROGATE}]}, "must not be called"),
    ({"column": [{"name": "review", "mechanism": {**SURROGATE, "parts": 2}}]}, "one draw per record"),
    ({"column": [{"name": "review", "mechanism": {**SURROGATE, "surrogates": 2}}]}, "one draw per record"),
    ({"unit": "record", "subject": None}, "per_subject is for"),
    ({"shuffled": {**SHUFFLED, "rows": 0}}, "shuffled.rows"),
    ({"shuffled": {**SHUFFLED, "delta": 1e-5}}, "shuffled.delta"),
    ({"shuffled": {"rows": 200, "delta": 1e-6, "per_subject": 60}}, "or per_subject = 1 works"),
    ({"shuffled": {**SHUFFLED, "month": 3}}, "shuffled.month"),
    ({"shuffled": {"rows": 200}}, "shuffled.delta"),
    ({"column": [{"name": "review", "mechanism": WORDS}]}, "custext is released row by row"),
]


@pytest.mark.parametrize(("changes", "message"), SHUFFLED_REFUSED)
def test_bad_policies_are_refused_by_name(make_shuffled, changes, message):
    with pytest.raises(PolicyError, match=message):
        make_shuffled(**changes).policy()


def test_only_a_run_draws_a_shuffled_release(make_shuffled, reviews):
    policy = make_shuffled().policy()
    rows = reviews()
    for draw in (
        lambda: privatize(rows["review"].to_arrow(), rows["id"].to_arrow(), policy),
        lambda: rows.dptext.privatize(policy),
        lambda: rows.select(pl.col("review").dptext.privatize(policy.column_policy(), id="id")),
    ):
        with pytest.raises(PolicyError, match="needs a run"):
            draw()


def test_a_frame_with_the_policy_of_its_column_is_published_shuffled(make_shuffled, reviews):
    job = make_shuffled()
    places = {"sink": str(job.folder / "published"), "ledger": f"sqlite:///{job.folder / 'ledger.db'}"}
    places["staging"] = str(job.folder / "inside")
    column, roles = job.policy().column_policy(), {"id": "id", "subject": "user_id"}
    assert run_frame(reviews(), column, **roles, **places, cap=job.values["cap"]).published_rows == 240
    assert job.published().columns == ["review"]


def reached(step, times, then):
    """Return a checkpoint that does something when a step is reached for the nth time."""
    seen = []

    def checkpoint(name):
        seen.append(name)
        if name == step and seen.count(step) == times:
            then()

    return checkpoint


@pytest.mark.parametrize("published_before", [True, False])
def test_a_record_that_is_forgotten_between_pin_and_draw_is_not_subtracted(make_shuffled, published_before):
    job = make_shuffled()
    if published_before:
        job.run()
        job.forget_that_nothing_changed()
    before = job.files("published") if published_before else {}

    def forget_one():
        with Ledger.open(str(job.folder / "ledger.db")) as ledger:
            none = pa.array([], pa.large_string())
            ledger.people.forget("reviews", pa.array(["r00007"], pa.large_string()), none)

    with pytest.raises((InputError, LedgerError), match=r"not the one that was pinned|were forgotten since"):
        run(job.policy(shard_rows=1000), checkpoint=reached("reserved", 2, forget_one))
    assert job.files("published") == before
    with pytest.raises(LedgerError, match="holds one complete table"):
        run(job.policy(shard_rows=1000))
    assert job.files("published") == before


class Changing(LocalEngine):
    """An engine whose source changes after it was examined, or while it is computed."""

    def __init__(self, frame, *, examined=lambda rows: rows, computed=lambda rows: rows):
        super().__init__(frame.lazy())
        self.examined, self.computed = examined, computed

    def examine(self, table, policy, layout, progress):
        found = super().examine(table, policy, layout, progress)
        rows = self.examined(found.rows)
        return replace(found, rows=rows, shards=count_shards(rows, policy))

    def compute(self, work, phase, meter):
        rows = self.computed(work.source.rows)
        source = replace(work.source, rows=rows, shards=count_shards(rows, work.attempt.policy))
        return super().compute(replace(work, source=source), phase, meter)


def test_a_record_that_is_read_twice_is_refused_before_any_draw(make_shuffled, reviews):
    job = make_shuffled(unit="record", subject=None, shuffled={"rows": 200, "delta": 1e-9})

    def twice(rows):
        return pl.concat([rows.head(239), rows.head(1)])

    with pytest.raises((InputError, LedgerError), match="1 record id of the batch is repeated"):
        run(job.policy(), engine=Changing(reviews(), examined=twice))
    assert not (job.folder / "published.manifest.json").exists()


def test_a_record_that_comes_in_between_pin_and_draw_stays_free(make_shuffled, reviews):
    """A later run of the pinned table continues: no reservation of the other record is left."""
    job = make_shuffled(unit="record", subject=None, shuffled={"rows": 200, "delta": 1e-9})
    other, pinned = pl.concat([reviews().head(239), reviews(1, 5000)]), []

    def changed(rows):
        return other.lazy().select(rows.collect_schema().names()) if pinned else rows

    policy = job.policy(shard_rows=1000)
    then = reached("reserved", 1, lambda: pinned.append(1))
    with pytest.raises(InputError, match="changed while it was read"):
        run(policy, engine=Changing(reviews(), computed=changed), checkpoint=then)
    assert run(policy, engine=Changing(reviews())).published_rows == 240
    assert verified(job) == 240


def test_a_record_that_moves_to_another_person_is_refused_before_any_draw(make_shuffled, reviews):
    """A person would have more records than may count; ids, texts, and their number are the same."""
    job = make_shuffled(shuffled={**SHUFFLED, "per_subject": 2, "rows": 80})

    def moved(rows):
        person = pl.when(pl.col("user_id") == "u007").then(pl.lit("u008")).otherwise("user_id")
        return rows.with_columns(user_id=person)

    with pytest.raises(InputError, match="their persons, are not those that were checked"):
        run(job.policy(), engine=Changing(reviews(), examined=moved))
    assert not (job.folder / "ledger.db").exists()
    assert run(job.policy(), engine=LocalEngine(reviews().lazy())).published_rows == 80
