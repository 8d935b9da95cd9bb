"""Write a page that loads nothing: light and dark, narrow and wide, on paper."""

from __future__ import annotations

from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d5d9de; --soft: #5a6472; --bar: #2f6fab;
  --raw: #b3541e; --warn: #fff3cd; --warn-ink: #5c4400 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #14171b; --line: #363c44; --soft: #9aa4b1;
  --bar: #6aa9e0; --raw: #e8955f; --warn: #3b3111; --warn-ink: #f0dd9a } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 64rem;
  margin: 0 auto; padding: 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2rem } h3 { font-size: 1rem; margin: 1.5rem 0 0 }
.inside { background: var(--warn); color: var(--warn-ink); padding: .6rem .8rem; border-radius: .4rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top }
@media print { body { max-width: none } .scroll { overflow: visible } }
"""


def document(title: str, body: str, style: str = "") -> str:
    """Return a whole page."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}{style}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )
