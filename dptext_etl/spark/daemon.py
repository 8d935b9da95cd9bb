"""Import once per executor the modules that its Python workers need; each worker then starts as a copy of this process.

Spark starts it where `spark.python.daemon.module` names it (docs/spark.md, The package on the workers).
"""

import gc
import importlib

_NEEDED = ("pandas", "pyarrow.parquet", "polars", "dptext_etl.engines.spark.spark_engine")

if __name__ == "__main__":
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:  # an extra that is not installed
            continue
    from pyspark.daemon import manager

    from dptext_etl.parallel import fork_unused

    fork_unused()
    gc.freeze()  # a worker collects garbage after every task, and need not scan imported modules
    manager()
