"""Reviews of films as a table of Spark, and queries over it."""

import os
from importlib.metadata import version

import pytest

from dptext_etl.mechanisms.custext import CusText
from tests.later import later

later("pyspark", reason="pyspark is not installed (extra: spark)")
ARROW = tuple(map(int, version("pyspark").split(".")[:2])) >= (4, 1)
FORMS = ["arrow", "pandas"] if ARROW else ["pandas"]
ROWS = [(f"r{i}", None if i % 9 == 0 else f"a good film {'again ' * (i % 4)}", i, f"u{i % 5}") for i in range(200)]
EXAMPLE = {"name": "custext", **CusText.example().model_dump(mode="json", exclude_unset=True)}


def column(spark, query):
    return [row[0] for row in spark.sql(query).collect()]


def failure(spark, query):
    with pytest.raises(Exception, match=r"dptext_etl\.errors") as caught:
        spark.sql(query).collect()
    assert "Traceback" not in str(caught.value), "the sentence comes first"
    return str(caught.value)


def probe(carried):
    """Report the state of a worker."""
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def look(ids: pd.Series) -> pd.Series:
        from dptext_etl.spark import worker

        held = worker.function_state(carried)
        found = worker.function_state.cache_info()
        said = f"{os.getpid()} {found.misses} {os.environ.get('DPTEXT_THREADS')} {id(held)}"
        return pd.Series([said] * len(ids))

    return pandas_udf(look, "string")
