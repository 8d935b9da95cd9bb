"""Verdicts, records and lineage are positive facts: counts and names, nothing else, and their absence is a failure."""

import json
import pickle

import pytest

from dptext_etl.checks import Stage, Verdict, gate_descriptions, require
from dptext_etl.checks.gate import Edge, declared_lineage
from dptext_etl.checks.great_expectations import ExpectationOutcome, VerdictRecord
from dptext_etl.checks.verdict import status, tally
from dptext_etl.errors import GateError
from tests.policy_files import custext_column, policy_in


def verdict(*, passed=True, **counts):
    return Verdict("some_gate", passed, counts or {"rows": 3}, "3 rows looked at", "a bug")


def test_verdicts_travel_and_all_must_have_passed():
    found = verdict(rows=3, bound=float("inf"))
    assert json.loads(json.dumps(found.as_dict()))["counts"] == {"rows": 3, "bound": "inf"}
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(TypeError):
        found.counts["rows"] = 4
    require([verdict(), verdict()])
    with pytest.raises(GateError, match="no gate was evaluated"):
        require([])
    with pytest.raises(GateError, match="1 of 2 gates failed: some_gate: 3 rows looked at") as caught:
        require([verdict(), verdict(passed=False)])
    assert caught.value.exit_code == 4
    assert "new name" in caught.value.hint


def outcome(*, success=True, errored=False):
    return ExpectationOutcome(
        "expect_x", None, success, errored, {} if errored else {"checked": 3, "hits": int(not success)}
    )


def test_records_hold_only_if_all_held_and_none_is_a_failure(tmp_path):
    good = VerdictRecord("suite", 2, (outcome(), outcome()))
    assert good.success
    good.require()
    good.write(tmp_path / "verdict.json")
    assert VerdictRecord.read(tmp_path / "verdict.json") == good
    for bad in (
        VerdictRecord("suite", 0, ()),
        VerdictRecord("suite", 2, (outcome(),)),
        VerdictRecord("suite", 1, (outcome(success=False),)),
        VerdictRecord("suite", 1, (outcome(success=False, errored=True),)),
        VerdictRecord("suite", 1, (outcome(success=True, errored=True),)),
    ):
        assert not bad.success
        with pytest.raises(GateError, match="did not hold"):
            bad.require()
        bad.write(tmp_path / "verdict.json")
        assert not VerdictRecord.read(tmp_path / "verdict.json").success
    for content in (None, "", "{}", '{"format": "other"}', "not json"):
        if content is not None:
            (tmp_path / "other.json").write_text(content)
        with pytest.raises(GateError, match="reading a verdict failed"):
            VerdictRecord.read(tmp_path / "other.json")


def test_lineage_says_where_every_column_comes_from(small_vectors, tmp_path):
    policy = policy_in(tmp_path, custext_column(small_vectors), keep=["stars"])
    assert declared_lineage(policy) == (
        Edge("id", "id", "id"),
        Edge("stars", "stars", "kept"),
        Edge("text", "text", "released"),
    )


def test_verdicts_are_counted_by_outcome():
    idle = Verdict("idle", True, {}, "not applicable: no column", "a bug", applicable=False)
    verdicts = [item.as_dict() for item in (verdict(), verdict(), idle)]
    assert [*map(status, verdicts)] == ["passed", "passed", "not applicable"]
    assert tally(verdicts) == "2 passed, 1 not applicable"
    assert tally([verdict(passed=False).as_dict(), *verdicts]) == "2 passed, 1 FAILED, 1 not applicable"
    assert pickle.loads(pickle.dumps(idle)) == idle == Verdict.from_dict(idle.as_dict())
    assert repr(idle) == "Verdict('idle', not applicable: not applicable: no column)"


def test_descriptions_say_what_is_caught_and_not_what_was_found(tmp_path, small_vectors):
    policy = policy_in(tmp_path, custext_column(small_vectors))
    for stage in Stage:
        for name, text in gate_descriptions(policy, stage).items():
            assert text.startswith("Catches "), name
            assert text[8].islower(), name
