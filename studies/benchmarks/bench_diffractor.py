"""1-Diffractor: the column over IMDb with five lists against its plain loop, growth, and the cost of making a list.

    python studies/benchmarks/bench_diffractor.py          # a table
    python studies/benchmarks/bench_diffractor.py --json   # the same rows as JSON

Every measurement is a separate process (`diffractor_tasks.py`).
"""

from __future__ import annotations

from functools import partial

import measuring
from measuring import Row, amount, counted, growing, main, two_threads, words_rate
from plain_loops import ENOUGH, PUBLISHED

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
VOCABULARIES = (5_000, 20_000, 30_000)
SCRIPT = "diffractor_tasks.py"
task = partial(measuring.task, script=SCRIPT)
best = partial(measuring.best, script=SCRIPT)
RATE = PUBLISHED["diffractor_words_per_second"]


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    return [*column(), *growth(), *lists()]


def column() -> list[Row]:
    """The column with five lists of 5,000 words, in words per CPU-second of one thread; both variants."""
    runs = []
    for variant in ("tem", "geometric"):
        plain = best(3, "plain_diffractor", variant=variant)
        if not plain:
            return []
        one = best(3, "diffractor", variant=variant)
        plain_rate, rate = plain["words"] / plain["cpu"], one["words"] / one["cpu"]
        runs += [
            Row(
                f"the plain per-word loop of 1-Diffractor, {variant}, 5 lists",
                f"{amount(plain_rate)} words/CPU-s",
                f"published code: {amount(RATE)} words/CPU-s",
                plain_rate / RATE,
                f">= {ENOUGH}, else the next goal is held against as much of the published rate",
                plain_rate >= ENOUGH * RATE,
            ),
            Row(
                f"1-Diffractor column in Polars, {variant}, IMDb, 5 lists, one thread",
                f"{amount(rate)} words/CPU-s ({one['wall']:.2f} s for {amount(one['words'])} words)",
                "the plain loop",
                rate / plain_rate,
                ">= 1,000",
                rate >= 1_000 * counted(plain_rate, RATE),
            ),
            Row(
                "the same",
                f"{amount(rate)} words/CPU-s",
                f"published code: {amount(RATE)} words/CPU-s",
                rate / RATE,
                ">= 1,000",
                rate >= 1_000 * RATE,
            ),
        ]
    runs.append(two_threads("1-Diffractor column, tem, two threads", partial(task, "diffractor"), words_rate))
    return runs


def growth() -> list[Row]:
    """The column from 10^4 to 10^7 words: the rate must not fall, memory is given relative to the text's own bytes."""
    return growing("1-Diffractor", {size: best(2, "diffractor", words=size) for size in SIZES}, 100_000)


def lists() -> list[Row]:
    """Making one list of 300 dimensions: against the plain loop, and by vocabulary against one product of all pairs."""
    plain, ours = task("plain_diffractor_list"), best(2, "diffractor_list")
    if not plain:
        return []
    published = PUBLISHED["diffractor_lists_seconds"] / 5
    enough = plain["cpu"] * ENOUGH <= published
    runs = {size: (task("diffractor_list", limit=size), task("one_product", limit=size)) for size in VOCABULARIES}
    largest, product = runs[max(runs)]
    return [
        Row(
            "1-Diffractor, one list of 5 k words of 300 dimensions",
            f"{ours['cpu']:.2f} CPU-s",
            f"the plain loop: {plain['cpu']:.1f} CPU-s (published code: {published:.1f} CPU-s"
            + ("" if enough else "; the loop is slower, so the ratio does not count")
            + ")",
            plain["cpu"] / ours["cpu"],
        ),
        Row(
            "one list of 5 k, 20 k, 30 k words",
            ", ".join(f"{mine['cpu']:.2f}" for mine, _ in runs.values()) + " CPU-s",
            "one float32 product of the vectors with themselves: "
            + ", ".join(f"{theirs['cpu']:.2f}" for _, theirs in runs.values())
            + " CPU-s",
            largest["cpu"] / product["cpu"],
        ),
        Row(
            "memory of the list of 30 k words",
            f"{largest['peak'] / 2**20:,.0f} MiB more at the peak",
            "all distances at once in float32: 3,433 MiB",
            largest["peak"] / (4 * 30_000**2),
        ),
    ]


if __name__ == "__main__":
    main(rows)
