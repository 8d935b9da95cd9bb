"""The SQL function of DuckDB refuses calls that could only go wrong; tests/contract has its texts."""

import pytest

from dptext_etl import ColumnPolicy, _kernel
from dptext_etl.duckdb import register
from dptext_etl.errors import InputError, PolicyError
from tests.review_jobs import SENTINEL

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra: dev)")


@pytest.fixture
def column(tmp_path, small_vectors):
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    mechanism = {"name": "custext", "epsilon": 2.0, "k": 5, "vectors": small_vectors}
    values = {"dataset": "d", "release": "r", "column": "text", "key": f"file:{tmp_path / 'noise.key'}"}
    return ColumnPolicy(**values, mechanism=mechanism, allow=["cluster"])


@pytest.mark.parametrize("name", ["concat", "CONCAT", "private_text"])
def test_a_name_that_a_query_might_take_for_another_function_is_refused(column, name):
    connection = duckdb.connect()
    register(connection, "private_text", column)
    with pytest.raises(PolicyError, match="DuckDB has a function"):
        register(connection, name, column)


def test_a_policy_may_forbid_it(column):
    with pytest.raises(PolicyError, match="sql_function = false"):
        register(duckdb.connect(), "private_text", column.model_copy(update={"sql_function": False}))
    with pytest.raises(InputError, match="registering the function failed"):
        register("no connection", "private_text", column)


@pytest.mark.parametrize(
    ("call", "said"), [("text, 'same'", "several texts"), ("text", "two arguments"), ("1, text", "holds strings")]
)
def test_a_failure_quotes_no_cell(column, call, said):
    connection = duckdb.connect()
    register(connection, "private_text", column)
    rows = f"(SELECT '{SENTINEL} ' || i AS text FROM range(3) t(i))"
    relation = connection.sql(f"SELECT private_text({call}) FROM {rows}")
    with pytest.raises(duckdb.Error, match=said) as caught:
        relation.fetchall()
    assert SENTINEL not in str(caught.value)
