"""Remove possible raw text from the staging folder of a run that a gate stopped.

A gate that failed has found a defect, so staged texts may be raw. They are removed at once. Ids, kept columns, draw
counts, records and the texts of canary rows stay: they show the failure, and hold no one's text.
"""

from __future__ import annotations

import polars as pl

from dptext_etl.checks.canaries import CANARY
from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.shard.staging import Staging

NOTE = "fired.txt"
"""Mark of a staging folder without texts; `dptext clean` removes the rest."""
_AGAIN = "remove the staging folder by hand: it may hold raw text"


def strip(staging: Staging, policy: Policy) -> None:
    """Remove the staged texts of all records except canary rows, and all bytes that were kept for replays."""
    clear, texts = {policy.id, *policy.keep, CANARY}, {item.name for item in policy.columns}
    shelf = staging.shelf
    with seam("removing staged texts", InputError, _AGAIN):
        shelf.remove(*shelf.found("kept-*"))
        for path in shelf.found("shard-*.parquet"):
            frame = pl.read_parquet(shelf.here(path, fresh=True))
            chosen = [name for name in frame.columns if name in clear | texts]
            frame = frame.select(chosen).with_columns(
                pl.when(CANARY).then(pl.col(name)).alias(name) for name in chosen if name in texts
            )
            shelf.write(path, frame.write_parquet, action="removing staged texts")
        shelf.remove(*shelf.found("shard-*.post"))  # made of texts that may be raw
        note = b"A gate fired. Texts of records were removed; `dptext clean` removes the rest.\n"
        shelf.write(staging.folder / NOTE, lambda file: file.write(note), action="removing staged texts")
