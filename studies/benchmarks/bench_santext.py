"""SanText: the column over IMDb against its plain loop, growth with vocabulary and rows, memory at 65,000 words.

    python studies/benchmarks/bench_santext.py          # a table
    python studies/benchmarks/bench_santext.py --json   # the same rows as JSON

Every measurement is a separate process (`tasks.py`). Vectors and their diameter, found once per vocabulary, stay
outside the clock; the weights of every distinct word are inside it.
"""

from __future__ import annotations

from functools import partial

from measuring import Row, amount, best, counted, growing, main, task, two_threads, words_rate
from plain_loops import ENOUGH, PUBLISHED

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
VOCABULARIES = (5_000, 20_000, 65_000)
SMALL = 1_000
"""Texts of a small batch."""
GIB = 2**30


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    return [*column(), *vocabularies(), *growth()]


def column() -> list[Row]:
    """The column at 10,000 words, in words per CPU-second of one thread."""
    plain = best(3, "plain_santext")
    if not plain:
        return []
    one = best(2, "santext")
    plain_rate, rate = plain["words"] / plain["cpu"], one["words"] / one["cpu"]
    published = PUBLISHED["santext_words_per_second"]
    return [
        Row(
            "the plain per-word loop of SanText, 10 k vocabulary",
            f"{amount(plain_rate)} words/CPU-s",
            f"published script: {amount(published)} words/CPU-s",
            plain_rate / published,
            f">= {ENOUGH}, else the next goal is held against as much of the published rate",
            plain_rate >= ENOUGH * published,
        ),
        Row(
            "SanText column, IMDb, 10 k vocabulary, one thread",
            f"{amount(rate)} words/CPU-s ({one['wall']:.1f} s for {amount(one['words'])} words)",
            "the plain loop",
            rate / plain_rate,
            ">= 60",
            rate >= 60 * counted(plain_rate, published),
        ),
        two_threads("the same, two threads", partial(task, "santext"), words_rate, 1.7),
        *small_batches(one),
    ]


def small_batches(one: dict[str, float]) -> list[Row]:
    """Batches of 1,000 texts: the weights of words are kept from one to the next."""
    many = best(2, "santext", batch=SMALL)
    return [
        Row(
            f"the same in batches of {SMALL:,} texts, one thread",
            f"{amount(many['words'] / many['cpu'])} words/CPU-s",
            "CPU time in batches of a run",
            many["cpu"] / one["cpu"],
            "<= 2",
            many["cpu"] <= 2 * one["cpu"],
        )
    ]


def vocabularies() -> list[Row]:
    """A million words of IMDb over 5,000, 20,000 and 65,000 random vectors of 300 dimensions."""
    runs = {size: task("santext", words=1_000_000, limit=size, source="random") for size in VOCABULARIES}
    if not all(runs.values()):
        return []
    rates = ", ".join(amount(one["words"] / one["cpu"]) for one in runs.values())
    largest = runs[max(runs)]
    whole = max(runs) ** 2 * 4
    return [
        Row(
            "SanText, vocabularies of 5 k, 20 k, 65 k words of 300 dimensions, a million words of text",
            f"{rates} words/CPU-s; first use of the 65 k vectors {largest['ready']:.0f} CPU-s",
            f"CPU time at {VOCABULARIES[0]:,} words",
            largest["cpu"] / runs[VOCABULARIES[0]]["cpu"],
        ),
        Row(
            "SanText, 65 k words: peak memory of the whole process",
            f"{largest['process'] / 2**20:,.0f} MiB",
            f"the matrix that the published script holds: {whole / 2**20:,.0f} MiB",
            largest["process"] / whole,
            "< 2 GiB",
            largest["process"] < 2 * GIB,
        ),
    ]


def growth() -> list[Row]:
    """From 10^4 to 10^7 words at 10,000 words of vocabulary: rows are weighed once, so the rate rises."""
    return growing("SanText", {size: task("santext", words=size) for size in SIZES}, 1_000_000)


if __name__ == "__main__":
    main(rows)
