"""Count the e-mail addresses, telephone numbers and the like of raw texts that a release still holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import polars as pl
import pyarrow as pa

from dptext_etl import column, keys
from dptext_etl.mechanism import Mechanism
from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.pairs import Pairs
from dptext_etl_eval.personal_data import Span, SurvivorCount, count_spans, count_survivors
from dptext_etl_eval.statistics import wilson

PLANTED = "planted examples"
SENTENCE = "Hello, please write to {} about my last order, because I got no answer."
EXAMPLES = {
    "name": (
        "Maria Jensen", "Tomasz Kowalski", "Aisha Rahman", "John Whitfield", "Chen Wei",
        "Lucia Moretti", "Sven Lindqvist", "Fatima Haddad", "Carlos Mendoza", "Priya Natarajan",
    ),
    "organization": (
        "Northwind Traders", "Contoso Bank", "Fabrikam Logistics", "Tailspin Toys", "Acme Corporation",
        "Globex Energy", "Initech Software", "Umbrella Insurance", "Wayne Industries", "Stark Foods",
    ),
    "number": (
        "555-0100-4471", "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "A-4471-2291", "078-05-1120",
        "+1 202 555 0143", "88213077", "2024-118-553", "GB-730441-C", "1985-04-12",
    ),
    "address": (
        "12 Maple Street Springfield", "m.jensen@example.org", "48 Harbour Road Leith", "7 Rue des Lilas Lyon",
        "info@example.com", "1600 Elm Avenue Dayton", "www.example.net/kowalski", "3 Castle Lane Durham",
        "Lindenallee 21 Potsdam", "t.kowalski@example.com",
    ),
}  # fmt: skip
"""Ten public examples of each kind; no record holds them."""


class PersonalData(Attack):
    """Share of the finds of `dptext_etl_eval.personal_data` that a release still holds."""

    title: ClassVar[str] = "Personal data that survives"
    says: ClassVar[str] = (
        "What patterns find in raw texts (addresses, numbers, links), and how much of it is in their own release. "
        "Then ten public examples of each kind (names, organizations, numbers, addresses), put through the mechanism "
        "under a new key: the share whose words all survive. They show what patterns cannot find."
    )
    knows: ClassVar[str] = "only the release"
    order: ClassVar[int] = 30
    weight: ClassVar[float] = 0.2

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the share by kind; what no pattern finds is not counted."""
        raw, released = (pl.Series(texts, dtype=pl.String) for texts in (pairs.raw, pairs.released))
        survivors = count_survivors(raw, released)
        by_kind = _shares(survivors) or [Score("all kinds", None, note="no pattern finds any in the raw texts")]
        return [*by_kind, *_planted(pairs)]


def _planted(pairs: Pairs) -> list[Score]:
    if pairs.mechanism is None:
        return [Score(PLANTED, None, note="give the policy, whose mechanism releases the examples")]
    if not pairs.mechanism.reproducible and not pairs.models:
        return [Score(PLANTED, None, note="the mechanism is a model: add --models")]
    return _shares(planted(pairs.mechanism), f"{PLANTED}, ")


def planted(mechanism: Mechanism) -> SurvivorCount:
    """Count planted examples by kind, and those whose words all survive in their own release, in order.

    The key is new and thrown away, and no ledger is opened: the examples are public.
    """
    spans = [Span(kind, text) for kind, texts in EXAMPLES.items() for text in texts]
    texts = pa.array([SENTENCE.format(span.text) for span in spans], pa.large_string())
    ids = pa.array([str(row) for row in range(len(spans))])
    drawn = column.draw(mechanism, texts, ids, keys.throwaway(mechanism.cfg())).text
    return count_spans([[span] for span in spans], pl.Series(drawn.to_pylist(), dtype=pl.String))


def _shares(survivors: SurvivorCount, before: str = "") -> list[Score]:
    return [
        Score(
            before + kind,
            survivors.survived.get(kind, 0) / count,
            wilson(survivors.survived.get(kind, 0), count),
            blind=0.0,
        )
        for kind, count in sorted(survivors.found.items())
    ]
