"""The guard on Polars plans: a release follows the policy, of a column of its own row."""

import pickle
import sys
from pathlib import Path

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl import _kernel, load
from dptext_etl.errors import GateError, PolicyError
from dptext_etl.polars.namespace import RELEASES, Mark

from .guarded import RAW, SOURCES, col, guard, make_policy, release

pytestmark = pytest.mark.usefixtures("secret")
OWN_ROWS = {
    "as it is": lambda lf, p: lf.select(release(p)),
    "renamed": lambda lf, p: lf.rename({"id": "k"}).select(release(p, id="k")),
    "rows chosen": lambda lf, p: lf.filter(col("stars") > 1).sort("id").unique("id").head(1).select(release(p)),
    "numbered": lambda lf, p: lf.with_row_index("n").select("n", release(p)),
    "joined to others": lambda lf, p: lf.join(lf.select("id"), on="id", how="left").select(release(p)),
    "repeated": lambda lf, p: lf.join(lf.select(k="stars"), how="cross").select(release(p)),
    "below each other": lambda lf, p: pl.concat([lf, lf]).select(release(p)),
    "grouped": lambda lf, p: lf.group_by("stars").agg(release(p)),
    "by SQL": lambda lf, p: pl.SQLContext(t=lf).execute("select id, review from t order by id").select(release(p)),
    "selected": lambda lf, p: lf.dptext.privatize(p, id="id", select=True),
}
OTHER_ROWS = {
    "through a struct": lambda lf, p: lf.select(s=pl.struct("id", "review")).unnest("s").select(release(p)),
    "a field": lambda lf, p: (
        lf.select("id", s=pl.struct("review")).select("id", col("s").struct.field("review")).select(release(p))
    ),
    "joined on ids": lambda lf, p: lf.select("id", "stars").join(lf.select("id", "review"), on="id").select(release(p)),
    "joined from the left": lambda lf, p: (
        lf.select("id").join(lf.select("id", "review"), on="id", how="left").select(release(p))
    ),
    "ids of other rows": lambda lf, p: lf.select("id").join(lf.select("review"), how="cross").select("id", release(p)),
    "ids of a join on another column": lambda lf, p: (
        lf.select("id", "stars").join(lf.select("review", "stars"), on="stars").select(release(p))
    ),
    "ids that a join does not find": lambda lf, p: (
        lf.select("id").join(lf, on="id", how="anti").join(lf.select("review"), how="cross").select(release(p))
    ),
    "side by side": lambda lf, p: pl.concat([lf.select("id"), lf.select("review")], how="horizontal").select(
        release(p)
    ),
    "sorted ids": lambda lf, p: lf.select(col("id").sort(), "review").select(release(p)),
    "grouped before": lambda lf, p: lf.group_by("id").agg("review").select(release(p)),
    "exploded": lambda lf, p: lf.explode("tags").select(release(p)),
    "one of two columns": lambda lf, p: pl.concat([lf, lf.with_columns(review="id")]).select(release(p)),
    "computed ids": lambda lf, p: lf.select(release(p, id=col("id") + "1")),
    "computed ids before": lambda lf, p: lf.with_columns(id=col("id") + "1").select(release(p)),
    "numbered": lambda lf, p: lf.select(release(p, id=pl.int_range(pl.len()))),
    "another id": lambda lf, p: lf.select(release(p, id="stars")),
    "the text as id": lambda lf, p: lf.select(release(p, id="review")),
}


@pytest.mark.parametrize("name", OWN_ROWS)
def test_texts_of_their_own_rows_are_released(tmp_path, policy, name):
    plan = OWN_ROWS[name](SOURCES["ipc"](tmp_path), policy)
    assert guard(plan, policy) is plan
    plan.collect()


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_texts_that_several_ids_could_have_are_refused(lf, policy, name):
    with pytest.raises(
        GateError,
        match=r"different rows|computed record ids|not one column|names 'id'|as an id|is used in|does not know",
    ):
        guard(OTHER_ROWS[name](lf, policy), policy)


def test_a_proper_release_passes_over_every_source(source, policy):
    plan = source.select("id", release(policy))
    assert guard(plan, policy) is plan
    assert plan.collect().height == 2


OTHER_POLICIES = {
    "mechanism": lambda p: {"mechanism": type(p.mechanism)(**{**p.mechanism.model_dump(), "epsilon": 100.0})},
    "release": lambda _: {"release": "r2"},
    "dataset": lambda _: {"dataset": "e"},
    "key": lambda _: {"key": "env:ANOTHER_SECRET"},
    "nonce": lambda _: {"nonce": 1},
}


@pytest.mark.parametrize("what", OTHER_POLICIES)
@pytest.mark.parametrize("kind", ["custext", "madlib"])
def test_a_release_that_is_not_the_policys_is_refused(lf, kind, what):
    mine = make_policy(load(kind).example())
    plan = lf.select("id", release(mine.model_copy(update=OTHER_POLICIES[what](mine))))
    dptext_etl.polars.guard(plan, raw=RAW)  # without a policy there is nothing to compare with
    with pytest.raises(GateError, match="differs from the policy's"):
        guard(plan, mine)


def test_columns_that_the_policy_lacks_and_benchmarks_are_no_releases(lf, policy):
    other = policy.model_copy(update={"column": "note"})
    both = lf.with_columns(note=col("review"))
    with pytest.raises(GateError, match="the policy has no text column 'review'"):
        dptext_etl.polars.guard(both.select(release(policy)), raw=RAW, policy=other, id="id")
    faithful = make_policy(type(policy.mechanism)(**{**policy.mechanism.model_dump(), "mode": "faithful"}))
    plan = lf.select("id", release(faithful))
    with pytest.raises(GateError, match="mode faithful"):
        dptext_etl.polars.guard(plan, raw=RAW)
    with pytest.raises(GateError, match="mode faithful"):
        guard(plan, policy)
    with pytest.raises(PolicyError, match="for benchmarks"):
        guard(plan, faithful)


def test_a_policy_of_a_dataset_names_columns_and_ids(lf, policy, tmp_path):
    mechanism = {"name": "custext", **policy.mechanism.model_dump(mode="json", exclude_unset=True)}
    entries = {"dataset": "d", "release": "r", "source": "a", "sink": "b", "unit": "record", "ledger": {"url": "l.db"}}
    column = {"name": "review", "mechanism": mechanism, "allow": ["cluster"]}
    whole = dptext_etl.Policy.parse({**entries, "id": "id", "key": "env:DPTEXT_SECRET", "column": [column]})
    dptext_etl.polars.guard(lf.dptext.privatize(whole, id="id"), policy=whole)
    with pytest.raises(GateError, match="unreleased"):
        dptext_etl.polars.guard(lf, policy=whole)
    with pytest.raises(GateError, match="names 'id'"):
        dptext_etl.polars.guard(lf.dptext.privatize(whole, id="stars"), policy=whole)
    with pytest.raises(PolicyError, match="names no id column"):
        dptext_etl.polars.guard(lf, policy=policy)


def test_a_mark_on_anything_else_is_no_release(lf, policy):
    """The kernel's functions, called by hand, say nothing of the release."""
    from polars.plugins import register_plugin_function

    from dptext_etl import _kernel

    for args in ([col("review"), col("id")], [col("review"), col("id"), col("review")]):
        forged = register_plugin_function(plugin_path=_kernel.__file__, function_name="dptext_released", args=args)
        with pytest.raises(GateError, match=r"is used in|does not name its mechanism|that the guard does not know"):
            guard(lf.select(forged), policy)


def test_the_kernel_is_known_below_the_environment_and_behind_a_link(tmp_path, monkeypatch):
    """As in an installed wheel, whose path Polars writes relative to the environment."""
    kernel = Path(_kernel.__file__)
    monkeypatch.setattr(sys, "prefix", str(kernel.parent))
    (tmp_path / "link").symlink_to(kernel.parent)
    for library, known in ((kernel.name, True), (str(tmp_path / "link" / kernel.name), True), ("other.so", False)):
        assert Mark(("ffi_plugin", library, RELEASES, pickle.dumps({}))).ours == known
