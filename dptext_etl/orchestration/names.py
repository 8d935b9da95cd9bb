"""How a dataset and its stages are called in Dagster."""

from __future__ import annotations

import re
from typing import NamedTuple

from dptext_etl.policy import Policy


class Names(NamedTuple):
    """Keys of a dataset's assets, its step of gates and its job.

    Attributes:
        raw: The source: its rows never enter an event.
        staged: Released rows in quarantine, inside the boundary.
        published: The table that readers see.
        gates: The step that evaluates every gate.
        job: The job that does all of it.
        group: The group of the assets.
    """

    raw: str
    staged: str
    published: str
    gates: str
    job: str
    group: str


def names(policy: Policy) -> Names:
    """Name the stages of a policy's dataset; Dagster allows letters, digits and underscores."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", policy.dataset)
    return Names(f"raw_{word}", f"staged_{word}", f"published_{word}", f"gates_{word}", f"privatize_{word}", word)
