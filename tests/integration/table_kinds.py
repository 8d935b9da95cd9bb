"""What tests of runs that publish tables of Delta Lake and Iceberg need of each format."""

import json
from typing import ClassVar

import polars as pl

from dptext_etl.checks.published import check_published

THEIRS = [f"r{i:05d}" for i in range(7, 240, 40)]
"""The records of subject u007."""


class Delta:
    """A table of Delta Lake in the sink of a job."""

    format, called, library = "delta", "Delta Lake", "deltalake"
    types: ClassVar = {
        "small": pl.col("stars").cast(pl.Int8),
        "share": pl.col("stars") / 3,
        "zoned": pl.datetime(2026, 1, "stars", time_zone="Europe/Berlin"),
    }
    unknown = pl.UInt8, pl.Duration, pl.Datetime("ns")
    strangers: ClassVar = {
        "append": lambda job: Delta.rows(job).head(3).write_delta(place(job), mode="append"),
        "delete": lambda job: Delta.table(job).delete("stars = 1"),
    }

    @staticmethod
    def entry(folder):
        return {"format": "delta"}

    @staticmethod
    def table(job):
        import deltalake

        return deltalake.DeltaTable(place(job))

    @staticmethod
    def rows(job):
        return pl.read_delta(place(job))

    @staticmethod
    def versions(job):
        """The versions of the table that are not expired, newest last, by their names in the ledger."""
        return [f"delta-{number}" for number in range(Delta.table(job).version() + 1)]

    @staticmethod
    def files(job):
        return set(Delta.table(job).file_uris())

    @staticmethod
    def is_shown(job):
        import deltalake

        return deltalake.DeltaTable.is_deltatable(place(job))

    @staticmethod
    def properties(job):
        """The properties of the release that the table states."""
        return json.loads(Delta.table(job).history(1)[0]["userMetadata"])

    @staticmethod
    def rewrite(job):
        Delta.table(job).optimize.compact()

    @staticmethod
    def make_foreign(job, frame):
        frame.write_delta(place(job))


class Iceberg:
    """A table of Iceberg in the sink of a job, and its catalog next to the job's files."""

    format, called, library = "iceberg", "Iceberg", "pyiceberg"
    types: ClassVar = {
        "few": pl.col("stars").cast(pl.Int32),
        "share": pl.col("stars").cast(pl.Float32),
        "zoned": pl.datetime(2026, 1, "stars", time_zone="UTC"),
    }
    unknown = pl.Int8, pl.UInt32, pl.Time
    strangers: ClassVar = {
        "append": lambda job: Iceberg.table(job).append(arrow(Iceberg.rows(job).head(3))),
        "delete": lambda job: Iceberg.table(job).delete("stars = 1"),
    }

    @staticmethod
    def entry(folder):
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        return {"format": "iceberg", "name": "public.reviews", "catalog": catalog}

    @staticmethod
    def catalog(job, **more):
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **job.values["table"]["catalog"], **more)

    @staticmethod
    def table(job):
        return Iceberg.catalog(job).load_table("public.reviews")

    @staticmethod
    def rows(job):
        found = pl.DataFrame(Iceberg.table(job).scan().to_arrow())
        return found.sort("id") if "id" in found.columns else found

    @staticmethod
    def versions(job):
        return [f"iceberg-{snapshot.snapshot_id}" for snapshot in Iceberg.table(job).snapshots()]

    @staticmethod
    def files(job):
        return {task.file.file_path for task in Iceberg.table(job).scan().plan_files()}

    @staticmethod
    def is_shown(job):
        return Iceberg.catalog(job).table_exists("public.reviews")

    @staticmethod
    def properties(job):
        found = Iceberg.table(job).properties
        return {name: value for name, value in found.items() if name.startswith("dptext.") and name != "dptext.release"}

    @staticmethod
    def rewrite(job):
        table = Iceberg.table(job)
        table.overwrite(table.scan().to_arrow())

    @staticmethod
    def make_foreign(job, frame):
        catalog = Iceberg.catalog(job, warehouse=f"file://{job.folder}/theirs")
        catalog.create_namespace("public")
        catalog.create_table("public.reviews", arrow(frame).schema)


KINDS = (Delta, Iceberg)


def place(job):
    return str(job.folder / "published")


def arrow(frame):
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def failing(job, **changes):
    """The messages of the gates that fail for the published table, by gate."""
    verdicts = check_published(job.folder / "published", job.policy(**changes))
    return {verdict.name: verdict.message for verdict in verdicts if not verdict.passed}


def recorded(job):
    """The names of the publications of the first column in the ledger."""
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return list(ledger.releases.published(ledger.releases.find_all(job.policy())["review"]))
