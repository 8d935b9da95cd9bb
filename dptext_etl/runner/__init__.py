"""The steps of a run, whatever engine computes its shards: plan, check, publish, read what is published."""

from dptext_etl.runner.planning import PlanSummary as PlanSummary
from dptext_etl.runner.planning import plan as plan
from dptext_etl.runner.progress import Progress as Progress
from dptext_etl.runner.publish.gating import check as check
from dptext_etl.runner.publish.manifest import Manifest as Manifest
from dptext_etl.runner.publish.manifest import scan_published as scan_published
from dptext_etl.runner.publish.publication import Published as Published
from dptext_etl.runner.publish.publication import publish as publish
from dptext_etl.runner.source.first_policy import init as init
from dptext_etl.runner.staged import StagedRun as StagedRun
from dptext_etl.runner.summary import RunSummary as RunSummary
