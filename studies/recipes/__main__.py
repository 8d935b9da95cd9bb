"""`python -m recipes NAME DOWNLOAD OUT.parquet`: write a table of the papers from a download of yours."""

from __future__ import annotations

import argparse
from pathlib import Path

from recipes.tables import RECIPES


def main(arguments: list[str] | None = None) -> None:
    """Read, and write."""
    parser = argparse.ArgumentParser(prog="python -m recipes", description=__doc__)
    parser.add_argument("name", choices=sorted(RECIPES))
    parser.add_argument("download", type=Path, help="file or folder, as the source publishes it")
    parser.add_argument("out", type=Path, help="Parquet file")
    given = parser.parse_args(arguments)
    if not given.download.exists():
        parser.error("the download is not there")
    table = RECIPES[given.name](given.download)
    table.write_parquet(given.out)
    print(f"{table.height:,} rows, columns {', '.join(table.columns)}: {given.out}")


if __name__ == "__main__":
    main()
