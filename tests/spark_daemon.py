"""Spark's daemon of Python workers, which imports once what they need and forks, so that a worker begins at once."""

import gc
import importlib

NEEDED = ("pandas", "pyarrow.parquet", "polars", "dptext_etl.engines.spark.tasks")

if __name__ == "__main__":
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:  # an extra that is not installed
            continue
    from pyspark.daemon import manager

    gc.freeze()  # a worker looks for garbage after every task
    manager()
