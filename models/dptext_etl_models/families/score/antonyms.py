"""Read antonyms from WordNet, so that they are rarely drawn (only in faithful mode).

The paper removes antonyms from the output set, which then depends on the text: a word that cannot come out discloses
something with certainty. Here antonyms get the lowest score before scores are clipped. So they are rarely drawn, and
the guarantee holds.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dptext_etl.errors import ArtifactError, seam

_PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
_OPPOSITE = "!"

Place = tuple[str, str]
"""Part of speech and offset of a synset."""


def antonyms_among(path: str | Path, outputs: Sequence[str]) -> Callable[[str], Sequence[int]]:
    """Return a function that finds the antonyms of a word among outputs."""
    with seam("reading WordNet", ArtifactError, "give the path of NLTK's wordnet.zip"):
        opposites = _opposites(Path(path))
    numbers: dict[str, list[int]] = {}
    for number, text in enumerate(outputs):
        numbers.setdefault(text.lower(), []).append(number)
    found = {
        word: sorted(number for name in names for number in numbers.get(name, ())) for word, names in opposites.items()
    }
    return lambda word: found.get(word.lower(), ())


def _opposites(path: Path) -> dict[str, set[str]]:
    """Return the antonyms of every word that has antonyms."""
    words: dict[Place, list[str]] = {}
    pointers: list[tuple[Place, int, Place, int]] = []
    with zipfile.ZipFile(path) as archive:
        for letter, part in _PARTS.items():
            with archive.open(f"wordnet/data.{part}") as lines:
                for line in lines:
                    if not line.startswith(b" "):  # lines of the license begin with a blank
                        place = (letter, line[:8].decode())
                        words[place], found = _synset(line.decode("utf-8").split(" | ")[0].split())
                        pointers.extend((place, *pointer) for pointer in found)
    opposites: dict[str, set[str]] = {}
    for place, own, other, its in pointers:
        opposites.setdefault(words[place][own - 1], set()).add(words[other][its - 1])
    return opposites


def _synset(fields: Sequence[str]) -> tuple[list[str], Iterator[tuple[int, Place, int]]]:
    """Read a line of WordNet's database (wndb(5)): its words, and the pairs of antonyms."""
    count = int(fields[3], 16)
    words = [field.partition("(")[0].lower() for field in fields[4 : 4 + 2 * count : 2]]
    first = 5 + 2 * count
    last = first + 4 * int(fields[first - 1])
    quads = (fields[at : at + 4] for at in range(first, last, 4))
    pointers = (
        (int(between[0:2], 16), (letter.replace("s", "a"), offset), int(between[2:4], 16))  # s marks adjectives as well
        for symbol, offset, letter, between in quads
        if symbol == _OPPOSITE
    )
    return words, pointers
