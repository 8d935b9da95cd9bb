"""CusText: the Polars column over IMDb, the mapping of 20,000 words, growth and memory; each against its plain loop.

    python studies/benchmarks/bench_custext.py          # a table
    python studies/benchmarks/bench_custext.py --json   # the same rows as JSON

Every measurement is a separate process (`tasks.py`), so that threads, memory and warm caches are its own.
"""

from __future__ import annotations

from functools import partial

from measuring import Row, amount, best, counted, growing, main, task, two_threads, words_rate
from plain_loops import ENOUGH, PUBLISHED

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    return [*column(), *mapping(), *growth()]


def column() -> list[Row]:
    """The column, in words per CPU-second of one thread; words are those between white space, for all alike."""
    plain = best(3, "plain_texts")
    one = best(3, "column")
    copied = best(3, "split_join")
    if not plain:
        return []
    plain_rate = plain["words"] / plain["cpu"]
    rate = one["words"] / one["cpu"]
    published = PUBLISHED["custext_words_per_second"]
    return [
        Row(
            "the plain per-word loop itself",
            f"{amount(plain_rate)} words/CPU-s",
            f"published scripts: {amount(published)} words/CPU-s",
            plain_rate / published,
            f">= {ENOUGH}, else the next goal is held against as much of the published rate",
            plain_rate >= ENOUGH * published,
        ),
        Row(
            "CusText column in Polars, IMDb, one thread",
            f"{amount(rate)} words/CPU-s ({one['wall']:.2f} s for {amount(one['words'])} words)",
            "the plain loop",
            rate / plain_rate,
            ">= 100, then 200",
            rate >= 100 * counted(plain_rate, published),
        ),
        two_threads("the same, two threads", partial(task, "column"), words_rate, 1.7),
        Row(
            "CusText column in Polars, IMDb, one thread",
            f"{one['cpu']:.2f} CPU-s",
            f"str.split(' ').list.join(' '): {copied['cpu']:.2f} CPU-s",
            one["cpu"] / copied["cpu"],
            "<= 4",
            one["cpu"] <= 4 * copied["cpu"],
        ),
    ]


def mapping() -> list[Row]:
    """The partition of 20,000 words of 300 dimensions into sets of 20 with their weights, cosine, one thread."""
    plain = best(1, "plain_mapping")
    ours = best(2, "mapping")
    published = PUBLISHED["custext_mapping_seconds"]
    return [
        Row(
            "CusText mapping, 20 k x 300, cosine",
            f"{ours['cpu']:.2f} CPU-s",
            f"the plain loop: {plain['cpu']:.1f} CPU-s (published scripts: {published} CPU-s)",
            plain["cpu"] / ours["cpu"],
            ">= 30",
            1 / ours["cpu"] >= 30 * counted(1 / plain["cpu"], 1 / published),
        )
    ]


def growth() -> list[Row]:
    """The column from 10^4 to 10^7 words: the rate must not fall, memory is given relative to the text's own bytes."""
    return growing("CusText", {size: best(2, "column", words=size) for size in SIZES}, 100_000)


if __name__ == "__main__":
    main(rows)
