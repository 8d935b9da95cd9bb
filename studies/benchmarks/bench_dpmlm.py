"""DP-MLM in the shape of roberta-base: sequential, block and parallel against the plain loop of algorithm 2.

    python studies/benchmarks/bench_dpmlm.py          # a table
    python studies/benchmarks/bench_dpmlm.py --json   # the same rows as JSON

Random weights (`random_models.py`), SST-2's sentences. Words are those that were drawn, on both sides of a ratio. The
loop is given few of the texts: it needs minutes where a column needs seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import measuring
import random_models
from measuring import Row, amount, main
from plain_loops import ENOUGH, PUBLISHED

EVEN, LOOP_EVEN = 20, 6
LONG, LOOP_LONG = 120, 5
BLOCK = 4
LENGTHS = {10: 24, 25: 8, 50: 4, 100: 2, 200: 1, 400: 1}  # words of a text: texts
AT_ONCE = (1, 4, 32)
SEQUENTIAL = {"sample": "even", "rows": EVEN}
IN_BLOCKS = {"sample": "even", "rows": EVEN, "decoding": "block", "block": BLOCK}
PARALLEL = {"sample": "long", "rows": LONG, "decoding": "parallel"}


def task(name: str, **parameters: Any) -> dict[str, Any]:
    """Run one task of this benchmark."""
    model = str(Path(random_models.folder() or "") / "roberta")
    return measuring.task(name, script="dpmlm_tasks.py", folder=model, **parameters)


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    if random_models.folder() is None:
        return []
    plain = task("plain_dpmlm", sample="even", of=EVEN, rows=LOOP_EVEN)
    if not plain:
        return []
    return [*loop(plain), *even(plain), *parallel(), *reduced(plain), *lengths()]


def rate(run: dict[str, Any], words: str = "words") -> float:
    """Words per CPU-minute."""
    return float(run[words] / run["cpu"] * 60)


def loop(plain: dict[str, Any]) -> list[Row]:
    """The plain loop next to the published script, by this machine's clock and by the model's own."""
    words, draws = rate(plain), rate(plain, "drawn")
    published = PUBLISHED["dpmlm_words_per_minute"]
    sequences, most = plain["cpu"] / plain["drawn"] / plain["sequence"], PUBLISHED["dpmlm_sequences_per_draw"]
    return [
        Row(
            "the plain loop of DP-MLM, roberta-base shape, a forward per word, float32",
            f"{words:,.0f} words/CPU-min, of which {draws:,.0f} drawn and the rest kept as stopwords",
            f"published script: {published:,.0f} words/CPU-min, {PUBLISHED['dpmlm_draws_per_minute']:,.0f} drawn, "
            "on a CPU that multiplies bfloat16",
            words / published,
            f">= {ENOUGH}, else the next ratios do not count",
            words >= ENOUGH * published,
        ),
        Row(
            "the same, whatever the CPU: a draw of the loop",
            f"{1000 * plain['cpu'] / plain['drawn']:.0f} CPU-ms",
            f"a sequence of a 16 x 50 batch of the same model: {1000 * plain['sequence']:.0f} CPU-ms "
            f"(published script: 1.27 to {most})",
            sequences,
            f"<= {most}",
            sequences <= most,
        ),
    ]


def even(plain: dict[str, Any]) -> list[Row]:
    """Sequential and block decoding on sentences of 20 words, one thread and two."""
    one = task("dpmlm", jobs=[SEQUENTIAL, IN_BLOCKS])["jobs"]
    two = task("dpmlm", jobs=[SEQUENTIAL, IN_BLOCKS], threads=2)["jobs"]
    plain_two = task("plain_dpmlm", threads=2, sample="even", of=EVEN, rows=LOOP_EVEN // 2)
    base, by_clock = rate(plain, "drawn"), plain_two["drawn"] / plain_two["wall"] * 60
    return [
        Row(
            "DP-MLM, sequential, SST-2 sentences of 20 words, one thread",
            f"{rate(one[0]):,.0f} words/CPU-min",
            "the plain loop, drawn words, float32 both",
            rate(one[0]) / base,
            ">= 2",
            rate(one[0]) >= 2 * base,
        ),
        Row(
            "the same, two threads",
            f"{two[0]['words'] / two[0]['wall'] * 60:,.0f} words/min elapsed",
            f"the plain loop with two threads: {by_clock:,.0f} drawn words/min elapsed",
            two[0]["words"] / two[0]["wall"] * 60 / by_clock,
        ),
        Row(
            f"DP-MLM, blocks of {BLOCK}, the same sentences, one thread",
            f"{rate(one[1]):,.0f} words/CPU-min; two threads {two[1]['words'] / two[1]['wall'] * 60:,.0f} words/min "
            "elapsed",
            "the plain loop",
            rate(one[1]) / base,
        ),
    ]


def parallel() -> list[Row]:
    """Parallel decoding on sentences of 19 words and more, one thread and two."""
    plain = task("plain_dpmlm", sample="long", of=LONG, rows=LOOP_LONG)
    one = task("dpmlm", jobs=[PARALLEL])["jobs"][0]
    two = task("dpmlm", jobs=[PARALLEL], threads=2)["jobs"][0]
    base = rate(plain, "drawn")
    return [
        Row(
            f"DP-MLM, parallel, {LONG} SST-2 sentences of 19 words and more, one thread",
            f"{rate(one):,.0f} words/CPU-min",
            f"the plain loop on such sentences: {base:,.0f} drawn words/CPU-min",
            rate(one) / base,
            ">= 30",
            rate(one) >= 30 * base,
        ),
        Row(
            "the same, two threads",
            f"{two['words'] / two['wall'] * 60:,.0f} words/min elapsed",
            "one thread, elapsed",
            one["wall"] / two["wall"],
        ),
    ]


def reduced(plain: dict[str, Any]) -> list[Row]:
    """Sequential decoding in bfloat16, where the CPU multiplies it."""
    from dptext_etl import device

    work = "DP-MLM, sequential, bfloat16 weights, one thread"
    if device.dtype("cpu") != "bfloat16":
        return [Row(work, "skipped: this CPU does not multiply bfloat16", goal=">= 5 where it does")]
    one = task("dpmlm", jobs=[SEQUENTIAL], dtype="bfloat16")["jobs"][0]
    ratio = rate(one) / rate(plain, "drawn")
    return [Row(work, f"{rate(one):,.0f} words/CPU-min", "the plain loop, float32", ratio, ">= 5", ratio >= 5)]


def lengths() -> list[Row]:
    """CPU time per word against the length of texts and against how many texts are released at once."""
    sequential = task("one_draw", lengths=list(LENGTHS))
    sizes = [{"words": size, "rows": rows, "alike": True, "decoding": "parallel"} for size, rows in LENGTHS.items()]
    batches = [{"words": 20, "rows": size, "decoding": "parallel"} for size in AT_ONCE]
    seconds = [job["cpu"] / job["words"] for job in task("dpmlm", jobs=[*sizes, *batches])["jobs"]]
    by_length, by_batch = seconds[: len(sizes)], seconds[len(sizes) :]
    shortest, longest = sequential[str(min(LENGTHS))], sequential[str(max(LENGTHS))]
    return [
        Row(
            f"DP-MLM, sequential, texts of {listed(LENGTHS)} words: a draw in the middle, in full batches",
            f"{listed(f'{1000 * sequential[str(size)]:.0f}' for size in LENGTHS)} CPU-ms",
            f"a draw at {min(LENGTHS)} words (a window of 512 tokens bounds it)",
            longest / shortest,
        ),
        Row(
            f"DP-MLM, parallel, texts of {listed(LENGTHS)} words, in full batches",
            f"{listed(f'{1000 * one:.1f}' for one in by_length)} CPU-ms a word",
            f"a word at {min(LENGTHS)} words",
            by_length[-1] / by_length[0],
        ),
        Row(
            f"DP-MLM, parallel, {listed(AT_ONCE)} texts of 20 words at once (batches have a fixed shape)",
            f"{listed(amount(60 / one) for one in by_batch)} words/CPU-min",
            "one text at a time",
            by_batch[0] / by_batch[-1],
        ),
    ]


def listed(items: Any) -> str:
    """Write a list with commas."""
    return ", ".join(map(str, items))


if __name__ == "__main__":
    main(rows)
