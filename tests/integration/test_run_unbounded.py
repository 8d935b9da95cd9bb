"""A mechanism without a finite epsilon (SanText+, class UMLDP): named by the policy or refused, never under a cap."""

import json

import polars as pl
import pytest

from dptext_etl.errors import DisclosureError, DPTextError, LedgerError, PolicyError
from dptext_etl.runner import plan, scan_published

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
        assert shown["class"] == "UMLDP"
        assert shown["max_eps_pure"] == "inf"
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
    assert not list((job.folder / "published.staging" / "reviews" / "later").rglob("shard-*.parquet"))


def test_with_p_one_it_is_an_ordinary_mechanism(job):
    summary = job.run(**{**columns(job, {}, p=1.0), "cap": {"measure": "pure", "epsilon": 1e6, "period": "all"}})
    assert summary.changed
    assert summary.spend["largest_record"]["eps_pure"] != "inf"
