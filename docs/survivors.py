"""`make survivors`: which typed spans of invented persons are left by word mechanisms, as a page (`docs/survivors.md`).

Public data alone (pii_synth of presidio-research); the releases are made by the library's own column path under one
throw-away key per line, and counted by the report that runs have (`dptext_etl.checks.reports.personal_data`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import polars as pl
from utility import DATA, ROOT, VECTORS, Variant, released, table, variants

from dptext_etl.checks.reports.personal_data import Span, SurvivorCount, count_spans

PAGE = ROOT / "docs" / "survivors.md"
CORPUS = DATA / "pii_synth" / "pii_synth.parquet"
EPSILONS = (1.0, 5.0, 10.0, 20.0)
KINDS = ("PERSON", "STREET_ADDRESS", "ORGANIZATION", "EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD")

INTRODUCTION = """<!-- written by `make survivors`; public data alone -->
# What survives of personal data

{texts:,} texts about invented persons hold {spans:,} typed spans: names, addresses, numbers (pii_synth of
presidio-research). A span survives where its words stand in the released text one after the other, as they stood. Word
mechanisms replace every word by its law and look for nothing: what is in no vocabulary (most names and all numbers) is
drawn uniformly or dropped, a title or a short town's name comes back as often as any word does. The rate counts words,
so a span of one common word survives oftener than one of four rare ones.

ε is that of one word, as in [What is left of a text](utility.md). A share of zero is a count and no promise: the
guarantee is ε, not this table."""


def spans() -> tuple[list[str], list[list[Span]]]:
    """Read the texts and their typed spans."""
    frame = pl.read_parquet(CORPUS)
    typed = [[Span(item["entity_type"], item["entity_value"]) for item in json.loads(row)] for row in frame["spans"]]
    return frame["text"].to_list(), typed


def compared(lines: Sequence[Variant]) -> list[Variant]:
    """The four mechanisms, each in the form that is recommended."""
    wanted = {"CusText": 0, "SanText": 0, "MADLIB": 0, "1-Diffractor, TEM": 0}
    chosen = {line.name: line for line in reversed(lines) if line.name in wanted}
    return [chosen[name] for name in wanted]


def row(name: str, reading: str, epsilon: object, count: SurvivorCount) -> list[Any]:
    """One line of the table."""
    left, total = sum(count.survived.values()), sum(count.found.values())
    each = [f"{count.survived.get(kind, 0)} of {count.found.get(kind, 0)}" for kind in KINDS]
    return [name, reading, epsilon, f"{left} ({left / total:.2%})", *each]


def main() -> None:
    """Release, count and write the page."""
    if not CORPUS.exists():
        sys.exit("left out: shared/data does not lie beside this checkout")
    texts, typed = spans()
    rows = []
    for line in compared(variants(VECTORS)):
        for epsilon in EPSILONS:
            out = pl.Series(released(line.make(epsilon), texts), dtype=pl.String)
            rows.append(row(line.name, line.reading, f"{epsilon:g}", count_spans(typed, out)))
            print(*rows[-1][:4], flush=True)
    rows.append(row("none (the raw texts)", "", "", count_spans(typed, pl.Series(texts))))
    header = ["mechanism", "its parameter", "ε", "spans that survive", *(kind.lower() for kind in KINDS)]
    intro = INTRODUCTION.format(texts=len(texts), spans=sum(map(len, typed)))
    ending = "Some spans do not survive even in the raw texts: with an ending such as “'s” a word is another word."
    PAGE.write_text("\n\n".join([intro, table(header, rows), ending]) + "\n", encoding="utf-8")
    print(f"written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
