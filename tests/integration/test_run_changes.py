"""Changes between runs: texts, new rows, kept values, settings, revoked names, bytes."""

from pathlib import Path

import polars as pl
import pytest

from dptext_etl.engines import stage
from dptext_etl.errors import GateError, InputError, LedgerError, PolicyError
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.mechanism import Released
from dptext_etl.runner import check, plan, publish
from dptext_etl.runner.publish.forgetting import forget
from tests.quick import quick

from ..refusals import same_refusal
from ..review_jobs import STAGED
from .spark_runs import used


def test_incremental_takes_new_ids_only(job, reviews, save):
    first = job.run(incremental=True)
    assert first.version == 1
    save(reviews(300), job.folder / "raw.parquet")
    second = job.run(incremental=True)
    assert (second.version, second.rows["already_published"], second.rows["new"]) == (2, 240, 60)
    assert second.published_rows == 300
    assert job.published()["id"].to_list() == reviews(300)["id"].to_list()
    assert sorted(path.name for path in (job.folder / "published.versions").iterdir()) == ["v1", "v2"]
    before = sorted((job.folder / "published.versions/v1").iterdir())
    now = sorted((job.folder / "published").iterdir())
    assert [path.name for path in before] == [path.name for path in now[:2]]
    assert all(map(Path.samefile, before, now)), "parts that stay are further names of the same files"
    assert len(now) == 3
    third = job.run(incremental=True)
    assert not third.changed
    assert third.rows["already_published"] == 300
    assert "no new rows" in third.notes[0]
    with job.ledger() as ledger:
        assert ledger.verify().ok


def test_incremental_looks_at_texts_that_it_has_published(job, reviews, save):
    job.run(incremental=True)
    save(reviews(260).with_columns(review=pl.col("review") + " good"), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="texts of 240 records changed"):
        job.run(incremental=True)
    summary = job.run(incremental=True, on_changed="keep")
    assert (summary.rows["new"], summary.rows["changed_kept"]) == (20, 240)
    assert "240 records changed" in " ".join(summary.notes)


def test_a_publication_in_between_is_noticed(job, reviews, save):
    job.run(incremental=True)
    save(reviews(300), job.folder / "raw.parquet")
    staged = stage(job.policy(incremental=True))
    verdicts = check(staged)
    (job.folder / "published.manifest.json").unlink()
    with pytest.raises(PolicyError, match="another run has published here"):
        publish(staged, verdicts)


def passing_through(self, texts, keys):
    """A defect: raw texts come back."""
    return Released(texts.cast("large_string"), self.positions(texts))


def test_what_was_published_before_a_gate_fired_stays(job, monkeypatch, reviews, save):
    job.run(incremental=True)
    before = job.files()
    save(reviews(300), job.folder / "raw.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(TableMechanism, "release", passing_through)
        with pytest.raises(GateError):
            job.run(incremental=True)
    assert job.files() == before


def test_other_bytes_on_a_second_computation_are_not_published(released, monkeypatch):
    before = released.files()
    real = TableMechanism.release

    def drifting(self, texts, keys):
        released = real(self, texts, keys)
        return Released(released.text.take([*range(1, len(released.text)), 0]), released.positions)

    monkeypatch.setattr(TableMechanism, "release", drifting)
    (released.folder / f"{STAGED}/2026-11/_/unchanged.json").unlink()  # else nothing would be computed
    with pytest.raises(LedgerError, match="gave other bytes"):
        released.run()
    assert released.files() == before
    assert not list((released.folder / "published.staging").rglob("shard-*"))
    monkeypatch.undo()
    assert released.run().notes[0].startswith("already published")


CHANGED = ["r00003", "r00150", "r00239"]


def consenting(job, **entries):
    """The columns of the policy, with consent to show what changed."""
    found = job.policy().model_dump(by_alias=True)["column"]
    return {"column": [{**item, "allow": ["cluster", "changed"]} for item in found], **entries}


def edit(job, save, text="word anew", ids=CHANGED):
    frame = pl.read_parquet(job.folder / "raw.parquet")
    edited = pl.when(pl.col("id").is_in(ids)).then(pl.lit(text)).otherwise("review")
    save(frame.with_columns(review=edited), job.folder / "raw.parquet")


def listed(job):
    found = [pl.read_parquet(path)["id"] for path in (job.folder / "published.staging").rglob("changed-*")]
    return sorted(pl.concat(found)) if found else []


def manifest(job):
    return (job.folder / "published.manifest.json").read_text()


def test_keep_publishes_what_was_released(released, save):
    before, spent, head = released.published(), used(released), released.charged()
    edit(released, save)
    assert plan(released.policy(on_changed="keep")).changed == 3
    summary = released.run(on_changed="keep")
    assert released.published().equals(before), "nothing that readers see depends on the new texts"
    assert (summary.rows["changed_kept"], summary.rows["released"], summary.rows["new"]) == (3, 240, 0)
    assert (used(released), released.charged()) == (spent, head)
    assert listed(released) == CHANGED
    assert not summary.changed, "the same bytes are the same version"
    assert "changed" not in manifest(released)
    text = " ".join(summary.notes)
    assert "3 records changed" in text
    assert not any(name in text for name in CHANGED)


@pytest.mark.parametrize(("ids", "null"), quick([("drop", False), ("keyed", True), ("keyed", False), ("drop", True)]))
def test_keep_where_readers_see_no_ids(job, save, ids, null):
    job.run(ids=ids)
    before, spent = job.published(), used(job)
    edit(job, save, text=None if null else "word anew")
    summary = job.run(ids=ids, on_changed="keep")
    assert job.published().equals(before)
    assert (summary.rows["changed_kept"], summary.rows["released"]) == (3, 240)
    assert used(job) == spent


def test_keep_with_rows_added_and_again(released, save, reviews):
    before = released.published()
    save(reviews(300), released.folder / "raw.parquet")
    edit(released, save)
    first = released.run(on_changed="keep")
    assert (first.rows["new"], first.rows["changed_kept"]) == (60, 3)
    assert released.published().head(240).equals(before)
    again = released.run(on_changed="keep")
    assert (again.rows["new"], again.rows["changed_kept"], again.changed) == (0, 3, False)
    released.forget_that_nothing_changed()
    thoroughly = released.run(on_changed="keep")
    assert (thoroughly.rows["changed_kept"], thoroughly.changed) == (3, False)


def test_forgetting_takes_what_is_kept_and_listed(released, save):
    edit(released, save)
    released.run(on_changed="keep")
    frame = pl.read_parquet(released.folder / "raw.parquet")
    save(frame.filter(pl.col("id") != CHANGED[0]), released.folder / "raw.parquet")
    forget(released.policy(on_changed="keep"), records=[CHANGED[0]])
    left = [pl.read_parquet(path)["id"] for path in (released.folder / "published.staging").rglob("*.parquet")]
    assert left
    assert CHANGED[0] not in pl.concat(left).to_list()
    assert released.published().height == 239


def test_keep_after_a_run_that_was_staged_alone(job, save):
    job.run(publish=False)
    edit(job, save)
    summary = job.run(on_changed="keep")
    assert (summary.rows["changed_kept"], summary.published_rows) == (3, 240)


def test_keep_needs_bytes(job, save):
    import shutil

    job.run()
    edit(job, save)
    (job.folder / "published.manifest.json").unlink()
    shutil.rmtree(job.folder / "published")
    with pytest.raises(InputError, match="none are published or kept") as caught:
        job.run(on_changed="keep")
    assert plan(job.policy(on_changed="keep")).refusal["message"] == caught.value.message
    used(job)


def test_quarantine_leaves_changed_rows_out(job, save):
    entries = consenting(job, on_changed="quarantine")
    job.run(**entries)
    before, spent = job.published(), used(job)
    edit(job, save)
    summary = job.run(**entries)
    assert job.published().equals(before.filter(~pl.col("id").is_in(CHANGED)))
    assert (summary.rows["changed_excluded"], summary.rows["released"]) == (3, 237)
    assert used(job) == spent
    assert listed(job) == CHANGED
    assert '"changed"' in manifest(job), "it says that it shows which texts changed"


def test_release_again_charges_those_records_alone(job, save):
    entries = consenting(job, on_changed="release_again")
    job.run(**entries)
    before, charged = job.published(), job.charged()
    edit(job, save)
    foretold = plan(job.policy(**entries))
    assert (foretold.changed, foretold.refusal) == (3, None)
    summary = job.run(**entries)
    after = job.published()
    same = ~pl.col("id").is_in(CHANGED)
    assert after.filter(same).equals(before.filter(same))
    assert after["note"].equals(before["note"]), "the other column is not drawn again"
    assert (summary.rows["changed_released"], summary.rows["new"], summary.rows["replayed"]) == (3, 0, 237)
    now = job.charged()
    assert {name: now[name][0] - charged[name][0] for name in now} == {"review": 3, "note": 0}
    used(job)
    job.forget_that_nothing_changed()
    again = job.run(**entries)
    assert (again.rows["replayed"], again.changed) == (240, False)
    assert "changed_released" not in again.rows
    assert job.charged() == now


@pytest.mark.parametrize(("cap", "most"), [(None, 10_000_000), (7.0, 6_000_000)])
def test_release_again_pays_for_both_texts_under_the_cap(make_job, save, reviews, cap, most):
    """Three draws of epsilon 2, and two more where they fit."""
    frame = reviews(40).with_columns(note=pl.lit(None, pl.String), review=pl.lit("worda wordb wordc"))
    job = make_job(frame=frame, unit="record", subject=None)
    job.values |= {"cap": {"measure": "pure", "epsilon": cap or 1000.0, "period": "2026"}}
    entries = consenting(job, on_changed="release_again")
    job.run(**entries)
    assert used(job)["eps_pure"]["max"] == 6_000_000
    edit(job, save, "worda wordb", ["r00003"])
    over = int(cap is not None)
    assert plan(job.policy(**entries)).over_cap["records"] == over
    summary = job.run(**entries)
    assert (summary.rows.get("quarantined", 0), summary.rows["released"]) == (over, 40 - over)
    assert used(job)["eps_pure"]["max"] == most


def test_a_text_that_comes_back_gets_its_first_release(job, save, reviews):
    entries = consenting(job, on_changed="release_again")
    job.run(**entries)
    first = job.published()
    edit(job, save)
    job.run(**entries)
    save(reviews(), job.folder / "raw.parquet")
    summary = job.run(**entries)
    assert job.published().equals(first)
    assert summary.rows["changed_released"] == 3, "charged all the same"
    used(job)


def test_a_stop_after_the_second_charge(job, save):
    entries = consenting(job, on_changed="release_again")
    job.run(**entries)
    edit(job, save)
    job.values |= entries
    assert job.stop("reserved")
    reserved = {name: count for name, (count, _) in job.charged().items()}
    assert job.run().published_rows == 240
    now = {name: count for name, (count, _) in job.charged().items()}
    assert now["note"] == reserved["note"]
    assert 0 <= now["review"] - reserved["review"] <= 2, "charges before the stop are not repeated"
    used(job)


def test_consent_comes_first(job):
    for choice in ("quarantine", "release_again"):
        with pytest.raises(PolicyError, match=r'to consent, write: allow = \["changed", "cluster"\]'):
            job.policy(on_changed=choice)
        with pytest.raises(PolicyError, match="incremental"):
            job.policy(**consenting(job, on_changed=choice, incremental=True))
    job.run()
    for choice in ("quarantine", "release_again"):
        error = same_refusal(job, consenting(job, on_changed=choice), LedgerError)
        assert "promises that no version shows which texts changed" in error.message
        assert 'on_changed = "keep" publishes the earlier released texts at no cost' in error.hint
        assert "charges 240 records again, each epsilon" in error.hint
    assert job.run(on_changed="keep").rows["released"] == 240
