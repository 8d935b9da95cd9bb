"""A plan warns of other datasets that charged the same persons, and says what all scopes charged one of them."""

import polars as pl
import pytest

from dptext_etl import Ledger
from dptext_etl.engines import run
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import MICRO
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan, planning, statement, table_check
from dptext_etl.runner.planning import plan_in_order
from dptext_etl.runner.shard.charging import at_most
from tests.command_line import dptext
from tests.policy_files import write_policy
from tests.quick import quick

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
    assert table_check.scope_lines(part)[0].startswith(
        f"dataset:reviews, period 2026 has charged {persons} of these 40 persons"
    )
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


def in_order(job, *, group=None, **other):
    """Policies of two datasets over the same persons: their plans in order, and the second one by itself."""
    cap = {**CAP, "group": group} if group else CAP
    second = {"dataset": "calls", "sink": str(job.folder / "calls"), "cap": cap, **other}
    policies = [job.policy(cap=cap), job.policy(**second)]
    return plan_in_order(policies), plan(policies[1]), policies


@pytest.mark.parametrize("ledger", quick([False, True]), ids=["no ledger", "a ledger"])
@pytest.mark.parametrize("unit", ["subject", "record"])
def test_a_second_run_is_planned_against_the_cap_that_the_first_charged(job, ledger, unit):
    unit_of = {"unit": unit, **({"subject": None} if unit == "record" else {})}
    job.values |= {**unit_of, "min_released": 0.0}
    if ledger:
        Ledger.open(job.policy().ledger.url).close()
    alone = plan(job.policy())
    most = (alone.per_subject or alone.per_record)["max"]
    cap = {**CAP, "epsilon": 1.5 * most, "group": "film"}
    found, second, policies = in_order(job, group="film", cap=cap)
    policies[0] = job.policy(cap=cap)
    found = plan_in_order(policies)
    assert second.over_cap["records"] == found["plans"][0]["over_cap"]["records"] == 0
    over = found["plans"][1]["over_cap"]["records"]
    (shared,) = found["joint"]["scopes"]
    assert (shared["scope"], shared["unit"]) == ("group:film, period 2026", unit)
    assert most < shared["charged"]["eps_pure"]["max"] <= 1.5 * most
    assert found["joint"]["apart"] is False
    assert found["joint"]["together"]["epsilon"] == alone.together["epsilon"] + second.together["epsilon"]
    run(policies[0])
    assert run(policies[1]).rows["quarantined"] == over > 0
    with job.ledger() as book:
        used = book.remaining(Scope("calls", "2026", "film", unit)).used["eps_pure"]
    assert shared["charged"]["eps_pure"] == {name: amount / MICRO for name, amount in used.items()}


def test_the_first_refusal_of_runs_in_order(job):
    found, second, policies = in_order(
        job, group="film", on_cap="refuse", cap={**CAP, "epsilon": 150.0, "group": "film"}
    )
    assert "is pinned at eps_pure 1000; this policy asks for eps_pure 150" in found["refusal"]["message"]
    policies[0] = policies[0].model_copy(update={"cap": policies[1].cap, "on_cap": "quarantine", "min_released": 0.0})
    assert second.refusal["code"] == "budget"
    again = plan_in_order([policies[0].model_copy(update={"release": "r0"}), policies[1]])
    assert again["refusal"]["code"] == "budget"
    assert again["plans"][1]["over_cap"]["records"] > second.over_cap["records"]
    with pytest.raises(PolicyError, match="two of the policies are of release '2026-11' of reviews"):
        plan_in_order([job.policy(), job.policy()])
    later = plan_in_order([job.policy(), job.policy(release="next", cap={**CAP, "period": "2027"})])
    assert "would miss the charges of the run before in dataset:reviews, period 2026" in later["refusal"]["message"]
    assert not (job.folder / "ledger.db").exists()


def test_runs_that_share_no_scope(job):
    found, _, policies = in_order(job)
    assert (found["joint"]["scopes"], found["joint"]["apart"], found["refusal"]) == ([], True, None)
    one, other = (
        write_policy(
            job.folder / f"{policy.dataset}.toml", policy.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        for policy in policies
    )
    shown = dptext("plan", one, other)
    assert shown.exit_code == 0
    said = " ".join(shown.stdout.split())
    assert "not all of these runs share a scope" in said
    assert f"epsilon {at_most(found['joint']['together']['epsilon'])} at delta" in said
    assert dptext("plan", one, one).exit_code == 5
