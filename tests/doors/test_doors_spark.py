"""Every entry of a policy through Spark: runs, views, and SQL functions with a ledger."""

import pytest

from tests.later import later
from tests.toy_mechanisms import again  # noqa: F401  (a fixture)

from . import doors
from .test_doors import agree, cells, state, template  # noqa: F401  (fixtures)

later("pyspark", reason="pyspark is not installed (extra: spark)")


@pytest.mark.usefixtures("again", "state")
@pytest.mark.parametrize(("name", "entry"), [*cells(("view", "function")), *cells(("spark",), most=3)])
def test_each_entry_in_spark(spark, template, small_vectors, name, entry):  # noqa: F811
    agree(doors.of_spark(spark)[name], name, entry, template, small_vectors)
