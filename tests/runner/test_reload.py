"""A staged run as JSON: another process reads the same run, and the file says nothing of a text or a key."""

from __future__ import annotations

import json
from dataclasses import fields

import polars as pl
import pytest

from dptext_etl import _kernel
from dptext_etl.checks import find
from dptext_etl.engines import stage
from dptext_etl.errors import InputError, KeyReferenceError
from dptext_etl.runner import StagedRun, check, publish
from dptext_etl.runner.shard.staging import from_json, to_json
from tests.policy_files import custext_column, policy_in

IDS = {
    "string": pl.Series("id", [f"r{i}" for i in range(250)]),
    "integer": pl.Series("id", range(250), dtype=pl.UInt16),
    "decimal": pl.Series("id", range(250)).cast(pl.Decimal(10, 2)),
    "date": pl.Series("id", range(250)).cast(pl.Date),
    "instant": pl.Series("id", range(250)).cast(pl.Datetime("us", "UTC")),
    "bytes": pl.Series("id", [b"r%d" % i for i in range(250)]),
}


@pytest.fixture
def make_policy(tmp_path, small_vectors):
    _kernel.Secret().write(str(tmp_path / "noise.key"))

    def make(ids=IDS["string"], **changes):
        texts = pl.Series(
            "note", [f"worda wordb zzqsentinelqzz wordc{i % 7}" for i in range(len(ids))], dtype=pl.String
        )
        pl.DataFrame([ids, texts]).write_parquet(tmp_path / "raw.parquet")
        return policy_in(tmp_path, custext_column(small_vectors, "note", k=5), shard_rows=100, **changes)

    return make


@pytest.mark.parametrize("kind", IDS)
def test_what_is_read_is_what_was_staged(make_policy, kind):
    policy = make_policy(IDS[kind])
    staged = stage(policy)
    again = from_json(to_json(staged), policy)
    for field in (field for field in fields(StagedRun) if field.compare):  # a profile is of its process
        assert getattr(again, field.name) == getattr(staged, field.name), field.name


def test_it_can_be_judged_and_published(make_policy):
    policy = make_policy()
    again = from_json(to_json(stage(policy)), policy)
    verdicts = check(again)
    assert all(verdict.passed for verdict in verdicts)
    assert publish(again, verdicts).rows == 250


def test_a_run_with_nothing_new_is_read_too(make_policy):
    policy = make_policy(incremental=True)
    first = stage(policy)
    publish(first, check(first))
    staged = stage(policy)
    assert not staged.shards
    assert from_json(to_json(staged), policy) == staged


def test_it_holds_no_text_no_canary_word_and_no_secret(make_policy, tmp_path):
    policy = make_policy()
    staged = stage(policy)
    said = to_json(staged)
    words = {word for plan in staged.canaries for word in plan.tokens}
    assert words
    assert sum(find(words, said).values()) == 0
    assert "zzqsentinelqzz" not in said
    assert (tmp_path / "noise.key").read_text().strip() not in said
    assert repr(staged.canaries[0].rows[0].texts) not in said


def test_another_key_is_refused(make_policy, tmp_path):
    policy = make_policy()
    said = to_json(stage(policy))
    _kernel.Secret().write(str(tmp_path / "other.key"))
    with pytest.raises(KeyReferenceError, match="not the key that the rows were staged under"):
        from_json(said, policy.model_copy(update={"key": f"file:{tmp_path}/other.key"}))


def test_staged_files_that_are_gone_are_told(make_policy):
    policy = make_policy()
    staged = stage(policy)
    said = to_json(staged)
    staged.parts[0].unlink()
    with pytest.raises(InputError, match="reading staged files"):
        from_json(said, policy)


def test_another_version_is_no_such_record(make_policy):
    policy = make_policy()
    facts = json.loads(to_json(stage(policy)))
    with pytest.raises(ValueError, match="another version"):
        from_json(json.dumps({**facts, "version": 0}), policy)
