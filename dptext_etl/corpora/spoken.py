"""Turn written English into spoken English, and British spelling into American.

>>> american(spoken("I am not sure that it is a grey theatre."))
"I'm not sure that it's a gray theater."
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOT = ("do", "does", "did", "is", "are", "was", "were", "could", "would", "should", "has", "have", "had")
_DONE = ("been", "never", "tried", "seen", "read", "had", "lost", "used", "worked", "taken", "waited", "called")
_SPOKEN = {
    **{f"{verb} not": f"{verb}n't" for verb in _NOT},
    **{f"{who} are": f"{who}'re" for who in ("you", "we", "they")},
    **{f"{who} will": f"{who}'ll" for who in ("I", "you", "we", "it", "they")},
    **{f"{who} is": f"{who}'s" for who in ("it", "that", "there", "he", "she", "what", "where", "who", "nobody")},
    **{f"{who} have {done}": f"{who}'ve {done}" for who in ("I", "we", "they") for done in _DONE},
    "I am": "I'm",
    "I would": "I'd",
    "cannot": "can't",
    "will not": "won't",
    "let us": "let's",
    "until": "till",
    "television": "TV",
}
_AMERICAN = {
    "theatre": "theater",
    "cinema": "movie theater",
    "neighbour": "neighbor",
    "neighbourhood": "neighborhood",
    "colour": "color",
    "favourite": "favorite",
    "flavour": "flavor",
    "centre": "center",
    "grey": "gray",
    "programme": "program",
    "cheque": "check",
    "autumn": "fall",
    "tyre": "tire",
    "petrol": "gas",
    "harbour": "harbor",
    "rubbish": "garbage",
    "cosy": "cozy",
    "organised": "organized",
    "recognise": "recognize",
    "licence": "license",
    "marvellous": "marvelous",
    "holiday": "vacation",
    "film": "movie",
    "mould": "mold",
    "mobile": "cell phone",
}


_LOWER = {word.lower(): new for word, new in (_SPOKEN | _AMERICAN).items()}


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


_SPEAK = re.compile(rf"(?<!what )(?<!how )(?<!where )\b({_any_of(_SPOKEN)})(?= \w)", re.IGNORECASE)
_SPELL = re.compile(rf"\b({_any_of(_AMERICAN)})(?=s?\b)", re.IGNORECASE)


def spoken(text: str) -> str:
    """Contract what is contracted in speech, where another word follows."""
    return _SPEAK.sub(_other, text)


def american(text: str) -> str:
    """Spell words as in the United States, and take the words that are used there."""
    return _SPELL.sub(_other, text)


def _other(found: re.Match[str]) -> str:
    word = _LOWER[found[1].lower()]
    return word[0].upper() + word[1:] if found[1][0].isupper() else word
