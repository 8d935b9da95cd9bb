"""Fixtures of Spark: one session for all tests, and a cluster for those that need one."""

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres_server import free_port
from tests.quick import THOROUGH

TESTS = Path(__file__).resolve().parent
WORKER_SECRET = secrets.token_hex()
"""The value of DPTEXT_SECRET on the workers of the session, for pages and examples."""


@pytest.fixture(scope="session")
def java(pytestconfig):
    """Where Spark can start: pyspark with Spark Connect and a Java; or a skip that names the missing program."""
    if pytestconfig.getoption("--core"):
        pytest.skip("--core leaves Spark out")
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed (extra: spark)")
    if shutil.which("java") is None and not (Path(os.environ.get("JAVA_HOME", "none")) / "bin" / "java").exists():
        pytest.skip("Spark needs Java 17 or newer (on Debian: apt-get install openjdk-17-jre-headless)")


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory):
    """Settings of every session that tests start: only on the loopback, without a web page, small."""
    folder = tmp_path_factory.mktemp("spark")
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": str(THOROUGH).lower(),  # planning again costs more than few rows
        "spark.sql.codegen.wholeStage": "false",  # compiling a query is slower than to run it over few rows
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


@pytest.fixture(scope="session")
def connect_settings(java):
    """Settings by which a session also serves Spark Connect; none where its server is not installed (Spark 3.5)."""
    import pyspark

    if not list(Path(pyspark.__file__).parent.glob("jars/spark-connect_*")):
        return {}
    plugin = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}
    address = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(free_port())}
    return plugin | address


@pytest.fixture(scope="session")
def spark(_cache, java, spark_settings, connect_settings):
    """One session for all tests, classic here, by Connect elsewhere: two task slots, every task tried three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        with pytest.MonkeyPatch.context() as workers:
            workers.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
            workers.setenv("DPTEXT_SECRET", WORKER_SECRET)
            settings = spark_settings | connect_settings | {"spark.python.daemon.module": "dptext_etl.spark.daemon"}
            builder = SparkSession.builder.master("local[2,3]").appName("dptext-tests").config(map=settings)
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def spark_connect(spark, connect_settings):
    """Where a process that knows only Spark Connect finds the session of all tests."""
    if not connect_settings:
        pytest.skip("Spark has no Connect server here (pyspark[connect] 4 and newer)")
    return f"sc://127.0.0.1:{connect_settings['spark.connect.grpc.binding.port']}"


@pytest.fixture(scope="session")
def cluster(java, tmp_path_factory):
    """A standalone cluster: a master and two workers whose addresses differ, as speculation asks for."""
    import pyspark

    master = f"spark://127.0.0.1:{free_port()}"
    home, folder = str(Path(pyspark.__file__).parent), tmp_path_factory.mktemp("cluster")
    env = {**os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(folder / "work")}
    env |= {"SPARK_DAEMON_MEMORY": "256m"}

    def start(kind, address, *arguments):
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", address, "--webui-port", "0"]
        log = (folder / f"{kind}-{address}.log").open("wb")
        return subprocess.Popen([*command, *arguments], env=env, stdout=log, stderr=log)

    started = [start("master.Master", "127.0.0.1", "--port", master.rpartition(":")[2])]
    workers = ("worker.Worker", "--cores", "2", "--memory", "1g", master)
    started += [start(workers[0], address, *workers[1:]) for address in ("127.0.0.2", "127.0.0.3")]
    yield master
    for process in reversed(started):
        process.terminate()
        process.wait(timeout=600)


@pytest.fixture
def speculating():
    """Settings under which a cluster's slow task is started a second time on the other worker."""
    return {
        "spark.speculation": "true", "spark.speculation.interval": "50ms", "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "200ms",
        "spark.executor.memory": "512m", "spark.executor.cores": "2", "spark.cores.max": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }  # fmt: skip
