"""Release an Arrow column of texts: the one function through which every engine releases texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.accounting.shuffling import shuffled_of
from dptext_etl.arrays import arrow_kind, distinct_counts, is_string, to_arrow, to_numpy
from dptext_etl.errors import InputError, LedgerError, PolicyError, bare, counted, seam
from dptext_etl.guarantee import ADDITIVE, MICRO, PURE, Disclosure, exact, steps
from dptext_etl.keys import RecordKeys, canonical_ids
from dptext_etl.mechanism import Mechanism, Released, Rewritten
from dptext_etl.parallel import require_threads
from dptext_etl.policy import ColumnPolicy, PolicyLike, resolve_column

INFINITE = np.iinfo(np.int64).max
"""Number that represents an infinite amount among amounts in int64: millionths, and steps of 10^-15 of delta."""

_OUTPUTS = 2**64 - 1
"""The nonce of keyed digests of outputs: no release has it, so they never equal the identity of a text."""
_REPEATED = "give ids that are unique: is it the id column, and are text and id swapped?"
KNOWN_COSTS = 1 << 16  # costs of a mechanism that are kept, at most


@bare
def privatize(
    texts: pa.Array | pa.ChunkedArray, ids: pa.Array | pa.ChunkedArray, policy: PolicyLike, *, spend: bool = False
) -> pa.Array:
    """Release a column of texts under differential privacy.

    It writes no ledger, so the result must not be published (`dptext_etl.run` makes releases that may be published).

    Args:
        texts: Strings of any Arrow layout; a null stays null.
        ids: Record ids, as many as `texts`: strings, integers, decimals, UUIDs, dates, zoned timestamps, bytes,
            structs. An id may come again with its own text, and not with another one in this call; calls know nothing
            of each other.
        policy: The column's policy; or a policy of one text column, or the path of its file.
        spend: Return `struct<text, positions, epsilon, delta>` instead of strings.

    Returns:
        Large strings, or the struct, in which epsilon belongs to the declared pair, rounded up to a millionth.

    Raises:
        InputError: The types are not allowed, the lengths differ, an id is null, or an id has several texts.
        PolicyError: The model fails on public texts, or the policy needs a run: it has post-processing or is shuffled.
    """
    chosen = resolve_column(policy)
    require_row_by_row(chosen)
    texts, ids = _readable(texts, ids)
    require_one_text(texts, *distinct(ids), _REPEATED)
    if len(texts):
        probe(chosen.mechanism)
    released = release(texts, ids, chosen)
    if len(texts):
        probe(chosen.mechanism)
    return with_spends(released, chosen.mechanism) if spend else released.text


def probe(mechanism: Mechanism) -> None:
    """Ask a model, and scores of words, with public texts whether they work (docs/spec/privacy.md#probe)."""
    with seam("probing the model"):
        mechanism.probe()
    if mechanism.allocation is not None:
        mechanism.allocation.probe()


def with_spends(released: Released, mechanism: Mechanism) -> pa.Array:
    """Put released texts and their costs into one column, `struct<text, positions, epsilon, delta>`."""
    costs = spends(mechanism, released.positions)
    amounts = [
        to_arrow(np.where(costs[name] == INFINITE, math.inf, costs[name] / steps(name)))
        for name in ("eps_approx", "delta")
    ]
    columns = [released.text, released.positions, *amounts]
    return pa.StructArray.from_arrays(columns, ["text", "positions", "epsilon", "delta"])


@bare
def release(texts: pa.Array | pa.ChunkedArray, ids: pa.Array | pa.ChunkedArray, policy: ColumnPolicy) -> Released:
    """Release texts, and return with them the number of draws of each text."""
    return draw(policy.mechanism, texts, ids, policy.release_key(), policy.nonce)


@bare
def rewrite(texts: pa.Array, ids: pa.Array, policy: ColumnPolicy) -> Rewritten:
    """Rewrite released texts by the post-processings of a column, one after the other, at no cost."""
    texts = texts.cast(pa.large_string())
    failed = np.zeros(len(texts), np.bool_)
    with seam("rewriting released texts"):
        for place, step in enumerate(policy.postprocess):
            keys = RecordKeys(policy.step_key(step), ids, policy.nonce).of(texts)
            texts, now = step.rewrite(texts, keys, place)
            failed |= now.to_numpy(zero_copy_only=False)
    return Rewritten(texts, pa.array(failed))


def require_row_by_row(policy: ColumnPolicy) -> None:
    """Refuse a column that only a run can release: it has post-processing, or its texts are published shuffled."""
    require_threads()
    where, runs = f"column {policy.column!r}", "`dptext run`, dptext_etl.run or Dagster make one"
    if policy.postprocess:
        names = ", ".join(step.name for step in policy.postprocess)
        msg = f"{where}: post-processing ({names}) needs a run, in which the ledger records its results"
        raise PolicyError(msg, f"{runs}; leave postprocess out here")
    if shuffled_of(policy.mechanism) is not None:
        msg = f"{where}: a shuffled release needs a run, which publishes the texts without their rows"
        raise PolicyError(msg, f"{runs}; leave shuffled out here, at the mechanism's own epsilon per record")


def draw(
    mechanism: Mechanism,
    texts: pa.Array | pa.ChunkedArray,
    ids: pa.Array | pa.ChunkedArray,
    key: _kernel.ReleaseKey,
    nonce: int = 0,
) -> Released:
    """Release texts under a given release key; previews and measurements use keys that are thrown away."""
    texts, ids = _readable(texts, ids)
    keys = RecordKeys(key, ids, nonce)
    with seam("releasing the column"):
        released = mechanism.release(texts, keys)
        if mechanism.refundable and released.steps is None:
            raise TypeError("a mechanism that settles ex post says how many draws it made")
        return released


def spends(mechanism: Mechanism, positions: pa.Array) -> dict[str, npt.NDArray[np.int64]]:
    """Return the cost of each record by component, in its steps (`guarantee.steps`), shape (records,)."""
    counts, where = distinct_counts(to_numpy(positions))
    return _by_record([_cost(mechanism, count)[1] for count in counts.tolist()], where)


def step_costs(mechanism: Mechanism, draws: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return the pure epsilon of the draws of each record of a refundable mechanism, in millionths."""
    cost_of_draw = exact(mechanism.epsilon) * MICRO
    counts, where = distinct_counts(draws)
    return np.array([min(math.ceil(int(count) * cost_of_draw), INFINITE) for count in counts], dtype=np.int64)[where]


def steps_of(mechanism: Mechanism, used: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the draws of a refundable mechanism that cost that amount: `step_costs` backward."""
    cost_of_draw = exact(mechanism.epsilon) * MICRO
    costs, where = np.unique(used, return_inverse=True)
    return np.array([int(cost // cost_of_draw) for cost in costs.tolist()], dtype=np.uint32)[where]


def worst_case(
    mechanism: Mechanism, positions: pa.Array, texts: pa.Array, components: Sequence[str] = ADDITIVE
) -> tuple[npt.NDArray[np.uint32], dict[str, npt.NDArray[np.int64]]]:
    """Return the worst case to reserve per record before it is scored: draws, and amounts by component in its steps."""
    counts = to_numpy(positions)
    disclosures = mechanism.guarantee.disclosures
    if Disclosure.LENGTH not in disclosures:
        passed = to_numpy(texts.is_null()) & (Disclosure.NULLNESS in disclosures)
        counts = np.where(passed, 0, mechanism.most_positions)
    distinct, where = distinct_counts(counts)
    costs = [_cost(mechanism, min(count, mechanism.most_positions)) for count in distinct.tolist()]
    n_worst = np.array([most for most, _ in costs], dtype=np.uint32)[where]
    return n_worst, _by_record([amounts for _, amounts in costs], where, components)


def require_charged_draws(policy: ColumnPolicy, charged: npt.ArrayLike, drawn: npt.ArrayLike) -> None:
    """Refuse releases made with another number of draws than was charged, where that number is disclosed."""
    if Disclosure.LENGTH not in policy.mechanism.guarantee.disclosures:
        return
    other = int((np.asarray(drawn) != np.asarray(charged)).sum())
    if other:
        msg = (
            f"column {policy.column!r}: {counted(other, 'text was', 'texts were')} released "
            "with another number of draws than was charged"
        )
        raise LedgerError(f"{msg}; nothing was committed", "this is a defect of the mechanism: fix it first")


def possible_costs(
    policy: ColumnPolicy, positions: npt.NDArray[np.uint32], draws: npt.NDArray[np.uint32]
) -> npt.NDArray[np.int64]:
    """Return `step_costs`; refuse texts with positions and no draw, or with draws that cost more than their worst case.

    What draws cost less than the worst case is given back, so it must be a count that a release can have.
    """
    costs = step_costs(policy.mechanism, draws)
    worst = spends(policy.mechanism, to_arrow(positions))[PURE]
    other = int((((draws == 0) & (positions > 0)) | (costs > worst)).sum())
    if other:
        msg = f"column {policy.column!r}: {counted(other, 'text cannot', 'texts cannot')} have made the stated draws"
        raise LedgerError(f"{msg}; nothing was committed", "this is a defect of the mechanism: fix it first")
    return costs


def output_digests(policy: ColumnPolicy, ids: pa.Array, texts: Any) -> pa.Array:
    """Return the digests of released texts that the ledger holds, fixed-size binary (32), shape (texts,).

    The digests of a shuffled release are keyed: a plain hash of a public text would show whose text it is.
    """
    if shuffled_of(policy.mechanism) is None:
        return pa.array(_kernel.digests(texts))
    return keyed_digests(policy.release_key(), ids, pa.array(texts))


def keyed_digests(key: _kernel.ReleaseKey, ids: pa.Array, outputs: pa.Array) -> pa.Array:
    """Return keyed digests of the released texts of records, which reveal the text only to the holder of the key."""
    return pa.array(_kernel.idem_keys(key, ids, outputs, _OUTPUTS))


def distinct(ids: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return where each distinct id occurs first, and for every row which of those it is."""
    encoded = ids.dictionary_encode()
    where: npt.NDArray[np.int64] = to_numpy(encoded.indices)
    if len(encoded.dictionary) == len(ids):
        return encoded.indices, encoded.indices
    return to_arrow(np.unique(where, return_index=True)[1]), encoded.indices


def require_one_text(texts: pa.Array, first: pa.Array, where: pa.Array, hint: str) -> None:
    """Refuse an id that belongs to several texts; a row that is repeated as it is passes."""
    if len(first) == len(where):
        return
    texts = texts.cast(pa.large_string())
    if not texts.equals(texts.take(first).take(where)):
        raise InputError("a record id of a batch belongs to several texts; each record has one text", hint)


def _cost(mechanism: Mechanism, draws: int) -> tuple[int, tuple[int, ...]]:
    """Return the cost of a number of draws; every shard has the same numbers again."""
    costs: dict[int, tuple[int, tuple[int, ...]]] = mechanism.__dict__.setdefault("_known_costs", {})
    if len(costs) >= KNOWN_COSTS:
        costs.clear()
    entry = costs.get(draws)
    if entry is None:
        cost = mechanism.spend(draws)
        amounts = (getattr(cost, name) for name in ADDITIVE)
        whole = tuple(INFINITE if math.isinf(amount) else min(int(amount), INFINITE) for amount in amounts)
        entry = costs[draws] = (cost.n_worst, whole)
    return entry


def _by_record(
    costs: list[tuple[int, ...]], where: npt.NDArray[np.intp], components: Sequence[str] = ADDITIVE
) -> dict[str, npt.NDArray[np.int64]]:
    amounts = np.array(costs, dtype=np.int64).reshape(-1, len(ADDITIVE))
    return {name: amounts[:, place].copy()[where] for place, name in enumerate(ADDITIVE) if name in components}


def _readable(texts: pa.Array | pa.ChunkedArray, ids: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return texts and canonical ids as one array each, or refuse columns that hold neither."""
    texts, ids = (side.combine_chunks() if isinstance(side, pa.ChunkedArray) else side for side in (texts, ids))
    texts = texts.cast(pa.large_string()) if pa.types.is_null(texts.type) else texts
    if not is_string(texts.type):
        raise InputError(
            f"a text column holds strings, got {arrow_kind(texts.type)}", "cast the column, or name another"
        )
    if len(texts) != len(ids):
        raise InputError(f"{len(texts):,} texts and {len(ids):,} ids: one id per text")
    return texts, canonical_ids(ids, by_name=True)
