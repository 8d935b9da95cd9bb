"""Runs that divide one budget of a record: every record is charged alike, and ledger and manifest say both passes."""

import json
import sqlite3

import polars as pl
import pytest

from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Scope

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


def test_eps_lo_must_fit_the_longest_text(films):
    with pytest.raises(PolicyError, match="eps_lo times 10000 draws"):
        films.run(column=column({"scores": ["ic"], "total": 10.0, "eps_lo": 0.1}))


def test_noise_is_divided_by_a_template_through_a_whole_run(films):
    budget = {"template": [3, 1], "total": 40.0}
    made = [{"name": "review", "mechanism": {"name": "madlib", "limit": 600, "allocation": budget}}]
    given = {"column": made, "cap": {"measure": "pure", "epsilon": 1000.0, "period": "all"}}
    summary = films.run(**given)
    assert summary.rows["released"] == 20
    assert all(gate["passed"] for gate in summary.gates)
    with films.ledger() as ledger:
        assert ledger.verify().ok
        used = ledger.used(Scope.of(films.policy(**given)), pl.Series(["0", "1"]).to_arrow())["eps_pure"].tolist()
    assert used == [6 * 40_000_000] * 2


def test_a_paper_division_stays_staged(films):
    """Class NONE: a policy needs publish = false, and what was staged never becomes a version."""
    shown = {"allow": [*ALLOW, "stopwords", "punct", "numbers", "oov", "case"]}
    mechanism = {"name": "diffractor", "limit": 600, "mode": "faithful", "variant": "geometric"}
    mechanism |= {"allocation": {"scores": ["ic"], "total": 500.0}}
    made = [{"name": "review", "mechanism": mechanism, **shown}]
    with pytest.raises(PolicyError, match="publish = false"):
        films.run(column=made, cap=None)
    summary = films.run(column=made, cap=None, publish=False)
    assert (summary.version, summary.rows["released"]) == (None, 20)
