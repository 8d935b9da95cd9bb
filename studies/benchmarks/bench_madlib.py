"""MADLIB: the column over IMDb against its plain loop, growth with vocabulary and rows, memory at 65,000 words.

    python studies/benchmarks/bench_madlib.py          # a table
    python studies/benchmarks/bench_madlib.py --json   # the same rows as JSON

Every measurement is a separate process (`madlib_tasks.py`). Words are drawn words. Vectors and their
diameter, found once per vocabulary, stay outside the clock. Every draw compares a moved vector with all words: the
time of a draw grows with the vocabulary, and no two draws share anything.
"""

from __future__ import annotations

from typing import Any

import measuring
from measuring import Row, amount, growing, main
from plain_loops import ENOUGH, PUBLISHED

SIZES = (10_000, 30_000, 100_000)
WORDS = 20_000
VOCABULARIES = (5_000, 20_000, 65_000)


def task(name: str, **parameters: Any) -> dict[str, Any]:
    """Run one task of this benchmark."""
    return measuring.task(name, script="madlib_tasks.py", **parameters)


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    return [*column(), *vocabularies(), *growth()]


def column() -> list[Row]:
    """The column at 20,000 words of 300 dimensions, in words per CPU-second of one thread."""
    plain = min((task("plain_madlib") for _ in range(2)), key=lambda run: run.get("cpu", 0.0))
    if not plain:
        return []
    one = min((task("madlib") for _ in range(2)), key=lambda run: run["cpu"])
    two = task("madlib", threads=2)
    plain_rate, rate = plain["words"] / plain["cpu"], one["words"] / one["cpu"]
    published = PUBLISHED["madlib_words_per_second"]
    return [
        Row(
            "the plain per-word loop of MADLIB, 20 k x 300",
            f"{amount(plain_rate)} words/CPU-s",
            f"published package: {amount(published)} words/CPU-s",
            plain_rate / published,
            f">= {ENOUGH}, else the next ratio does not count",
            plain_rate >= ENOUGH * published,
        ),
        Row(
            "MADLIB column, IMDb, 20 k x 300, one thread",
            f"{amount(rate)} words/CPU-s ({one['wall']:.1f} s for {amount(one['words'])} words)",
            "the plain loop",
            rate / plain_rate,
        ),
        Row(
            "the same, two threads",
            f"{amount(two['words'] / two['wall'])} words/s elapsed",
            "one thread, elapsed",
            one["wall"] / two["wall"],
        ),
    ]


def vocabularies() -> list[Row]:
    """Some words of IMDb over 5,000, 20,000 and 65,000 random vectors of 300 dimensions."""
    runs = {size: task("madlib", words=WORDS, limit=size, source="random") for size in VOCABULARIES}
    if not all(runs.values()):
        return []
    rates = {size: one["words"] / one["cpu"] for size, one in runs.items()}
    smallest, largest = min(runs), max(runs)
    grown = (rates[smallest] / rates[largest]) / (largest / smallest)
    return [
        Row(
            "MADLIB, vocabularies of 5 k, 20 k, 65 k words of 300 dimensions",
            ", ".join(amount(rate) for rate in rates.values()) + " words/CPU-s",
            "time per word, next to the growth of the vocabulary",
            grown,
            "<= 1.2: linear",
            grown <= 1.2,
        ),
        Row(
            "MADLIB, 65 k words: peak memory of the whole process",
            f"{runs[largest]['process'] / 2**20:,.0f} MiB",
            f"the vectors in float32: {largest * 300 * 4 / 2**20:,.0f} MiB",
            runs[largest]["process"] / (largest * 300 * 4),
        ),
    ]


def growth() -> list[Row]:
    """From 10^4 to 10^5 words of text: the rate must not fall."""
    return growing("MADLIB", {size: task("madlib", words=size) for size in SIZES}, 10_000)


if __name__ == "__main__":
    main(rows)
