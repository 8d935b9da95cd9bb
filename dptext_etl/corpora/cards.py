"""Write the cards of a corpus: what it is, where it comes from, what it costs to use, as Markdown next to the JSON."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from dptext_etl.corpora.corpus import Corpus
from dptext_etl.corpora.weights import near_texts

MARKDOWN = "README.md"
_SHOWN = ("1.0", "2.0", "4.0", "6.0", "8.0", "10.0", "16.0")


def facts(corpus: Corpus) -> dict[str, Any]:
    """Return what people ask of a corpus first, plain data."""
    told = corpus.description
    return {
        "name": told.get("name", corpus.path.parent.name),
        "texts": len(corpus),
        "sha256": corpus.sha256,
        "licence": told.get("licence"),
        "provenance": told.get("provenance"),
        "encoder": told.get("encoder", {}),
        "hits": told.get("hits", {}),
        "build": told.get("build", {}),
    }


def write(corpus: Corpus, folder: Path) -> Path:
    """Write the card for people into the corpus's folder and return its path."""
    path = folder / MARKDOWN
    path.write_text(card(corpus), "utf-8")
    return path


def card(corpus: Corpus) -> str:
    """Return the card as Markdown."""
    told = facts(corpus)
    encoder, build = told["encoder"], told["build"]
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in build.get("dropped", {}).items()) or "none"
    lines = [
        f"# Corpus {told['name']}",
        "",
        "**Every text of this corpus is published text.** A release that uses it shows texts of this corpus and no",
        "others: do not put in it what must not be shown.",
        "",
        f"* texts: {told['texts']:,}",
        f"* SHA-256 of `corpus.safetensors`: `{told['sha256']}`",
        f"* license: {told['licence']}",
        f"* provenance: {told['provenance']}",
        f"* encoder: {encoder.get('kind', 'words')}, {encoder.get('name', 'unnamed')}",
        f"* sources: {', '.join(build.get('sources', [])) or 'not stated'}",
        f"* texts read: {build.get('read', 0):,}, usable: {build.get('usable', 0):,}, left out: {dropped}",
        "",
        "| epsilon of one draw | hit rate | near texts |",
        "| --- | --- | --- |",
    ]
    for epsilon in _SHOWN:
        if epsilon in told["hits"]:
            hit = float(told["hits"][epsilon])
            near = near_texts(told["texts"], Decimal(epsilon), Decimal(told["hits"][epsilon]))
            lines.append(f"| {float(epsilon):g} | {hit:.2f} | {near:,} |")
    return "\n".join(lines) + "\n"
