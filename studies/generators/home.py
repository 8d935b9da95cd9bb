"""Write the home page: README, with links that work inside the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from generators.pictures import session_words

README = Path(__file__).resolve().parents[2] / "README.md"
EXCLUDED = re.compile(r"^## (?:Install|Comparison|Status and support)\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FIGURES = re.compile(
    r"The table has macro-F1 of classifiers .*?(?=The rule)|^Snips is .*?(?=\[Choose\])", re.DOTALL | re.MULTILINE
)
TABLE = re.compile(r"<!-- generated: all_forms .*?<!-- end -->\n\n", re.DOTALL)
"""The table of README, which `docs/choose.md` has, too, and the sentences about it."""
OUTPUT = re.compile(r"^```text\n.*?^```\n", re.MULTILINE | re.DOTALL)
"""The output of the three commands, which the home page shows as a recorded terminal."""
SECOND = re.compile(r" This second policy has the\n.*?(?=^Guides:)", re.MULTILINE | re.DOTALL)
"""The calls of each engine, which the guides have."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def home(readme: str) -> str:
    """Return README as a page of `docs/`, without the sections that other pages have and links to other folders."""

    def link(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        if target.startswith("docs/"):
            return f"{picture}[{text}]({target.removeprefix('docs/')})"
        return match.group(0) if "://" in target else text

    page = LINK.sub(link, EXCLUDED.sub("", TABLE.sub("", readme)))
    page = SECOND.sub("\n\n", page)
    terminal = f"![{session_words()}](images/session.svg)\n"
    return OUTPUT.sub(lambda _: terminal, FIGURES.sub("", page), count=1).rstrip() + "\n"
