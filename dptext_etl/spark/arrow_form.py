"""Make the Arrow form of a SQL function, which takes Arrow arrays and returns one (Spark 4.1 and newer)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf

from dptext_etl.spark import worker


def function(carried: str, *, spend: bool) -> Any:
    """Return the function of (text, id, subject); it is pickled together with the string `carried` alone."""

    def release(*columns: pa.Array, **named: pa.Array) -> pa.Array:
        return worker.release(carried, *worker.arguments(columns, named))

    declare: Any = arrow_udf  # its overloads expect annotations that users write
    return declare(release, worker.SPEND_SQL if spend else "string")
