"""Invent reviews for `dptext demo`: they are ours, public, and the same on every machine.

Arithmetic on the row number combines sentences from lists; nothing is random. Some rows hold things that a real table
would have to hide: names, e-mail addresses, telephone numbers, and words that no dictionary knows.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

ROWS = 400
PARTITIONS = {"2026-09": date(2026, 9, 1), "2026-10": date(2026, 10, 1)}
SUBJECTS = 150

_THINGS = (
    "jacket",
    "coffee machine",
    "hotel room",
    "film",
    "phone",
    "restaurant",
    "train ticket",
    "garden chair",
    "doctor's visit",
    "keyboard",
    "holiday",
    "bicycle",
    "book",
)
_OPENINGS = (
    "I bought the {thing} for my mother",
    "The {thing} was better than expected",
    "We waited three weeks for the {thing}",
    "This {thing} changed my mind",
    "Not sure about the {thing}",
    "My second {thing} from this shop",
    "The {thing} looked old and smelled of smoke",
)
_MIDDLES = (
    "the staff were friendly and helped us at once",
    "the price is far too high for what you get",
    "it stopped working after two days",
    "everything was clean, quiet and easy to find",
    "nobody answered when I asked for my money back",
    "my children love it and so do I",
    "the colour is not the one in the picture",
    "it reminded me of my time in hospital",
    "delivery was quick and the box was intact",
    "I would not recommend it to anyone with a bad back",
    "the instructions are short but clear",
)
_ENDINGS = (
    "I will come back next year.",
    "Never again!",
    "Five stars from me.",
    "Could be worse, could be better.",
    "Ask for the manager if this happens to you.",
)
_DETAILS = (
    "Ask for {first} at the desk.",
    "Write to {first}.{last}@example.org for a refund.",
    "Call me on 555-01{number:02d}.",
    "{first} {last} from room {number} was loud all night.",
    "The model is called {strange}.",
    "Order no. {number}{number:02d}7 is still missing.",
    "{first} says {strange} is the new name.",
)
_FIRST = ("Amara", "Bjorn", "Chiara", "Dmitri", "Esperanza", "Farid", "Greta", "Hiroshi", "Ines", "Jorunn", "Kwame")
_LAST = ("Achterberg", "Bellweather", "Castellano", "Drumgoole", "Eskandari", "Fjellheim", "Grzybowska")
_STRANGE = ("Zorvex", "Plimbotron", "Quaxilo", "Nyfferling", "Brunkolade")


def rows(partition: str) -> list[dict[str, Any]]:
    """Return the rows of one month: id, user_id, stars, date, channel, review."""
    first = PARTITIONS[partition]
    start = list(PARTITIONS).index(partition) * ROWS // len(PARTITIONS)
    return [
        {
            "id": f"r{number:04d}",
            "user_id": f"u{number * 37 % SUBJECTS:03d}",
            "stars": 1 + number * 7 % 5,
            "date": first + timedelta(days=number * 11 % 28),
            "channel": ("web", "app", "paper")[number % 3],
            "review": text(number),
        }
        for number in range(start, start + ROWS // len(PARTITIONS))
    ]


def text(number: int) -> str | None:
    """Return the review of one row; a few are null or empty, and about a third hold something personal."""
    if number % 97 == 50:
        return None
    if number % 89 == 30:
        return ""
    opening = _OPENINGS[number % 7].format(thing=_THINGS[number // 2 % 13])
    parts = [f"{opening}: {_MIDDLES[number * 3 % 11]}.", _ENDINGS[number // 3 % 5]]
    if number % 3 == 1:
        detail = _DETAILS[number // 3 % 7]
        parts.insert(
            1,
            detail.format(
                first=_FIRST[number % 11],
                last=_LAST[number // 5 % 7],
                number=number % 90 + 10,
                strange=_STRANGE[number // 7 % 5],
            ),
        )
    return " ".join(parts)


def write(folder: Path) -> list[Path]:
    """Write one Parquet file per month into `folder`."""
    import polars as pl

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for partition in PARTITIONS:
        path = folder / f"{partition}.parquet"
        pl.DataFrame(rows(partition), schema_overrides={"review": pl.String}).write_parquet(path)
        paths.append(path)
    return paths
