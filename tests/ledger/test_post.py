"""POST: what became of released texts at no cost, once under a chain of post-processing, and never of other texts."""

from contextlib import suppress

import pyarrow as pa
import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import CommitOutcome
from dptext_etl.ledger.types import Event

from ..ledger_kit import STEPS, UndoError, digest
from .conftest import each_store

DONE, ALREADY, DIVERGED = CommitOutcome.COMMITTED, CommitOutcome.ALREADY, CommitOutcome.DIVERGED


@each_store
def test_the_first_result_is_the_one_and_costs_nothing(kit):
    kit.reserve(["a", "b", "c"], epsilons=2, cap=9)
    kit.commit(["a", "b"])
    before = kit.used("of-a", "of-b", "of-c")
    assert kit.post(["b"]) == [DONE]
    assert kit.post(["a", "b"]) == [DONE, ALREADY]
    assert kit.post(["b", "a"], outputs=["other", "again"]) == [DIVERGED, ALREADY]
    assert kit.post(["a"], outputs="third", chain="2" * 64) == [DONE]
    found = kit.reopen().committed(kit.ref(), pa.array(["c", "a", "nobody", "b"]), chain="1" * 64)
    assert found.mask.tolist() == [False, True, False, True]
    assert found.digests.to_pylist() == [None, digest("a", "again"), None, digest("b", "again")]
    assert kit.ledger.committed(kit.ref(), pa.array(["a", "b"]), chain="2" * 64).mask.tolist() == [True, False]
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
        kit.post(["a", "b"])
    for steps in ([], [{**STEPS[0], "training_provenance": None}], [{**STEPS[0], "training_provenance": "in-domain"}]):
        with pytest.raises(LedgerError, match="costs nothing only where its training_provenance is 'public' or"):
            kit.post(["a"], steps=steps)
    kit.ledger.releases.revoke(kit.ref(), "gate")
    with pytest.raises(LedgerError, match="revoked"):
        kit.post(["a"])
    assert "rewritten" not in kit.sound()


def test_verification_finds_a_second_result_of_the_same_rows(kit):
    """Sealed and chained like any; `test_verify` edits stored bytes."""
    kit.reserve(["a", "b"], cap=9)
    kit.commit(["a", "b"])
    kit.post(["a", "b"])
    store = kit.db.store
    ((seq,),) = store.rows("select seq from event where kind='POST'")
    with suppress(UndoError), store.transaction():
        said = ("job", "release", "nonce", "spend", "chain", "steps", "rows", "root", "columns", "batches")
        facts = {name: kit.db.journal.facts(seq)[name] for name in said}
        again = kit.db.journal.append(Event.POST, **facts)
        store.execute("insert into segment select ?, name, data from segment where seq=?", (again, seq))
        found = kit.ledger.verify().problems
        raise UndoError
    assert any("are not in a state in which this event can rewrite them" in said for said in found)
