"""Where and in what models compute: planned, noted shard by shard, published; some releases were made in two places."""

import polars as pl
import pytest

from dptext_etl import device as devices
from dptext_etl.runner import Manifest, plan
from dptext_etl.runner.layout import Layout

from ..toy_mechanisms import toys  # noqa: F401  (a fixture)

HERE, THERE = {"device": "cpu", "dtype": "float32"}, {"device": "cpu", "dtype": "bfloat16"}


@pytest.fixture
def fickle(make_job, toys, compute_in):  # noqa: F811
    """Two columns of a model and a table between them; computed in float32 until the test says otherwise."""
    fickle = {"name": "fickle", "epsilon": 2.0}
    table = make_job("table").policy().model_dump(mode="json")["columns"][0]["mechanism"]
    columns = [("review", fickle, []), ("secret", table, ["cluster"]), ("note", fickle, [])]
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


def test_a_plan_says_what_auto_chose(fickle, monkeypatch):
    monkeypatch.delenv(devices.SETTING)
    monkeypatch.delenv(devices.DTYPE_SETTING)
    monkeypatch.setattr(devices, "sees_gpu", lambda _: False)
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: True)
    columns = {column["name"]: column for column in plan(fickle.policy()).columns}
    assert columns["note"]["computing"] == {**THERE, "auto": ["device", "dtype"]}
    assert "computing" not in columns["secret"]


def test_a_manifest_says_what_computed_a_release(fickle):
    fickle.run()
    assert stated(fickle) == in_both(HERE)


def test_a_run_that_was_resumed_elsewhere_says_both(fickle, compute_in):
    assert fickle.stop("staged")
    compute_in("bfloat16")
    fickle.run()
    assert stated(fickle) == in_both(THERE, HERE)


def test_a_replay_elsewhere_changes_nothing(fickle, compute_in):
    fickle.run()
    files = fickle.files()
    compute_in("bfloat16")
    assert not fickle.run().changed
    assert fickle.files() == files


@pytest.mark.parametrize("incremental", [True, False])
def test_rows_that_are_added_elsewhere_add_their_place(fickle, compute_in, reviews, save, incremental):
    fickle.run(incremental=incremental)
    save(pl.concat([reviews(240), reviews(30, 240)]), fickle.folder / "raw.parquet")
    compute_in("bfloat16")
    assert fickle.run(incremental=incremental).version == 2
    assert stated(fickle) == in_both(THERE, HERE)


def test_rows_that_are_kept_in_other_shards_keep_their_place(fickle, compute_in):
    """Canary rows of a shard more are computed elsewhere; they are not published."""
    fickle.run()
    compute_in("bfloat16")
    assert fickle.run(shard_rows=70).version == 2
    assert stated(fickle) == in_both(HERE)


def test_what_no_model_computed_is_as_it_was(job):
    """Records and manifests of tables have the bytes that earlier versions gave them."""
    job.run(publish=False)
    records = {name: content for name, content in job.files("published.staging").items() if "shard-" in name}
    job.run()
    records |= {name: content for name, content in job.files().items() if name.endswith(".json")}
    assert len(records) > 3
    assert not any(b'"computed"' in content for content in records.values())
