"""Put public made-up examples of personal data through a mechanism, and count those that its output still holds."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from dptext_etl import column, keys
from dptext_etl.mechanism import Mechanism
from dptext_etl_eval.personal_data import Span, SurvivorCount, count_spans

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


def planted(mechanism: Mechanism) -> SurvivorCount:
    """Count planted examples by kind, and those whose words all survive in their own release, in order.

    The key is new and thrown away, and no ledger is opened: the examples are public.
    """
    spans = [Span(kind, text) for kind, texts in EXAMPLES.items() for text in texts]
    texts = pa.array([SENTENCE.format(span.text) for span in spans], pa.large_string())
    ids = pa.array([str(row) for row in range(len(spans))])
    drawn = column.draw(mechanism, texts, ids, keys.throwaway(mechanism.cfg())).text
    return count_spans([[span] for span in spans], pl.Series(drawn.to_pylist(), dtype=pl.String))
