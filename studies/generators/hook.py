"""Show the interactive plots in the built documentation, where the committed page has pictures: a hook of mkdocs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the pictures of the frontier's page by its plots."""
    if "<!-- generated: frontier_plots -->" not in markdown:
        return markdown
    studies = str(Path(__file__).resolve().parents[1])
    if studies not in sys.path:
        sys.path.append(studies)
    from frontier.page import for_documentation

    return for_documentation(markdown)
