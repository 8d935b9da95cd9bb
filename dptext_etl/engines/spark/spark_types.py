"""Name columns of Spark frames, find the types of their batches, and make small frames."""

from __future__ import annotations

import json
import re
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import polars as pl
import pyarrow as pa

from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


def named(name: str) -> Column:
    """Return a column by its exact name, dots and blanks included."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(f"`{name.replace('`', '``')}`")


def url_of(path: str) -> str:
    return path if "://" in path else f"file://{Path(path).absolute()}"


def located(path: str) -> str:
    """Return the URL by which Spark reads one file (`[` begins a pattern); refuse a file that it ignores or rejects."""
    local = path.removeprefix("file://")
    name = local.rpartition("/")[2]
    if name.startswith((".", "_")):
        msg = f'the name of the file {path} begins with "." or "_", and Spark ignores such files'
        raise InputError(msg, "rename the file, or run with the engine polars; no budget used")
    if "://" not in local and _has_other_checksum(Path(local)):
        msg = f"the file {local} has changed since Hadoop wrote its checksums next to it, and Spark cannot read it"
        raise InputError(msg, f"remove .{name}.crc in its folder if the file is right")
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", url_of(path))


def _has_other_checksum(path: Path) -> bool:
    """Return whether the number, the first, or the last of Hadoop's checksums next to a file are of other bytes."""
    sums = path.with_name(f".{path.name}.crc")
    if not sums.is_file() or not path.is_file():
        return False
    head, found = sums.read_bytes()[:8], sums.read_bytes()[8:]
    step = max(1, int.from_bytes(head[4:], "big"))
    places = range(0, path.stat().st_size, step)
    if head[:4] != b"crc\0" or len(found) != 4 * len(places):
        return True
    with path.open("rb") as file:
        for place in {*places[:1], *places[-1:]}:
            file.seek(place)
            if crc32(file.read(step)).to_bytes(4, "big") != found[place // step * 4 :][:4]:
                return True
    return False


def local_frame(spark: SparkSession, rows: pl.DataFrame, schema: StructType) -> DataFrame:
    """Make a frame of rows that the driver holds; from Spark 4.0 on, they are read without a Python worker."""
    import pyspark

    if pyspark.__version__ < "4":
        return spark.createDataFrame(rows.rows(), schema)
    return spark.createDataFrame(rows.to_arrow(compat_level=pl.CompatLevel.oldest()), schema)


def polars_schema(frame: Any, wanted: tuple[str, ...] | None = None) -> pl.Schema:
    """Return the columns of a Spark frame with their types in a run; a TIMESTAMP, which has no zone, is in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    zone: dict[str, Any] = {"timezone": "UTC"}
    options = zone if "timezone" in signature(to_arrow_type).parameters else {}  # Spark 4.0 and newer
    types = {}
    for place, field in enumerate(frame.schema.fields, start=1):
        with seam(f"finding the Arrow type of column {place}", InputError, "cast the column, or drop it"):
            read = wanted is None or field.name in wanted
            types[field.name] = pl.Series(pa.array([], to_arrow_type(field.dataType, **options) if read else pa.null()))
    return pl.Schema({name: series.dtype for name, series in types.items()})


def require_unpadded(frame: Any, policy: Policy) -> None:
    """Refuse ids and subjects of type CHAR, which Spark fills with blanks in some tables and not in others."""
    for field in frame.schema.fields:
        if field.name in {policy.id, policy.subject} and _CHAR.search(json.dumps(field.jsonValue())):
            role = "record ids" if field.name == policy.id else "subjects"
            msg = f"{role} (column {field.name!r}) are of type CHAR, which Spark fills with blanks"
            hint = "make it VARCHAR or STRING in the table, or cast it: rtrim(column) as STRING; no budget used"
            raise InputError(msg, hint, {"column": field.name})


_CHAR = re.compile(r'"(__CHAR_VARCHAR_TYPE_STRING|type|elementType|keyType|valueType)": "[^"]*\bchar\(\d+\)')


def metadata(frame: Any) -> int:
    """Count the metadata of a frame's columns, nested ones included, beyond the length of a VARCHAR.

    Spark writes it into Parquet files, and keeps the labels of an indexed column there.
    """
    varchar, length = "__CHAR_VARCHAR_TYPE_STRING", re.compile(r"(var)?char\(\d+\)")
    waiting, total = [json.loads(frame.schema.json())], 0
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, list):
            waiting += inner
        elif isinstance(inner, dict):
            about = inner.pop("metadata", {}) if "name" in inner else {}
            total += sum(not (key == varchar and length.fullmatch(str(value))) for key, value in about.items())
            waiting += inner.values()
    return total
