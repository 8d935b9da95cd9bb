"""Make `everyday-30k`, 30,000 sentences of everyday life, from templates and word lists that we wrote.

The source is `dptext_etl/data/everyday/`: `words.txt` holds lists for all domains, every other file is one domain. The
corpus is a function of these files alone: SHA-256 of a public constant, the domain, the kind and a counter chooses the
words, so every machine makes the same bytes. It is made on first use (seconds) and kept in the artifact cache.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dptext_etl.artifacts import Artifact, store
from dptext_etl.corpora.grammar import Draws, Slot, Source, expand, parse

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


EVERYDAY = "everyday-30k"
KINDS = ("praise", "complaint", "question", "request", "plain")
SIZE = 30_000
LICENCE = "Apache-2.0"
PROVENANCE = "written for dptext_etl: templates and word lists in dptext_etl/data/everyday"
SHORTEST, LONGEST = 5, 25
SOURCE = Path(__file__).parent.parent / "data" / "everyday"
_ENDS = {kind: "?" if kind == "question" else "." for kind in KINDS}
_TWICE = re.compile(r"\b(\w+) \1\b", re.IGNORECASE)
_TRIES = 200  # per sentence that is wanted


class Sentence(NamedTuple):
    """A sentence with the domain and the kind that it was written for."""

    text: str
    domain: str
    kind: str


def everyday_texts() -> tuple[str, ...]:
    """Return the sentences of `everyday-30k`, in an order that mixes domains and kinds."""
    return tuple(everyday_artifact().path.read_text("ascii").splitlines())


def everyday_artifact() -> Artifact:
    """Return the file of `everyday-30k`, one sentence per line; it is made on first use."""
    digest = hashlib.sha256()
    for path in sorted(SOURCE.glob("*.txt")):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return store(
        {"format": "everyday 1", "name": EVERYDAY, "source": digest.hexdigest(), "size": SIZE},
        lambda out: _write(out, generate()),
        suffix=".txt",
        provenance=PROVENANCE,
        licence=LICENCE,
    )


def generate(size: int = SIZE) -> tuple[Sentence, ...]:
    """Make sentences from the source, evenly over domains and kinds, and within these evenly over templates."""
    shared, domains = sources()
    cells = [(domain, kind) for domain in domains for kind in KINDS]
    made: dict[str, Sentence] = {}
    for number, (domain, kind) in enumerate(cells):
        wanted = size // len(cells) + (number < size % len(cells))
        lists = {**shared.lists, **domains[domain].lists}
        templates = domains[domain].templates[kind]
        full = len(made) + wanted
        for attempt in range(_TRIES * wanted):
            if len(made) == full:
                break
            draws = Draws(f"{EVERYDAY}\n{domain}\n{kind}\n{attempt}")
            template = templates[attempt % len(templates)]
            text = expand(template, lists, draws, _ENDS[kind])
            if draws.below(2):
                text = spoken(text)
            if draws.below(2):
                text = american(text)
            if text in made:  # say it again with a tag: "…, please."
                text = expand((text[:-1], Slot(f"after_{kind}")), lists, draws, text[-1])
            if SHORTEST <= len(text.split()) <= LONGEST and not _TWICE.search(text):
                made.setdefault(text, Sentence(text, domain, kind))
        if len(made) < full:
            raise ValueError(f"{domain}, {kind}: the templates yield fewer than {wanted} distinct sentences")
    return tuple(sorted(made.values(), key=lambda made: hashlib.sha256(made.text.encode()).digest()))


def sources() -> tuple[Source, dict[str, Source]]:
    """Read the lists for all domains, and the domains by name."""
    read = {}
    for path in sorted(SOURCE.glob("*.txt")):
        try:
            read[path.stem] = parse(path.read_text("ascii"))
        except ValueError as exc:
            raise ValueError(f"{path.name}: {exc}") from None
    return read.pop("words"), read


def _write(out: Path, sentences: tuple[Sentence, ...]) -> None:
    out.write_text("".join(f"{made.text}\n" for made in sentences), "ascii", newline="\n")
