"""A synthetic table holds public texts that follow one noisy statistic: every record is charged, none is released."""

import contextlib
import json
import re

import polars as pl
import pytest

from dptext_etl import Ledger, _kernel, keys
from dptext_etl.checks.published import check_published
from dptext_etl.errors import GateError, InputError, LedgerError, LockedLedgerError
from dptext_etl.families.aggregate import (
    contributions,
    counted,
    linear_discriminant,
    noisy,
    partial_sum,
    read_statistic,
    table,
)
from dptext_etl.guarantee import fine, micro
from dptext_etl.policy.synthetic import CLAIM, Labels
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.shard import summing
from dptext_etl.runner.shard.staging import Staging
from tests.quick import quick

from ..review_jobs import make_reviews
from ..synthetic_runs import CAP, CELLED, CELLS, SYNTHETIC, WITHOUT, graded, labeled, ref_of, used, verified

STEPS = ["reserved", "pinned", "committed", "version written", "staged", "gated", "parts written", "recorded"]
STEPS += ["manifest written", "shown"]


@pytest.fixture(scope="module")
def released(make_shared):
    """A job whose table is published, to look at, and the summary of its run."""
    job = make_shared("released", labeled(make_reviews()))
    job.values |= {"column": None, "keep": None, "synthetic": SYNTHETIC, "cap": CAP}
    return job, job.run()


def test_numbers_are_labels_as_text(make_synthetic, save):
    """The same rows with whole numbers and with their text give one table, statistic and key included."""
    synthetic = {**SYNTHETIC, "labels": {"column": "stars", "values": ["1", "3", "5"]}}
    manifests = []
    for kind in (pl.Int64, pl.String):
        job = make_synthetic(kind.__name__, synthetic=synthetic)
        save(labeled(make_reviews()).with_columns(pl.col("stars").cast(kind)), job.folder / "raw.parquet")
        manifests.append(job.run().manifest)
        assert set(job.published()["stars"]) <= {"1", "3", "5"}
    assert manifests[0] == manifests[1]


def test_the_table_holds_public_texts_with_listed_labels(released):
    job, summary = released
    found = job.published()
    assert found.columns == ["review", "topic"]
    assert found.height == summary.published_rows == 50
    assert set(found["review"]) <= set(job.policy().statistic.corpus.texts)
    assert set(found["topic"]) <= {"music", "money", "other"}
    assert found.equals(found.sort("topic", "review"))
    assert (summary.rows["new"], summary.rows["released"]) == (240, 240)
    assert [gate["name"] for gate in summary.gates] == [
        "row_count", "raw_column_absent", "texts_in_corpus", "labels_in_list"
    ]  # fmt: skip
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert (manifest["id"], manifest["rows"]) == (None, 50)
    assert not re.search(r"\b240\b", json.dumps({**manifest, "columns": [], "parts": []}))
    verdicts = check_published(job.folder / "published", job.policy())
    assert {verdict.name for verdict in verdicts} >= {"published_files", "texts_in_corpus"}
    assert all(verdict.passed for verdict in verdicts)
    assert verified(job) == []


def test_the_cells_of_several_columns_are_one_label(make_synthetic, reviews):
    job = make_synthetic(synthetic=CELLED, frame=graded(reviews()))
    job.run()
    found = job.published()
    assert found.columns == ["review", "topic", "grade"]
    assert set(found.select("topic", "grade").iter_rows()) == {tuple(cell) for cell in CELLS}
    assert [topic.label for topic in read_statistic(job.folder / "published.manifest.json", "example").topics()] == [
        "music | 5", "money | 5", "music | 4\\|", "other"
    ]  # fmt: skip
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
    assert verified(job) == []


def test_labels_of_several_columns_are_equal_only_if_all_values_are():
    labels = Labels(columns=("a", "b"), values=(("x", "y"), ("x | y", "z")))
    values = [None, "", "x", "y", "|", "\\", "\\0", "x | y", "x |", "| y", "\\|"]
    pairs = pl.DataFrame({"a": values}).join(pl.DataFrame({"b": values}), how="cross")
    written = pairs.select(labels.label_of()).to_series()
    assert (written.null_count(), written.n_unique()) == (0, pairs.height)
    listed = pairs.filter(written.is_in(list(labels.cells)))
    assert listed.rows() == [("x", "y")]
    for wrong in ({"columns": ("a", "a"), "values": (("x", "y"),)}, {"columns": ("a", "b"), "values": ("x",)}):
        with pytest.raises(ValueError, match="values lists a text for each label"):
            Labels(**wrong)


def test_a_table_without_labels_has_one_column(make_synthetic):
    job = make_synthetic(synthetic=WITHOUT)
    job.run()
    assert job.published().columns == ["review"]
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


def test_the_published_statistic_can_be_read(released):
    job, _ = released
    path = job.folder / "published.manifest.json"
    found = read_statistic(path, "example")
    assert [topic.label for topic in found.topics()] == ["music", "money", "other"]
    assert linear_discriminant(found).labels == ("music", "money", "other")
    assert table(found, 50)["text"].to_pylist() == job.published()["review"].to_list()
    facts = json.loads(path.read_text())
    said = facts["columns"][0]["statistic"]
    said["sums"] = "AAAA" + said["sums"][4:]
    with pytest.raises(InputError, match="do not match its hash"):
        read_statistic(facts, "example")
    with pytest.raises(InputError, match="reading the statistic"):
        read_statistic({"columns": []}, "example")


@pytest.mark.parametrize("most", quick([2, 1, 6]))
def test_a_run_releases_what_the_core_computes_over_the_records_that_count(make_synthetic, reviews, most):
    """Batches, files, and the choice of records change no byte of the statistic."""
    job, frame = make_synthetic(synthetic={**SYNTHETIC, "per_subject": most}), labeled(reviews())
    job.run(shard_rows=37)
    statistic = job.policy().statistic
    secret = keys.resolve(job.policy().key)
    key = _kernel.ReleaseKey(secret, "reviews", "review", "2026-11", statistic.cfg())
    chosen = frame.filter(pl.Series(counted(statistic, key, frame["id"].to_arrow(), frame["user_id"].to_arrow())))
    assert chosen.height == 40 * most
    partial_sums = partial_sum(statistic, key, *(chosen[name].to_arrow() for name in ("id", "review", "topic")))
    expected = noisy(statistic, key, partial_sums)
    published = read_statistic(job.folder / "published.manifest.json", "example")
    for name in ("sums", "moments"):
        assert (getattr(published, name) == getattr(expected, name)).all()
        assert (getattr(expected, name) != getattr(partial_sums, name)).any()
    with job.ledger() as ledger:
        assert ledger.releases.pinned_table(ref_of(job, ledger)) == partial_sums.digest.hex()


def test_every_record_is_charged_and_a_person_pays_the_whole(released):
    job, _ = released
    spend = job.policy().statistic.charge(CLAIM)
    with job.ledger() as ledger:
        assert ledger.records(ref_of(job, ledger)) == 240
        shown = ledger.reports.show()[0]
        assert (shown["class"], shown["max_eps_pure"]) == ("CENTRAL_ZCDP", "inf")
    assert used(job)["eps_approx"]["max"] == 6 * spend.eps_approx
    assert spend.eps_approx <= micro(2.0) * 6
    assert spend.delta == fine(1e-9)


def test_a_cap_on_rho_counts_it(make_synthetic):
    job = make_synthetic(cap={"measure": "zcdp", "rho": 100.0, "period": "2026"})
    job.run()
    assert used(job)["rho"]["max"] == 6 * job.policy().statistic.charge(CLAIM).rho


@pytest.mark.parametrize("step", quick(STEPS, first=2))
def test_a_run_that_stopped_goes_on(make_synthetic, step):
    job, whole = make_synthetic(), make_synthetic("whole")
    expected = whole.run()
    assert job.stop(step)
    assert job.run().manifest == expected.manifest
    assert used(job) == used(whole)
    assert verified(job) == []


def test_labels_and_texts_do_not_run_into_each_other(make_synthetic, reviews, save):
    """A text that begins like a label, and a label that ends like a text, have separate identities."""
    job = make_synthetic(synthetic={**SYNTHETIC, "per_subject": 1, "rows": 5})
    frame = reviews(1).with_columns(topic=pl.lit("a"), review=pl.lit("tb"))
    save(frame, job.folder / "raw.parquet")
    job.run()
    for topic, review in (("at", "b"), ("atb", ""), (None, "1:atb"), ("a", None)):
        save(
            frame.with_columns(topic=pl.lit(topic, pl.String), review=pl.lit(review, pl.String)),
            job.folder / "raw.parquet",
        )
        with pytest.raises(InputError, match="of 1 record changed"):
            job.run()


def test_a_column_of_nulls_is_published_like_any_other(make_synthetic, reviews):
    """Nothing that is published says which texts are null, or how many."""
    frame = labeled(reviews()).with_columns(review=pl.lit(None, pl.String), topic=pl.lit(None, pl.String))
    job = make_synthetic(frame=frame)
    assert job.run().published_rows == 50
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert manifest["columns"][0]["disclosures"] == []


@pytest.mark.parametrize("plant", quick(["text", "label", "row", "column"], first=2))
def test_a_raw_text_in_the_staged_table_fires_a_gate(make_synthetic, monkeypatch, plant, sentinel):
    job = make_synthetic()
    save = Staging.save

    def planting(self, index, rows, *facts):
        first = pl.int_range(pl.len()) == 0
        changed = {
            "text": lambda: rows.with_columns(review=pl.when(first).then(pl.lit(sentinel)).otherwise("review")),
            "label": lambda: rows.with_columns(topic=pl.when(first).then(pl.lit(sentinel)).otherwise("topic")),
            "row": lambda: pl.concat([rows, rows.head(1)]),
            "column": lambda: rows.with_columns(note=pl.lit(sentinel)),
        }[plant]()
        return save(self, index, changed, *facts)

    monkeypatch.setattr(Staging, "save", planting)
    gate = {"text": "texts_in_corpus", "label": "labels_in_list", "row": "row_count", "column": "raw_column_absent"}
    with pytest.raises(GateError, match=gate[plant]) as failed:
        job.run()
    assert sentinel not in str(failed.value)
    assert not (job.folder / "published.manifest.json").exists()
    left = {path.name for path in (job.folder / "published.staging").rglob("*") if path.is_file()}
    assert left <= {"fired.txt", "run.lock", ".lock"}, "no sums stay: their noise may be wrong"
    monkeypatch.undo()
    with pytest.raises(LedgerError, match="revoked"):
        job.run()
    assert verified(job) == []


@pytest.mark.parametrize("step", quick(["recorded", None, "pinned", "reserved", "staged"], first=2))
def test_no_raw_text_and_no_raw_label_reaches_a_file(make_synthetic, reviews, sentinel, step, caplog):
    """Texts and labels that no list names are only in the source, whether a run ends or stops half-way."""
    raw = reviews().with_columns(topic=pl.lit(f"label {sentinel}"))
    job = make_synthetic(frame=raw)
    assert sentinel in raw["review"][0]
    with caplog.at_level("DEBUG"):
        job.run() if step is None else job.stop(step)
    files = {path: path.read_bytes() for path in job.folder.rglob("*") if path.is_file() and path.name != "raw.parquet"}
    assert files
    assert not [path for path, data in files.items() if sentinel.encode() in data]
    assert sentinel not in caplog.text
    rows = [pl.read_parquet(path) for path in files if path.suffix == ".parquet"]
    assert not [True for frame in rows for name in frame.columns if sentinel in "".join(map(str, frame[name]))]


def test_changed_files_are_found(make_synthetic, sentinel):
    job = make_synthetic()
    job.run()
    path = next((job.folder / "published").glob("*.parquet"))
    rows = pl.read_parquet(path)
    path.unlink()
    rows.with_columns(review=pl.lit(sentinel)).write_parquet(path)
    failed = {item.name for item in check_published(job.folder / "published", job.policy()) if not item.passed}
    assert failed == {"published_files", "texts_in_corpus"}
    assert "1 damaged" in job.run().notes[0]
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


def test_a_machine_that_draws_other_rows_keeps_the_first_table(make_synthetic, monkeypatch):
    job = make_synthetic()
    first, before = job.run(), job.files()
    monkeypatch.setattr("dptext_etl.runner.shard.summing.table", _reversed)
    job.forget_that_nothing_changed()
    again = job.run()
    assert (again.changed, again.manifest, job.files()) == (False, first.manifest, before)
    assert "would draw a few other rows" in again.notes[0]
    assert verified(job) == []


def _reversed(*args, **given):
    made = table(*args, **given)
    return made.set_column(0, "text", made["text"].take(list(reversed(range(made.num_rows)))))


@pytest.mark.parametrize("step", quick(["leave_out", "reserved_before"]))
def test_a_shard_that_the_ledger_refused_counts_once(make_synthetic, monkeypatch, step):
    """Tasks of Spark repeat a call while another writer locks the ledger."""
    job, whole = make_synthetic(shard_rows=60), make_synthetic("whole", shard_rows=60)
    expected, take, real, failed = whole.run(), summing.Summing.take, getattr(summing.Shards, step), []

    def locked(*args):
        failed.append(real(*args))
        if len(failed) % 2:
            raise LockedLedgerError("locked")
        return failed[-1]

    def repeated(self, raw, index):
        with contextlib.suppress(LockedLedgerError):
            return take(self, raw, index)
        return take(self, raw, index)

    monkeypatch.setattr(summing.Shards, step, locked)
    monkeypatch.setattr(summing.Summing, "take", repeated)
    assert (job.run().manifest, used(job)) == (expected.manifest, used(whole))
    assert failed
    assert verified(job) == []


def test_who_is_forgotten_is_noted_and_the_statistic_stays(make_synthetic, reviews, save):
    job = make_synthetic()
    job.run()
    before = job.files()
    save(labeled(reviews()).filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    done = forget(job.policy(), records=["r00007", "r00047"])
    assert (done.stays, done.removed, done.rows, done.noted, job.files()) == (True, 0, 50, 2, before)
    with pytest.raises(LedgerError, match="one complete table"):
        job.run()
    job.values["release"] = "those who stay"
    assert job.run().rows["released"] == 234
    others = labeled(reviews()).filter(pl.col("user_id") != "u008")
    save(others, job.folder / "raw.parquet")
    assert forget(job.policy(), subjects=["u008"]).noted == 6
    late = labeled(reviews(6, 240)).with_columns(user_id=pl.lit("u008"))
    save(pl.concat([others, late]), job.folder / "raw.parquet")
    job.values["release"] = "with rows that came later"
    summary = job.run()
    assert (summary.rows["forgotten"], summary.rows["released"]) == (8, 232), "6 of them were never charged"
    assert verified(job) == []


def test_an_unchanged_source_is_not_encoded_again(make_synthetic, monkeypatch, reviews, save):
    job = make_synthetic(synthetic={**SYNTHETIC, "per_subject": 2})
    first, before, spent = job.run(), job.files(), used(job)
    encodings = []
    real = contributions.encoded
    monkeypatch.setattr(contributions, "encoded", lambda *args: encodings.append(args) or real(*args))
    again = job.run()
    assert encodings == []
    assert "byte for byte" in again.notes[0]
    assert (again.version, again.changed, again.manifest) == (1, False, first.manifest)
    assert again.rows == {**first.rows, "new": 0, "replayed": 80}
    assert (again.gates, again.spend) == (first.gates, first.spend)
    assert (job.files(), used(job)) == (before, spent)
    save(labeled(reviews()), job.folder / "raw.parquet")
    assert "byte for byte" in job.run().notes[0]
    save(labeled(reviews()).reverse(), job.folder / "raw.parquet")
    assert job.run().manifest == first.manifest
    assert encodings
    assert (job.files(), used(job)) == (before, spent)
    assert verified(job) == []


@pytest.mark.parametrize("change", quick(["rows", "ledger", "name", "file"], first=2))
def test_what_may_have_changed_goes_through_all_steps(make_synthetic, change):
    job = make_synthetic()
    job.run()
    labels = {**SYNTHETIC["labels"], "names": {"money": "bank"}}
    if change in {"rows", "name"}:
        other = {**SYNTHETIC, **({"rows": 51} if change == "rows" else {"labels": labels})}
        with pytest.raises(LedgerError, match="the release holds another table"):
            job.run(synthetic=other)
    elif change == "file":
        next((job.folder / "published").glob("*.parquet")).unlink()
        assert "byte for byte" not in job.run().notes[0]
    else:
        with Ledger.open(str(job.folder / "ledger.db")) as ledger:
            ledger.releases.revoke(ref_of(job, ledger), "by hand")
        with pytest.raises(LedgerError, match="revoked"):
            job.run()
