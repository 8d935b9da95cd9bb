"""Re-exports `dptext_etl.polars`; importing this module registers the `.dptext` namespace of Polars."""

from dptext_etl.polars import *  # noqa: F403
from dptext_etl.polars import __all__  # noqa: F401
