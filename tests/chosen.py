"""The mechanisms over which the contract suite runs: all that are installed, or the list of `--mechanisms`."""

import os

from dptext_etl import extensions

OPTION = "DPTEXT_MECHANISMS"


def names():
    """Return names of mechanisms, sorted."""
    asked = os.environ.get(OPTION)
    return tuple(asked.split(",")) if asked else extensions.names("mechanisms")
