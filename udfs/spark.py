"""Re-exports `dptext_etl.spark`: views and SQL functions that release text columns, and whole runs over a frame."""

from dptext_etl.spark import *  # noqa: F403
from dptext_etl.spark import __all__  # noqa: F401
