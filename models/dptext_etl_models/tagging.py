"""Find word classes and names with a library: NLTK's perceptron tagger, or any pipeline of spaCy.

Sources, as a score's field `tagger` names them:

* "english": the small tagger that comes with this package (`data/english-tags.md`), run by NLTK;
* "nltk", or "nltk:FOLDER": NLTK's own English tagger, where NLTK finds its data, or in a folder of such data;
* "spacy:NAME": a pipeline of spaCy, by the name of an installed package or by its folder.

Nothing is downloaded, and libraries are imported when a score is used.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self

from dptext_etl.artifacts import Artifact
from dptext_etl.errors import ArtifactError, PolicyError, seam
from dptext_etl.extensions import pip_install

ENGLISH = "english"
OWN = Path(__file__).parent / "data" / "english-tags.json"
CLASSES = ("NN", "NNP", "PR", "VB", "CD", "JJ", "RB", "O")
"""Nouns, names (proper nouns), pronouns, verbs, numbers, adjectives, adverbs, all others."""
_NLTK = "taggers/averaged_perceptron_tagger_eng"
_SPACY = {"PROPN": "NNP", "NOUN": "NN", "PRON": "PR", "VERB": "VB", "AUX": "VB", "NUM": "CD", "ADJ": "JJ", "ADV": "RB"}


class Tagger(Protocol):
    """The functions of a library that scores need."""

    def classes(self, words: Sequence[str]) -> list[str]:
        """Return the class of every word, one of `CLASSES`, n of them."""

    def named(self, words: Sequence[str]) -> list[bool]:
        """Return which words belong to a named entity, n of them."""


def class_of(tag: str) -> str:
    """Return our class of a tag of the Penn treebank: its first two letters, names apart.

    >>> [class_of(tag) for tag in ("NNS", "NNP", "PRP$", "VBZ", "IN")]
    ['NN', 'NNP', 'PR', 'VB', 'O']
    """
    if tag.startswith("NNP"):
        return "NNP"
    return tag[:2] if tag[:2] in CLASSES else "O"


class NltkTagger:
    """An averaged perceptron of NLTK."""

    def __init__(self, weights: dict[str, dict[str, float]], tagdict: dict[str, str], classes: Sequence[str]) -> None:
        try:
            from nltk.tag.perceptron import PerceptronTagger
        except ImportError:
            raise PolicyError("finding word classes needs nltk", pip_install("allocation")) from None
        self._tagger: Any = PerceptronTagger(load=False)
        self._tagger.model.weights, self._tagger.tagdict = weights, tagdict
        self._tagger.classes = self._tagger.model.classes = set(classes)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a tagger in one file, as `studies/shipped_data/tagger.py` writes it."""
        with seam("reading a tagger", ArtifactError, "is it a tagger in the format of `english-tags.json`?"):
            content = json.loads(path.read_text(encoding="utf-8"))
            weights, tagdict, classes = content["weights"], content["tagdict"], content["classes"]
        return cls(weights, tagdict, classes)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read NLTK's English tagger from a folder of NLTK's data, or from its own folder."""
        with seam(
            "reading NLTK's tagger", ArtifactError, "its folder holds three JSON files: weights, tagdict, classes"
        ):
            contents = [json.loads(path.read_text(encoding="utf-8")) for path in parts(folder)]
        return cls(*contents)

    def classes(self, words: Sequence[str]) -> list[str]:
        """Return the class of every word; in a text with capitals, a name begins with one."""
        with seam("finding word classes", PolicyError):
            classes = [class_of(tag) for _, tag in self._tagger.tag([_plain(word) for word in words])]
        if not any(word[:1].isupper() for word in words):
            return classes
        return [
            "NN" if label == "NNP" and word[:1].islower() else label for word, label in zip(words, classes, strict=True)
        ]

    def named(self, words: Sequence[str]) -> list[bool]:
        """Return which words are proper nouns or hold a digit or an @: NLTK's tagger knows no entities."""
        classes = self.classes(words)
        return [
            label == "NNP" or any(character.isdigit() or character == "@" for character in word)
            for word, label in zip(words, classes, strict=True)
        ]


class SpacyTagger:
    """A pipeline of spaCy, over words that are already split."""

    def __init__(self, name: str) -> None:
        try:
            import spacy
        except ImportError:
            raise PolicyError(
                "finding word classes with spaCy needs spacy, which is not installed", "pip install spacy"
            ) from None
        with seam("loading a pipeline of spaCy", ArtifactError, "name an installed pipeline or the folder of one"):
            self._pipeline: Any = spacy.load(name)

    def _read(self, words: Sequence[str]) -> Any:
        from spacy.tokens import Doc

        with seam("reading a text with spaCy", PolicyError):
            return self._pipeline(Doc(self._pipeline.vocab, words=[_plain(word) for word in words]))

    def classes(self, words: Sequence[str]) -> list[str]:
        return [_SPACY.get(token.pos_, "O") for token in self._read(words)]

    def named(self, words: Sequence[str]) -> list[bool]:
        return [bool(token.ent_type_) for token in self._read(words)]


def parts(folder: Path) -> list[Path]:
    """Return the three files of NLTK's English tagger under a folder."""
    for place in (folder / _NLTK, folder):
        stem = "averaged_perceptron_tagger_eng"
        paths = [place / f"{stem}.{what}.json" for what in ("weights", "tagdict", "classes")]
        if all(path.is_file() for path in paths):
            return paths
    raise ArtifactError(f"NLTK's English tagger is not in {folder}", f"a folder of NLTK's data holds {_NLTK}")


def files(source: str) -> list[Path]:
    """Return the files behind a source, those whose hashes name it."""
    kind, _, place = source.partition(":")
    if source == ENGLISH:
        return [OWN]
    if kind == "nltk":
        return parts(Path(place) if place else _own_data())
    if kind == "spacy" and place:
        return _pipeline(place)
    raise PolicyError("a tagger of unknown form", 'allowed: "english", "nltk", "nltk:FOLDER", "spacy:NAME"')


def artifacts(source: str) -> dict[str, Artifact]:
    """Return the public inputs behind a source, by role."""
    paths = files(source)
    stated = {"provenance": "trained for dptext_etl", "license": "CC BY-SA 4.0"} if source == ENGLISH else {}
    roles = ["tagger"] if len(paths) == 1 else [f"tagger_{number}" for number in range(len(paths))]
    return {role: Artifact.open(path, **stated) for role, path in zip(roles, paths, strict=True)}


@lru_cache(maxsize=4)
def tagger(source: str) -> Tagger:
    paths = files(source)
    if source.startswith("spacy:"):
        return SpacyTagger(source.removeprefix("spacy:"))
    return NltkTagger.read(paths[0]) if source == ENGLISH else NltkTagger.load(paths[0].parent)


def _pipeline(name: str) -> list[Path]:
    """Return the files of a pipeline of spaCy, which is a folder or an installed package."""
    folder = Path(name)
    if not folder.is_dir():
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        folder = Path(spec.origin).parent if spec is not None and spec.origin else folder
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith((".py", ".pyc")))
    if not paths:
        raise ArtifactError("the pipeline of spaCy is not on this machine", "name an installed one, or its folder")
    return paths


def _own_data() -> Path:
    try:
        import nltk
    except ImportError:
        raise PolicyError("finding word classes needs nltk", pip_install("allocation")) from None
    for place in nltk.data.path:
        if (Path(place) / _NLTK).is_dir():
            return Path(place)
    hint = 'name the folder of the data ("nltk:FOLDER"), or use "english"; nothing is downloaded'
    raise ArtifactError("NLTK does not find its English tagger on this machine", hint)


def _plain(word: str) -> str:
    """Return a word that a tagger can read: an empty one, or one of blanks, becomes a mark."""
    return word.replace("\u2019", "'").strip() or "."
