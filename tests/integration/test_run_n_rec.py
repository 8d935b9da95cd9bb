"""A delta is stated for a number of records: a release never holds more, over all its partitions."""

import polars as pl
import pytest

from dptext_etl import Ledger, catalog
from dptext_etl.engines import run
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan
from dptext_etl.runner.shard.charging import Column, charge

from ..toy_mechanisms import toys  # noqa: F401  (a fixture)

CAP = {"measure": "approx", "epsilon": 1e6, "delta": 0.01, "period": "2026"}


def column(n_rec, **given):
    return [
        {"name": "review", "mechanism": {"name": "failing", "epsilon": 1.0, "delta": 1e-6, "n_rec": n_rec, **given}}
    ]


@pytest.fixture
def job(make_job, toys):  # noqa: F811
    return make_job(cap=CAP, keep=[])


def test_a_table_of_more_rows_than_were_declared_is_refused(job):
    for ask in (job.run, lambda **changes: plan(job.policy(**changes))):
        with pytest.raises(InputError, match=r"column 'review' would hold 240 records .* n_rec = 239"):
            ask(column=column(239))
    assert not (job.folder / "ledger.db").exists()
    assert job.run(column=column(240)).rows["released"] == 240


def test_the_bound_is_over_all_partitions(job, reviews, save):
    for name, first in (("a", 0), ("b", 60), ("c", 120)):
        save(reviews(60, first), job.folder / f"{name}.parquet")
    places = {"source": str(job.folder / "{partition}.parquet"), "sink": str(job.folder / "out" / "{partition}")}
    policy = job.policy(column=column(150), shard_rows=20, **places)
    assert run(policy, partition="a").rows["released"] == 60
    assert run(policy, partition="b").rows["released"] == 60
    charged = job.charged()
    with pytest.raises(InputError, match=r"release '2026-11' of reviews.review would hold 180 records"):
        run(policy, partition="c")
    assert job.charged() == charged, "not even the rows that would fit"
    assert run(policy, partition="b").rows["replayed"] == 60, "the same rows are the same records"


def test_the_ledger_itself_counts(job):
    """What SQL functions and executors ask for is counted where it is charged."""
    job.run(column=column(240))
    policy = job.policy(column=column(240))
    with Ledger.open(policy.ledger.url) as ledger:
        item = policy.column_policy()
        ref = ledger.releases.register(item, "string", guarantee=item.mechanism.guarantee)
        assert ledger.records(ref) == 240
        more = pl.DataFrame({"id": ["x"], "user_id": ["u"], "review": ["a text"]})
        asked = charge(more, [Column(item, ref, item.release_key())], policy)
        batch = ("job", Scope.of(policy), policy.cap, asked.ids, asked.subjects, asked.charges)
        with pytest.raises(InputError, match="would hold 241 records over all partitions"):
            ledger.reserve(*batch, forms=asked.forms)
        assert ledger.records(ref) == 240
        assert ledger.verify().ok


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delta": 0.5}, "at most 1e-06"),
        ({"n_rec": None}, "needs a public bound"),
        ({"n_rec": 10_001}, "n_rec \\* delta"),
    ],
)
def test_every_mechanism_follows_the_rule_on_delta(toys, given, said):  # noqa: F811
    good = {"name": "failing", "epsilon": 1.0, "delta": 1e-6, "n_rec": 10_000}
    made = catalog.build(good)
    for make in (lambda: catalog.build({**good, **given}), lambda: made.model_copy(update=given)):
        with pytest.raises(PolicyError, match=said):
            make()
    assert catalog.build({**good, **given, "mode": "faithful"}).mode == "faithful"


def test_copies_of_a_mechanism_are_checked(toys):  # noqa: F811
    made = catalog.build({"name": "steps", "epsilon": 2.0})
    for update in ({"epsilon": -1.0}, {"epsilon": "many"}, {"unknown": 1}, {"mode": "loose"}):
        with pytest.raises(PolicyError, match="steps: "):
            made.model_copy(update=update)
    assert made.model_copy(update={"epsilon": 3.0}) == catalog.build({"name": "steps", "epsilon": 3.0})
    assert made.model_copy() == made


def test_a_small_delta_is_charged_as_it_is(job):
    """Six rows of a person at 1e-9 each; once each was charged as a millionth, and a cap below that fitted nothing."""
    cap = {**CAP, "delta": 5e-9}
    summary = job.run(cap=cap, column=column(240, delta=1e-9))
    assert summary.rows["quarantined"] == 40
    assert summary.spend["largest_record"]["delta"] == 1e-9
    assert summary.spend["sum_over_records"]["delta"] == pytest.approx(200e-9)
    assert summary.remaining["left"]["delta"]["max"] == 0
    assert summary.remaining["used"]["delta"]["max"] == summary.remaining["limits"]["delta"] == 0.005
    assert plan(job.policy(cap=cap, column=column(240, delta=1e-9))).over_cap["records"] == 40
    with job.ledger() as ledger:
        assert ledger.verify().ok
        assert ledger.reports.export()["datasets"]["reviews"]["releases"][0]["worst_case"]["delta"] == 0.001
