"""Count over Spark frames: executors count the batches, and counts alone come back.

This works with classic sessions and Spark Connect. It does not import Great Expectations, so that workers stay light.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import polars as pl
import pyarrow as pa

from dptext_etl.checks.great_expectations.tallies import Counts, Tally, added
from dptext_etl.errors import GateError, InputError, LedgerError, seam
from dptext_etl.ledger.storage.store import POSTGRES, resolve_url

_VARCHAR, _LENGTH = "__CHAR_VARCHAR_TYPE_STRING", re.compile(r"(var)?char\(\d+\)")


def is_spark(frame: object) -> bool:
    """Say whether something is a Spark frame, classic or Connect; this does not import pyspark."""
    return type(frame).__module__.startswith("pyspark.sql.")


def polars_schema(frame: Any, wanted: tuple[str, ...] | None = None) -> pl.Schema:
    """Return the columns of a Spark frame with the types that its batches have."""
    from pyspark.sql.pandas.types import to_arrow_type

    zone: dict[str, Any] = {"timezone": frame.sparkSession.conf.get("spark.sql.session.timeZone")}
    options = zone if "timezone" in signature(to_arrow_type).parameters else {}  # Spark 4.0 and newer
    types = {}
    for place, field in enumerate(frame.schema.fields, start=1):
        with seam(f"finding the Arrow type of column {place}", InputError, "cast the column, or drop it"):
            read = wanted is None or field.name in wanted
            types[field.name] = pl.Series(pa.array([], to_arrow_type(field.dataType, **options) if read else pa.null()))
    return pl.Schema({name: series.dtype for name, series in types.items()})


def metadata(frame: Any) -> int:
    """Count the metadata of a frame's columns, nested ones included, beyond the length of a VARCHAR.

    Spark writes it into Parquet files, and keeps the labels of an indexed column there.
    """
    waiting, found = [json.loads(frame.schema.json())], 0
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, list):
            waiting += inner
        elif isinstance(inner, dict):
            about = inner.pop("metadata", {}) if "name" in inner else {}
            found += sum(not (key == _VARCHAR and _LENGTH.fullmatch(str(value))) for key, value in about.items())
            waiting += inner.values()
    return found


def count(make: Callable[[], Tally], frame: Any) -> Counts:
    """Count over a Spark frame."""
    names = list(frame.columns)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"counts": [_counted(make, names, batches)]})

    plain = frame.toDF(*(f"c{at}" for at in range(len(names))))  # names that Spark does not parse
    with seam("counting on Spark", GateError, "the executors' logs say more"):
        found = [json.loads(row[0]) for row in plain.mapInArrow(work, "counts string").collect()]
    return added(found) if found else make().counts()


def _counted(make: Callable[[], Tally], names: list[str], batches: Iterator[pa.RecordBatch]) -> str:
    os.environ.setdefault("DPTEXT_THREADS", "1")
    with seam("counting on an executor", GateError):
        tally = make()
        for batch in batches:
            table = pl.DataFrame(batch)
            table.columns = names
            tally.feed(table)
        return json.dumps(tally.counts())


def require_reach(frame: Any, url: str) -> None:
    """Refuse to look up rows in a ledger that executors may not see."""
    master = str(frame.sparkSession.conf.get("spark.master", None))
    if not resolve_url(url).startswith(POSTGRES) and not master.startswith("local"):
        msg = "a SQLite ledger is a file of one machine, and the executors of this Spark are not known to run on it"
        raise LedgerError(msg, "validate with a local master, or read the published files with Polars")
