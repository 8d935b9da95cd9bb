"""Judge releases by gates, plant canary rows, and count for reports that decide nothing."""

from dptext_etl.checks.canaries import CANARY as CANARY
from dptext_etl.checks.canaries import CanaryPlan as CanaryPlan
from dptext_etl.checks.canaries import find as find
from dptext_etl.checks.canaries import plan as plan
from dptext_etl.checks.canaries import plant as plant
from dptext_etl.checks.gate import Candidate as Candidate
from dptext_etl.checks.gate import Gate as Gate
from dptext_etl.checks.gate import Stage as Stage
from dptext_etl.checks.gate import evaluate as evaluate
from dptext_etl.checks.gate import gate_descriptions as gate_descriptions
from dptext_etl.checks.verdict import Verdict as Verdict
from dptext_etl.checks.verdict import require as require
