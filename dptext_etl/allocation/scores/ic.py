"""Score words by how much they tell: their information content, Meisenbacher et al. 2025, section 3.2.1."""

from __future__ import annotations

import json
import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dptext_etl.allocation.score import Score, Scores
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import ArtifactError, PolicyError, seam
from dptext_etl.extensions import pip_install


class InformationContent(Score):
    """-log p of a word, divided by the value of the rarest word: rare words reveal most.

    Where the paper is wrong: the numbers that it calls IC ("IC('dog') = 235") are counts, so that frequent words seem
    to tell most. Every unknown name, and every word except nouns and verbs, counts as the most harmless. Here counts
    become -log p, all classes of words have one, and a word that no count knows reveals most.
    """

    title: ClassVar[str] = "Information Content"

    def compute(self, tokens: Sequence[str]) -> Scores:
        return np.array([*map(content_of(self.tools.information), tokens)])

    def printed(self, tokens: Sequence[str]) -> Scores:
        """Compute Algorithm 1: the largest count of a word's senses, or 1, as a mean over the paper's corpora."""
        return Printed(_folder(self.tools.information)).of(tokens)

    def code(self, tokens: Sequence[str]) -> Scores:
        """Compute scores as the paper's code does: means over senses, all looked up as nouns, where no count is 0."""
        return Printed(_folder(self.tools.information), as_code=True).of(tokens)

    def artifacts(self) -> dict[str, Artifact]:
        inputs = artifacts(self.tools.information)
        if self.tools.printed:
            files = printed_counts(_folder(self.tools.information))[1]
            inputs |= {f"counts_{corpus}": Artifact.open(path) for corpus, path in files.items()}
        return inputs


ENGLISH = "english"
OWN = Path(__file__).parent.parent.parent / "data" / "english-counts.json"
COUNTS = "ic-brown.dat"
CORPORA = ("bnc", "brown", "semcor", "shaks", "treebank")
"""The corpora of the paper; only those whose counts are in NLTK's data are used."""
_ROOT = 0  # offset of a class's total in NLTK's tables
_UNKNOWN = 1.0


class OwnTable:
    """-log of shares of public text, over the value of a word that occurs half as often as the rarest known one."""

    def __init__(self) -> None:
        content = json.loads(OWN.read_text(encoding="utf-8"))
        most = math.log(2 * content["per"] / min(content["words"].values()))
        self._contents = {word: math.log(content["per"] / count) / most for word, count in content["words"].items()}

    def one(self, token: str) -> float:
        """Return a number from 0 to 1, 1 for an unknown word; a mark without letters and digits reveals nothing: 0."""
        if not any(map(str.isalnum, token)):
            return 0.0
        return self._contents.get(token.lower().replace("\u2019", "'"), 1.0)


class WordNet:
    """WordNet with counts of its synsets, as NLTK reads them."""

    def __init__(self, folder: Path | None) -> None:
        try:
            import nltk
            from nltk.corpus.reader import WordNetCorpusReader, WordNetICCorpusReader
        except ImportError:
            raise PolicyError("information content from WordNet needs nltk", pip_install("allocation")) from None
        places = None if folder is None else [str(folder.resolve())]
        nltk.data.path += [place for place in places or () if place not in nltk.data.path]  # it opens nothing elsewhere
        roots = {name: _root(nltk.data.find, name, places) for name in ("wordnet", "wordnet_ic")}
        self.files = {
            role: _file(roots[name], inside)
            for role, name, inside in (("wordnet", "wordnet", "data.noun"), ("wordnet_counts", "wordnet_ic", COUNTS))
        }
        with seam("reading WordNet", ArtifactError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has no words of other languages
            self.words: Any = WordNetCorpusReader(roots["wordnet"], None)
            self.root_of_counts = roots["wordnet_ic"]
            self.counts: Any = WordNetICCorpusReader(roots["wordnet_ic"], [COUNTS]).ic(COUNTS)


class Printed:
    """Counts in the place of information content, as the paper defines them, or as its code does."""

    def __init__(self, folder: Path | None, *, as_code: bool = False) -> None:
        self._net, (self._tables, _), self._as_code = wordnet(folder), printed_counts(folder), as_code

    def of(self, tokens: Sequence[str]) -> Scores:
        return np.array([(self._of_code if self._as_code else self._one)(token.lower()) for token in tokens])

    def _one(self, token: str) -> float:
        senses = [(sense.pos(), sense.offset()) for sense in self._senses(token, "n")]
        by_table = ([table[kind].get(offset) for kind, offset in senses if kind in table] for table in self._tables)
        return statistics.fmean(max(filter(None, counts), default=_UNKNOWN) for counts in by_table)

    def _of_code(self, token: str) -> float:
        counts = [table["n"].get(sense.offset(), 0.0) for sense in self._senses(token, "v") for table in self._tables]
        return statistics.fmean(counts or [_UNKNOWN]) or _UNKNOWN

    def _senses(self, token: str, kind: str) -> list[Any]:
        """Return the senses of a word's lemma as a noun ("n") or as a verb ("v")."""
        senses: list[Any] = self._net.words.synsets(self._net.words.morphy(token, kind) or token)
        return senses


@lru_cache(maxsize=2)
def printed_counts(folder: Path | None) -> tuple[list[Any], dict[str, Path]]:
    """Return the counts of the paper's corpora that lie here, by word class and offset, and their files by corpus."""
    from nltk.corpus.reader import WordNetICCorpusReader

    root, tables, files = wordnet(folder).root_of_counts, [], {}
    for corpus in CORPORA:
        name = f"ic-{corpus}.dat"
        with suppress(OSError, LookupError):
            tables.append(WordNetICCorpusReader(root, [name]).ic(name))
            files[corpus] = _file(root, name)
    return tables, files


@lru_cache(maxsize=2)
def wordnet(folder: Path | None) -> WordNet:
    return WordNet(folder)


@lru_cache(maxsize=4)
def content_of(source: str) -> Callable[[str], float]:
    """Return the function that computes how much a word reveals, from 0 to 1.

    With WordNet it is the largest information content of a word's senses (the paper's `get_max_score`), the right way
    round; words without a counted noun or verb come from the shipped table.
    """
    shipped = OwnTable().one
    if source == ENGLISH:
        return shipped
    net = wordnet(_folder(source))

    def largest(token: str) -> float:
        contents = []
        for sense in net.words.synsets(token.lower()):
            total, count = (net.counts.get(sense.pos(), {}).get(key, 0.0) for key in (_ROOT, sense.offset()))
            if count > 0 and total > 0:
                contents.append(min(1.0, math.log(total / count) / math.log(total)))
        return max(contents) if contents else shipped(token)

    return largest


def artifacts(source: str) -> dict[str, Artifact]:
    counted = Artifact.open(OWN, provenance="counted for dptext_etl in public text", license="CC BY-SA 4.0")
    if source == ENGLISH:
        return {"word_counts": counted}
    return {"word_counts": counted} | {
        role: Artifact.open(path) for role, path in wordnet(_folder(source)).files.items()
    }


def _root(find: Any, name: str, places: list[str] | None) -> Any:
    """Find a corpus of NLTK, as a zip file or a folder."""
    for form in (f"corpora/{name}.zip/{name}/", f"corpora/{name}"):
        with suppress(LookupError):
            return find(form, paths=places)
    hint = "NLTK's data hold the corpora wordnet and wordnet_ic; name their folder, nothing is downloaded"
    raise ArtifactError("WordNet or its counts are not here", hint)


def _file(root: Any, inside: str) -> Path:
    """Return the file that names a corpus by its hash: the zip file, or one that decides."""
    archive = getattr(root, "zipfile", None)
    return Path(root) / inside if archive is None else Path(archive.filename)


def _folder(source: str) -> Path | None:
    kind, _, place = source.partition(":")
    if source == ENGLISH:
        msg = "the printed information content is made of WordNet's counts"
        raise PolicyError(msg, 'set information = "wordnet:FOLDER"')
    if kind != "wordnet":
        raise PolicyError("a source of information content of unknown form", 'allowed: "english", "wordnet:FOLDER"')
    return Path(place) if place else None
