"""Look-ups in steps: places first, then digests by batch, say what one look-up of all says."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.checks import comparison
from dptext_etl.checks.comparison import ANY, LedgerComparison, Mismatches, batches_of, compared, located
from dptext_etl.ledger import Scope
from dptext_etl.ledger.storage.hashed_ids import matrix
from dptext_etl.ledger.storage.journal import Journal

from ..ledger_kit import binaries, digest
from .conftest import each_store


def settled(kit):
    """Records in every state, over several batches: committed, rewritten, reserved, expired, given back, again."""
    for at in range(5):
        kit.reserve([f"{name}{at}" for name in "abc"], job=f"job{at}")
        kit.commit([f"a{at}"], job=f"job{at}")
    kit.reserve(["gone", "back"], job="undone")
    kit.ledger.abort("undone", compute_never_started=True)
    kit.ledger.expire("job1")
    kit.reserve(["back"], job="again")
    kit.commit(["back", "b1"], job="again")
    kit.post(["a1", "a3"])
    kit.reserve(["a0"], people=[None], job="canary", canary=np.ones(1, np.bool_))
    kit.commit(["a0"], outputs="planted", job="canary", canary=np.ones(1, np.bool_))
    return [f"{name}{at}" for at in range(5) for name in "abcd"] + ["gone", "back", "nobody", "a1", "a1", "back"]


@each_store
def test_steps_say_what_a_whole_look_up_says(kit):
    ids = settled(kit)
    ref = kit.ref()
    for chain in (None, "1" * 64, "2" * 64):
        lookup = kit.ledger.lookup(ref, chain)
        places = lookup.places(lookup.hashed(pa.array(ids)))
        mask, digests, _ = lookup.digests(places)
        one = [kit.ledger.committed(ref, pa.array([name]), chain=chain) for name in ids]
        assert mask.tolist() == [found.mask[0] for found in one], chain
        expected = [found.digests[0].as_py() for found in one]
        assert [bytes(cell) if known else None for cell, known in zip(digests, mask, strict=True)] == expected
    assert [ids[at] for at in np.flatnonzero(places < 0)] == ["d0", "d1", "d2", "d3", "d4", "nobody"]
    lookup = kit.ledger.lookup(ref)
    (planted,) = lookup.digests(lookup.places(lookup.hashed(pa.array(["a0"]), np.ones(1, np.bool_))))[1]
    assert bytes(planted) == digest("a0", "planted")


def cells_of(kit, ids, outputs):
    digests = binaries([digest(*pair) for pair in zip(ids, outputs, strict=True)])
    bounds = anything(len(ids)).astype("<u4").view(np.uint8)
    return np.hstack([kit.ledger.lookup(kit.ref()).hashed(pa.array(ids)), matrix(digests, "digests"), bounds])


def anything(cells):
    return np.full((cells, 2), (0, ANY), np.uint32)


def test_counts_of_ranges_and_batches_add_up_to_those_of_all_cells(kit):
    ids = settled(kit)
    outputs = ["out"] * (len(ids) - 1) + ["another"]
    lookup = kit.ledger.lookup(kit.ref())
    cells = cells_of(kit, ids, outputs)
    whole = compared(lookup, located(lookup, cells))
    assert whole == Mismatches(uncommitted=len(ids) - 10, different=1)
    placed = np.concatenate([located(lookup, cells[cells[:, 0] >> 6 == at]) for at in range(4)])
    total = Mismatches()
    for batch in np.unique(batches_of(placed)):
        total = total.plus(compared(lookup, placed[batches_of(placed) == batch]))
    assert total == whole
    held = LedgerComparison(lookup)
    for part in (slice(0, 9), slice(9, None)):
        held.add(
            pa.array(ids[part]),
            pa.array([digest(*pair) for pair in zip(ids[part], outputs[part], strict=True)], pa.binary(32)),
            np.zeros(len(ids[part]), np.bool_),
            anything(len(ids[part])),
        )
    assert held.counts() == held.counts() == whole


def test_positions_outside_the_bounds_of_a_cell_are_counted(kit):
    """A text with no positions is null or empty, and a null has none."""
    kit.reserve(["a", "b"])
    kit.commit(["a", "b"])
    ids, digests = pa.array(["a", "b"]), binaries([digest("a", "out"), digest("b", "out")])
    (held,) = set(
        kit.ledger.lookup(kit.ref()).digests(kit.ledger.lookup(kit.ref()).places(keyed(kit, ids)))[2].tolist()
    )
    for bounds, count in (
        ((held, held), 0),
        ((0, ANY), 0),
        ((held + 1, ANY), 2),
        ((0, max(0, held - 1)), 2 * (held > 0)),
    ):
        cells = LedgerComparison(kit.ledger.lookup(kit.ref()))
        cells.add(ids, digests, np.zeros(2, np.bool_), np.full((2, 2), bounds, np.uint32))
        assert cells.counts() == Mismatches(misshapen=count)


def keyed(kit, ids):
    return kit.ledger.lookup(kit.ref()).hashed(ids)


@pytest.mark.parametrize("planned", [False, True])
def test_cells_on_the_disk_are_compared_batch_by_batch(kit, monkeypatch, tmp_path, planned):
    ids = [f"r{at}" for at in range(256)]
    for at in range(0, 256, 32):
        kit.reserve(ids[at : at + 32])
        kit.commit(ids[at : at + 31])
    if planned:
        kit.ledger.use(kit.ledger.plan(Scope("reviews"), [(pa.array(ids), pa.array(ids), None)]))
    lookup, read, real = kit.ledger.lookup(kit.ref()), Counter(), Journal.read

    def noted(self, seq, names, *args, **options):
        read[seq, names[-1]] += 1
        return real(self, seq, names, *args, **options)

    monkeypatch.setattr(Journal, "read", noted)
    monkeypatch.setattr(comparison, "HELD_BYTES", 1 << 10)
    monkeypatch.setattr(comparison, "FEW", 1)
    cells = LedgerComparison(lookup, tmp_path)
    order = np.random.default_rng(7).permutation(256)
    for some in np.array_split(order, 9):
        digests = binaries([digest(ids[at], "out" if at else "another") for at in some])
        cells.add(pa.array([ids[at] for at in some]), digests, np.zeros(len(some), np.bool_), anything(len(some)))
    assert cells.counts() == Mismatches(uncommitted=8, different=1)
    assert {count for (_, name), count in read.items() if name == "positions"} == {1}, "each batch is read once"
    assert sum(name == "positions" for _, name in read) == 8
