"""Open a Spark session for a command: a configured one, or otherwise a local one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptext_etl import extras
from dptext_etl.device import DTYPE_SETTING, SETTING
from dptext_etl.errors import PolicyError, seam

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SURROUNDINGS = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_CONF_DIR")
"""Environment variables of a configured Spark: spark-submit, its arguments, a Connect server, a settings folder."""
_OWN: dict[str, Any] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of a local session: nothing listens outside this machine, and no message of a library quotes a row.

Java compiles quickly rather than well: it only moves rows here, and its second compiler took as much time as they did.
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
        builder = builder.master("local[*]").config(map=_OWN)
    for name in {SETTING, DTYPE_SETTING} & os.environ.keys():  # what `--device` and `--dtype` ask for
        builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    with seam("starting Spark", PolicyError, f"check its configuration, or {JAVA}"):
        made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()


def require_spark() -> None:
    """Refuse to start without pyspark or Java, with a clear message."""
    if find_spec("pyspark") is None:
        raise PolicyError("the Spark engine needs pyspark, which is not installed", extras.install("spark"))
    if "SPARK_REMOTE" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # Java runs elsewhere, or runs already
    home = os.environ.get("JAVA_HOME")
    if not (Path(home, "bin", "java").is_file() if home else shutil.which("java")):
        raise PolicyError("the Spark engine needs a Java runtime, and none was found", JAVA)
