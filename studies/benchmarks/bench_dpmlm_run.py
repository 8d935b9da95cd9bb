"""`dptext run` with DP-MLM and the small model that ships: 2,000 sentences of SST-2, ledger verified, run again.

python studies/benchmarks/bench_dpmlm_run.py          # a table
python studies/benchmarks/bench_dpmlm_run.py --json   # the same rows as JSON
"""

from __future__ import annotations

import measuring
from measuring import Row, amount, main

ROWS = 2_000
MODEL = "english-small"


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    lines = []
    for decoding in ("sequential", "parallel"):
        run = measuring.task("run", script="dpmlm_run_tasks.py", threads=2, rows=ROWS, decoding=decoding, model=MODEL)
        if not run:
            return []
        kept = run["verified"] and run["same"] and not run["charged"]
        lines += [
            Row(
                f"`dptext run` with DP-MLM, {decoding}, `{MODEL}`, {ROWS:,} sentences of SST-2, two threads",
                f"{run['first']:.1f} s for {amount(run['words'])} words, {amount(run['words'] / run['first'])} "
                f"words/s, ledger, canaries, {run['gates']} gates and publication included",
            ),
            Row(
                "the same run again: nothing scored, nothing charged, the same bytes, ledger verified",
                f"{run['second']:.1f} s",
                "the first run",
                run["second"] / run["first"],
                "free and byte-identical",
                bool(kept) and run["replayed"] == ROWS and run["scored"] == 0,
            ),
        ]
    return lines


if __name__ == "__main__":
    main(rows)
