"""Every entry of a policy through Spark: runs, views, and SQL functions with a ledger."""

import shutil
import sys

import pytest

from tests.later import later
from tests.toy_mechanisms import AGAIN, again, write_again  # noqa: F401  (again is a fixture)

from . import doors
from .test_doors import again_alike, agree, cells, state, template  # noqa: F401  (fixtures)

later("pyspark", reason="pyspark is not installed (extra: spark)")


@pytest.fixture(scope="module")
def on_workers(spark, tmp_path_factory):
    """The post-processing `again` where workers import it, with equal texts for equal texts."""
    folder = tmp_path_factory.mktemp("workers")
    write_again(folder / "again", AGAIN.replace("{os.urandom(4).hex()}", "again"))
    before = [*sys.path]
    spark.sparkContext.addPyFile(shutil.make_archive(str(folder / "again"), "zip", folder / "again"))
    sys.path[:] = before  # Spark added it here, too


@pytest.mark.usefixtures("again_alike", "on_workers", "state")
@pytest.mark.parametrize(("name", "entry"), [*cells(("view", "function")), *cells(("spark",), most=3)])
def test_each_entry_in_spark(spark, template, small_vectors, name, entry):  # noqa: F811
    agree(doors.of_spark(spark)[name], name, entry, template, small_vectors)
