"""Generate the part of the documentation that is read from the code: a hook of mkdocs (`mkdocs.yml`).

It adds one page per mechanism of the catalog, the page of the command line, and tables where a page says `{{ name }}`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent

POLICY_ENTRIES = "policy_entries"
"""The one table with a module of its own."""


def generator(module: str, name: str) -> Callable[..., str]:
    """Import a function of `docs/generators`; mkdocs takes away what a hook puts on the path while it is loaded."""
    if str(ROOT / "docs") not in sys.path:
        sys.path.append(str(ROOT / "docs"))
    found: Callable[..., str] = getattr(import_module(f"generators.{module}"), name)
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List one page per mechanism in the navigation."""
    from dptext_etl import available

    titles = ({generator("mechanism_pages", "title")(name): f"mechanisms/{name}.md"} for name in available())
    pages = [{"All of them": "mechanisms/index.md"}, *titles]
    for tab in config.nav or ():
        for entries in tab.values():
            for entry in entries if isinstance(entries, list) else ():
                if "Mechanisms" in entry:
                    entry["Mechanisms"] = pages
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that no file holds."""
    from mkdocs.structure.files import File

    from dptext_etl import available

    pages = {
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "]("),
        "cli.md": generator("command_line", "command_line")(),
        "api.md": generator("api", "python_api")(),
        **{f"mechanisms/{name}.md": generator("mechanism_pages", "mechanism")(name) for name in available()},
    }
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put a table where a page asks for one."""

    def table(found: re.Match[str]) -> str:
        name = found.group(1)
        return generator("policy_tables" if name == POLICY_ENTRIES else "tables", name)()

    if "{{ frontier_" in markdown:
        markdown = generator("frontier_page", "for_documentation")(markdown)
    return re.sub(r"\{\{ (\w+) \}\}", table, markdown)
