"""Read word lists, public artifacts that name the words which a mechanism treats in a special way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings.grid import written
from dptext_etl.errors import ArtifactError

_ENGLISH = Path(__file__).parent.parent / "data" / "stopwords_en.txt"


@dataclass(frozen=True)
class WordList:
    """Hold the words of a file in their order.

    Attributes:
        words: Unique words in lower case without blanks.
        artifact: The file and its hash.
    """

    words: tuple[str, ...]
    artifact: Artifact


def stopwords(source: str | Path = "english") -> WordList:
    """Read a list of stopwords: our own English list, or any UTF-8 file with one word per line (such as NLTK's).

    Empty lines and lines that begin with "#" are skipped; words are lower-cased, and U+2019 becomes an apostrophe.

    Args:
        source: "english" or a path.

    Raises:
        ArtifactError: The file is missing or not UTF-8, or a line has more than one word. The error names the line and
            never quotes it.

    >>> "the" in stopwords().words
    True
    """
    own = source == "english"
    path = _ENGLISH if own else Path(source)
    stated = {"provenance": "written for dptext_etl", "licence": "Apache-2.0"} if own else {}
    artifact = Artifact.open(path, **stated)
    words: dict[str, None] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        entry = line.strip()
        if not entry or entry.startswith(b"#"):
            continue
        try:
            word = written(entry.decode())
        except UnicodeDecodeError:
            word = None
        if word is None:
            raise ArtifactError(f"{path.name}, line {number}: not one word in UTF-8", "write one word per line")
        words[word] = None
    return WordList(tuple(words), artifact)
