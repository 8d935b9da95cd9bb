"""POST: what became of released texts at no cost, once under a chain of post-processing, and never of other texts."""

from contextlib import suppress

import pyarrow as pa
import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import CommitOutcome
from dptext_etl.ledger.types import Event

from .conftest import binaries, digest, each_store

DONE, ALREADY, DIVERGED = CommitOutcome.COMMITTED, CommitOutcome.ALREADY, CommitOutcome.DIVERGED
STEPS = [{"name": "toy", "cfg": "aa" * 32, "model_hash": "bb" * 32, "training_provenance": "public"}]


def post(kit, ids, outputs="again", chain="1" * 64, steps=STEPS, **more):
    outputs = [outputs] * len(ids) if isinstance(outputs, str) else outputs
    digests = binaries([digest(*pair) for pair in zip(ids, outputs, strict=True)])
    return kit.ledger.post("job", kit.ref(), chain, steps, pa.array(ids, pa.string()), digests, **more).tolist()


@each_store
def test_the_first_result_is_the_one_and_costs_nothing(kit):
    kit.reserve(["a", "b", "c"], epsilons=2, cap=9)
    kit.commit(["a", "b"])
    before = kit.used("of-a", "of-b", "of-c")
    assert post(kit, ["b"]) == [DONE]
    assert post(kit, ["a", "b"]) == [DONE, ALREADY]
    assert post(kit, ["b", "a"], outputs=["other", "again"]) == [DIVERGED, ALREADY]
    assert post(kit, ["a"], outputs="third", chain="2" * 64) == [DONE]
    found = kit.reopen().postprocessed(kit.ref(), "1" * 64, pa.array(["c", "a", "nobody", "b"]))
    assert found.mask.tolist() == [False, True, False, True]
    assert found.digests.to_pylist() == [None, digest("a", "again"), None, digest("b", "again")]
    assert kit.ledger.postprocessed(kit.ref(), "2" * 64, pa.array(["a", "b"])).mask.tolist() == [True, False]
    assert kit.used("of-a", "of-b", "of-c") == before
    assert (kit.sound()["rewritten"], kit.sound()["committed"]) == (3, 2)
    shown = kit.ledger.reports.show()[0]["postprocess"]
    assert [(item["chain"][0], item["rows"], item["spend"]) for item in shown] == [("1", 2, 0), ("2", 1, 0)]
    assert shown[0]["steps"] == STEPS
    committed = kit.ledger.committed(kit.ref(), pa.array(["a", "b"])).digests.to_pylist()
    assert committed == [digest("a", "out"), digest("b", "out")], "what was released stays what it was"


def test_only_committed_records_and_only_by_what_learnt_from_others(kit):
    kit.reserve(["a", "b"], cap=9)
    kit.commit(["a"])
    with pytest.raises(LedgerError, match="1 record is not committed"):
        post(kit, ["a", "b"])
    for steps in ([], [{**STEPS[0], "training_provenance": None}], [{**STEPS[0], "training_provenance": "in-domain"}]):
        with pytest.raises(LedgerError, match="costs nothing only where its training_provenance is 'public' or"):
            post(kit, ["a"], steps=steps)
    kit.ledger.releases.revoke(kit.ref(), "gate")
    with pytest.raises(LedgerError, match="revoked"):
        post(kit, ["a"])
    assert "rewritten" not in kit.sound()


class UndoError(Exception):
    """Ends a transaction without effect."""


def test_verification_finds_every_edited_row(kit):
    kit.reserve(["a", "b"], cap=9)
    kit.commit(["a", "b"])
    post(kit, ["a", "b"])
    store = kit.db.store

    def problems(statement, *values):
        with suppress(UndoError), store.transaction():
            store.execute(statement, values)
            found = kit.ledger.verify().problems
            raise UndoError
        return found

    ((seq, body),) = store.rows("select seq, body from event where kind='POST'")
    for blob in store.rows("select name, data from segment where seq=?", (seq,)):
        edited = bytes([blob[1][0] ^ 1, *blob[1][1:]])
        assert any(
            "Merkle root" in said
            for said in problems("update segment set data=? where seq=? and name=?", edited, seq, blob[0])
        )
    assert problems("update event set body=? where seq=?", body.replace('"spend":0', '"spend":1'), seq)
    assert any("post-processing post/" in said for said in problems("delete from meta where name like 'post/%'"))
    with suppress(UndoError), store.transaction():  # a second result of the same rows, sealed and chained like any
        facts = kit.db.journal.facts(seq)
        said = {
            name: facts[name]
            for name in ("job", "release", "nonce", "spend", "chain", "steps", "rows", "root", "columns")
        }
        again = kit.db.journal.append(Event.POST, **said)
        store.execute("insert into segment select ?, name, data from segment where seq=?", (again, seq))
        found = kit.ledger.verify().problems
        raise UndoError
    assert any("are not in a state in which this event can rewrite them" in said for said in found)
