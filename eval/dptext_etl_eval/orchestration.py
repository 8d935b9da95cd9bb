"""Make the asset of a report on the use that a published release keeps, and on an attacker's gain from it.

The report is made of exact statistics of raw texts. It stays inside the boundary: the asset counts as raw, so no other
asset may read it; it has no check, nothing waits for it, and its metadata holds counts and a path, no figure of it
(docs/spec/privacy.md#no-row-decision).
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from dptext_etl.errors import PolicyError
from dptext_etl.orchestration import steps
from dptext_etl.orchestration.resources import RAW_TAG, Settings, deployed, in_run
from dptext_etl.orchestration.steps import as_failure
from dptext_etl.policy import Policy
from dptext_etl_eval import report
from dptext_etl_eval.evidence import INSIDE
from dptext_etl_eval.published import evidence_of


@dataclass(frozen=True)
class EvidenceReport:
    """The subject of a report, and its location.

    Attributes:
        folder: Folder of the report, inside the boundary; each partition has a folder in it.
        label: Column of the raw table that analysts learn from a text, such as stars.
        attribute: Column of the raw table that an attacker learns about a person, such as gender.
        rows: Largest number of rows to measure.
        models: Run measures with language models, too: minutes instead of a minute.
    """

    folder: str | Path
    label: str | None = None
    attribute: str | None = None
    rows: int = 2_000
    models: bool = False

    def asset(self, policy: Policy, settings: Settings) -> dg.AssetsDefinition:
        """Return the asset `evidence_<dataset>`, which measures the published table against its raw table."""
        if not policy.publish:
            raise PolicyError(
                "a report compares a published table, and this policy publishes nothing", "publish = true"
            )
        name = settings.names

        @dg.asset(
            key=name.evidence,
            deps=[name.raw, name.published],
            description=f"Figures of the use that the release keeps, and of attacks. {INSIDE}",
            kinds={"html"},
            tags={RAW_TAG: ""},
            group_name=name.group,
            owners=name.owners,
            partitions_def=settings.partitions,
            backfill_policy=settings.backfill,
            required_resource_keys=name.resources,
        )
        def evidence(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
            with as_failure("measuring the release"):
                here = deployed(policy, context, name)
                for partition in in_run(context) or [None]:
                    metadata = _measured(here, partition, self, context)
                    context.add_asset_metadata(metadata, partition_key=partition)
            return dg.MaterializeResult()

        return evidence


def _measured(
    policy: Policy, partition: str | None, wanted: EvidenceReport, context: dg.AssetExecutionContext
) -> steps.Metadata:
    """Measure one partition, write its report, and return counts and the report's place."""
    out = Path(wanted.folder, *([partition] if partition else []))
    where = f"{partition}: " if partition else ""

    def report_progress(number: int, of: int, title: str, left: float | None) -> None:
        context.log.info(
            f"{where}{number} of {of}: {title}" + ("" if left is None else f"; about {left:.0f} s are left")
        )

    options: dict[str, Any] = {
        "label": wanted.label,
        "attribute": wanted.attribute,
        "rows": wanted.rows,
        "models": wanted.models,
    }
    evidence = list(evidence_of(policy, out, progress=report_progress, partition=partition, **options))
    page, _ = report.write(evidence, out)
    return {
        "report": dg.MetadataValue.path(str(page)),
        "rows measured": sum(item.rows for item in evidence),
        "measures": sum(len(item.metrics) + len(item.attacks) for item in evidence),
        "excluded": ", ".join(sorted({title for item in evidence for title in item.excluded})) or "nothing",
        "warning": INSIDE,
    }
