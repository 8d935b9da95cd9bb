"""Let downstream assets read the published table, and nothing else, as a lazy frame.

Dagster's own I/O managers for frames log sampled rows. This one logs nothing and stores nothing.
"""

# No `from __future__ import annotations`: Dagster resolves annotations at run time.
from typing import Any, NoReturn

import dagster as dg
import polars as pl

from dptext_etl.errors import PolicyError
from dptext_etl.orchestration.failures import as_failure
from dptext_etl.policy import Policy
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout


class PublishedTable(dg.IOManager):
    """Load the published table of a policy for parameters such as `def topics(published_notes: pl.LazyFrame)`.

    A parameter annotated `pl.DataFrame` or `pandas.DataFrame` gets such a data frame, any other a lazy frame. An asset
    that takes several partitions gets them one after the other in one frame.

    Args:
        policy: The policy that publishes.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the version that the manifest names; rows are read only when the frame is collected.

        Raises:
            dagster.Failure: Nothing is published there.
        """
        with as_failure("reading the published table"):
            partitions = context.asset_partition_keys if context.has_asset_partitions else [None]
            frame = pl.concat([self._scan(partition) for partition in partitions])
            wanted = context.dagster_type.typing_type
            if wanted is pl.DataFrame:
                return frame.collect()
            return frame.collect().to_pandas() if _is_pandas(wanted) else frame

    def handle_output(self, context: dg.OutputContext, obj: object) -> NoReturn:  # noqa: ARG002
        """Refuse to write, because only the runner publishes."""
        msg = "the published table is written by its own step alone"
        raise PolicyError(msg, "give your asset another io_manager_key")

    def _scan(self, partition: str | None) -> pl.LazyFrame:
        sink = Layout.of(self._policy, partition).sink
        return scan_published(sink, self._policy.storage_options)


def _is_pandas(wanted: Any) -> bool:
    return isinstance(wanted, type) and wanted.__name__ == "DataFrame" and wanted.__module__.startswith("pandas")
