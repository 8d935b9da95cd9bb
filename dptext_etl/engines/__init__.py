"""Run a policy: one sequence of steps, and the engines that compute its shards (this process, or Spark)."""

from dptext_etl.engines.engine import Engine as Engine
from dptext_etl.engines.local.engine import LocalEngine as LocalEngine
from dptext_etl.engines.running import run as run
from dptext_etl.engines.staging import stage as stage
