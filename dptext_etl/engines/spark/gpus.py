"""Compute on the GPU that Spark gave a task, also in a worker process that Spark reuses."""

from __future__ import annotations

from dptext_etl import device


def take_gpu() -> None:
    """Compute on the first GPU that Spark gave the running task; without one, change nothing."""
    try:
        from pyspark import TaskContext
    except ImportError:  # this is no worker; tests call this function, too
        return
    context = TaskContext.get()
    given = context.resources().get("gpu") if context is not None else None
    if given is not None and given.addresses:
        device.take_gpu(given.addresses[0])
