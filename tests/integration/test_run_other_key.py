"""A release commits to its noise key: every entry point refuses another one by name, and charges nothing."""

import polars as pl
import pytest

from dptext_etl import _kernel, run
from dptext_etl.errors import KeyReferenceError
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from tests.quick import quick

from .test_run_staged_files import outcome

RESTORE = "restore the key from your backup; a new key needs a new release name"
JOBS = {
    "rows": ("make_job", {}),
    "shuffled": ("make_shuffled", {}),
    "synthetic": ("make_synthetic", {}),
    "with hidden ids": ("make_job", {"ids": "keyed", "incremental": True}),
}


def other_key(job):
    _kernel.Secret().write(str(job.folder / "other.key"))
    return f"file:{job.folder / 'other.key'}"


@pytest.mark.parametrize("name", quick(["rows", "synthetic", "shuffled", "with hidden ids"], first=2))
@pytest.mark.parametrize("on_changed", quick(["refuse", "keep"]))
def test_another_key_is_refused_by_name(request, name, on_changed):
    make, changes = JOBS[name]
    job = request.getfixturevalue(make)()
    if make == "make_job":
        job.values["on_changed"] = on_changed
    job.values |= changes
    job.run()
    before, key = outcome(job), other_key(job)
    for door in (run, plan):
        with pytest.raises(KeyReferenceError, match="was made under another noise key") as caught:
            door(job.policy(key=key))
        assert caught.value.hint == RESTORE
    assert outcome(job) == before


def test_a_key_that_is_gone_is_refused_with_the_same_sentence(job):
    (job.folder / "noise.key").unlink()
    with pytest.raises(KeyReferenceError, match="cannot be opened") as caught:
        job.run()
    assert caught.value.hint.startswith(RESTORE)


def test_forgetting_publishes_no_ids_under_another_key(job, save):
    job.values |= {"ids": "keyed"}
    job.run()
    save(pl.read_parquet(job.folder / "raw.parquet").slice(1), job.folder / "raw.parquet")
    before = job.files()
    with pytest.raises(KeyReferenceError, match="was made under another noise key"):
        forget(job.policy(key=other_key(job)), records=["r00000"])
    assert job.files() == before
