"""A plan warns of other datasets that charged the same persons, and says what all scopes charged one of them."""

import polars as pl

from dptext_etl.guarantee import MICRO
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan, planning, statement
from dptext_etl.runner.table_check import scopes

CAP = {"measure": "pure", "epsilon": 1000.0, "period": "2026"}


def test_persons_that_another_dataset_charged(job, reviews, monkeypatch):
    frame = reviews().filter(reviews()["user_id"] <= "u009")
    frame.write_parquet(job.folder / "raw.parquet")
    job.run(cap=CAP)
    with job.ledger() as ledger:
        first = int(ledger.remaining(Scope.of(job.policy(cap=CAP))).used["eps_pure"]["max"])
    reviews().write_parquet(job.folder / "raw.parquet")
    other = {"dataset": "calls", "sink": str(job.folder / "calls"), "cap": CAP}
    forecast = plan(job.policy(**other))
    part = forecast.table["scopes"]
    monkeypatch.setattr(planning, "_PERSONS_AT_ONCE", 7)
    assert plan(job.policy(**other)).table["scopes"] == part, "each person counts once, however rows are divided"
    persons = frame["user_id"].n_unique()
    assert (part["persons"], part["shared"]) == (40, {"dataset:reviews, period 2026": persons})
    assert (part["largest"], part["in_rho"]) == (first, [])
    assert scopes.lines(part)[0].startswith(f"dataset:reviews, period 2026 has charged {persons} of these 40 persons")
    job.run(**other)
    with job.ledger() as ledger:
        everyone = pl.Series(sorted(set(reviews()["user_id"]))).to_arrow()
        pair = [ledger.used(Scope(name, "2026"), everyone)["eps_pure"] for name in ("reviews", "calls")]
        most = int(sum(pair).max())
        assert ledger.reports.together()["largest"] == most
    said = statement.markdown(statement.facts(policy=job.policy(**other)))
    assert f"charged one person epsilon {most / MICRO:g} at most" in said
    assert "charged one person" not in statement.markdown(statement.facts(policy=job.policy(**other), public=True))


def test_datasets_of_one_group_share_a_cap(job, reviews):
    job.run(cap={**CAP, "group": "film"})
    forecast = plan(job.policy(dataset="calls", sink=str(job.folder / "calls"), cap={**CAP, "group": "film"}))
    assert "scopes" not in forecast.table
