"""Cut a text into a public number of sentences, each of which gets a vector and noise of its own.

How many pieces there are is a constant of the configuration: short texts are padded with empty pieces, and the last
piece holds all that is left of long ones. So the number of sentences is never disclosed
(docs/spec/privacy.md#allocation-sentences).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dptext_etl import _kernel
from dptext_etl.allocation import Marked

_BETWEEN = re.compile(r"(?<=[.!?\u2026\u3002\uff01\uff1f])\s+|\n+")


def cut(text: str, count: int) -> list[str]:
    """Cut a text into `count` pieces: its first sentences, and last all that is left; empty ones where it ends before.

    >>> cut("It rained. We left! Anna stayed. She read.", 3)
    ['It rained.', 'We left!', 'Anna stayed. She read.']
    >>> cut("It rained.", 2)
    ['It rained.', '']
    """
    if count == 1:
        return [text]
    found = _BETWEEN.split(text.strip(), maxsplit=count - 1)
    return [*found, *[""] * (count - len(found))]


def marked(pieces: Sequence[str]) -> Marked:
    """Mark the words of the pieces of a text: a piece takes one share, by the mean score of its words."""
    words, places = list[str](), list[range | None]()
    for piece in pieces:
        found = [segment for segment, is_word in _kernel.split(piece) if is_word]
        places.append(range(len(words), len(words) + len(found)) if found else None)
        words += found
    return Marked(words, places, len(pieces))
