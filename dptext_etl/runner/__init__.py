"""The steps of a run, whatever engine computes its shards: plan, check, publish, read published tables."""

from typing import TYPE_CHECKING

from dptext_etl.checks.sink_files import Manifest as Manifest
from dptext_etl.extensions import exports
from dptext_etl.runner.progress import Progress as Progress
from dptext_etl.runner.publish.manifest import scan_published as scan_published
from dptext_etl.runner.publish.publication import Published as Published
from dptext_etl.runner.publish.publication import check as check
from dptext_etl.runner.publish.publication import publish as publish
from dptext_etl.runner.report import RunSummary as RunSummary
from dptext_etl.runner.shard.staging import StagedRun as StagedRun

if TYPE_CHECKING:
    from dptext_etl.runner.planning import PlanSummary as PlanSummary
    from dptext_etl.runner.planning import plan as plan
    from dptext_etl.runner.publish.manifest import open_classifier as open_classifier
    from dptext_etl.runner.source.first_policy import init as init

_LAZY = {
    "PlanSummary": ".planning",
    "plan": ".planning",
    "init": ".source.first_policy",
    "open_classifier": ".publish.manifest",
}
"""Names that a run does not need."""

__getattr__, _ = exports(__name__, _LAZY)
