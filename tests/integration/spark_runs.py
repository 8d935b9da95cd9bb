"""Frames, releases and balances of runs on Spark."""

from dptext_etl.ledger import Scope
from dptext_etl.runner import scan_published


def frame_of(spark, job, parts=3):
    return spark.read.parquet(str(job.folder / "raw.parquet")).repartition(parts)


def failing_once(failures, failed, how):
    """A checkpoint at which every task fails once after a step, and leaves a file there."""

    def checkpoint(name):
        import os

        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None or name != failed or task.attemptNumber():
            return
        (failures / f"{task.partitionId()}").touch()
        if how == "dies":
            os._exit(13)
        raise ValueError("zzqsentinelqzz")

    failures.mkdir()
    return checkpoint


def published(job):
    return scan_published(str(job.folder / "published")).collect().sort("id")


def used(job):
    with job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        return ledger.remaining(Scope.of(job.policy())).used
