"""A whole run over IMDb, canaries, gates and publication included, with and without what its ledger takes.

python benchmarks/bench_run.py          # a table
python benchmarks/bench_run.py --json   # the same rows as JSON
"""

from __future__ import annotations

from measuring import Row, amount, main, task


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    found = task("run", threads=2)
    if not found:
        return []
    without = found["wall"] - found["ledger_wall"]
    ratio = found["wall"] / without
    return [
        Row(
            "`dptext run` with CusText over IMDb, two threads",
            f"{found['wall']:.1f} s for {found['rows']:,.0f} reviews, {amount(found['words'] / found['wall'])} words/s,"
            f" {found['peak'] / 2**20:,.0f} MiB more at the peak",
            f"the same without the ledger's share: {without:.1f} s",
            ratio,
            "<= 1.3",
            ratio <= 1.3,
        )
    ]


if __name__ == "__main__":
    main(rows)
