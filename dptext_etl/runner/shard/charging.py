"""Cut rows in their order into shards, charge a shard before it is computed, and add up its spends, in whole steps.

Where a shard ends follows only from the rows, so every attempt at a run over the same source gets the same shards.

A charge holds the identity and the worst-case spend of every record in every column. Amounts are rounded up for people
and JSON.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel
from dptext_etl.accounting import log10_odds
from dptext_etl.accounting.shuffling import OTHER, ShuffledLabels
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.comparison import short_digests
from dptext_etl.checks.text_counts import gate_delta
from dptext_etl.column import spends, step_costs, worst_case
from dptext_etl.data_types import by_name, size_of
from dptext_etl.guarantee import MICRO, PURE, Spend, steps
from dptext_etl.keys import canonical_ids, normalized
from dptext_etl.ledger import Charge, IdForms, Outcome, ReleaseRef
from dptext_etl.ledger.storage.hashed_ids import SATURATED, matrix, plus
from dptext_etl.mechanism import Released
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.publish.manifest import with_gate
from dptext_etl.runner.shard.staging import WholeTable
from dptext_etl.runner.source.roles import forms_of
from dptext_etl.runner.source.table import batches

READ_ROWS = 1 << 14
"""Rows that are read at a time; shards are put together from them."""
COUNT_ROWS = 1 << 18
"""Rows whose sizes are counted at a time."""
KEPT_BYTES, KEPT_ROWS = 64 << 20, 1 << 19
"""The most bytes of strings, and rows, that are kept in memory from when they are examined until they are computed."""
ANY_SIZE = 1 << 62
"""More bytes than there are."""

Sizes = npt.NDArray[np.int64]


class Cutter:
    """Say where shards begin in rows that come batch by batch. A single row that is too large is a separate shard."""

    def __init__(self, rows: int, size: int) -> None:
        self._most = (rows, size)
        self._rows = self._size = self._ended = 0

    @property
    def shards(self) -> int:
        """The number of shards so far."""
        return self._ended + (self._rows > 0)

    def begins(self, sizes: Sizes) -> list[int]:
        """Return the places in a batch at which another shard begins; a batch at the start begins none.

        >>> cutter = Cutter(rows=3, size=100)
        >>> cutter.begins(np.array([40, 60, 1, 1, 1, 1, 500, 2])), cutter.begins(np.array([98, 1]))
        ([2, 5, 6, 7], [1])
        """
        ends = np.cumsum(sizes)
        places, at = [], 0
        while at < len(sizes):
            before = int(ends[at - 1]) if at else 0
            by_size = int(np.searchsorted(ends, before + self._most[1] - self._size, side="right"))
            end = min(by_size, at + self._most[0] - self._rows, len(sizes))
            if end <= at and not self._rows:
                end = at + 1
            if end > at:
                self._rows += end - at
                self._size += int(ends[end - 1]) - before
            at = max(at, end)
            if at < len(sizes):
                places.append(at)
                self._rows = self._size = 0
        self._ended += len(places)
        return places


def count_shards(frame: pl.LazyFrame, policy: Policy) -> int:
    """Count the shards of a source; only the lengths of its texts are held in memory."""
    cutter = Cutter(*bounds(policy))
    for batch in batches(frame.select(size_of(frame.collect_schema())), COUNT_ROWS):
        cutter.begins(batch["size"].to_numpy())
    return cutter.shards


def kept_rows(frame: pl.LazyFrame) -> pl.DataFrame | None:
    """Read the rows of a source into memory, so that they are read once; None if they are many."""
    schema, frames, size = frame.collect_schema(), list[pl.DataFrame](), 0
    for batch in batches(frame, READ_ROWS):
        size += int(batch.select(size_of(schema).sum()).item())
        frames.append(batch)
        if size > KEPT_BYTES or len(frames) * READ_ROWS > KEPT_ROWS:
            return None
    return pl.concat(frames) if frames else schema.to_frame()


def bounds(policy: Policy) -> tuple[int, int]:
    """Return the most rows of a shard, and the most bytes of its texts.

    Where the ledger gives back draws, commits of a shard decide which rows of the next one fit the cap. Then only the
    number of rows ends a shard, so that the admitted rows do not depend on the lengths of texts.
    """
    return policy.shard_rows, ANY_SIZE if refunds(policy) else policy.shard_bytes


def pieces(frame: pl.LazyFrame, rows: int, size: int) -> Iterator[pl.DataFrame]:
    return cut(batches(frame, min(rows, READ_ROWS)), rows, size)


def cut(frames: Iterable[pl.DataFrame], rows: int, size: int) -> Iterator[pl.DataFrame]:
    """Cut rows that come frame by frame; how they are divided into frames does not matter."""
    cutter = Cutter(rows, size)
    slices: list[pl.DataFrame] = []
    for batch in frames:
        at = 0
        for begin in cutter.begins(batch.select(size_of(batch.schema))["size"].to_numpy()):
            slices.append(batch.slice(at, begin - at))
            yield pl.concat(slices)
            slices, at = [], begin
        if at < batch.height:
            slices.append(batch.slice(at))
    if slices:
        yield pl.concat(slices)


DEFECT = "this is a defect; its message is omitted, because it may quote a text. Nothing was published"
"""The hint of an error whose own message is omitted."""
MODULUS = 1 << 256
"""Identities are added modulo this number, so that a digest of a table does not depend on the order of its rows."""
PAIRS = 1 << 128
"""Digests of records with their persons are added modulo this number, in any order of rows."""


def sum_of_pairs(ids: pa.Array, persons: pa.Array | pl.Series) -> int:
    """Add up digests of canonical ids with their canonical subjects: another person of a record changes the sum.

    Rows without a person, such as canary rows, do not count.
    """
    rows = pl.DataFrame({"id": pl.Series(ids, dtype=pl.String), "person": pl.Series(persons, dtype=pl.String)})
    length = pl.col("person").str.len_bytes().cast(pl.String)
    both = rows.drop_nulls().select(pl.concat_str(length, pl.lit(":"), "person", "id")).to_series()
    places: list[int] = short_digests(both).sum(axis=0, dtype=np.int64).tolist()
    return sum(value << 8 * place for place, value in enumerate(places)) % PAIRS


@dataclass(frozen=True)
class Column:
    """A text column of a run, with the state that all its shards share."""

    policy: ColumnPolicy
    ref: ReleaseRef
    key: _kernel.ReleaseKey

    @classmethod
    def all(cls, policies: Iterable[ColumnPolicy], refs: Mapping[str, ReleaseRef]) -> list[Self]:
        return [cls(item, refs[item.column or ""], item.release_key()) for item in policies]

    @property
    def name(self) -> str:
        return self.policy.column or ""


@dataclass(frozen=True)
class Charged:
    ids: pa.Array  # canonical record ids, shape (rows,)
    subjects: pa.Array | None  # canonical subject ids, null for canary rows; None where the unit is the record
    charges: tuple[Charge, ...]  # one charge per text column
    forms: IdForms  # the forms of the ids before they were canonical strings
    pairs: int  # sum of digests of the records with their persons, before any was excluded; 0 where records are units

    def take(self, chosen: npt.NDArray[np.bool_]) -> Charged:
        mask = to_arrow(chosen)
        charges = tuple(
            Charge(
                item.ref,
                item.idem_keys.filter(mask),
                np.asarray(item.n_worst)[chosen],
                {name: np.asarray(values)[chosen] for name, values in item.spends.items()},
            )
            for item in self.charges
        )
        subjects = None if self.subjects is None else self.subjects.filter(mask)
        return Charged(self.ids.filter(mask), subjects, charges, self.forms, self.pairs)


@dataclass(frozen=True)
class Reserved:
    frame: pl.DataFrame = field(repr=False)  # the raw shard with its canary rows
    charged: Charged = field(repr=False)
    outcome: npt.NDArray[np.uint8]  # an `Outcome` per row, shape (rows,)
    answers: Mapping[str, int]  # records by outcome, without canary rows, before any row was excluded

    def without(self, outcomes: Collection[Outcome]) -> Reserved:
        chosen = ~np.isin(self.outcome, list(outcomes))
        if chosen.all():
            return self
        return Reserved(self.frame.filter(chosen), self.charged.take(chosen), self.outcome[chosen], self.answers)

    def whole_table(self, labels: ShuffledLabels | None) -> WholeTable:
        """Return the records among the rows, also by label; canary rows do not count."""
        records = self.charged.take(~self.canary)
        drawn = np.any([np.asarray(item.n_worst) > 0 for item in records.charges], axis=0)
        # Add up the identities of all texts as numbers, modulo 2^256 (docs/spec/shuffled.md#one-batch)
        total = 0
        for item in records.charges:
            places: list[int] = matrix(item.idem_keys, "identities").sum(axis=0, dtype=np.int64).tolist()
            total += sum(value << 8 * (31 - place) for place, value in enumerate(places))
        named = by_label(self.frame.filter(~self.canary), drawn, labels)
        return WholeTable(len(records.ids), int(drawn.sum()), f"{(total % MODULUS):064x}", named)

    @property
    def canary(self) -> npt.NDArray[np.bool_]:
        marks: npt.NDArray[np.bool_] = self.frame[CANARY].to_numpy()
        return marks


def by_label(frame: pl.DataFrame, drawn: npt.NDArray[np.bool_], labels: ShuffledLabels | None) -> dict[str, int] | None:
    """Count the records of each label that have a draw, shape (rows,); None without labels."""
    if labels is None:
        return None
    labels_drawn = frame[labels.column].alias("label").filter(pl.Series(drawn)).fill_null(OTHER)
    return dict(labels_drawn.value_counts(name="records").iter_rows())


def digest_of(*parts: bytes) -> str:
    """Hash byte strings unambiguously, 64 hex digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def views_of(frame: pl.DataFrame, column: str) -> pa.Array:
    """Return a text column as an Arrow array of string views, as the frame holds it: nothing is copied."""
    return frame[column].to_arrow(compat_level=pl.CompatLevel.newest())


def charge(
    frame: pl.DataFrame, columns: list[Column], policy: Policy, *, identified: bool = True, counted: bool = True
) -> Charged:
    """Count draws and make the identities of texts, or leave zeros in their place. Nothing is drawn."""
    ids = canonical_ids(frame[policy.id].to_arrow())
    delta = gate_delta(policy)
    charges = []
    for column in columns:
        contents = contents_of(frame, column.name, policy)
        texts = contents if policy.labels is None else views_of(frame, column.name)
        mechanism = column.policy.mechanism
        if identified:
            identities = pa.array(_kernel.idem_keys(column.key, ids, contents, column.policy.nonce))
        else:
            identities = pa.Array.from_buffers(pa.binary(32), len(ids), [None, pa.py_buffer(bytes(32 * len(ids)))])
        if not counted:
            charges.append(Charge(column.ref, identities, 0, {}))
            continue
        n_worst, spends = worst_case(mechanism, mechanism.positions(texts), texts)
        charges.append(Charge(column.ref, identities, n_worst, with_gate(spends, delta)))
    subjects = subjects_of(frame, policy)
    pairs = 0 if subjects is None else sum_of_pairs(ids, subjects)
    return Charged(ids, subjects, tuple(charges), forms_of(frame.schema, policy), pairs)


def contents_of(frame: pl.DataFrame, column: str, policy: Policy) -> pa.Array:
    """Return the cells that identities of records cover in addition to ids: texts, and labels if the release has any.

    No two pairs of a text and a label, null or not, have one string (docs/spec/synthetic.md#identity).
    """
    if policy.synthetic is None and policy.labels is None:
        return views_of(frame, column)
    null, text, label = pl.lit("n"), by_name(column), pl.lit(None, pl.String)
    if policy.labels is not None:
        label = by_name(policy.labels.column)
    elif policy.synthetic is not None and policy.synthetic.labels is not None:
        label = policy.synthetic.labels.label_of()
    length = label.str.len_bytes().cast(pl.String)
    parts = (
        pl.when(label.is_null()).then(null).otherwise(pl.concat_str(length, pl.lit(":"), label)),
        pl.when(text.is_null()).then(null).otherwise(pl.concat_str(pl.lit("t"), text)),
    )
    return frame.select(pl.concat_str(*parts)).to_series().to_arrow()


def subjects_of(frame: pl.DataFrame, policy: Policy) -> pa.Array | None:
    """Write subject ids, normalized, as record ids are written, null where unknown; None where records are units."""
    if policy.unit == "record" or policy.subject is None:
        return None
    subjects = frame[policy.subject].alias("subject")
    canonical = canonical_ids(normalized(subjects.drop_nulls().to_arrow(), policy.normalize))
    if not subjects.null_count():
        return canonical
    return pc.replace_with_mask(pa.nulls(len(subjects), canonical.type), subjects.is_not_null().to_arrow(), canonical)


_CHARGED = "eps_charged"
"""The pure epsilon that the ledger holds: less than the declared one where it gives back draws that were not made."""
AMOUNTS = (PURE, "eps_tight", "eps_approx", "delta", "rho", _CHARGED)
"""The amounts in a summary."""
_UNBOUNDED = -1
"""An infinite amount in a staging record."""
VACUOUS = 30
"""From this epsilon on, a bound says nothing in practice (docs/spec/privacy.md#odds)."""


def settles(policy: Policy) -> bool:
    """Return whether the ledger gives back unused amounts: only under a pure cap (docs/spec/privacy.md#expost)."""
    return policy.cap is not None and policy.cap.measure == "pure"


def refunds(policy: Policy) -> bool:
    """Return whether the ledger may give back draws of a policy, which the cap then admits to later records."""
    return settles(policy) and any(column.mechanism.refundable for column in policy.charged_columns())


def shard_spends(
    columns: list[Column], released: Mapping[str, Released], canary: npt.NDArray[np.bool_], policy: Policy
) -> tuple[dict[str, int], dict[str, int]]:
    """Return counts of a computed shard, and sums and maxima of its spends in whole steps, without its canary rows."""
    records, draws = ~canary, dict[str, Any]()
    counts = {"rows": int(records.sum()), "words": 0, "null": 0}
    for column in columns:
        texts, positions, steps, _ = released[column.name]
        draws[f"positions of {column.name}"] = positions
        if settles(policy) and column.policy.mechanism.refundable and steps is not None:
            draws[f"steps of {column.name}"] = steps
        counts["words"] += int(to_numpy(positions)[records].sum())
        counts["null"] += int(to_numpy(texts.is_null())[records].sum())
    groups = pl.DataFrame(draws).filter(pl.Series(to_arrow(records))).group_by(pl.all()).agg(pl.len().alias("rows"))
    times = groups["rows"].to_list()  # rows of equal draws cost the same
    totals = {name: np.zeros(groups.height, dtype=np.int64) for name in AMOUNTS}
    unbounded = dict.fromkeys(AMOUNTS, False)
    for column in columns:
        mechanism = column.policy.mechanism
        costs = with_gate(spends(mechanism, groups[f"positions of {column.name}"].to_arrow()), gate_delta(policy))
        costs[_CHARGED] = costs[PURE]
        if f"steps of {column.name}" in draws:
            costs[_CHARGED] = step_costs(mechanism, groups[f"steps of {column.name}"].to_numpy())
        for name in AMOUNTS:
            totals[name] = plus(totals[name], costs[name])
            unbounded[name] |= bool((totals[name] >= SATURATED).any())
    result: dict[str, int] = {}
    for name, amounts in totals.items():
        total = sum(amount * count for amount, count in zip(amounts.tolist(), times, strict=True))
        for kind, amount in (("sum", total), ("max", int(amounts.max(initial=0)))):
            result[f"{kind}_{name}"] = _UNBOUNDED if unbounded[name] else amount
    return counts, result


def total_spends(shards: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add the sums of several shards, and keep the largest of their maxima.

    Amounts are whole steps (`guarantee.steps`): their sums do not depend on where shards end, which follows from texts.
    """
    total: dict[str, int] = {f"{kind}_{name}": 0 for kind in ("sum", "max") for name in AMOUNTS}
    for shard in shards:
        for name, amount in shard.items():
            if _UNBOUNDED in {total[name], amount}:
                total[name] = _UNBOUNDED
            else:
                total[name] = total[name] + amount if name.startswith("sum_") else max(total[name], amount)
    return total


def equal_spends(spend: Spend, rows: int) -> dict[str, int]:
    """Return the result of `total_spends` for rows that each spend the same; amounts that are missing are unbounded."""
    result: dict[str, int] = {}
    for name in AMOUNTS:
        amount = getattr(spend, name, math.inf)
        result[f"sum_{name}"] = _UNBOUNDED if math.isinf(amount) else int(amount) * rows
        result[f"max_{name}"] = _UNBOUNDED if math.isinf(amount) else int(amount)
    return result


def spend_facts(total: Mapping[str, int]) -> dict[str, dict[str, float | str]]:
    """Convert amounts for people and JSON: units instead of steps, "inf" where there is no bound."""
    facts: dict[str, dict[str, float | str]] = {"sum_over_records": {}, "largest_record": {}}
    for key, amount in total.items():
        kind, _, name = key.partition("_")
        facts["sum_over_records" if kind == "sum" else "largest_record"][name] = (
            "inf" if amount == _UNBOUNDED else amount / steps(name)
        )
    largest = total.get("max_eps_approx", 0)
    facts["largest_record"]["log10_odds"] = "inf" if largest == _UNBOUNDED else round(log10_odds(largest), 3)
    return facts


def refund_notes(total: Mapping[str, int]) -> list[str]:
    """Say how much less a run charged than its records are guaranteed, if draws were given back."""
    charged, worst = total[f"sum_{_CHARGED}"], total[f"sum_{PURE}"]
    if charged in {worst, _UNBOUNDED}:
        return []
    amounts = f"epsilon {at_most(charged / MICRO)} of at most {at_most(worst / MICRO)}"
    return [f"{amounts}: draws that were not made were given back"]


def at_most(amount: float | str, digits: int = 6) -> str:
    """Write an amount to `digits` digits, rounded up, so that a printed bound holds."""
    if isinstance(amount, str):
        return "unbounded"
    exact = Decimal(repr(float(amount)))
    if not exact:
        return "0"
    up = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_CEILING).normalize()
    return f"{up:,f}" if up >= Decimal("0.001") else f"{up.normalize():g}".replace("E", "e")
