"""Runs of latent mechanisms: Gaussian rows under caps on (epsilon, delta) and on zCDP; a pure cap cannot hold them."""

import json

import polars as pl
import pytest

from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Scope

pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")

EPSILON, DELTA, RHO = 20.0, 1e-6, 5.233775
"""Of one record; rho follows from the analytic Gaussian's mu = 3.23536."""


@pytest.fixture
def films(make_job):
    texts = ["a good film", "the people saw it again and again and again", "", None, "Time! zzqunknownqzz"]
    rows = {"id": range(12), "user_id": [i % 2 for i in range(12)], "review": [texts[i % 5] for i in range(12)]}
    return make_job("films", frame=pl.DataFrame(rows), keep=[], column=column())


def column(**options):
    mechanism = {"name": "dpbart", "model": "example-bart", "epsilon": EPSILON, "n_rec": 10_000, "length": 8}
    mechanism |= {"num_beams": 1, "clip": 1.0, **options}
    return [{"name": "review", "mechanism": mechanism}]


def used(job, **changes):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        (shown,) = ledger.reports.show()
        assert (shown["class"], shown["max_eps_pure"]) == ("APPROX_LDP", "inf")
        scope = Scope.of(job.policy(**changes))
        balance = ledger.used(scope, pl.Series(["0", "1"]).to_arrow())
        return {name: amounts.tolist() for name, amounts in balance.items()}


def test_a_cap_on_epsilon_and_delta_counts_both(films):
    cap = {"measure": "approx", "epsilon": 90.0, "delta": 1e-5, "period": "2026"}
    summary = films.run(cap=cap)
    assert (summary.rows["null"], summary.rows["released"] + summary.rows["quarantined"]) == (2, 12)
    balance = used(films, cap=cap)
    fits = {"eps_approx": 80_000_000, "delta": 4 * 10**9}
    assert all(amounts == [fits[name]] * 2 for name, amounts in balance.items())
    assert summary.rows["quarantined"] == 2, "five texts of each subject are no null, and four of them fit"
    assert summary.spend["sum_over_records"]["eps_pure"] == "inf"
    assert all(gate["passed"] for gate in summary.gates)


def test_delta_alone_can_fill_a_cap(films):
    cap = {"measure": "approx", "epsilon": 1e6, "delta": 3e-6, "period": "2026"}
    films.run(cap=cap)
    assert used(films, cap=cap)["delta"] == [3 * 10**9] * 2


def test_a_cap_on_zcdp_counts_rho(films):
    cap = {"measure": "zcdp", "rho": 3 * RHO + 0.01, "period": "2026"}
    summary = films.run(cap=cap)
    assert used(films, cap=cap)["rho"] == [pytest.approx(3 * RHO * 1e6, abs=9)] * 2
    assert summary.rows["quarantined"] == 4


def test_a_pure_cap_is_refused_with_the_line_to_write(films):
    with pytest.raises(PolicyError, match="no cap on pure epsilon can hold it") as caught:
        films.policy(cap={"measure": "pure", "epsilon": 1e6})
    assert 'measure = "approx"' in str(caught.value)
    assert 'measure = "zcdp"' in str(caught.value)
    films.policy(cap={"measure": "pure", "epsilon": 1e6}, column=column(noise="laplace", n_rec=None))


def test_sentences_in_two_passes_are_one_record_in_ledger_and_manifest(films):
    budget = {"scores": ["ic"], "first": 8.0, "total": 12.0}
    given = {"column": column(sentences=2, allocation=budget), "cap": None}
    summary = films.run(**given)
    assert summary.rows["released"] == 12
    assert all(gate["passed"] for gate in summary.gates)
    with films.ledger() as ledger:
        assert ledger.verify().ok
    (claim,) = json.loads(films.files()["published.manifest.json"])["columns"]
    assert (claim["unit_epsilon"], claim["unit"], claim["largest_epsilon"]) == (20.0, "record", 20.0)
    assert [part["epsilon"] for part in claim["budget"]] == [8.0, 12.0]


def test_whole_texts_have_no_gate_for_words(films):
    gates = {gate["name"]: gate for gate in films.run(cap=None).gates}
    for name in ("canary_words_replaced", "duplicates_within_chance", "words_in_output_set"):
        assert gates[name]["passed"]
        assert "not applicable" in gates[name]["message"]
    assert "canary rows prove nothing" in gates["canary_text_absent"]["message"]
