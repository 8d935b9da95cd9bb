"""The golden bytes by file: what is observed in each, and what was observed when they were frozen."""

import json
from pathlib import Path

from . import cases_ids, cases_kernel, cases_polars, cases_releases, cases_texts

PARTS = {
    "ids": lambda folder: cases_ids.observed(),
    "texts": lambda folder: cases_texts.observed() | cases_texts.refused_columns(folder),
    "kernel": lambda folder: cases_kernel.observed(),
    "polars": lambda folder: cases_polars.observed(folder) | cases_releases.shapes(folder),
    "releases": cases_releases.observed,
}


def frozen(name):
    """What was observed then."""
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text())
