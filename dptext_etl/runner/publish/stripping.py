"""Remove possible raw text from the staging folder of a run that a gate stopped.

A gate that failed has found a defect, so staged texts may be raw. They are removed at once. Ids, kept columns, draw
counts, records and the texts of canary rows stay: they show the failure, and hold no one's text.
"""

from __future__ import annotations

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.shard.staging import Staging

NOTE = "fired.txt"
"""Mark of a staging folder without texts; `dptext clean` removes the rest."""
_AGAIN = "remove the staging folder by hand: it may hold raw text"


def strip(staging: Staging, policy: Policy) -> None:
    """Remove the staged texts of all records except canary rows, and all bytes that were kept for replays."""
    clear, texts = {policy.id, *policy.keep, CANARY}, {item.name for item in policy.columns}
    storage = staging.storage
    with seam("removing staged texts", InputError, _AGAIN):
        storage.delete(*storage.glob("kept-*"))
        for name in storage.glob("shard-*.parquet"):
            frame = pl.read_parquet(storage.local_path(name, fresh=True))
            chosen = [column for column in frame.columns if column in clear | texts]
            frame = frame.select(chosen).with_columns(
                pl.when(CANARY).then(pl.col(column)).alias(column) for column in chosen if column in texts
            )
            storage.write(name, frame.write_parquet, action="removing staged texts")
        storage.delete(*storage.glob("shard-*.post"))  # made of texts that may be raw
        note = b"A gate fired. Texts of records were removed; `dptext clean` removes the rest.\n"
        storage.write(NOTE, note, action="removing staged texts")
