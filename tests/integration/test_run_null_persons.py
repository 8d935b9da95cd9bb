"""Rows without a person: refused, left out, or each a separate person."""

import polars as pl
import pytest

from dptext_etl.errors import BudgetError, InputError, LedgerError, PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan
from dptext_etl.runner.planning import further
from tests.command_line import dptext, facts


@pytest.fixture
def job(make_job, reviews):
    """A job in which 24 of 240 rows name no person."""
    frame = reviews().with_row_index("at")
    return make_job(frame=frame.with_columns(user_id=pl.when(pl.col("at") % 10 > 0).then("user_id")).drop("at"))


def units(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return ledger.remaining(Scope.of(job.policy())).as_dict()["units"]


def test_refused_with_the_choices(job):
    with pytest.raises(InputError, match="24 rows have no subject") as caught:
        job.run()
    assert '"quarantine"' in caught.value.hint
    assert '"own"' in caught.value.hint
    assert "record" not in caught.value.hint, "dropping all caps per person is no advice"


def test_left_out(job):
    assert plan(job.policy(on_null_subject="quarantine")).left_out["without_subject"] == 24
    summary = job.run(on_null_subject="quarantine")
    assert (summary.rows["read"], summary.rows["without_subject"], summary.rows["released"]) == (240, 24, 216)
    raw = pl.read_parquet(job.folder / "raw.parquet").filter(pl.col("user_id").is_not_null())
    assert job.published()["id"].to_list() == raw["id"].to_list()
    assert "24 rows without a person" in " ".join(summary.notes)
    again = job.run(on_null_subject="quarantine")
    assert (again.changed, again.rows["replayed"]) == (False, 216)


def test_persons_of_their_own(job):
    summary = job.run(on_null_subject="own")
    assert summary.rows["released"] == 240
    assert units(job) == 40 + 24 - 4, "each tenth person has no other rows"
    assert "k times the loss" in " ".join(summary.notes)
    assert "OWN_PERSONS" in (job.folder / "published.manifest.json").read_text()
    job.forget_that_nothing_changed()
    assert job.run(on_null_subject="own").rows["replayed"] == 240


def test_their_own_caps(make_job, reviews):
    frame = reviews(60).with_columns(user_id=pl.lit(None, pl.String), review=pl.lit("worda wordb"), note=None)
    frame = frame.with_columns(note=pl.lit(None, pl.String))
    cap = {"measure": "pure", "epsilon": 7.0, "period": "2026"}
    job = make_job(frame=frame, cap=cap, on_null_subject="own")
    assert plan(job.policy()).over_cap == {"records": 0, "units": 0}
    assert job.run().rows["quarantined"] == 0, "4 of 7 each, though they would be 240 of one person"
    second = {"release": "2026-12", "sink": str(job.folder / "second")}
    said = plan(job.policy(**second))
    assert said.over_cap == {"records": 60, "units": 60}, "a new release does not reset them"
    with pytest.raises(BudgetError):
        job.run(**second)


def test_a_person_who_is_found_later_is_another_unit(job, reviews, save):
    job.run(on_null_subject="own")
    save(reviews(), job.folder / "raw.parquet")
    with pytest.raises(LedgerError, match="24 of"):
        job.run(on_null_subject="own", shard_rows=1000)


def test_incrementally(job, reviews, save):
    job.run(on_null_subject="quarantine", incremental=True)
    old = pl.read_parquet(job.folder / "raw.parquet")
    save(pl.concat([old, reviews(10, 240)]), job.folder / "raw.parquet")
    summary = job.run(on_null_subject="quarantine", incremental=True)
    assert (summary.rows["new"], summary.rows["without_subject"], summary.published_rows) == (10, 24, 226)


def test_synthetic_and_unlinked(make_synthetic, reviews):
    from ..synthetic_runs import labeled

    frame = labeled(reviews()).with_columns(user_id=pl.when(pl.col("id") > "r00003").then("user_id"))
    job = make_synthetic(frame=frame)
    with pytest.raises(InputError, match="4 rows have no subject"):
        job.run()
    assert plan(job.policy(on_null_subject="quarantine")).left_out["without_subject"] == 4
    assert job.run(on_null_subject="quarantine").rows["without_subject"] == 4
    with pytest.raises(PolicyError, match="own"):
        job.policy(on_null_subject="own")


def test_no_persons_at_all(job):
    with pytest.raises(PolicyError, match="has none"):
        job.policy(on_null_subject="own", unit="record", subject=None)


def test_how_many_more_releases_fit(make_job, reviews):
    """As many as the line says are charged whole; the next one is over the cap."""
    number = pl.int_range(pl.len())
    frame = reviews(60).with_columns(user_id=pl.when(number % 10 > 0).then("user_id"))
    cap = {"measure": "pure", "epsilon": 140.0, "period": "2026"}
    job = make_job(frame=frame, on_null_subject="own", cap=cap)
    fresh = further(job.policy())
    assert (fresh["from_ledger"], fresh["units"]) == (False, {"count": 1, "p99": 0, "least": 0}), "of the longest text"
    job.run()
    job.write_policy()
    found = facts("ledger", "remaining", "--for", job.folder / "privacy.toml")["further"]
    assert (found["units"]["count"], found["rows"]["count"]) == (36, 6)
    least = min(found["units"]["least"], found["rows"]["least"])
    assert 0 < least < found["rows"]["p99"] + 1
    shown = dptext("ledger", "remaining", "--for", job.folder / "privacy.toml").stdout
    assert f"for 99% of 36 persons, {found['units']['least']} for the most charged one" in " ".join(shown.split())
    twice = [{"name": "review", "mechanism": {**job.policy().columns[0]._input["mechanism"], "epsilon": 4.0}}]
    halved = further(job.policy(release="other", column=[{**twice[0], "allow": ["cluster"]}]))
    assert halved["units"]["count"] == 36, "another epsilon for the same words"
    for number in range(least):
        assert job.run(release=f"more {number}").rows["quarantined"] == 0
    assert plan(job.policy(release="too many")).over_cap["records"] > 0
    assert min(further(job.policy())[kind]["least"] for kind in ("units", "rows")) == 0
    with pytest.raises(LedgerError, match="the policy asks for more: 141"):
        further(job.policy(cap={**cap, "epsilon": 141.0}))
    with pytest.raises(PolicyError, match="no cap"):
        further(job.policy(cap=None))
