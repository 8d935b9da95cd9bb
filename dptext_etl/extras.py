"""Name the command that installs the libraries of an extra."""

from __future__ import annotations

DISTRIBUTION = "dptext-etl"


def install(extra: str) -> str:
    """Return the command that installs the libraries of an extra of the distribution that is installed."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
