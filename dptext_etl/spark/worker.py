"""Release batches in Spark's Python workers; this light module is imported once per worker.

A function in a plan holds only the JSON of `Carried`. The first batch of a worker makes the policy from it, opens the
tables and resolves the references. Later batches and later queries find all of this in this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from dptext_etl import column
from dptext_etl.engines.spark.worker_policy import Carried
from dptext_etl.errors import DPTextError, InputError, bare, seam
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger.retrying import patient
from dptext_etl.policy import ColumnPolicy
from dptext_etl.spark.charged import Account

SPEND = pa.struct(
    {"text": pa.string(), "positions": pa.int32(), "epsilon": pa.float64(), "delta": pa.float64()}.items()
)
"""Type of a released column with `spend=True`."""
SPEND_SQL = "struct<text: string, positions: int, epsilon: double, delta: double>"

_DEFECT = "this is a defect; its message is not repeated, because it may quote a text"
_NAMES = ("text", "id", "subject")
_KNOWN = ", ".join(_NAMES)
_CALL = (
    "call name(text, id), or name(text, id, subject) where a ledger charges subjects; DESCRIBE FUNCTION name says which"
)
_SWAPPED = "the order of arguments is (text, id, subject); check that no two of them are swapped"


@dataclass(frozen=True)
class Seat:
    """The state of a function in a worker.

    Attributes:
        policy: The column's policy with artifacts on this machine.
        spend: Return the struct.
        account: Account that is charged for rows, or None.
    """

    policy: ColumnPolicy
    spend: bool
    account: Account | None


@lru_cache(maxsize=64)
def seat(carried: str) -> Seat:
    """Return the state of a plan's function, which a worker process makes once."""
    os.environ["DPTEXT_THREADS"] = "1"  # Spark runs one worker per task slot
    with seam("reading the policy in the plan", DPTextError, _DEFECT):
        described = Carried.model_validate_json(carried)
        policy = described.column_policy()
        account = None if described.ledger is None else patient(partial(Account, policy, described.ledger))
    return Seat(policy, described.spend, account)


def arguments(columns: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return text, ids and subjects as a query gave them: by position, by name, in any case."""
    if len(columns) > len(_NAMES):
        raise InputError(f"this function takes two or three arguments, got {len(columns)}", _CALL)
    given = dict(zip(_NAMES, columns, strict=False))
    for written, values in named.items():
        name = written.casefold()
        if name not in _NAMES:
            raise InputError(f"an argument has a name that this function does not know; it knows {_KNOWN}", _CALL)
        if name in given:
            raise InputError(f"the argument {name} is given twice", _CALL)
        given[name] = values
    if missing := [name for name in _NAMES[:2] if name not in given]:
        raise InputError(f"a call of this function lacks {' and '.join(missing)}", _CALL)
    return given["text"], given["id"], given.get("subject")


@bare
def release(carried: str, texts: pa.Array, ids: pa.Array, subjects: pa.Array | None = None) -> pa.Array:
    """Release one batch of a Spark column, charged first if the function has a ledger."""
    here = seat(carried)
    with seam("releasing a batch", DPTextError, _DEFECT):
        _require_strings(texts)
        _require_subjects(here, subjects)
        if here.account is not None:
            ids, subjects, forms = here.account.arranged(ids, subjects)
        canonical = _canonical(ids, "record ids", by_name=here.account is None)
        first, where = column.distinct(canonical)
        column.require_one_text(texts, first, where, _SWAPPED)
        if here.account is None:
            return _typed(column.privatize(texts, canonical, here.policy, spend=here.spend))
        people = None if subjects is None else _canonical(subjects, "subject ids")
        if people is not None and len(first) < len(where) and not people.equals(people.take(first).take(where)):
            raise InputError("records of one id have several subjects", "every record has an id of its own")
        chosen = [None if item is None else item.take(first) for item in (texts, canonical, people)]
        kept = here.account.charge(chosen[0], chosen[1], chosen[2], forms, here.spend)
        return _typed(kept.take(where))


def _require_strings(texts: pa.Array) -> None:
    kind = texts.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise InputError(f"the first argument is the text column and holds strings, got {kind}", _SWAPPED)


def _require_subjects(here: Seat, subjects: pa.Array | None) -> None:
    wanted = here.account is not None and here.account.per_subject
    if wanted and subjects is None:
        raise InputError(
            "this function charges subjects and got none",
            'call name(text, id, subject), or register(…, unit="record") if every record is a unit of its own',
        )
    if subjects is not None and not wanted:
        raise InputError(
            "this function charges no subjects and got some",
            'call name(text, id); register(…, ledger=…, unit="subject") charges subjects',
        )


def _canonical(ids: pa.Array, what: str, *, by_name: bool = False) -> pa.Array:
    if ids.null_count:
        raise InputError(f"{ids.null_count} {what} of a batch are null", _SWAPPED)
    return canonical_ids(ids, by_name=by_name)


def _typed(released: pa.Array) -> pa.Array:
    """Give Spark's types to a released column; a null struct becomes a struct of nulls, as in pandas."""
    if not pa.types.is_struct(released.type):
        return released.cast(pa.string())
    fields = [item.cast(field.type) for item, field in zip(released.flatten(), SPEND, strict=True)]
    return pa.StructArray.from_arrays(fields, fields=list(SPEND))
