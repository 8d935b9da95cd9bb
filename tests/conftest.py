"""Shared by all tests: an artifact cache and word vectors of their own, real data where it lies beside the checkout."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Tables that tests build stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPTEXT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared_data():
    """`../shared/data`, or a skip that says so."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared data does not lie beside this checkout")
    return SHARED / "data"


@pytest.fixture(scope="session")
def small_vectors(tmp_path_factory):
    """103 words of 8 dimensions, with duplicate vectors and a remainder for every k used in tests."""
    random = np.random.default_rng(7)
    vectors = random.normal(size=(103, 8)).astype(np.float32)
    vectors[50:56] = vectors[50]
    words = np.array([*(f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100)), "the", "good", "don't"])
    path = tmp_path_factory.mktemp("vectors") / "small.npz"
    np.savez(path, words=words, vectors=vectors)
    return str(path)


@pytest.fixture(scope="session")
def java():
    """Where Spark can start: pyspark with Spark Connect and a Java; or a skip that says what is missing."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed (extra: spark)")
    if shutil.which("java") is None and not (Path(os.environ.get("JAVA_HOME", "none")) / "bin" / "java").exists():
        pytest.skip("Spark needs Java 17 or newer (on Debian: apt-get install openjdk-17-jre-headless)")


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory):
    """Settings of every session that tests start: on the loopback alone, without a web page, small."""
    folder = tmp_path_factory.mktemp("spark")
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }


@pytest.fixture(scope="session")
def spark(_cache, java, spark_settings):
    """One classic session for all tests: two task slots, every task tried three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2,3]").appName("dptext-tests").config(map=spark_settings)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
