"""Open a Spark session for a command, ask its workers whether they can compute, and read files and tables.

The driver reads the log by the library of the format, so Spark needs no package of that format.

Frames have the same columns and types as in Polars. A question goes to the workers by value, because a worker that
lacks the package cannot load a function of it: is the package there, which version of it, and of which libraries.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from inspect import signature
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from zlib import crc32

import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from dptext_etl import __version__, extensions, object_stores
from dptext_etl.data_types import by_name
from dptext_etl.device import DTYPE_SETTING, SETTING
from dptext_etl.errors import DPTextError, InputError, PolicyError, bare, seam
from dptext_etl.extensions import distribution
from dptext_etl.file_formats import FORMATS, PARQUET
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.source.column_types import is_logical, logical_types, restored
from dptext_etl.runner.source.roles import folder_columns, from_folders, open_table, refuse_own_inputs, wanted_columns
from dptext_etl.runner.source.table import READ_HINT, Files, Version, batches, schema_of

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


def read_version(spark: SparkSession, files: Files, version: Version, options: dict[str, str]) -> DataFrame:
    if files.format == "iceberg":
        scanned, types = files.scan(), logical_types(files)
        schema = schema_of(restored(scanned, types))
        read = partial(_iceberg_frames, replace(version, storage={}), types)
        tasks = pl.DataFrame({_PATH: [b64encode(file).decode() for file in version.iceberg_files()]})
        return _on_workers(spark, read, tasks, schema, options)
    table = version.delta_files()
    with seam("opening the source with Spark", InputError, READ_HINT):
        from pyspark.sql.types import StructType

        columns = StructType.fromJson(table.schema)
        if not table.paths:
            return spark.createDataFrame([], columns)
        reader = spark.read.schema(columns)
        if table.partition_by:  # their values are in the names of folders below the table's
            reader = reader.option("basePath", url_of(table.root))
        frame = reader.parquet(*map(located, table.paths))
        return frame.select(*(named(field.name) for field in columns.fields))


_SURROUNDINGS = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_CONF_DIR")
"""Environment variables of a configured Spark: spark-submit, its arguments, a Connect server, a settings folder."""
_LOCAL_SETTINGS: dict[str, Any] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.python.daemon.module": "dptext_etl.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of a local session: nothing listens outside this machine, and no message of a library quotes a row.

Java compiles quickly rather than well: it only moves rows here, and its second compiler needed the same time again.
"""
JAVA = "install Java 17 or newer (on Debian: apt-get install openjdk-17-jre-headless) and set JAVA_HOME if need be"


@contextmanager
def session() -> Iterator[SparkSession]:
    """Start a session for the block, or use the running one and leave it open.

    Without a configuration the session is local and uses all cores of this machine.
    """
    require_spark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dptext")
    if not any(name in os.environ for name in _SURROUNDINGS):
        builder = builder.master("local[*]").config(map=_LOCAL_SETTINGS)
    for name in {SETTING, DTYPE_SETTING} & os.environ.keys():  # from `--device` and `--dtype`
        builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    with seam("starting Spark", PolicyError, f"check its configuration, or {JAVA}"):
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def bounds_batches(spark: SparkSession) -> bool:
    """Return whether Spark bounds the bytes of a batch (4.1 and newer), and not only its rows."""
    try:
        return int(str(spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")).rstrip("bB")) > 0
    except Exception:  # noqa: BLE001  (an older version does not know the setting; each has its own errors)
        return False


def require_spark() -> None:
    """Refuse to start without pyspark or Java, with a clear message."""
    if find_spec("pyspark") is None:
        raise PolicyError("the Spark engine needs pyspark, which is not installed", extensions.pip_install("spark"))
    if "SPARK_REMOTE" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # Java runs elsewhere, or runs already
    home = os.environ.get("JAVA_HOME")
    if not (Path(home, "bin", "java").is_file() if home else shutil.which("java")):
        raise PolicyError("the Spark engine needs a Java runtime, and none was found", JAVA)


def read_source(
    spark: SparkSession, policy: Policy, partition: str | None = None, files: Files | None = None
) -> DataFrame:
    """Read the source of a policy; `files` are its files, if the caller has found them."""
    layout = Layout.of(policy, partition)
    files = Files.find(layout) if files is None else files
    refuse_own_inputs(policy, files.paths)
    if files.version is not None:
        return read_version(spark, files, files.version, policy.storage_options)
    if files.kind is PARQUET:
        return _read_parquet(spark, files, policy)
    table = open_table(policy, layout, files, coarsen=False)
    names = schema_of(files.scan(all_text=True)).names()
    in_files = pl.Schema({name: table.schema.get(name, pl.String()) for name in names})
    paths = [path if is_remote(path) else str(Path(path).absolute()) for path in files.each]
    in_folders = {name: values for name, values in folder_columns(paths).items() if name in table.schema}
    added = {name: pl.Series([*values.values()], dtype=pl.String) for name, values in in_folders.items()}
    read = partial(_text_frames, replace(files, paths=(), storage={}, raw=False), in_files)
    places = pl.DataFrame({_PATH: paths, **{name: values for name, values in added.items() if name not in names}})
    return _on_workers(spark, read, places, in_files, policy.storage_options)


def _read_parquet(spark: SparkSession, files: Files, policy: Policy) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    types = logical_types(files)
    if any(is_logical(dtype, frozenset({"arrow.uuid"})) for dtype in types.values()):
        msg = "the source has a column of UUIDs, which Spark does not read from Parquet files; no budget used"
        raise InputError(msg, "run with the engine polars, or write the column as strings")
    files.refuse_drift(wanted_columns(policy))
    added = from_folders(files, policy, files.scan, schema_of(files.scan()))
    with seam("opening the source with Spark", InputError, READ_HINT):
        frame = spark.read.parquet(*map(located, files.each))
        if added:  # Spark finds them in the names of the folders below a base
            folders = [place.rpartition("/")[0].split("/") for place in map(url_of, files.each)]
            shared = os.path.commonprefix(folders)  # noqa: RUF071  (of lists)
            above = takewhile(lambda part: unquote(part.partition("=")[0]) not in added, shared)
            fields = [field for field in frame.schema if field.name not in added]
            both = StructType([*fields, *(StructField(name, StringType()) for name in added)])
            reader = spark.read.schema(both).option("basePath", "/".join([*above, ""]))
            more = reader.parquet(*map(located, files.each))
            frame = more.select(*(named(field.name).cast(field.dataType).alias(field.name) for field in both))
        empty = [name for name, dtype in types.items() if str(dtype) == "null"]
        return frame.withColumns({name: named(name).cast("string") for name in empty}) if empty else frame


Read = Callable[[str, dict[str, Any]], Iterable[pl.DataFrame]]
"""Reads the rows of one place, with the options of its store."""


def _on_workers(
    spark: SparkSession, read: Read, places: pl.DataFrame, schema: pl.Schema, options: dict[str, str]
) -> DataFrame:
    """Let every task read a file as a run in one process does, and add the columns from the names of its folders."""
    from pyspark.sql.pandas.types import to_arrow_schema

    with seam("opening the source with Spark", InputError, READ_HINT):
        spark_schema = _spark_schema(pl.Schema({**schema, **places.drop(_PATH).schema}))
        listed = local_frame(spark, places, _spark_schema(places.schema)).repartition(max(1, places.height))
        return listed.mapInArrow(partial(_rows, read, options, to_arrow_schema(spark_schema)), spark_schema)


@bare
def _rows(
    read: Read, options: dict[str, str], arrow: pa.Schema, places: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    os.environ.setdefault("DPTEXT_THREADS", "1")
    for place in (place for batch in places for place in batch.to_pylist()):
        path = place.pop(_PATH)
        added = [pl.lit(value, pl.String).alias(name) for name, value in place.items()]
        with seam("reading the source", InputError, READ_HINT):
            for rows in read(path, object_stores.resolved(options)):
                table = rows.with_columns(added).to_arrow(compat_level=pl.CompatLevel.oldest())
                yield from table.cast(arrow).to_batches()


def _text_frames(files: Files, schema: pl.Schema, path: str, storage: dict[str, Any]) -> Iterator[pl.DataFrame]:
    """Read a CSV or NDJSON file."""
    file = replace(files, paths=(path,), storage=storage)
    return batches(file.scan(schema=schema).select(map(by_name, schema)), _BATCH_ROWS)


def unreadable(spark: SparkSession, policy: Policy, files: Files, wanted: Sequence[str]) -> list[str | None]:
    """Let tasks say of each file why it cannot be read (`Files.why`)."""
    schema, paths = pl.Schema({"path": pl.String(), "why": pl.String()}), [*files.each]
    read = partial(_why, replace(files, paths=(), storage={}), schema, wanted)
    rows = _on_workers(spark, read, pl.DataFrame({_PATH: paths}), schema, policy.storage_options).collect()
    by_path = {row["path"]: row["why"] for row in rows}
    return [by_path[path] for path in paths]


def _why(
    files: Files, schema: pl.Schema, wanted: Sequence[str], path: str, storage: dict[str, Any]
) -> Iterator[pl.DataFrame]:
    yield pl.DataFrame([(path, replace(files, storage=storage).why(wanted, path))], schema, orient="row")


def _iceberg_frames(version: Version, types: Any, task: str, storage: dict[str, Any]) -> Iterator[pl.DataFrame]:
    """Read a data file of an Iceberg table."""
    for batch in replace(version, storage=storage).iceberg_batches([b64decode(task)]):
        frame = pl.DataFrame(batch)
        yield from restored(frame.lazy(), types).collect().iter_slices(_BATCH_ROWS)


def read_text(spark: SparkSession, paths: list[str], file_format: str, schema: pl.Schema) -> DataFrame:
    """Read files that a run published, with the types of their manifest."""
    kind = FORMATS[file_format]
    if kind.spark is None:
        raise InputError(f"Spark reads no {kind.title} files", "read them with `scan_published`, or publish Parquet")
    name, options, types = kind.spark
    with seam("opening files with Spark", InputError, READ_HINT):
        read_schema = pl.Schema({name: types.get(type(dtype), dtype) for name, dtype in schema.items()})
        reader = spark.read.options(**options, mode="FAILFAST").schema(_spark_schema(read_schema))
        return reader.load(paths, format=name)


def _spark_schema(schema: pl.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pl.DataFrame(schema=schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema)


_PATH = "__dptext_path"
"""Column of file paths; columns of a source have other names."""
_BATCH_ROWS = 1 << 14
"""Rows of a text file that go from a worker to Spark at a time."""
_ROWS = 4096
"""Rows of the question: Spark makes a task per slot of them, up to this many."""
_MOST_WORKERS = 3
_HINT = (
    f"give every worker {extensions.DISTRIBUTION} {__version__} with its extra spark: install it there, send an "
    "archive of an environment (spark.archives), or use an image that has it (docs/spark.md, The package on the "
    "workers); and set PYSPARK_PYTHON to the Python that has it"
)
_VERSIONS = "PYTHON_VERSION_MISMATCH"
_NO_PYTHON = ("Cannot run program", "error=2")
_NO_SPARK = ("No module named pyspark", "No module named 'pyspark'")
_NO_PACKAGE = ("No module named dptext_etl", "No module named 'dptext_etl'")


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    python: str
    version: str | None  # version of `dptext_etl` there, or None if it is not there
    module: str | None = None  # module that does not import, or None if all do
    key: str | None = None  # reference of the key that does not resolve there, or None if all do
    error: str | None = None  # type of the error of that import or key

    def lack(self, packages: Mapping[str, str]) -> str | None:
        if self.version is None and self.module is not None:
            return f"cannot import dptext_etl: {extensions.DISTRIBUTION} is not installed there"
        if self.version != __version__:
            return f"have {extensions.DISTRIBUTION} {self.version}, and the driver has {__version__}"
        for module, name in packages.items():
            if self.module is not None and f"{module}.".startswith(f"{self.module}."):
                return f"lack {name}: pip install {name}"
        if self.module is not None:
            return f"have {extensions.DISTRIBUTION}, but cannot import {self.module} ({self.error})"
        if self.key is not None:
            return f"cannot resolve the key {self.key} ({self.error})"
        return None


def require_workers(spark: Any, modules: Iterable[str], parts: Iterable[object] = (), keys: Iterable[str] = ()) -> int:
    """Refuse a session whose workers lack the package, its version on the driver, or a key that a reference names.

    A small job asks as many tasks as the session has slots now. Executors that start later are not asked.
    """
    packages = {type(part).__module__: distribution(part) for part in parts}
    answers = _answers(spark, (*modules, *packages), tuple(keys))
    lacks: dict[str, list[str]] = {}
    for answer in sorted(answers, key=lambda item: (item.host, item.python)):
        if lack := answer.lack(packages):
            lacks.setdefault(lack, []).append(f"{answer.host} ({answer.python})")
    problems = []
    for lack, places in lacks.items():
        more = f" and {len(places) - _MOST_WORKERS} more" if len(places) > _MOST_WORKERS else ""
        problems.append(f"{len(places)} of {len(answers)}, {', '.join(places[:_MOST_WORKERS])}{more}, {lack}")
    if problems:
        raise PolicyError(f"workers of Spark cannot compute here: {'; '.join(problems)}", _HINT)
    return len(answers)


def _answers(spark: Any, modules: tuple[str, ...], keys: tuple[str, ...]) -> set[Answer]:
    from pyspark.sql.functions import udf

    question = udf(_question(modules, keys), "string", useArrow=False)  # an Arrow function needs pyarrow to be asked
    try:
        rows = spark.range(_ROWS).select(question("id").alias("answer")).collect()
    except Exception as exc:  # noqa: BLE001  (every version of Spark has its own classes)
        failure = _failure(exc)
    else:
        return {Answer.model_validate_json(text) for text in {row.answer for row in rows}}
    raise failure


def _failure(exc: Exception) -> DPTextError:
    """Return why workers did not answer; the question holds no data, but Spark's words stay in Spark's log."""
    message = str(exc)
    if _VERSIONS in message:
        what = "workers of Spark have another Python than the driver; major and minor version must be the same"
    elif all(mark in message for mark in _NO_PYTHON):
        what = "workers of Spark have no Python at the path of PYSPARK_PYTHON (or spark.pyspark.python)"
    elif any(mark in message for mark in _NO_SPARK):
        what = "the Python of Spark's workers lacks pyspark"
    elif any(mark in message for mark in _NO_PACKAGE):  # the daemon of workers is a module of this package
        what = "workers of Spark cannot import dptext_etl: dptext-etl is not installed there"
    else:
        what = f"workers of Spark did not answer a small job ({type(exc).__name__}); Spark's log says why"
    return PolicyError(what, _HINT)


def _question(modules: tuple[str, ...], keys: tuple[str, ...] = ()) -> Callable[[int], str]:
    """Make the function that runs on workers: it holds no name of this package, so that pickle sends it by value."""
    answers: list[str] = []

    def ask(_row: int) -> str:
        if answers:
            return answers[0]
        import importlib
        import json
        import socket
        import sys
        import time

        time.sleep(0.1)  # so that no slot runs the tasks of the others
        answer = {"host": socket.gethostname(), "python": sys.executable, "version": None}
        try:
            for module in ("dptext_etl", *modules):
                answer["module"] = module
                imported = importlib.import_module(module)
                answer["version"] = answer["version"] or getattr(imported, "__version__", "unknown")
            answer["module"] = None
            for key in keys:
                answer["key"] = key
                importlib.import_module("dptext_etl.keys").resolve(key)
            answer["key"] = None
        except Exception as exc:  # noqa: BLE001  (whatever a broken library or a provider of keys raises)
            if not answer.get("key"):
                answer["module"] = getattr(exc, "name", None) or answer["module"]
            answer["error"] = type(exc).__name__
        answers.append(json.dumps(answer))
        return answers[0]

    return ask
