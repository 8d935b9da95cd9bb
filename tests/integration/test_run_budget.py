"""Caps: quarantine, refusal before anything is computed, forecasts; divided budgets, and mechanisms without a bound."""

import json
import sqlite3

import numpy as np
import polars as pl
import pytest

from dptext_etl.accounting.conversion import PureDraws, bounded_range_epsilon, zcdp_epsilon
from dptext_etl.checks import comparison
from dptext_etl.engines import stage
from dptext_etl.errors import BudgetError, DisclosureError, DPTextError, LedgerError, PolicyError
from dptext_etl.guarantee import micro
from dptext_etl.ledger import Scope
from dptext_etl.runner import forecast as forecasting
from dptext_etl.runner import plan, scan_published, statement

from ..review_jobs import STAGED


def released_ids(job):
    return scan_published(str(job.folder / "published")).select("id").collect()["id"].to_list()


def costs(frame):
    """Worst case of every record over its two columns at epsilon 2."""
    return 2.0 * frame.select(pl.col("review", "note").str.count_matches(r"\w+").fill_null(0)).sum_horizontal()


def admitted(frame, cap):
    """Ids that fit, in row order."""
    spent, ids = {}, []
    for row, cost in zip(frame.iter_rows(named=True), costs(frame), strict=True):
        if spent.get(row["user_id"], 0) + cost <= cap:
            spent[row["user_id"]] = spent.get(row["user_id"], 0) + cost
            ids.append(row["id"])
    return ids


def capped(epsilon, **changes):
    return {"cap": {"measure": "pure", "epsilon": epsilon, "period": "2026"}, **changes}


def test_records_over_the_cap_are_quarantined_in_row_order(job, reviews):
    frame = reviews()
    expected = admitted(frame, 100.0)
    assert 0 < len(expected) < 240
    forecast = plan(job.policy(**capped(100.0)))
    summary = job.run(**capped(100.0))
    assert released_ids(job) == expected
    assert summary.rows["quarantined"] == 240 - len(expected) == forecast.over_cap["records"]
    assert any("excluded" in note for note in summary.notes)
    assert max(summary.remaining["used"]["eps_pure"].values()) <= 100_000_000
    listed = pl.concat(
        [pl.read_parquet(path) for path in (job.folder / "published.staging").rglob("quarantine-*.parquet")]
    )
    assert sorted(listed["id"]) == sorted(set(frame["id"]) - set(expected))
    excluded = (set(frame["id"]) - set(expected)).pop()
    assert excluded not in json.dumps(summary.as_dict())
    assert excluded.encode() not in b"".join(job.files().values())
    facts = statement.facts(policy=job.policy(**capped(100.0)))
    assert f"| over the cap | {240 - len(expected)} records" in statement.markdown(facts)
    assert "over the cap" not in statement.markdown(statement.facts(policy=job.policy(**capped(100.0)), public=True))
    again = job.run(**capped(100.0))
    assert not again.changed
    assert again.rows["quarantined"] == summary.rows["quarantined"]


def test_all_over_the_cap_publishes_nothing(job):
    for _ in range(2):
        with pytest.raises(BudgetError, match=r"240 of 240 rows would be excluded \(over the cap\)"):
            job.run(**capped(1.0))
    assert not (job.folder / "published" / "manifest.json").exists()
    summary = job.run(**capped(1.0, min_released=0.0))
    assert (summary.rows["released"], summary.published) == (0, None)


def test_records_as_units(job, reviews):
    frame = reviews()
    over = int((costs(frame) > 30).sum())
    changes = capped(30.0, subject=None, unit="record")
    assert plan(job.policy(**changes)).over_cap == {"records": over, "units": over}
    assert job.run(**changes).rows["quarantined"] == over


def test_a_plan_spends_and_writes_nothing(job, reviews):
    forecast = plan(job.policy())
    assert not (job.folder / "ledger.db").exists()
    assert not (job.folder / "published").exists()
    frame = reviews()
    each = costs(frame)
    assert (forecast.rows, forecast.draws, forecast.per_record["max"]) == (240, each.sum() / 2, each.max())
    assert forecast.per_record["p50"] == sorted(each)[119]
    per_subject = frame.with_columns(cost=each).group_by("user_id").agg(pl.col("cost").sum())
    assert (forecast.per_subject["max"], forecast.subjects) == (per_subject["cost"].max(), 40)
    assert (forecast.over_cap, forecast.log10_odds["per_word"]) == ({"records": 0, "units": 0}, 0.869)
    assert forecast.columns[0]["class"] == "COND_PURE"
    assert forecast.columns[0]["disclosed_bits_per_token"] > 0
    assert forecast.columns[0]["epsilon_table"] <= 2.0
    assert json.loads(json.dumps(forecast.as_dict(), allow_nan=False)) == forecast.as_dict()


@pytest.mark.parametrize("unit", ["subject", "record"])
def test_a_plan_states_the_least_epsilon_of_a_person_at_a_delta(job, reviews, unit):
    """The bound uses the most draws of any unit in each column, and the better of the two conversions."""
    words = pl.col("review", "note").str.count_matches(r"\w+").fill_null(0)
    key = "user_id" if unit == "subject" else "id"
    most = reviews().group_by(key).agg(words.sum()).select(pl.col("review", "note").max()).row(0)
    changes = {} if unit == "subject" else {"subject": None, "unit": "record"}
    forecast = plan(job.policy(**changes), delta=1e-6)
    pld = micro(bounded_range_epsilon([PureDraws(2.0, count) for count in most], 1e-6))
    zcdp = micro(zcdp_epsilon(sum(most) / 2, 1e-6))
    rule = {"subject": "zcdp", "record": "pld"}[unit]
    assert forecast.together == {"unit": unit, "epsilon": min(pld, zcdp) / 1e6, "delta": 1e-6, "rule": rule}
    assert forecast.together["epsilon"] < (forecast.per_subject or forecast.per_record)["max"]


def test_a_plan_refuses_a_delta_of_1(job):
    with pytest.raises(PolicyError, match="delta is 1"):
        plan(job.policy(), delta=1)


def test_a_plan_counts_what_the_ledger_holds(job):
    cap = plan(job.policy()).per_subject["max"] + 20.0
    job.run(**capped(cap))
    later = job.policy(**capped(cap, release="2026-12", sink=str(job.folder / "second"), min_released=0.0))
    forecast = plan(later)
    from dptext_etl import run

    second = run(later)
    assert forecast.over_cap["records"] == second.rows["quarantined"] > 0, "a new name does not reset a balance"
    assert max(second.remaining["used"]["eps_pure"].values()) <= cap * 1_000_000
    again = plan(job.policy(**capped(cap)))
    assert (again.over_cap, again.per_record["max"]) == ({"records": 0, "units": 0}, forecast.per_record["max"])
    assert any("holds 240 of these records" in note for note in plan(job.policy(**capped(cap))).notes)


def test_the_worst_case_is_reserved_before_a_text_is_scored(job, monkeypatch):
    from dptext_etl.families.stored_distributions import TableMechanism

    seen = []
    real = TableMechanism.release

    def watched(self, texts, keys):
        with job.ledger() as ledger:
            seen.append(min(row["records"] for row in ledger.reports.show()))
        return real(self, texts, keys)

    monkeypatch.setattr(TableMechanism, "release", watched)
    monkeypatch.setenv("DPTEXT_THREADS", "1")  # shards side by side reserve earlier
    stage(job.policy())
    assert seen == [reserved for reserved in (128, 256) for _ in range(4)], "two columns, and canary rows twice"


def test_a_copy_gate_costs_delta_and_makes_the_claim_approximate(job):
    beta = 1e-3
    cap = {"measure": "approx", "epsilon": 1000.0, "delta": 0.1, "period": "2026"}
    summary = job.run(cap=cap, copy_gate_false_alarm=beta)
    assert sum(gate["name"] == "copies_within_chance" for gate in summary.gates) == 2
    assert summary.spend["largest_record"]["delta"] == pytest.approx(2 * 2 * beta)
    assert summary.spend["largest_record"]["eps_pure"] == "inf"
    assert summary.remaining["used"]["delta"]["max"] == 6 * 2 * 2 * beta * 1e6
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert {column["class"] for column in manifest["columns"]} == {"COND_APPROX"}
    assert {column["largest_delta"] for column in manifest["columns"]} == {2 * beta}
    with job.ledger() as ledger:
        assert ledger.verify().ok
        assert {row["class"] for row in ledger.reports.show()} == {"COND_APPROX"}
    assert plan(job.policy(cap=cap, copy_gate_false_alarm=beta)).component == "eps_approx"
    assert not job.run(cap=cap, copy_gate_false_alarm=beta).changed


def test_a_cap_on_zcdp(job):
    summary = job.run(cap={"measure": "zcdp", "rho": 40.0, "period": "2026"})
    forecast = plan(job.policy(cap={"measure": "zcdp", "rho": 40.0, "period": "2026"}))
    assert summary.rows["quarantined"] > 0
    assert (forecast.component, summary.remaining["measure"]) == ("rho", "zcdp")


@pytest.mark.parametrize("unit", ["subject", "record"])
def test_a_forecast_holds_no_more_for_more_rows(job, monkeypatch, unit):
    policy = job.policy(**capped(30.0, **({} if unit == "subject" else {"subject": None, "unit": "record"})))
    found = []
    for held in (1 << 20, 1 << 10):
        monkeypatch.setattr(comparison, "HELD_BYTES", held)
        forecast, rng, sizes = forecasting.Forecast(policy), np.random.default_rng(7), set()
        for _ in range(40):
            lengths = rng.integers(1, 9, (2, 100), dtype=np.uint32)
            amounts = lengths.sum(axis=0, dtype=np.int64)[None] * 2_000_000
            used = np.zeros_like(amounts)
            forecast.add(amounts, amounts, rng.integers(0, 900, 100), lengths, used, amounts[0] > 10_000_000)
            sizes.add(0 if forecast._rows is None else forecast._rows._size)
        assert max(sizes) < (held if unit == "subject" else 1)
        totals = forecast.largest_totals(1, lambda charged: {"eps_pure": charged.astype(np.int64)})
        found.append((forecast.records, forecast.subjects(), forecast.over(), totals))
    assert found[0] == found[1]
    assert found[0][0].total() == 4000
    assert 0 < found[0][2]["records"] < 4000


ALLOW = ["length", "nullness", "cluster", "other_columns"]


@pytest.fixture
def films(make_job):
    texts = ["a good film", "the people of this city saw it again and again", "", None, "work zzqunknownqzz time!"]
    rows = {"id": range(20), "user_id": [i % 2 for i in range(20)], "review": [texts[i % 5] for i in range(20)]}
    return make_job("films", frame=pl.DataFrame(rows), keep=[])


def column(allocation, **options):
    mechanism = {"name": "custext", "limit": 600, "allocation": allocation, **options}
    return [{"name": "review", "mechanism": mechanism, "allow": ALLOW}]


def test_two_passes_are_charged_together_and_stand_in_ledger_and_manifest(films):
    budget = {"scores": ["ic"], "first": 4.0, "total": 10.0}
    given = {"column": column(budget), "cap": {"measure": "pure", "epsilon": 1000.0, "period": "all"}}
    summary = films.run(**given)
    assert summary.rows["released"] == 20
    assert all(gate["passed"] for gate in summary.gates)
    with films.ledger() as ledger:
        assert ledger.verify().ok
        (shown,) = ledger.reports.show()
        used = ledger.used(Scope.of(films.policy(**given)), pl.Series(["0", "1"]).to_arrow())["eps_pure"].tolist()
    assert used == [6 * 14_000_000] * 2, "six texts of each subject hold words; of any length, they cost the same"
    assert shown["max_eps_pure"] == 14_000_000
    manifest = json.loads(films.files()["published.manifest.json"])
    (claim,) = manifest["columns"]
    assert (claim["unit_epsilon"], claim["unit"], claim["largest_epsilon"]) == (14.0, "record", 14.0)
    assert [part["epsilon"] for part in claim["budget"]] == [4.0, 10.0]
    assert "first pass" in claim["budget"][0]["pays"]
    assert "second pass" in claim["budget"][1]["pays"]
    with sqlite3.connect(films.folder / "ledger.db") as store:
        (body,) = store.execute("select body from event where kind = 'RELEASE'").fetchone()
    row = json.loads(body)["facts"]["configuration"]["allocation"]
    assert row == {"first": "4.0", "scores": ["ic"], "total": "10.0"}


ACCEPT = {"allow": ["sens_class"], "accept_unbounded": ["UMLDP"]}


def columns(job, consent=ACCEPT, **parameters):
    mechanism = {"name": "santext", "epsilon": 2.0, "variant": "plus", "vectors": job.vectors, **parameters}
    return {"cap": None, "column": [{"name": "review", "mechanism": mechanism, **consent}]}


def test_it_is_refused_until_the_policy_says_so_and_the_lines_are_printed(job):
    with pytest.raises(DisclosureError, match=r'allow = \["sens_class"\]'):
        job.policy(**columns(job, {}))
    with pytest.raises(DisclosureError, match=r'accept_unbounded = \["UMLDP"\]') as caught:
        job.policy(**columns(job, {"allow": ["sens_class"]}))
    assert "no finite epsilon" in str(caught.value)
    assert caught.value.exit_code == 5
    assert job.policy(**columns(job)).column_policies()[0].accept_unbounded == {"UMLDP"}


@pytest.mark.parametrize("named", ["NONE", "PURE_LDP", "umldp"])
def test_no_other_class_can_be_accepted(job, named):
    with pytest.raises(PolicyError, match="accept"):
        job.policy(**columns(job, {"allow": ["sens_class"], "accept_unbounded": [named]}))


@pytest.mark.parametrize("measure", [{"epsilon": 1e9}, {"measure": "zcdp", "rho": 1e9}])
def test_no_cap_can_hold_it(job, measure):
    with pytest.raises(PolicyError, match="no cap can hold it") as caught:
        job.policy(**{**columns(job), "cap": measure})
    assert "its own dataset, without a cap" in str(caught.value)


def test_a_whole_run(job, reviews, sentinel):
    forecast = plan(job.policy(**columns(job)))
    assert forecast.per_record["max"] == "inf"
    summary = job.run(**columns(job))
    assert summary.changed
    assert all(gate["passed"] for gate in summary.as_dict()["gates"])
    assert summary.spend["largest_record"]["eps_pure"] == "inf"
    published = scan_published(str(job.folder / "published")).collect()
    assert published.height == 240
    known = {f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100)} | {"the", "good", "don't"}
    assert {word for text in published["review"] for word in text.split(" ")} <= known
    assert sentinel.encode() not in b"".join(job.files().values())
    manifest = json.loads(job.files()["published.manifest.json"])
    assert '"UMLDP"' in json.dumps(manifest)
    with job.ledger() as ledger:
        assert ledger.verify().ok
        [shown] = ledger.reports.show()
        assert (shown["class"], shown["max_eps_pure"]) == ("UMLDP", "inf")
    assert not job.run(**columns(job)).changed
    raw = pl.read_parquet(job.folder / "raw.parquet")
    kept = [
        r == t
        for row, text in zip(raw["review"], published["review"], strict=True)
        for r, t in zip(row.split(" ")[1:], text.split(" ")[1:], strict=True)
    ]
    assert 0.2 < sum(kept) / len(kept) < 0.9


def test_what_it_spent_closes_every_later_cap(job):
    job.run(**columns(job))
    capped = {"release": "later", "cap": {"measure": "pure", "epsilon": 1e6, "period": "all"}}
    with pytest.raises(LedgerError, match="charges that are infinite on pure") as caught:
        job.run(**capped)
    assert "new period" in str(caught.value)


def test_a_cap_that_the_ledger_holds_refuses_it_before_anything_is_computed(job):
    job.run()
    with pytest.raises(DPTextError, match="has a cap") as caught:
        job.run(**columns(job), release="later")
    assert caught.value.hint
    assert not list((job.folder / STAGED / "later").rglob("shard-*.parquet"))


def test_with_p_one_it_is_an_ordinary_mechanism(job):
    summary = job.run(**{**columns(job, {}, p=1.0), "cap": {"measure": "pure", "epsilon": 1e6, "period": "all"}})
    assert summary.changed
    assert summary.spend["largest_record"]["eps_pure"] != "inf"
