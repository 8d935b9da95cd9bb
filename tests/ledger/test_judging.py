"""A plan judges batches one after the other, and writes none: it gets the answers that a run gets."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Charge, Outcome, Scope
from dptext_etl.ledger.caps import EarlierCharges
from dptext_etl.ledger.ledger import Ledger
from dptext_etl.ledger.types import NEW
from dptext_etl.policy import Cap

from ..ledger_kit import Kit, reserve_batch

CAPS = (Cap(epsilon=5, period="2026"), Cap(measure="approx", epsilon=5, delta=5e-6, period="2026"))
PEOPLE = ("ann", "bob", "eve", "joe")
rows = st.lists(st.tuples(st.sampled_from(PEOPLE), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


@settings(max_examples=40)
@given(rows=rows, ends=st.sets(st.integers(1, 11)), held=st.integers(0, 3), cap=st.sampled_from(CAPS), data=st.data())
def test_batches_are_judged_as_they_are_reserved(rows, ends, held, cap, data):
    unit = data.draw(st.sampled_from(["subject", "record"]))
    scope, ids = Scope("reviews", "2026", unit=unit), [f"r{at}" for at in range(len(rows))]
    with TemporaryDirectory() as folder:
        kit = Kit(str(Path(folder, "ledger.db")))
        refs = [kit.ref(), kit.ref(column="title")]

        def batch(begin, end):
            part = rows[begin:end]
            charges = []
            for ref, at in zip(refs, (1, 2), strict=True):
                costs = np.array([row[at] for row in part], np.int64)
                spends = {"eps_pure": costs * 10**6, "eps_approx": costs * 10**6, "delta": costs * 10**9}
                charges.append(Charge(ref, kit.keys(ref, ids[begin:end]), costs, spends))
            return pa.array(ids[begin:end]), pa.array([row[0] for row in part]), charges

        places = [0, *sorted(end for end in ends if end < len(rows)), len(rows)]
        if held:
            reserve_batch(kit.ledger, "before", scope, cap, *batch(0, min(held, len(rows))))
        head, before = kit.ledger.anchor(), EarlierCharges()
        judged = []
        for pair in pairwise(places):
            ready = kit.ledger.make_ready(unit, *batch(*pair))
            judged.append(kit.ledger.judge(scope, cap, ready, before=before))
            before.add(ready.unit_ids, judged[-1].admitted)
        assert kit.ledger.anchor() == head
        run = [reserve_batch(kit.ledger, "job", scope, cap, *batch(*pair)) for pair in pairwise(places)]
        assert [item.outcome.tolist() for item in judged] == [item.tolist() for item in run]
        kit.ledger.close()


def test_a_ledger_in_memory_judges_where_there_is_none(kit):
    scope, (cap, _), before = Scope("new", "2026"), CAPS, EarlierCharges()
    with Ledger.empty() as ledger:
        for name, fits in (("a", True), ("b", False)):
            charge = Charge(replace(kit.ref(), id=NEW), kit.keys(kit.ref(), [name]), [1], {"eps_pure": [3_000_000]})
            ready = ledger.make_ready("subject", pa.array([name]), pa.array(["ann"]), [charge])
            answer = ledger.judge(scope, cap, ready, before=before)
            before.add(ready.unit_ids, answer.admitted)
            assert answer.outcome.tolist() == [Outcome.RESERVED if fits else Outcome.OVER_CAP]
        assert ledger.anchor().seq == 0


def test_an_infinite_amount_is_refused_under_a_cap_before_anything_is_charged(kit):
    charge = Charge(kit.ref(), kit.keys(kit.ref(), ["a"]), [1], {})
    ready = kit.ledger.make_ready("subject", pa.array(["a"]), pa.array(["ann"]), [charge])
    with pytest.raises(LedgerError, match="costs an infinite eps_pure"):
        kit.ledger.judge(Scope("reviews", "2026"), CAPS[0], ready)
    assert kit.ledger.judge(Scope("reviews", "2026"), None, ready).asking.all()
