"""Invent requests to a help desk for `dptext demo`: they are ours, public, and the same on every machine.

Arithmetic on the row number combines parts from `data/demo/requests.toml`; nothing is random. A third of the rows hold
what a real table would have to hide: names, e-mail addresses, telephone numbers, and words that no dictionary knows.
"""

from __future__ import annotations

import tomllib
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dptext_etl

DATA = Path(dptext_etl.__file__).parent / "data" / "demo"
ROWS = 10_000
"""Rows of the table of requests, each of another user."""
TEST_NUMBERS = range(ROWS, ROWS + 5_000)
"""Further requests, on which the demo tests classifiers."""
MONTHS = {"2026-09": date(2026, 9, 1), "2026-10": date(2026, 10, 1)}
MONTH_ROWS = 200
MONTH_USERS = 150

_PARTS: dict[str, Any] = tomllib.loads((DATA / "requests.toml").read_text("utf-8"))
TOPICS: dict[str, list[str]] = _PARTS["topics"]
"""Topics and what people ask for."""
DOMAINS: dict[str, list[str]] = _PARTS["domains"]
"""Topics, and the domains of `everyday-30k` that the corpus takes for each."""


def text(number: int) -> str:
    def part(name: str, place: int) -> str:
        return str(_PARTS[name][place % len(_PARTS[name])])

    wishes = TOPICS[topic(number)]
    wish = wishes[number // 16 % len(wishes)].format(a=part("adjectives", number // 5), b=part("places", number // 3))
    request = f"{part('beginnings', number // 7)}{wish}.{part('endings', number // 11)}"
    if number % 3 == 1:
        names = {
            "first": part("first_names", number),
            "last": part("last_names", number // 5),
            "strange": part("strange_words", number // 7),
        }
        request += " " + part("details", number // 3).format(**names, number=number % 90 + 10)
    return request


def topic(number: int) -> str:
    often: list[int] = _PARTS["often"]
    return list(TOPICS)[often[number % len(often)]]


def labeled(number: int) -> tuple[str, str]:
    return topic(number), text(number)


def rows(numbers: range) -> list[dict[str, Any]]:
    """Return requests with their topics, each of another user."""
    first = date(2026, 9, 1)
    return [
        {
            "id": f"q{number:05d}",
            "user_id": f"u{number * 7919 % 100_003:06d}",
            "date": first + timedelta(days=number * 11 % 28),
            "topic": topic(number),
            "request": text(number),
        }
        for number in numbers
    ]


def month(name: str) -> list[dict[str, Any]]:
    """Return the first requests as those of one month: few users with several each, some requests null or empty."""
    start = list(MONTHS).index(name) * MONTH_ROWS
    return [
        {
            **row,
            "user_id": f"u{number * 37 % MONTH_USERS:03d}",
            "date": MONTHS[name] + timedelta(days=number * 11 % 28),
            "request": None if number % 97 == 50 else "" if number % 89 == 30 else row["request"],
        }
        for number, row in enumerate(rows(range(start, start + MONTH_ROWS)), start)
    ]


def write(folder: Path) -> None:
    import polars as pl

    (folder / "months").mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows(range(ROWS))).write_parquet(folder / "requests.parquet")
    for name in MONTHS:
        table = pl.DataFrame(month(name), schema_overrides={"request": pl.String})
        table.write_parquet(folder / "months" / f"{name}.parquet")
