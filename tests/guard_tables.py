"""The tables of what passes a guard, as the pages of the documentation write them."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def rows(page):
    """The plan, the guard's verdict, and the line to write instead, of each row of a page's table."""
    lines = (DOCS / page).read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.endswith("| the guard | write instead |")) + 2
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        plan, said, instead = (cell.strip() for cell in line.strip("|").split(" | " if line.count(" | ") == 2 else "|"))
        found.append((plan.strip("`"), said, instead.strip("`")))
    return found
