"""Write the home page: README, with links that work inside the documentation."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
EXCLUDED = re.compile(r"^## (?:Figures|Install|Links)\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def home(readme: str) -> str:
    """Return README as a page of `docs/`, without the sections that other pages have and links to other folders."""

    def link(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        if target.startswith("docs/"):
            return f"{picture}[{text}]({target.removeprefix('docs/')})"
        return match.group(0) if "://" in target else text

    return LINK.sub(link, EXCLUDED.sub("", readme)).rstrip() + "\n"
