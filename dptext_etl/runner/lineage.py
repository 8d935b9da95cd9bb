"""Write OpenLineage's events of a run: which columns were released from which, by what, at what epsilon; no value.

The official client sends them to where its own configuration says (`OPENLINEAGE_URL`, `openlineage.yml`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dptext_etl import __version__, telemetry
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import FINE
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Policy
from dptext_etl.runner.source.roles import published_columns

if TYPE_CHECKING:
    from dptext_etl.runner.summary import RunSummary

PRODUCER = f"urn:dptext-etl:{__version__}"
"""OpenLineage names producers by URI."""
_NAMESPACE = "OPENLINEAGE_NAMESPACE"
_HINT = "set OPENLINEAGE_URL, or name a transport in openlineage.yml (OPENLINEAGE_CONFIG)"


class Lineage:
    """The events of one run: its start, and its end."""

    def __init__(self, policy: Policy, client: Any) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self._policy, self._client = policy, client
        self._run = str(generate_new_uuid())

    @classmethod
    def of(cls, policy: Policy) -> Self | None:
        """Return the lineage of a run, or None if no one asks for it.

        Raises:
            PolicyError: The client has no transport, and would print events, or its configuration cannot be read.
        """
        if telemetry.OPENLINEAGE not in telemetry.wanted():
            return None
        from openlineage.client import OpenLineageClient

        try:
            client = OpenLineageClient()
        except Exception as error:  # noqa: BLE001  (the client's own types, which may quote its configuration)
            kind = type(error).__name__
        else:
            if client.transport.kind != "console" or client.config.transport:
                return cls(policy, client)
            kind = "no transport"
        raise PolicyError(f"{telemetry.VARIABLE} names openlineage, and its client is not configured ({kind})", _HINT)

    def start(self) -> None:
        """Send the start of the run."""
        self._send("START", {}, {})

    def complete(self, summary: RunSummary) -> None:
        """Send the end of a run, with the rows that readers see now and their version."""
        from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset

        version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(summary.version))
        facts = {} if summary.version is None else {"version": version}
        rows = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=summary.published_rows)
        self._send("COMPLETE", facts, {"outputStatistics": rows})

    def fail(self, code: str) -> None:
        """Send that the run failed; an error is named by its code alone."""
        from openlineage.client.facet_v2 import error_message_run

        said = error_message_run.ErrorMessageRunFacet(message=code, programmingLanguage="python")
        self._send("FAIL", {}, {}, {"errorMessage": said})

    def _send(self, state: str, facts: Any, counted: Any, about: Any = None) -> None:
        """Send an event; one that cannot be sent is a line in the log, and fails no run."""
        with telemetry.never_failing(f"an OpenLineage event ({state})"):
            self._client.emit(self._event(state, facts, counted, about or {}))

    def _event(self, state: str, facts: Any, counted: Any, about: Any) -> Any:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

        source, sink = named(self._policy.source), named(self._policy.sink)
        columns = {"schema": self._schema(), "columnLineage": self._columns(source), **facts}
        return RunEvent(
            eventType=RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(self._run, about),
            job=Job(os.environ.get(_NAMESPACE, "dptext"), self._policy.dataset),
            inputs=[InputDataset(*source)],
            outputs=[OutputDataset(*sink, facets=columns, outputFacets=counted)],
            producer=PRODUCER,
        )

    def _schema(self) -> Any:
        from openlineage.client.facet_v2 import schema_dataset

        names = published_columns(self._policy)
        return schema_dataset.SchemaDatasetFacet([schema_dataset.SchemaDatasetFacetFields(name) for name in names])

    def _columns(self, source: tuple[str, str]) -> Any:
        """Say of every published column from which raw columns it is made, and how."""
        from openlineage.client.facet_v2 import column_lineage_dataset as facet

        def made(how: tuple[str, str, bool], raw: tuple[str, ...]) -> Any:
            subtype, said, masking = how
            step = facet.Transformation("DIRECT", subtype, said, masking)
            return facet.Fields([facet.InputField(*source, name, [step]) for name in raw])

        return facet.ColumnLineageDatasetFacet({name: made(how, raw) for name, how, raw in origins(self._policy)})


def origins(policy: Policy) -> Iterator[tuple[str, tuple[str, str, bool], tuple[str, ...]]]:
    """Yield every published column, how it is made (subtype, words, whether it hides), and from which raw columns."""
    if policy.synthetic is not None:
        made, columns = policy.synthetic.mechanism, policy.synthetic.columns
        amounts = f"epsilon {_written(made.epsilon)}, delta {_written(made.delta)}"
        said = f"synthetic table, {made.name}: {amounts} of the whole table for one record"
        yield from ((name, ("AGGREGATION", said, True), columns) for name in columns)
        return
    by_name = {str(item.column): item for item in policy.column_policies()}
    intermediate = {item.intermediate: item.name for item in policy.columns if item.intermediate is not None}
    for name in published_columns(policy):
        raw = intermediate.get(name, name)
        if policy.unlinked is not None:
            raw = policy.columns[0].name
        if raw not in by_name:
            yield name, ("IDENTITY", "kept as it is", False), (name,)
            continue
        mechanism = by_name[raw].mechanism
        claim = mechanism.guarantee
        said = f"{mechanism.name}: epsilon {_written(mechanism.epsilon)} per {claim.unit}"
        if policy.unlinked is not None:
            worst = worst_spend(mechanism)
            central = f"epsilon {_written(worst.epsilon)}, delta {_written(worst.delta / FINE)} per record"
            said = f"unlinked draws, {said} each, and central {central}"
        said += f", class {claim.guarantee_class.value}"
        if by_name[raw].postprocess and name == raw:
            said += ", then post-processed"
        yield name, ("TRANSFORMATION", said, True), (raw,)


def _written(amount: float) -> str:
    """Write an amount with all its digits: a bound is never rounded down.

    >>> _written(2.0), _written(0.414001), _written(1e-9)
    ('2', '0.414001', '1e-09')
    """
    return repr(float(amount)).removesuffix(".0")


def named(place: str) -> tuple[str, str]:
    """Return namespace and name of a place, as OpenLineage's naming has them.

    >>> named("s3://bucket/raw/reviews.parquet"), named("/data/raw.parquet")
    (('s3://bucket', 'raw/reviews.parquet'), ('file', '/data/raw.parquet'))
    """
    scheme, found, rest = place.partition("://")
    if not found or scheme == "file":
        return "file", str(Path(rest if found else place).absolute())
    store, _, name = rest.partition("/")
    return f"{scheme}://{store.rpartition('@')[2]}", name or "/"
