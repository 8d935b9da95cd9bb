"""Runs of mechanisms that are models, compute in two places, bound records, or charge their draws."""

import numpy as np
import polars as pl
import pytest

from dptext_etl import Ledger, catalog
from dptext_etl import device as devices
from dptext_etl.engines import run
from dptext_etl.errors import BudgetError, InputError, LedgerError, PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.runner import Manifest, plan, scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard.charging import Column, charge
from tests.quick import quick

from ..toy_mechanisms import toys  # noqa: F401  (a fixture)


@pytest.fixture
def fickle(make_job, toys):  # noqa: F811
    column = [{"name": name, "mechanism": {"name": "fickle", "epsilon": 2.0}} for name in ("review", "note")]
    job = make_job("fickle", column=column, shard_rows=100)
    job.scored = toys["fickle"].scored
    return job


def charged(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return [(row["committed"], row["diverged"], row["expired"]) for row in ledger.reports.show()]


def test_later_runs_score_new_rows_alone_wherever_the_rows_are(fickle, reviews, save):
    first = fickle.run()
    assert sum(fickle.scored) == 2 * (240 + 2 * 6), "canary rows are computed twice"
    files, before = fickle.files(), charged(fickle)
    texts = dict(fickle.published().select("id", "review").iter_rows())
    fickle.scored.clear()
    second = fickle.run()
    assert (fickle.scored, first.changed, second.changed, second.rows["replayed"]) == ([], True, False, 240)
    assert (fickle.files(), charged(fickle)) == (files, before)
    raw = pl.read_parquet(fickle.folder / "raw.parquet").sample(fraction=1, shuffle=True, seed=1)
    save(raw.with_columns(stars=pl.col("stars") * 10), fickle.folder / "raw.parquet")
    assert fickle.run(shard_rows=70).version == 2
    assert dict(fickle.published().select("id", "review").iter_rows()) == texts
    assert sum(fickle.scored) == 2 * 2 * 2, "the canary rows of a fourth shard are new"
    fickle.scored.clear()
    save(pl.concat([reviews(30, 240), reviews(240)]), fickle.folder / "raw.parquet")
    assert fickle.run(shard_rows=70).rows["new"] == 30
    assert sum(fickle.scored) == 2 * 30
    now = dict(fickle.published().select("id", "review").iter_rows())
    assert {name: now[name] for name in texts} == texts


@pytest.mark.parametrize(
    "step", quick(["staged", "committed", "recorded", "computed", "gated", "parts written", "cleared"], first=3)
)
@pytest.mark.parametrize("times", quick([1, 3]))
def test_a_run_that_stops_goes_on_with_what_was_committed(fickle, step, times):
    fickle.stop(step, times)
    assert fickle.run().rows["released"] == 240
    assert all(found == (240 + 6, 0, 0) for found in charged(fickle))


@pytest.mark.parametrize("lost", [True, False])
def test_without_what_staging_kept_nothing_else_is_published(fickle, lost):
    """A kept file that was changed is not believed."""
    fickle.run()
    fickle.forget_that_nothing_changed()
    files = fickle.files()
    for kept in (fickle.folder / "published.staging").rglob("kept-*" if lost else "kept-*.parquet"):
        if lost:
            kept.unlink()
        else:
            pl.read_parquet(kept).with_columns(review=pl.lit("changed")).write_parquet(kept)
    with pytest.raises(LedgerError, match="gave other bytes") as caught:
        fickle.run()
    assert "kept" in caught.value.hint
    assert fickle.files() == files


def test_tables_keep_nothing(job):
    job.run()
    assert not list((job.folder / "published.staging").rglob("kept-*"))


HERE, THERE = {"device": "cpu", "dtype": "float32"}, {"device": "cpu", "dtype": "bfloat16"}


@pytest.fixture
def mixed(make_job, toys, compute_in):  # noqa: F811
    """Two columns of a model and a table between them; computed in float32 until the test says otherwise."""
    mixed = {"name": "fickle", "epsilon": 2.0}
    table = make_job("table").policy().model_dump(mode="json")["columns"][0]["mechanism"]
    columns = [("review", mixed, []), ("secret", table, ["cluster"]), ("note", mixed, [])]
    compute_in("float32")
    return make_job(
        "fickle", column=[{"name": name, "mechanism": item, "allow": allow} for name, item, allow in columns]
    )


@pytest.fixture
def compute_in(monkeypatch):
    monkeypatch.setenv(devices.SETTING, "cpu")
    return lambda dtype: monkeypatch.setenv(devices.DTYPE_SETTING, dtype)


def stated(job):
    """What readers are revealed, by column."""
    columns = Manifest.read(Layout.of(job.policy(), None)).columns
    return {column["name"]: column.get("computed") for column in columns}


def in_both(*places):
    return {"review": list(places), "secret": None, "note": list(places)}


def test_a_plan_says_what_auto_chose(mixed, monkeypatch):
    monkeypatch.delenv(devices.SETTING)
    monkeypatch.delenv(devices.DTYPE_SETTING)
    monkeypatch.setattr(devices, "sees_gpu", lambda _: False)
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: True)
    columns = {column["name"]: column for column in plan(mixed.policy()).columns}
    assert columns["note"]["computing"] == {**THERE, "auto": ["device", "dtype"]}
    assert "computing" not in columns["secret"]


def test_a_run_that_was_resumed_elsewhere_says_both(mixed, compute_in):
    assert mixed.stop("staged")
    compute_in("bfloat16")
    mixed.run()
    assert stated(mixed) == in_both(THERE, HERE)


def test_a_replay_elsewhere_changes_nothing(mixed, compute_in):
    mixed.run()
    assert stated(mixed) == in_both(HERE)
    files = mixed.files()
    compute_in("bfloat16")
    assert not mixed.run().changed
    assert mixed.files() == files


@pytest.mark.parametrize("incremental", [True, False])
def test_rows_that_are_added_elsewhere_add_their_place(mixed, compute_in, reviews, save, incremental):
    mixed.run(incremental=incremental)
    save(pl.concat([reviews(240), reviews(30, 240)]), mixed.folder / "raw.parquet")
    compute_in("bfloat16")
    assert mixed.run(incremental=incremental).version == 2
    assert stated(mixed) == in_both(THERE, HERE)


def test_rows_that_are_kept_in_other_shards_keep_their_place(mixed, compute_in):
    """Canary rows of a shard more are computed elsewhere; they are not published."""
    mixed.run()
    compute_in("bfloat16")
    assert mixed.run(shard_rows=70).version == 2
    assert stated(mixed) == in_both(HERE)


CAP = {"measure": "approx", "epsilon": 1e6, "delta": 0.01, "period": "2026"}


def column(n_rec, **given):
    return [
        {"name": "review", "mechanism": {"name": "failing", "epsilon": 1.0, "delta": 1e-6, "n_rec": n_rec, **given}}
    ]


@pytest.fixture
def bounded(make_job, toys):  # noqa: F811
    return make_job(cap=CAP, keep=[])


def test_a_table_of_more_rows_than_were_declared_is_refused(bounded):
    for ask in (bounded.run, lambda **changes: plan(bounded.policy(**changes))):
        with pytest.raises(InputError, match=r"column 'review' would hold 240 records .* n_rec = 239"):
            ask(column=column(239))
    assert not (bounded.folder / "ledger.db").exists()
    assert bounded.run(column=column(240)).rows["released"] == 240


def test_the_bound_is_over_all_partitions(bounded, reviews, save):
    for name, first in (("a", 0), ("b", 60), ("c", 120)):
        save(reviews(60, first), bounded.folder / f"{name}.parquet")
    places = {
        "source": str(bounded.folder / "{partition}.parquet"),
        "sink": str(bounded.folder / "out" / "{partition}"),
    }
    policy = bounded.policy(column=column(150), shard_rows=20, **places)
    assert run(policy, partition="a").rows["released"] == 60
    assert run(policy, partition="b").rows["released"] == 60
    charged = bounded.charged()
    with pytest.raises(InputError, match=r"release '2026-11' of reviews.review would hold 180 records"):
        run(policy, partition="c")
    assert bounded.charged() == charged, "not even the rows that would fit"
    assert run(policy, partition="b").rows["replayed"] == 60, "the same rows are the same records"


def test_the_ledger_itself_counts(bounded):
    """What SQL functions and executors ask for is counted where it is charged."""
    bounded.run(column=column(240))
    policy = bounded.policy(column=column(240))
    with Ledger.open(policy.ledger.url) as ledger:
        item = policy.column_policy()
        ref = ledger.releases.register(item, "string", guarantee=item.mechanism.guarantee)
        assert ledger.records(ref) == 240
        more = pl.DataFrame({"id": ["x"], "user_id": ["u"], "review": ["a text"]})
        asked = charge(more, [Column(item, ref, item.release_key())], policy)
        ready = ledger.make_ready(policy.unit, asked.ids, asked.subjects, asked.charges)
        with pytest.raises(InputError, match="would hold 241 records over all partitions"):
            ledger.reserve("job", Scope.of(policy), policy.cap, ready, forms=asked.forms)
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


def test_a_small_delta_is_charged_as_it_is(bounded):
    """Six rows of a person at 1e-9 each; once each was charged as a millionth, and a cap below that fitted nothing."""
    cap = {**CAP, "delta": 5e-9}
    summary = bounded.run(cap=cap, column=column(240, delta=1e-9))
    assert (summary.rows["quarantined"], summary.spend["largest_record"]["delta"]) == (40, 1e-9)
    assert summary.spend["sum_over_records"]["delta"] == pytest.approx(200e-9)
    assert summary.remaining["left"]["delta"]["max"] == 0
    assert summary.remaining["used"]["delta"]["max"] == summary.remaining["limits"]["delta"] == 0.005
    assert plan(bounded.policy(cap=cap, column=column(240, delta=1e-9))).over_cap["records"] == 40
    with bounded.ledger() as ledger:
        assert ledger.verify().ok
        assert ledger.reports.export()["datasets"]["reviews"]["releases"][0]["worst_case"]["delta"] == 0.001


EPSILON = 2.0
WORST = 5 * EPSILON


@pytest.fixture
def steps(make_job, toys):  # noqa: F811
    column = [{"name": "review", "mechanism": {"name": "steps", "epsilon": EPSILON}}]
    return make_job("steps", column=column)


def drawn(job):
    """Draws of each subject's records, as their released words tell."""
    words = pl.col("review").str.split(" ").list.len()
    raw = pl.read_parquet(job.folder / "raw.parquet").select("id", "user_id")
    table = scan_published(str(job.folder / "published")).with_columns(words).collect().join(raw, on="id")
    return table.group_by("user_id").agg(pl.col("review").sum(), pl.len().alias("records")).sort("user_id")


def used(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        people = drawn(job)["user_id"]
        return ledger.used(Scope.of(job.policy()), people.to_arrow())["eps_pure"] / 1e6


def test_a_subject_is_charged_the_draws_that_were_made(steps):
    summary = steps.run()
    people = drawn(steps)
    assert people["review"].n_unique() > 1
    np.testing.assert_allclose(used(steps), EPSILON * people["review"].to_numpy())
    total = summary.spend["sum_over_records"]
    assert total["eps_pure"] == WORST * 240
    assert total["eps_charged"] == EPSILON * people["review"].sum() < total["eps_pure"]
    assert summary.notes[-1].endswith("draws that were not made were given back")
    assert summary.spend["largest_record"]["eps_pure"] == WORST, "a record's guarantee stays the worst case"
    with steps.ledger() as ledger:
        (shown,) = ledger.reports.show()
    assert shown["expost"] is True
    assert shown["max_eps_pure"] == WORST * 1e6
    before, files = used(steps), steps.files()
    again = steps.run()
    assert again.rows["replayed"] == 240
    assert again.spend["sum_over_records"]["eps_charged"] == pytest.approx(before.sum())
    np.testing.assert_array_equal(used(steps), before)
    assert steps.files() == files


@pytest.mark.parametrize("step", quick(["staged", "computed", "committed"]))
def test_a_run_that_stops_and_goes_on_settles_the_same(steps, make_job, step):
    other = make_job("undisturbed", column=steps.values["column"])
    other.run()
    assert steps.stop(step, 2)
    steps.run()
    np.testing.assert_array_equal(used(steps), used(other))
    assert steps.files() == other.files()


def test_what_went_back_can_be_spent_again(steps):
    """Six records of every subject: 60 at worst; a cap of 60 holds another release only by the unused rest."""
    steps.run(cap={"measure": "pure", "epsilon": 60.0, "period": "2026"})
    left = 60.0 - used(steps)
    summary = steps.run(
        cap={"measure": "pure", "epsilon": 60.0, "period": "2026"},
        release="2026-12",
        sink=steps.values["source"] + ".out",
        min_released=0.0,
    )
    fits = np.floor(left / WORST)
    assert 0 < summary.rows["released"] < 240
    assert summary.rows["released"] >= fits.sum()


def test_other_caps_keep_the_worst_case(steps):
    summary = steps.run(cap={"measure": "zcdp", "rho": 1e6, "period": "2026"})
    total = summary.spend["sum_over_records"]
    assert total["eps_charged"] == total["eps_pure"] == WORST * 240


def test_what_is_reserved_is_the_worst_case(steps):
    with pytest.raises(BudgetError):
        steps.run(cap={"measure": "pure", "epsilon": 59.0, "period": "2026"}, on_cap="refuse")
