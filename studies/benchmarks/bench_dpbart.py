"""DP-BART in the shape of bart-base: batches against the plain loop of one document at a time; noise; lengths.

    python studies/benchmarks/bench_dpbart.py          # a table
    python studies/benchmarks/bench_dpbart.py --json   # the same rows as JSON

Random weights (`random_models.py`); every document is decoded to its full length, on both sides. Cache, beams, tokens
per document and numbers (float32) are alike.
"""

from __future__ import annotations

from typing import Any

import measuring
import random_models
from bench_dpmlm import listed
from measuring import Row, amount, main
from plain_loops import ENOUGH, PUBLISHED

BEAMS = 4  # what bart-base itself names
DOCUMENTS, LOOP, TOKENS = 64, 12, 20
LENGTHS = {20: 32, 64: 16, 128: 8, 512: 2}  # tokens per document: documents at once
AT_ONCE = (1, 8, 32)


def task(name: str, **parameters: Any) -> dict[str, Any]:
    """Run one task of this benchmark."""
    return measuring.task(name, script="dpbart_tasks.py", **parameters)


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    built = random_models.folder()
    if built is None:
        return []
    folder = str(built / "bart")
    plain = {beams: task("plain_dpbart", folder=folder, documents=LOOP, beams=beams) for beams in (1, BEAMS)}
    if not all(plain.values()):
        return []
    jobs = [{"documents": DOCUMENTS, "beams": beams, "warm": True} for beams in plain]
    one = dict(zip(plain, task("dpbart", folder=folder, jobs=jobs)["jobs"], strict=True))
    two = task("dpbart", folder=folder, jobs=jobs, threads=2)["jobs"]
    return [*loop(plain), *column(plain, one, dict(zip(plain, two, strict=True))), *noise(one[1]), *costs(folder)]


def rate(run: dict[str, Any]) -> float:
    """Documents per CPU-minute."""
    return float(run["documents"] / run["cpu"] * 60)


def loop(plain: dict[int, dict[str, Any]]) -> list[Row]:
    """The plain loop next to the published code, which ran with one beam."""
    published = PUBLISHED["dpbart_documents_per_minute"]
    both = " and ".join(f"{rate(run):,.0f} with {named(beams)}" for beams, run in plain.items())
    return [
        Row(
            f"the plain loop of DP-BART, bart-base shape, {TOKENS} tokens, a document at a time",
            f"{both}, documents/CPU-min",
            f"published code, one beam: {published:,.0f} documents/CPU-min",
            rate(plain[1]) / published,
            f">= {ENOUGH}, else the next ratios do not count",
            rate(plain[1]) >= ENOUGH * published,
        )
    ]


def column(
    plain: dict[int, dict[str, Any]], one: dict[int, dict[str, Any]], two: dict[int, dict[str, Any]]
) -> list[Row]:
    """The column against the loop, one beam and several, one thread and two."""
    lines = []
    for beams, run in one.items():
        ratio = rate(run) / rate(plain[beams])
        clock = two[beams]["documents"] / two[beams]["wall"] * 60
        lines.append(
            Row(
                f"DP-BART column, {TOKENS} tokens, {named(beams)}, one thread",
                f"{rate(run):,.0f} documents/CPU-min (two threads: {clock:,.0f} documents/min elapsed)",
                f"the plain loop with {named(beams)}, float32 both",
                ratio,
                ">= 5",
                ratio >= 5,
            )
        )
    return lines


def named(beams: int) -> str:
    """Write a number of beams."""
    return "one beam" if beams == 1 else f"{beams} beams"


def noise(decoded: dict[str, Any]) -> list[Row]:
    """Samples of noise per CPU-second, next to the time of a whole document."""
    run = task("noise")
    document, numbers = decoded["cpu"] / decoded["documents"], TOKENS * 768
    lines = []
    for kind in ("gaussian", "laplace"):
        samples = run["samples"] / run[kind]
        share = numbers / samples / document
        lines.append(
            Row(
                f"{kind.capitalize()} noise of latents, {TOKENS} x 768 numbers a document",
                f"{amount(samples)} samples/CPU-s, {amount(samples / numbers * 60)} documents/CPU-min",
                "the time of a whole document with one beam",
                share,
                "< 0.1: never the bottleneck",
                share < 0.1,
            )
        )
    return lines


def costs(folder: str) -> list[Row]:
    """CPU time per document against its tokens and against how many are decoded at once."""
    by_length = [{"documents": rows, "rows": rows, "length": size, "beams": 1} for size, rows in LENGTHS.items()]
    by_batch = [{"documents": rows, "rows": rows, "beams": 1, "warm": True} for rows in AT_ONCE]
    jobs = task("dpbart", folder=folder, jobs=[*by_batch, *by_length])["jobs"]
    batches, lengths = jobs[: len(AT_ONCE)], jobs[len(AT_ONCE) :]
    each = [job["cpu"] / job["documents"] for job in lengths]
    return [
        Row(
            f"DP-BART, documents of {listed(LENGTHS)} tokens, one beam, {listed(LENGTHS.values())} at once",
            f"{listed(f'{one:.2f}' for one in each)} CPU-s a document",
            f"a document of {TOKENS} tokens",
            each[-1] / each[0],
        ),
        Row(
            f"DP-BART, {TOKENS} tokens, one beam, batches of {listed(AT_ONCE)} documents",
            f"{listed(f'{rate(job):,.0f}' for job in batches)} documents/CPU-min",
            "batches of one",
            rate(batches[-1]) / rate(batches[0]),
        ),
    ]


if __name__ == "__main__":
    main(rows)
