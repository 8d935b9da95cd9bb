"""Make the pandas form of a SQL function, which takes Series and returns a Series or a frame (Spark 3.5 and newer)."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pyspark.sql.pandas.functions import pandas_udf

from dptext_etl.spark import series, worker


def function(carried: str, *, spend: bool) -> Any:
    """Return the function of (text, id, subject); it is pickled together with the string `carried` alone."""

    def release(*columns: pd.Series, **named: pd.Series) -> pd.Series:
        return series.release(carried, *worker.arguments(columns, named))

    def release_with_spend(*columns: pd.Series, **named: pd.Series) -> pd.DataFrame:
        return series.release(carried, *worker.arguments(columns, named))

    declare: Any = pandas_udf  # its overloads expect annotations that users write
    return declare(release_with_spend, worker.SPEND_SQL) if spend else declare(release, "string")
