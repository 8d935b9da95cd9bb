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

TOPICS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "hotels": (
        ("Our hotel room was small and the bed was hard", "The hotel was clean and close to the beach"),
        (
            "breakfast was cold and the staff at the desk were rude",
            "the bathroom smelled and nobody came to clean the room",
            "the staff were friendly and the view from the room was lovely",
        ),
    ),
    "films": (
        ("We saw the new film at the cinema", "The film was far too long"),
        (
            "the actors were dull and the story made no sense",
            "the ending was wonderful and the music made me cry",
            "the director wasted a good cast on a boring plot",
        ),
    ),
    "deliveries": (
        ("My parcel came two weeks late", "The package was left outside in the rain"),
        (
            "the courier did not ring and nobody could track the order",
            "the box was open and one item was missing",
            "the driver was quick and carried it to the door",
        ),
    ),
    "health": (
        ("The doctor gave me new tablets for the pain", "I waited an hour to see the doctor"),
        (
            "the medicine made me dizzy and I could not sleep",
            "the nurse took my blood and explained the treatment",
            "my headache is gone and there were no side effects",
        ),
    ),
    "food": (
        ("We had dinner at the new restaurant", "The waiter forgot our order"),
        (
            "the soup was cold and the meat was dry",
            "the pasta was delicious and the dessert even better",
            "the menu is short and the wine is far too expensive",
        ),
    ),
    "phones": (
        ("The battery of my new phone dies by noon", "My phone has no signal at home"),
        (
            "the screen froze after the update",
            "the camera is excellent and calls are clear",
            "the hotline of the provider kept me waiting and the contract cannot be changed",
        ),
    ),
    "money": (
        ("The bank charged me a fee for my account", "My card was refused at the shop"),
        (
            "the transfer took five days and the app shows no balance",
            "the clerk at the branch sorted out my loan at once",
            "the payment was taken twice from my account",
        ),
    ),
    "trains": (
        ("The train to the city was late again", "I bought a ticket for the bus"),
        (
            "the carriage was full and there was no seat",
            "we missed the connection at the station",
            "the journey was quick and the driver was polite",
        ),
    ),
}
"""Topics: openings and what follows them. Texts have a topic each, as real columns have, and some topics are rare."""

_OFTEN = (0, 1, 2, 3, 0, 4, 1, 5, 0, 6, 2, 3, 0, 7, 1, 2)
"""The topics of sixteen rows in a row, by their places in `TOPICS`."""
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
    openings, middles = TOPICS[topic(number)]
    parts = [f"{openings[number // 16 % 2]}: {middles[number // 5 % 3]}.", _ENDINGS[number // 3 % 5]][: 1 + number % 2]
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


def topic(number: int) -> str:
    """Return the topic of one row."""
    return list(TOPICS)[_OFTEN[number % len(_OFTEN)]]


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
