"""Request GPUs for the tasks of a run from Spark's resource scheduling."""

from __future__ import annotations

from inspect import signature
from typing import Any

from dptext_etl.engines.spark.shipping import is_local
from dptext_etl.errors import PolicyError, seam


def gpu_profile(spark: Any, gpus: int) -> Any:
    """Return the resource profile that gives every task `gpus` GPUs, or None for 0."""
    if not gpus:
        return None
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
        raise PolicyError("gpus_per_task is a whole number, 0 or more")
    if is_local(spark):
        msg = "a local master hands out no GPUs: tasks that request one would wait for ever"
        raise PolicyError(msg, "leave gpus_per_task out: a local run uses the device that its mechanism finds")
    try:
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
    except ImportError:
        made = None
    else:
        with seam("asking Spark for GPUs", PolicyError, "executors need spark.executor.resource.gpu.amount"):
            wanted = TaskResourceRequests().cpus(1).resource("gpu", gpus)
            made = ResourceProfileBuilder().require(wanted).build
    if made is None or not _takes_profiles():
        raise PolicyError("gpus_per_task needs Spark 4.0 or newer", "set spark.task.resource.gpu.amount instead")
    return made


def _takes_profiles() -> bool:
    from pyspark.sql import DataFrame

    return "profile" in signature(DataFrame.mapInArrow).parameters
