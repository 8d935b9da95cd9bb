"""Ask a session's workers whether they can compute: is the package there, which version of it, and of which libraries.

The question goes to the workers by value, because a worker that lacks the package cannot load a function of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from dptext_etl import __version__, extras
from dptext_etl.errors import DPTextError, PolicyError
from dptext_etl.extensions import distribution

_ROWS = 4096
"""Rows of the question: Spark makes a task per slot of them, up to this many."""
_SHOWN = 3
_HINT = (
    f"give every worker {extras.DISTRIBUTION} {__version__} with its extra spark: install it there, send an archive of "
    "an environment (spark.archives), or use an image that has it (docs/spark.md, The package on the workers); and set "
    "PYSPARK_PYTHON to the Python that has it"
)
_VERSIONS = "PYTHON_VERSION_MISMATCH"
_NO_PYTHON = ("Cannot run program", "error=2")
_NO_SPARK = ("No module named pyspark", "No module named 'pyspark'")


class Answer(BaseModel):
    """What a worker says of itself.

    Attributes:
        host: Name of its machine.
        python: Path of its Python.
        version: Version of `dptext_etl` there, or None if it is not there.
        module: Module that does not import, or None if all do.
        error: Type of the error of that import.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    python: str
    version: str | None
    module: str | None = None
    error: str | None = None

    def lack(self, packages: Mapping[str, str]) -> str | None:
        """Say what this worker lacks; None if it lacks nothing."""
        if self.version is None and self.module is not None:
            return f"cannot import dptext_etl: {extras.DISTRIBUTION} is not installed there"
        if self.version != __version__:
            return f"have {extras.DISTRIBUTION} {self.version}, and the driver has {__version__}"
        if missing := next((name for module, name in packages.items() if _within(module, self.module)), None):
            return f"lack {missing}: pip install {missing}"
        if self.module is not None:
            return f"have {extras.DISTRIBUTION}, but cannot import {self.module} ({self.error})"
        return None


def require_workers(spark: Any, modules: Iterable[str], parts: Iterable[object] = ()) -> int:
    """Refuse a session whose workers cannot import the package, or have another version of it than the driver.

    A small job asks as many tasks as the session has slots now. Executors that start later are not asked.
    """
    packages = {type(part).__module__: distribution(part) for part in parts}
    answers = _answers(spark, (*modules, *packages))
    lacks: dict[str, list[str]] = {}
    for answer in sorted(answers, key=lambda one: (one.host, one.python)):
        if lack := answer.lack(packages):
            lacks.setdefault(lack, []).append(f"{answer.host} ({answer.python})")
    if lacks:
        said = "; ".join(f"{_places(places, len(answers))} {lack}" for lack, places in lacks.items())
        raise PolicyError(f"workers of Spark cannot compute here: {said}", _HINT)
    return len(answers)


def _within(module: str, package: str | None) -> bool:
    return package is not None and f"{module}.".startswith(f"{package}.")


def _places(places: list[str], asked: int) -> str:
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return f"{len(places)} of {asked}, {', '.join(places[:_SHOWN])}{more},"


def _answers(spark: Any, modules: tuple[str, ...]) -> set[Answer]:
    from pyspark.sql.functions import udf

    asked = udf(_question(modules), "string", useArrow=False)  # an Arrow function needs pyarrow to be asked
    try:
        rows = spark.range(_ROWS).select(asked("id").alias("said")).collect()
    except Exception as exc:  # noqa: BLE001  (every version of Spark has classes of its own)
        failure = _failure(exc)
    else:
        return {Answer.model_validate_json(text) for text in {row.said for row in rows}}
    raise failure


def _failure(exc: Exception) -> DPTextError:
    """Say why workers did not answer; the question holds no data, but Spark's words stay in Spark's log."""
    said = str(exc)
    if _VERSIONS in said:
        what = "workers of Spark have another Python than the driver; major and minor version must be the same"
    elif all(mark in said for mark in _NO_PYTHON):
        what = "workers of Spark have no Python at the path of PYSPARK_PYTHON (or spark.pyspark.python)"
    elif any(mark in said for mark in _NO_SPARK):
        what = "the Python of Spark's workers lacks pyspark"
    else:
        what = f"workers of Spark did not answer a small job ({type(exc).__name__}); Spark's log says why"
    return PolicyError(what, _HINT)


def _question(modules: tuple[str, ...]) -> Callable[[int], str]:
    """Make the function that runs on workers: it holds no name of this package, so that pickle takes it by value."""
    known: list[str] = []

    def ask(_row: int) -> str:
        if known:
            return known[0]
        import importlib
        import json
        import socket
        import sys
        import time

        time.sleep(0.1)  # so that no slot takes the tasks of the others
        said = {"host": socket.gethostname(), "python": sys.executable, "version": None}
        try:
            for module in ("dptext_etl", *modules):
                said["module"] = module
                imported = importlib.import_module(module)
                said["version"] = said["version"] or getattr(imported, "__version__", "unknown")
        except Exception as exc:  # noqa: BLE001  (whatever a broken library raises)
            said["module"] = getattr(exc, "name", None) or said["module"]
            said["error"] = type(exc).__name__
        else:
            del said["module"]
        known.append(json.dumps(said))
        return known[0]

    return ask
