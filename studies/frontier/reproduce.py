"""`make -C studies paper-000`: run the tables of a paper, print them, and write them into studies/reports/papers.md."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from importlib import import_module
from pathlib import Path

from frontier.data import DATA, ROOT
from frontier.setups import Setup

PAGE = ROOT / "studies" / "reports" / "papers.md"
PAPERS = ("000", "001", "002", "003", "004")


def main(arguments: list[str] | None = None) -> None:
    """Run one paper."""
    parser = argparse.ArgumentParser(prog="python -m frontier.reproduce", description=__doc__)
    parser.add_argument("paper", choices=PAPERS)
    parser.add_argument("--rows", type=int, default=Setup.rows, help="training texts of a set")
    parser.add_argument("--tests", type=int, default=Setup.tests, help="test texts of a set")
    parser.add_argument(
        "--slow", type=float, help="share of them that generative models rewrite (000: a quarter; else all)"
    )
    parser.add_argument("--models", type=Path, help="folder of given weights, such as deberta-v3-base and roberta-base")
    parser.add_argument("--tables", type=Path, help="folder of the papers' tables, as studies/recipes writes them")
    parser.add_argument("--out", type=Path, help="file of the tables (Markdown); without it, the page is updated")
    given = parser.parse_args(arguments)
    for folder in (given.models, given.tables):
        if folder is not None and not folder.is_dir():
            parser.error(f"there is no folder {folder.name!r}")
    if not DATA.exists():
        sys.exit("left out: shared/data does not lie next to this checkout")
    began = time.process_time()
    slow = given.slow if given.slow is not None else 0.25 if given.paper == "000" else 1.0
    setup = Setup(given.rows, given.tests, given.models, given.tables, slow)
    tables = import_module(f"frontier.paper_{given.paper}").reproduced(setup)
    text = "\n".join(table.markdown() for table in tables)
    size = f"{setup.rows} training and {setup.tests} test texts, {setup.slow:g} of them with generative models"
    text += f"\n*Run of {time.strftime('%Y-%m-%d')}: {size}; {time.process_time() - began:,.0f} CPU-seconds.*\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")
    else:
        PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), given.paper, text), encoding="utf-8")


def placed(page: str, paper: str, text: str) -> str:
    """Return the page with the tables of a paper between its marks."""
    start, end = f"<!-- paper-{paper}: start -->", f"<!-- paper-{paper}: end -->"
    text_, count = re.subn(f"{start}.*?{end}", lambda _: f"{start}\n\n{text}\n{end}", page, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"the page has no place for paper {paper}")
    return text_


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
