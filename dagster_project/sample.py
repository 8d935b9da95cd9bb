"""Notes and comments of a support desk that never existed: ours, public, the same on every machine.

A language model rewrites the comments, where the extra "models" is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from dptext_etl.policy import Policy

PARTITIONS = ("2026-01", "2026-02")
ROWS = 300
CALLERS = 115
COMMENTS = 40

_TOPICS = ("billing", "delivery", "repair", "account")
_WHO = (
    "The caller",
    "A customer from the north",
    "Our oldest client",
    "A student",
    "The owner of a small shop",
    "A nurse",
)
_WHAT = (
    "was charged twice in one week",
    "waits for a parcel since Monday",
    "has a washing machine that leaks after every wash",
    "cannot open the account with the new password",
    "wants to know when the engineer will come",
    "received the wrong size and asks for another",
    "moved house and did not get the last letter",
)
_MOOD = ("sounded tired", "was very kind", "was angry at first", "laughed about it", "asked to speak to someone else")
_NEXT = (
    "We promised to call back before noon.",
    "A refund of 40 euros was agreed.",
    "Nothing else to do for now.",
    "Please check the street and the door number.",
    "The doctor said no heavy lifting, so bring it to the second floor.",
)


_COMMENTS = (
    "the call was short and kind",
    "no one could help me",
    "I had to wait for an hour!",
    "very good, thank you",
    "they sent the wrong part again",
    "a friendly voice at last",
)


def note(number: int) -> str | None:
    """Return the text of one note; every fiftieth row has none."""
    if number % 50 == 49:
        return None
    who, what = _WHO[number % len(_WHO)], _WHAT[number % len(_WHAT)]
    parts = [f"{who} {what} and {_MOOD[number // 3 % len(_MOOD)]}."]
    parts += [_NEXT[(number + shift) % len(_NEXT)] for shift in range(number % 4)]
    return " ".join(parts)


def write_missing(folder: Path) -> None:
    """Write the raw tables and a noise key into `folder`, unless they are there."""
    import polars as pl

    from dptext_etl import _kernel

    (folder / "raw").mkdir(parents=True, exist_ok=True)
    for index, partition in enumerate(PARTITIONS):
        rows = pl.DataFrame(_rows(index, partition))
        _once(folder / "raw" / f"{partition}.parquet", rows.write_parquet)
    (folder / "raw-comments").mkdir(exist_ok=True)
    for index, partition in enumerate(PARTITIONS):
        comments = pl.DataFrame(_comments(index, partition))
        _once(folder / "raw-comments" / f"{partition}.parquet", comments.write_parquet)
    _once(folder / "noise.key", lambda draft: _kernel.Secret().write(str(draft)))


def _once(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file unless it is there; Dagster loads a code location in several processes at once."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    write(draft)
    with suppress(FileExistsError):
        path.hardlink_to(draft)
    draft.unlink()


def _comments(index: int, partition: str) -> dict[str, list[object]]:
    numbers = range(index * COMMENTS, (index + 1) * COMMENTS)
    return {
        "comment_id": [f"k{number:04d}" for number in numbers],
        "caller": [f"c{number * 7 % CALLERS:03d}" for number in numbers],
        "month": [partition for _ in numbers],
        "comment": [_COMMENTS[number * 5 % len(_COMMENTS)] for number in numbers],
    }


def _rows(index: int, partition: str) -> dict[str, list[object]]:
    numbers = range(index * ROWS, (index + 1) * ROWS)
    return {
        "note_id": [f"n{number:05d}" for number in numbers],
        "caller": [f"c{number * 7 % CALLERS:03d}" for number in numbers],
        "month": [partition for _ in numbers],
        "topic": [_TOPICS[number * 5 % len(_TOPICS)] for number in numbers],
        "note": [note(number) for number in numbers],
    }


STAND_IN = "example-masked"
"""A tiny model of random weights: its texts are noise, but it goes through all steps of a real model."""


def comments() -> Policy | None:
    """Return the policy over comments, which a language model rewrites, or None where no model can run here.

    Where dptext-etl-models is not installed, or has no model of that name, a stand-in replaces it: the release is then
    pinned to the stand-in, and another model is another release.
    """
    if find_spec("torch") is None or find_spec("transformers") is None:
        return None
    policy = Policy.load(Path(__file__).with_name("comments.toml"))
    (column,) = policy.columns
    mechanism = column.model_dump()["mechanism"]
    if _ships(mechanism["model"]):
        return policy
    stand_in = column.model_copy(update={"mechanism": {**mechanism, "model": STAND_IN}})
    return policy.model_copy(update={"columns": (stand_in,)})


def _ships(model: str) -> bool:
    try:
        from dptext_etl_models import names
    except ImportError:
        return False
    return model in names()
