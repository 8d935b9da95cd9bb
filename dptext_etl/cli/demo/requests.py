"""Invent requests to a help desk for `dptext demo`: they are ours, public, and the same on every machine.

Arithmetic on the row number combines sentences from lists; nothing is random. A third of the rows hold what a real
table would have to hide: names, e-mail addresses, telephone numbers, and words that no dictionary knows.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

ROWS = 10_000
"""Rows of the table of requests, each of another user."""
TEST_NUMBERS = range(ROWS, ROWS + 5_000)
"""Further requests, on which the demo tests classifiers."""
MONTHS = {"2026-09": date(2026, 9, 1), "2026-10": date(2026, 10, 1)}
MONTH_ROWS = 200
MONTH_USERS = 150

TOPICS: dict[str, tuple[str, ...]] = {
    "hotels": (
        "The room that you booked for me has a {a} bed and no window",
        "I want to cancel my stay at the hotel by the {b}",
        "Breakfast at the hotel was {a} and the waiter was rude",
        "Nobody has cleaned our room by the {b} for two days",
        "Can we have a {a} room with a view for our anniversary",
        "The reception of the hotel charged me for the minibar of another guest",
    ),
    "films": (
        "I cannot watch the {a} film that I rented last night",
        "When does the new film by the director of the {b} story start",
        "The cinema at the {b} sold us seats behind a pillar",
        "The subtitles of the series are {a} and come too late",
        "Please refund the film, the sound was {a} from the first scene on",
        "Which films with good actors do you have for a {a} evening with children",
    ),
    "deliveries": (
        "My parcel should have come on Monday and is still at the {b}",
        "The courier left a {a} box at the wrong door",
        "I need another delivery date for my order",
        "The package arrived {a} and one item is missing",
        "Your driver threw my parcel over the fence by the {b}",
        "The tracking page has shown the same depot for a week",
    ),
    "health": (
        "I need an appointment with the doctor for a {a} pain in my back",
        "The tablets make me dizzy, should I take a {a} dose",
        "When will the results of my blood test come from the {b}",
        "The nurse told me to call about my {a} cough",
        "My prescription has not reached the pharmacy at the {b}",
        "My daughter has had a fever and a rash since Sunday",
    ),
    "food": (
        "A table for four at the restaurant by the {b}, please",
        "The soup was {a} and the meat was not done",
        "We waited an hour for a {a} pizza",
        "Does the menu have a dessert without nuts",
        "The waiter brought us the bill of the table by the {b}",
        "I ordered fish for lunch and got a {a} salad",
    ),
    "phones": (
        "My phone shows no signal near the {b}",
        "The battery of my {a} phone is empty by noon",
        "Since the update the screen of my phone is {a}",
        "I want to keep my number when I change my mobile contract",
        "Calls from the {b} break off after a minute",
        "The camera of the phone makes {a} pictures",
    ),
    "money": (
        "My card was refused at the shop by the {b}",
        "The bank charged me a {a} fee for my account",
        "I sent money to my brother and the transfer has not arrived",
        "There is a payment from the {b} on my account that I did not make",
        "How do I get a loan for a {a} flat",
        "The cash machine at the {b} kept my card",
    ),
    "trains": (
        "The train from the {b} was late and I missed my connection",
        "I bought a ticket for the {a} bus by mistake",
        "Is there a night train to the coast with a {a} compartment",
        "I left my bag on the tram to the {b}",
        "The carriage was {a} and we stood for three hours",
        "Please give me back the fare, the bus never came",
    ),
}
"""Topics and what people ask for. Every request has one, and some topics are rare."""

_OFTEN = (0, 1, 2, 3, 0, 4, 1, 5, 0, 6, 2, 3, 0, 7, 1, 2)
"""The topics of sixteen rows in a row, by their places in `TOPICS`."""
_A = ("small", "cold", "broken", "different", "dark", "cheap", "strange", "quiet", "new", "simple", "noisy")
_B = ("station", "harbor", "old town", "market", "airport", "park", "stadium", "town hall", "library", "river")
_BEGINNINGS = ("", "Hello, a question. ", "", "Good morning. ", "Please help me. ", "", "This is urgent. ")
_ENDINGS = ("", " Thank you.", " Please answer today.", " I have asked twice.", " What can I do?")
_DETAILS = (
    "Ask for {first}.",
    "Write to {first}.{last}@example.org.",
    "Call me on 555-01{number:02d}.",
    "My name is {first} {last}.",
    "My customer word is {strange}.",
    "The number is {number}{number:02d}7.",
    "{first} from {strange} knows about it.",
)
_FIRST = ("Amara", "Bjorn", "Chiara", "Dmitri", "Esperanza", "Farid", "Greta", "Hiroshi", "Ines", "Jorunn", "Kwame")
_LAST = ("Achterberg", "Bellweather", "Castellano", "Drumgoole", "Eskandari", "Fjellheim", "Grzybowska")
_STRANGE = ("Zorvex", "Plimbotron", "Quaxilo", "Nyfferling", "Brunkolade")


def text(number: int) -> str:
    """Return one request."""
    wishes = TOPICS[topic(number)]
    wish = wishes[number // 16 % len(wishes)].format(a=_A[number // 5 % len(_A)], b=_B[number // 3 % len(_B)])
    beginning, ending = _BEGINNINGS[number // 7 % len(_BEGINNINGS)], _ENDINGS[number // 11 % len(_ENDINGS)]
    request = f"{beginning}{wish}.{ending}"
    if number % 3 == 1:
        names = {"first": _FIRST[number % 11], "last": _LAST[number // 5 % 7], "strange": _STRANGE[number // 7 % 5]}
        request += " " + _DETAILS[number // 3 % len(_DETAILS)].format(**names, number=number % 90 + 10)
    return request


def topic(number: int) -> str:
    """Return the topic of one request."""
    return list(TOPICS)[_OFTEN[number % len(_OFTEN)]]


def labeled(number: int) -> tuple[str, str]:
    """Return the topic and the text of one request."""
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
    """Write all requests, and those of each month, as Parquet files."""
    import polars as pl

    (folder / "months").mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows(range(ROWS))).write_parquet(folder / "requests.parquet")
    for name in MONTHS:
        table = pl.DataFrame(month(name), schema_overrides={"request": pl.String})
        table.write_parquet(folder / "months" / f"{name}.parquet")
