"""Run a policy over a Spark data frame, read published tables, and label texts by published classifiers.

Executors reserve, compute, stage and commit; the driver checks and publishes, and gets counts and hashes but no rows.
Staging and sink are on storage that driver and executors share under one path, or in an object store.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dptext_etl.engines import run
from dptext_etl.engines.spark.session import located, read_text
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.families.aggregate import Classifier
from dptext_etl.file_formats import PARQUET
from dptext_etl.policy import PolicyLike, run_policy
from dptext_etl.runner import RunSummary, open_classifier
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.publish.manifest import published_manifest, scan
from dptext_etl.spark.functions import arrow_udf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@bare
def run_frame(
    df: DataFrame,
    policy: PolicyLike,
    *,
    id: str | None = None,  # noqa: A002  (the argument's name is the column's role)
    subject: str | None = None,
    gpus_per_task: float = 0,
    check_workers: bool | None = None,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    accept_fewer_rows: bool = False,
    progress: Listener | None = None,
    **entries: Any,
) -> RunSummary:
    """Release the text columns of a Spark frame as a whole run: charge, compute, stage, commit, check, publish.

    Every record gets the same text and the same charge as from `dptext_etl.run`. Task retries, speculation and a second
    call change nothing; a run that was killed continues where it stopped.

    Args:
        df: The raw table, of classic Spark or Spark Connect; every evaluation must give the same rows.
        policy: A policy, the path of one, or the policy of one column, with the other entries of a run in `entries`.
            The run does not read its source.
        id: Column of the record ids, if the frame uses another name than the policy.
        subject: Column of the subjects, if the frame uses another name than the policy.
        gpus_per_task: GPUs per task, from the cluster's resource scheduling; 0 for none, 0.5 for two tasks on one.
        check_workers: Ask the workers first whether they can compute, as `register` does; None asks unless the
            master is local.
        partition: Name of the partition, if the policy has a place for one.
        accept_lower_cap: Lower the pinned cap to the policy's cap; otherwise a lower cap is refused.
        accept_fewer_rows: Leave out more than 10% of the published rows that the source still holds.
        progress: Called with counts, rate, and remaining time, from a separate thread.
        entries: Entries of the policy to set: `sink`, `ledger`, `cap`, `keep`, `unit`, …

    Returns:
        Counts, spends, verdicts, and the place of the published table.

    Raises:
        PolicyError: The run cannot be carried out as written, or a worker lacks something; nothing is lost.
        LedgerError: The ledger is a SQLite file, but executors run on other machines.
        BudgetError: Records are over the cap, and on_cap is "refuse".
        GateError: A gate failed: nothing is published, charges stay, and the release name is revoked.
    """
    named = {"id": id, "subject": subject, **entries}
    whole = run_policy(policy, {name: value for name, value in named.items() if value is not None})
    return run(
        whole,
        engine=SparkEngine(df, gpus_per_task, check_workers),
        partition=partition,
        accept_lower_cap=accept_lower_cap,
        accept_fewer_rows=accept_fewer_rows,
        progress=progress,
    )


@bare
def published(
    spark: SparkSession, path: str, storage_options: Mapping[str, str] | None = None, *, verify: bool = True
) -> DataFrame:
    """Read the current version of a published table, and check first that its files match its manifest.

    Args:
        spark: The session; its executors see the files under the same paths.
        path: Folder or object-store URL of the table, which is the policy's sink.
        storage_options: Options with which the driver reads the manifest of an object store; values may be "env:NAME".
            Executors read the objects with Spark's own settings.
        verify: Read every file once and compare its hash (see `runner.scan_published`).

    Returns:
        A frame of the version that was current at the call; a later publication does not change it.

    Raises:
        InputError: Nothing is published there, or a file is not the one that was published.
    """
    layout = Layout.of_sink(path, dict(storage_options or {}))
    manifest = published_manifest(layout, verify=verify)
    paths = [located(layout.part(part.path)) for part in manifest.parts]
    if manifest.file_format != PARQUET.name:
        return read_text(spark, paths, manifest.file_format, scan(layout, manifest).collect_schema())
    with seam(
        "opening a published table with Spark", InputError, "check that every executor sees the files under this path"
    ):
        return spark.read.parquet(*paths)


@lru_cache(maxsize=4)
def _opened(content: bytes) -> Classifier:
    """Read a classifier; a function of this module, because Spark pickles it by its name."""
    return Classifier.read(content)


@bare
def label_function(classifier: Classifier | str | Path, corpus: str | None = None) -> Any:
    """Return a function of a column of texts that returns their labels, strings; null where the text is null.

    It reads your own texts and costs nothing. Nothing of it is a release: labels of private texts are private.
    `spark.udf.register(NAME, label_function(…))` makes it a function of SQL.

    Args:
        classifier: The classifier, or the place of its release (`open_classifier`).
        corpus: The folder of the classifier's corpus on the workers; by default the installed one of that name.
    """
    declare = arrow_udf("label_function", "label a Parquet file by `dptext label`")
    opened = classifier if isinstance(classifier, Classifier) else open_classifier(classifier)
    content = opened.content()

    def labels(texts: pa.Array) -> pa.Array:
        return _opened(content).label(texts, corpus)

    labels.__annotations__ = {"texts": pa.Array, "return": pa.Array}
    return declare(labels, "string")
