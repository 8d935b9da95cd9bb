"""Write `everyday-30k-2`: the sentences of `everyday-30k` without broken ones and a few that suit no demo.

Its encoder and hit rates are those of `everyday-30k`, so the vectors of all sentences that stay are the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from dptext_etl.corpora.corpus import write
from dptext_etl.corpora.shipped import everyday_30k

NAME = "everyday-30k-2"
LEFT_OUT = re.compile(
    r"\b(?:with|of|by) (?:to|that (?:the|there's|there|I)) |\bproud with\b"  # "happy with to travel"
    r"|, (?:it seems|it seems to me|I feel|I am sure|everybody says) that\.$"  # "it rains, I feel that."
    r"|\bbras?\b|\bsex|\bsuicid|\bbreast|\berecti"
)
"""What no sentence of this version holds: constructions that are not English, and words that suit no demo."""


def texts() -> tuple[str, ...]:
    """Return the sentences, in the order of `everyday-30k`."""
    return tuple(text for text in everyday_30k.everyday_texts() if LEFT_OUT.search(text) is None)


def description() -> dict[str, Any]:
    """Return everything that the content depends on; its hash names the entry of the cache."""
    return {**everyday_30k.description(), "name": NAME, "left_out": LEFT_OUT.pattern}


def build(path: Path) -> None:
    """Write the corpus with the encoder of all sentences of `everyday-30k`."""
    directions = load_file(everyday_30k.DIRECTIONS)["directions"]
    encoder = everyday_30k.encoder_of(everyday_30k.everyday_texts(), directions)
    write(path, texts(), description(), encoder=encoder)
