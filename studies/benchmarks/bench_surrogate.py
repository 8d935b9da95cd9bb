"""Surrogate: short texts over corpora of 20,000 texts and more, against numpy; a corpus of a million texts.

    python studies/benchmarks/bench_surrogate.py          # a table
    python studies/benchmarks/bench_surrogate.py --json   # the same rows as JSON

Every measurement is a separate process (`surrogate_tasks.py`); writing and mapping the corpus stay outside the clock.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from measuring import Row, Run, amount, best, main, task, two_threads

SCRIPT = "surrogate_tasks.py"
SIZES = (5_000, 20_000, 80_000)
ENOUGH = 250_000
"""Short texts per CPU-minute at 20,000 texts of 300 dimensions."""
GIB = 2**30


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    return [*column(), *corpora()]


def _best(name: str, **parameters: Any) -> Run:
    return best(2, name, script=SCRIPT, **parameters)


def _rate(run: Run) -> float:
    return 60 * float(run["rows"]) / float(run["cpu"])


def _by_clock(run: Run) -> str:
    return f"{amount(60 * run['rows'] / run['wall'])} texts/minute"


def column() -> list[Row]:
    """The column at 20,000 x 300, in texts per CPU-minute of one thread."""
    plain, one = _best("plain"), _best("surrogate")
    return [
        Row(
            "surrogate column, texts of 10 words, corpus 20,000 x 300, epsilon 4, encoding included, one thread",
            f"{amount(_rate(one))} texts/CPU-minute",
            f"numpy without encoding: {amount(_rate(plain))} texts/CPU-minute",
            _rate(one) / _rate(plain),
            f">= {ENOUGH:,} texts/CPU-minute",
            _rate(one) >= ENOUGH,
        ),
        two_threads("the same, two threads", partial(task, "surrogate", script=SCRIPT), _by_clock, 1.7),
    ]


def corpora() -> list[Row]:
    """Growth with the corpus, and a corpus of a million texts."""
    runs = {m: _best("surrogate", m=m, rows=4_000) for m in SIZES}
    times = {m: 1e6 * run["cpu"] / run["rows"] for m, run in runs.items()}
    small, large = min(times), max(times)
    grown = times[large] / times[small] / (large / small)
    whole = task("million", script=SCRIPT)
    return [
        Row(
            f"surrogate, corpora of {', '.join(f'{m:,}' for m in SIZES)} texts",
            ", ".join(f"{time:.0f}" for time in times.values()) + " CPU-µs per text",
            f"the time at {small:,} texts, times the growth of the corpus",
            grown,
            "<= 1.2: linear",
            grown <= 1.2,
        ),
        Row(
            "surrogate, a corpus of a million texts x 300: peak memory of the process",
            f"{whole['process'] / 2**20:,.0f} MiB; {1e3 * whole['cpu'] / whole['rows']:.1f} CPU-ms per text",
            "1 GiB",
            whole["process"] / GIB,
            "<= 1 GiB",
            whole["process"] <= GIB,
        ),
    ]


if __name__ == "__main__":
    main(rows)
