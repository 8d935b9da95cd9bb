"""Check that this version of Polars fits the expression plugin.

A plugin and Polars exchange structs in memory. Polars checks the plugin's version, and this module checks that of
Polars.
"""

from __future__ import annotations

import polars as pl

from dptext_etl.errors import PolicyError

OLDEST = (2, 1)
NEXT_MAJOR = 3


def require_known_polars(version: str = pl.__version__) -> None:
    """Refuse a version of Polars that does not fit the plugin, before the plugin is called."""
    parts = version.split(".")
    known = len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit()
    if not known or not OLDEST <= (int(parts[0]), int(parts[1])) < (NEXT_MAJOR, 0):
        wanted = f"polars>={OLDEST[0]}.{OLDEST[1]},<{NEXT_MAJOR}"
        raise PolicyError(
            f"the expression plugin is written for {wanted}; Polars here is {version}",
            f"install another one: pip install '{wanted}'",
        )
