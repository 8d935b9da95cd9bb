"""Gates are folds: their verdicts do not depend on who looked at which rows, nor on where digests were counted."""

import pickle

import numpy as np
import polars as pl
import pytest

from dptext_etl.checks import CANARY, Gate, comparison, evaluate
from dptext_etl.checks.comparison import Counted, Repeats, counted
from dptext_etl.checks.gate import batches, feed, load, merge, portable_state, staged_gates, values_of, verdicts_of
from dptext_etl.errors import GateError, InputError
from tests.quick import quick


def twice(frames):
    """The first part again, with other texts in half of its rows: repeated ids, shared prefixes, canaries twice."""
    again = frames[0].with_columns(review=pl.when(pl.int_range(pl.len()) % 2 == 0).then("note").otherwise("review"))
    return [*frames, again]


def raw(frames):
    """Canary rows that came through as they are, and a column that no one declared, in one part."""
    filled = pl.when(CANARY).then(pl.lit("zq zq")).otherwise("review").alias("review")
    return [frames[0], frames[1].with_columns(filled), frames[2].with_columns(size=pl.lit(1))]


def apart(candidate, schemas):
    """One set of gates per part, merged; digests drained and counted by others, as a cluster does."""
    whole, drained = staged_gates(candidate, schemas), {}
    for part in candidate.parts:
        gates = staged_gates(candidate, schemas)
        feed(gates, batches(part))
        for at, gate in enumerate(gates):
            merge(whole[at], pickle.loads(pickle.dumps(portable_state(gate))))
            for name, repeats in values_of(gate, Repeats).items():
                for rows in repeats.drain():
                    for row in rows:
                        drained.setdefault((at, name, int(row[0]) % 3), []).append(row)
    for (at, name, _), rows in drained.items():
        whole[at].state[name].add_counted(counted(np.stack(rows)))
    return [verdict for gate in whole for verdict in verdicts_of(gate)]


@pytest.mark.parametrize("bug", quick([list, raw, twice], first=2))
def test_gates_that_looked_at_parts_say_together_what_one_says_of_all(bench, tmp_path, monkeypatch, bug):
    parts = []
    for number, frame in enumerate(bug(bench.released)):
        parts.append(tmp_path / f"part-{number}.parquet")
        frame.write_parquet(parts[-1])
    candidate = bench.candidate(tuple(parts), texts=(b"{}",), scratch=tmp_path)
    schemas = [pl.read_parquet_schema(part) for part in parts]
    gates = staged_gates(candidate, schemas)
    monkeypatch.setattr(comparison, "HELD_BYTES", 1 << 10)  # digests go to the disk
    for part in parts:
        feed(gates, batches(part))
    whole = [verdict for gate in gates for verdict in verdicts_of(gate)]
    assert all(verdict.passed for verdict in whole) == (bug is list)
    assert apart(candidate, schemas) == whole
    assert sorted(tmp_path.iterdir()) == sorted(parts)  # files on the disk have no name


@pytest.mark.parametrize("held", [1, 1 << 12, 1 << 25])
def test_repeats_are_counted_as_by_a_set(monkeypatch, tmp_path, held):
    monkeypatch.setattr(comparison, "HELD_BYTES", held)
    random = np.random.default_rng(4)
    rows = np.zeros((3_000, 18), np.uint8)
    rows[:, [0, 12]] = random.integers(0, 64, (3_000, 2))  # equal first halves, other second halves
    rows[:, 17] = random.integers(0, 2, 3_000)
    repeats = Repeats(18, tmp_path)
    for part in np.array_split(rows, 40):
        repeats.add(part)
    keys = [row[:16].tobytes() for row in rows]
    shared = sum(keys.count(key) > 1 for key in keys)
    expected = Counted(3_000, len(set(keys)), len({row.tobytes() for row in rows}), shared)
    assert repeats.counts() == repeats.counts() == expected
    assert sum(map(len, repeats.drain())) == 3_000
    assert repeats.counts() == Counted()
    with pytest.raises(InputError, match="16 bytes, 18 are expected"):
        repeats.add(rows[:, :16])


def test_what_a_gate_has_seen_does_not_grow_with_rows(bench, tmp_path):
    """Ten times the rows, the same canaries: the state has the same size except for digits of counts."""
    sizes = []
    for times in (1, 10):
        plain = bench.published.with_columns(pl.lit(value=False).alias(CANARY))
        frames = [bench.released[0], *[plain.with_columns(pl.col("id") + 10_000 * n) for n in range(times)]]
        path = tmp_path / f"{times}.parquet"
        pl.concat(frames).write_parquet(path)
        gates = staged_gates(bench.candidate((path,)), [pl.read_parquet_schema(path)])
        feed(gates, batches(path))
        sizes.append(len(pickle.dumps([portable_state(gate) for gate in gates])))
    assert sizes[1] <= sizes[0] + 64


def test_a_gate_that_keeps_what_it_sees_outside_its_state_is_refused(bench, monkeypatch):
    monkeypatch.setattr(load("words_in_output_set"), "__init__", Gate.__init__)
    with pytest.raises(GateError, match="keeps the findings of its gate words_in_output_set outside `state`"):
        evaluate(bench.candidate(bench.run.parts))
