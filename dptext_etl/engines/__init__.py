"""Run a policy: one sequence of steps, and the engines that compute its shards (this process, or Spark)."""

from typing import TYPE_CHECKING

from dptext_etl.extensions import exports

if TYPE_CHECKING:
    from dptext_etl.engines.engine import Engine as Engine
    from dptext_etl.engines.engine import named as named
    from dptext_etl.engines.engine import run as run
    from dptext_etl.engines.engine import stage as stage
    from dptext_etl.engines.local import LocalEngine as LocalEngine

_WHERE = {"Engine": ".engine", "LocalEngine": ".local", "named": ".engine", "run": ".engine", "stage": ".engine"}
"""Workers of Spark import a module below this one, and none of the modules that these import."""

__all__ = ["Engine", "LocalEngine", "named", "run", "stage"]

__getattr__, __dir__ = exports(__name__, _WHERE)
