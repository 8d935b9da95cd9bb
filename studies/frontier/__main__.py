"""`make -C studies frontier`: measure missing figures, write `docs/frontier.parquet`, and from it the report."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence

from dptext_etl.cli.options import name_values
from frontier import baselines, data, forms, masked, plan, queries, tidy
from frontier.cells import Cell, measured

KEYS = 3


def cells(names: Sequence[str], only: Sequence[str], models: dict[str, str], keys: int) -> Iterator[Cell]:
    """Yield all cells: the first key of all before the second of any, mechanisms without a model first."""
    chosen = [line for line in plan.lines(models) if not only or line.mechanism in only]
    for key in range(keys):
        for model in (False, True):
            for line in (line for line in chosen if line.model is model):
                for name in (name for name in names if name in line.sets):
                    for epsilon in line.epsilons:
                        yield Cell(line, epsilon, data.read(name), key)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="make -C studies frontier", description=__doc__)
    parser.add_argument("--sets", nargs="*", default=list(data.CUTS), help="data sets")
    parser.add_argument("--only", nargs="*", default=[], help="mechanisms")
    parser.add_argument("--model", action="append", default=[], help="MECHANISM=MODEL: measure it with this model")
    parser.add_argument("--keys", type=int, default=KEYS, help="releases of each cell")
    parser.add_argument("--again", nargs="*", default=[], help="measures to repeat on kept releases")
    parser.add_argument("--kept", action="store_true", help="write from figures at hand, measure nothing")
    given = parser.parse_args(arguments)
    if not data.DATA.exists():
        sys.exit("skipped: shared/data does not lie next to this checkout")
    models = name_values(given.model, "a model is written MECHANISM=MODEL", "name each mechanism once")
    if not given.kept:
        _measure(list(cells(given.sets, given.only, models, given.keys)), given.again)
        masked.measure()
    whole = cells(list(data.CUTS), [], models, KEYS)
    table = tidy.write(whole, [*queries.queries(), *baselines.rows(), *tidy.families()])
    if not given.kept:
        forms.measure()
    from frontier import page

    page.write()
    print(f"written: {tidy.FILE.relative_to(data.ROOT)} ({len(table):,} figures), {page.REPORT.relative_to(data.ROOT)}")


def _measure(every: Sequence[Cell], again: Sequence[str]) -> None:
    began, spent = time.monotonic(), time.process_time()
    for number, cell in enumerate(every, 1):
        measured(cell, again=again)
        left = (time.monotonic() - began) / number * (len(every) - number)
        print(
            f"{number}/{len(every)} {cell.data.name}, {cell.line.title}, ε = {cell.epsilon:g}, key {cell.key}: "
            f"{time.process_time() - spent:.0f} CPU-s, about {left / 60:.0f} minutes left",
            flush=True,
        )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
