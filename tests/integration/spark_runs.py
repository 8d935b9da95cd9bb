"""Frames, releases and balances of runs on Spark."""

from dptext_etl.ledger import Scope
from dptext_etl.runner import scan_published


def frame_of(spark, job, parts=3):
    return spark.read.parquet(str(job.folder / "raw.parquet")).repartition(parts)


def published(job):
    return scan_published(str(job.folder / "published")).collect().sort("id")


def used(job):
    with job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        return ledger.remaining(Scope.of(job.policy())).used
