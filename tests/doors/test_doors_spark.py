"""Every entry of a policy through Spark: runs, views, and SQL functions with a ledger."""

import shutil
import sys

import pytest

from tests.later import later
from tests.quick import quick
from tests.toy_mechanisms import AGAIN, again, write_again  # noqa: F401  (again is a fixture)

from . import doors
from .test_doors import again_alike, agree, cells, known, state, template  # noqa: F401  (fixtures)

later("pyspark", reason="pyspark is not installed (extra: spark)")


FIRST = {("view", "cap"), ("view", "on_changed"), ("view", "synthetic")}
FIRST |= {
    ("function", "on_cap"),
    ("function", "on_null_subject"),
    ("function", "normalize"),
    ("function", "sql_function"),
}
"""Cells of views and functions that `make test` runs: two queries each, and other tests of Spark show the entries."""


def cells_of_queries():
    chosen = [cell.values for cell in cells(("view", "function"))]
    return quick(sorted(chosen, key=lambda cell: cell not in FIRST), first=len(FIRST))


@pytest.fixture(scope="module")
def on_workers(spark, tmp_path_factory):
    """The post-processing `again` where workers import it, with equal texts for equal texts."""
    folder = tmp_path_factory.mktemp("workers")
    write_again(folder / "again", AGAIN.replace("{os.urandom(4).hex()}", "again"))
    before = [*sys.path]
    spark.sparkContext.addPyFile(shutil.make_archive(str(folder / "again"), "zip", folder / "again"))
    sys.path[:] = before  # Spark added it here, too


@pytest.mark.usefixtures("again_alike", "on_workers", "state")
@pytest.mark.parametrize(("name", "entry"), [*cells_of_queries(), *cells(("spark",), most=3)])
def test_each_entry_in_spark(spark, template, small_vectors, known, name, entry):  # noqa: F811
    agree(doors.of_spark(spark)[name], name, entry, template, small_vectors, known)
