"""Release batches in the Python workers of Spark, and charge a ledger first if the function has one.

A function in a plan holds only the JSON of `WorkerPolicy`. The first batch of a worker makes the policy from it, opens
the tables and resolves the references. Later batches and later queries find all of this in this module.

With a ledger, `dptext_etl.ledger.account` charges a batch before its texts are returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from dptext_etl import column, device
from dptext_etl.arrays import arrow_kind, is_string
from dptext_etl.engines.spark.worker_policy import WorkerPolicy, take_gpu
from dptext_etl.errors import DPTextError, InputError, bare, seam
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger.account import Account
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.policy import ColumnPolicy

SPEND = pa.struct(
    {"text": pa.string(), "positions": pa.int32(), "epsilon": pa.float64(), "delta": pa.float64()}.items()
)
"""Type of a released column with `spend=True`."""
SPEND_SQL = "struct<text: string, positions: int, epsilon: double, delta: double>"

_DEFECT = "this is a defect; its message is not repeated, because it may quote a text"
_PANDAS = "a column holds strings, or ids of one allowed type; the library's message is not repeated"
_NAMES = ("text", "id", "subject")
_CALL = "call name(text, id), or name(text, id, subject) where a ledger charges subjects"
_SWAPPED = "the order of arguments is (text, id, subject); check that no two of them are swapped"


@dataclass(frozen=True)
class FunctionState:
    policy: ColumnPolicy  # with artifacts on this machine
    spend: bool  # return the struct
    account: Account | None


@device.drops_with_gpu
@lru_cache(maxsize=64)
def function_state(policy_json: str) -> FunctionState:
    """Make the state of a plan's function, once per worker process."""
    os.environ["DPTEXT_THREADS"] = "1"  # Spark runs one worker per task slot
    with seam("reading the policy in the plan", DPTextError, _DEFECT):
        described = WorkerPolicy.model_validate_json(policy_json)
        policy = described.column_policy()
        account = None if described.ledger is None else wait_for_ledger(partial(Account, policy, described.ledger))
    return FunctionState(policy, described.spend, account)


def arguments(columns: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return text, ids and subjects as a query gave them: by position, by name, in any case."""
    if len(columns) > len(_NAMES):
        raise InputError(f"this function has two or three arguments, got {len(columns)}", _CALL)
    arguments = dict(zip(_NAMES, columns, strict=False))
    for written, array in named.items():
        name = written.casefold()
        if name not in _NAMES:
            msg = f"an argument has a name that this function does not know; it knows {', '.join(_NAMES)}"
            raise InputError(msg, _CALL)
        if name in arguments:
            raise InputError(f"the argument {name} is given twice", _CALL)
        arguments[name] = array
    if missing := [name for name in _NAMES[:2] if name not in arguments]:
        raise InputError(f"a call of this function lacks {' and '.join(missing)}", _CALL)
    return arguments["text"], arguments["id"], arguments.get("subject")


@contextmanager
def refusing() -> Iterator[None]:
    """Let a refusal leave the worker as its sentence, in front of which Spark would write a stack trace."""
    try:
        yield
    except DPTextError as error:
        if type(error) is not DPTextError:  # a defect keeps its trace
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # this process ends with the error
        raise


@bare
@refusing()
def release(policy_json: str, texts: pa.Array, ids: pa.Array, subjects: pa.Array | None = None) -> pa.Array:
    """Release one batch of a Spark column, charged first if the function has a ledger."""
    take_gpu()
    here = function_state(policy_json)
    with seam("releasing a batch", DPTextError, _DEFECT):
        if not is_string(texts.type):
            msg = f"the first argument is the text column and holds strings, got {arrow_kind(texts.type)}"
            raise InputError(msg, _SWAPPED)
        wanted = here.account is not None and here.account.per_subject
        if wanted and subjects is None:
            raise InputError(
                "this function charges subjects and got none",
                'call name(text, id, subject), or register(…, unit="record") if the unit is the record',
            )
        if subjects is not None and not wanted:
            msg = "this function charges no subjects and got some"
            raise InputError(msg, 'call name(text, id); register(…, ledger=…, unit="subject") charges subjects')
        if here.account is not None:
            ids, subjects, forms = here.account.arranged(ids, subjects)
        canonical = _required_ids(ids, "record ids", by_name=here.account is None)
        first, where = column.distinct(canonical)
        column.require_one_text(texts, first, where, _SWAPPED)
        if here.account is None:
            return _typed(column.privatize(texts, canonical, here.policy, spend=here.spend))
        people = None if subjects is None else _required_ids(subjects, "subject ids")
        if people is not None and len(first) < len(where) and not people.equals(people.take(first).take(where)):
            raise InputError("records of one id have several subjects", "give every record a unique id")
        chosen = [None if item is None else item.take(first) for item in (texts, canonical, people)]
        released = here.account.charge(chosen[0], chosen[1], chosen[2], forms, here.spend)
        return _typed(released.take(where))


def release_series(policy_json: str, text: Any, ids: Any, subject: Any) -> Any:
    """Release one batch of pandas Series; return structs as a DataFrame.

    pandas has fewer types than Arrow: timestamps arrive without a zone and are refused as ids, and a column that holds
    only nulls has no type.
    """
    import pandas as pd

    with seam("reading a batch from pandas", DPTextError, _PANDAS):
        columns = [None if column is None else _arrow(column) for column in (text, ids, subject)]
    released = release(policy_json, *columns)
    if pa.types.is_struct(released.type):
        frame = pd.DataFrame({field.name: released.field(field.name).to_pandas() for field in released.type})
        return frame.astype({"positions": "Int32"})
    return released.to_pandas()


@bare
@refusing()
def published_ids(key: str, dataset: str, release: str, ids: Any) -> Any:
    """Return the hashes that a view shows in the place of ids, a batch at a time."""
    from dptext_etl.runner.publish.parts import keyed_ids  # imports Polars

    with seam("hashing ids", DPTextError, _DEFECT):
        array = ids if isinstance(ids, pa.Array) else _arrow(ids)
        hashed = keyed_ids(key, dataset, release, _required_ids(array, "record ids"))
        return hashed.to_arrow().cast(pa.string()) if array is ids else hashed.to_pandas()


def _arrow(column: Any) -> pa.Array:
    if hasattr(column, "columns"):  # a DataFrame, which is a composite id
        return pa.Table.from_pandas(column, preserve_index=False).to_struct_array().combine_chunks()
    array = pa.array(column, from_pandas=True)
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


def _required_ids(ids: pa.Array, what: str, *, by_name: bool = False) -> pa.Array:
    if ids.null_count:
        hint = f"{_SWAPPED}; only a run leaves rows without a subject out, or charges them apart (on_null_subject)"
        raise InputError(f"{ids.null_count:,} {what} of a batch are null", hint if what == "subject ids" else _SWAPPED)
    return canonical_ids(ids, by_name=by_name)


def _typed(released: pa.Array) -> pa.Array:
    """Give Spark's types to a released column; a null struct becomes a struct of nulls, as in pandas."""
    if not pa.types.is_struct(released.type):
        return released.cast(pa.string())
    fields = [item.cast(field.type) for item, field in zip(released.flatten(), SPEND, strict=True)]
    return pa.StructArray.from_arrays(fields, fields=list(SPEND))
