"""Build a corpus from public texts: read, clean, choose, encode, calibrate, describe, write.

Dropped texts are counted by reason. The order of what stays follows the hashes of texts: it depends neither on the
order of the sources nor on the machine.

Everything in it is public and never changes: the file's hash names it in policies, plans and the ledger.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dptext_etl import _kernel
from dptext_etl.artifacts import made_from
from dptext_etl.corpora.corpus import (
    CARD,
    CONTENT,
    KIND,
    Corpus,
    Encoder,
    Int8s,
    WordEncoder,
    encoders,
)
from dptext_etl.corpora.frequencies import EPSILONS, MOST_TEXTS, Hit, calibrate, near_texts
from dptext_etl.corpora.learning import SHARE, SMOOTHING, add_directions, learn
from dptext_etl.corpora.static import is_token_vectors, version
from dptext_etl.corpora.static import read as read_token_vectors
from dptext_etl.data_types import by_name
from dptext_etl.device import computing
from dptext_etl.embeddings import DEFAULT_VECTORS, WordVectors
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.files import literal
from dptext_etl.text_files import require_local_rows

_SOURCE_HINT = "a source is a .parquet or .csv file with a column of texts, or a .txt file with one text per line"


@dataclass(frozen=True)
class Source:
    """Name a file of public texts."""

    path: Path  # a Parquet or CSV file, or a text file with one text per line
    column: str = "text"  # the column of texts; a text file has none
    label: str | None = None  # a column of public labels, or None

    def rows(self) -> Iterator[tuple[str, str | None]]:
        """Yield the texts and their labels (None without a column of labels); nulls are excluded."""
        kind = self.path.suffix.lower()
        if not self.path.is_file():
            raise InputError(f"there is no file {self.path}", _SOURCE_HINT)
        if kind in (".txt", ".text", ""):
            with seam(f"reading {self.path.name}", InputError, "a text file is UTF-8"):
                content = self.path.read_text("utf-8")
            if self.label is not None:
                raise InputError(f"{self.path.name} has no column of labels", "name a .parquet or .csv file")
            yield from ((text, None) for text in content.splitlines())
        elif kind in (".parquet", ".csv"):
            yield from self._table(kind)
        else:
            raise InputError(f"{self.path.name} is not a source of texts: its suffix is {kind}", _SOURCE_HINT)

    def _table(self, kind: str) -> Iterator[tuple[str, str | None]]:
        import polars as pl

        if kind == ".csv":
            require_local_rows(str(self.path), ",", '"', "utf-8")
        with seam(f"reading {self.path.name}", InputError, _SOURCE_HINT):
            scan = pl.scan_parquet if kind == ".parquet" else pl.scan_csv
            frame = scan(literal(self.path))
            schema = frame.collect_schema()
        for name in (self.column, *([] if self.label is None else [self.label])):
            if name not in schema:
                msg = f"{self.path.name} has no column {name!r}, and {len(schema)} others"
                raise InputError(msg, "name it with --text")
        if schema[self.column] != pl.String:
            raise InputError(
                f"column {self.column!r} of {self.path.name} is {schema[self.column]}; allowed: strings",
                "name a text column with --text, or cast this one to strings",
            )
        label = pl.lit(None, pl.String) if self.label is None else by_name(self.label).cast(pl.String)
        with seam(f"reading {self.path.name}", InputError, _SOURCE_HINT):
            rows = frame.select(text=self.column, label=label).drop_nulls("text").collect(engine="streaming")
        yield from rows.iter_rows()


_MARKUP = re.compile(r"<br ?/?>", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_DROPPED = {
    "e-mail address": re.compile(r"[\w.+-]+\s?@\s?[\w-]+\s?\.\s?\w+"),
    "URL": re.compile(r"https?\s?:|\bwww\s?\.|\b[\w-]+\.(?:com|org|net|edu|gov|info|io|co)\b", re.IGNORECASE),
    "telephone number": re.compile(r"(?<![\w.])\+?\(?\d(?:[\s().x/-]*\d){6,14}(?!\w)"),
    "long run of digits": re.compile(r"\d{6}"),
}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cleaning:
    """Say how texts become lines of a corpus."""

    fewest: int = 4  # words of the shortest text
    most: int = 40  # words of the longest text
    sentences: bool = False  # whether texts are cut into sentences first

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most:
            raise PolicyError(
                f"lengths from {self.fewest} to {self.most} words; allowed: 1 <= fewest <= most",
                "give --words as SHORTEST:LONGEST, such as 4:40",
            )


@dataclass
class Usable:
    """The texts of a corpus, and counts of the dropped texts by reason."""

    texts: list[str]  # distinct clean texts, in the order of their hashes
    read: int  # number of texts (or sentences) that were read
    dropped: Counter[str] = field(default_factory=Counter)  # number of texts that were excluded, by reason


def clean(texts: Iterable[str], how: Cleaning, progress: Progress = lambda _: None) -> Usable:
    """Clean texts, drop those that a corpus must not hold, and keep each once."""
    kept: set[str] = set()
    dropped: Counter[str] = Counter()
    seen = 0
    for text in texts:
        for part in split(text) if how.sentences else [text]:
            seen += 1
            if seen % 50_000 == 0:
                progress(f"{seen:,} texts read, {len(kept):,} kept")
            line = normalized(part)
            reason = _reason(line, how)
            if reason is None and line in kept:
                reason = "there already"
            if reason is None:
                kept.add(line)
            else:
                dropped[reason] += 1
    return Usable(_ordered(kept), seen, dropped)


def normalized(text: str) -> str:
    r"""Return a text in Unicode form NFC with single spaces, HTML line breaks removed.

    >>> normalized("  cafe\u0301 <br />au\nlait ")
    'café au lait'
    """
    return " ".join(unicodedata.normalize("NFC", _MARKUP.sub(" ", text)).split())


def split(text: str) -> list[str]:
    """Cut a text into sentences after full stops, question and exclamation marks; the cut is rough.

    >>> split("It rained. We stayed in! Why?")
    ['It rained.', 'We stayed in!', 'Why?']
    """
    return [part for part in _SENTENCE_END.split(normalized(text)) if part]


def _reason(line: str, how: Cleaning) -> str | None:
    """Say why a text is excluded; None if it stays."""
    if not all(letter.isprintable() for letter in line):
        return "control character"
    for name, pattern in _DROPPED.items():
        if pattern.search(line):
            return name
    words = sum(is_word for _, is_word in _kernel.split(line))
    if words < how.fewest:
        return "too short"
    return "too long" if words > how.most else None


FEWEST_TEXTS = 1_000
TEXTS = 20_000
"""Most texts of files, if no limit is given; all texts of corpora stay."""
MARKDOWN = "README.md"
_FEWEST_PUBLIC = 50
_AT_ONCE = 2048  # texts that are encoded before progress is shown
_HINT = "a corpus is published text by definition: anyone who uses it must know where it comes from and may use it"


@dataclass(frozen=True)
class Options:
    """Say how a corpus is built."""

    name: str  # name for people
    license: str  # terms of the texts' license
    provenance: str  # where the texts come from
    cleaning: Cleaning = field(default_factory=Cleaning)  # which texts stay
    # most texts; None keeps all of corpora and up to 20,000 of files; of more, those with the smallest hashes are used
    texts: int | None = None
    encoder: Literal["words", "static", "task", "sentence-transformers"] = "words"
    vectors: str = DEFAULT_VECTORS  # "english-20k" or a path: word vectors, or token vectors of `static` and `task`
    model: str | None = None  # model of `sentence-transformers`
    task: Sequence[Source] = field(default=())  # public labeled texts of `task`
    share: float = SHARE  # share of the task's directions

    def __post_init__(self) -> None:
        for name, stated in (("license", self.license), ("provenance", self.provenance)):
            if not stated.strip():
                raise PolicyError(f"a corpus states its {name}, got nothing", f"give it with --{name}; {_HINT}")
        if self.texts is not None and self.texts < FEWEST_TEXTS:
            raise PolicyError(f"{self.texts:,} texts are too few; allowed: {FEWEST_TEXTS:,} and more", "raise --texts")
        if (self.encoder == "sentence-transformers") != (self.model is not None):
            raise PolicyError(
                "a model belongs to the encoder sentence-transformers, and that encoder needs one",
                "use --encoder sentence-transformers with --model, or neither",
            )
        if (self.encoder == "task") != bool(self.task):
            raise PolicyError(
                "labeled texts belong to the encoder task, and that encoder needs some",
                "use --encoder task with --task, or neither",
            )
        tokens = is_token_vectors(self.vectors)
        if (self.encoder == "static" and not tokens) or (self.encoder == "words" and tokens):
            raise PolicyError(
                "token vectors belong to the encoder static, and that encoder needs some",
                "write them with `dptext corpus vectors`, and give them with --vectors",
            )
        if not 0.0 < self.share < 1.0:
            raise PolicyError(f"share {self.share}; allowed: 0 < share < 1", "pass a share such as 0.5")


def source_of(reference: str, column: str = "text") -> Source | Corpus:
    """Return the file of that name, or the corpus: a folder, its file, a URL, or a name that comes with the library."""
    path = Path(reference)
    is_file = path.is_file() or path.suffix.lower() in (".parquet", ".csv", ".txt", ".text")
    return Source(path, column) if is_file and path.suffix != ".safetensors" else Corpus.open(reference)


def build(
    sources: Sequence[Source | Corpus], out: Path, options: Options, progress: Progress = lambda _: None
) -> Corpus:
    """Build a corpus from files of public texts and from other corpora, whose texts all stay as they are.

    Raises:
        InputError: The folder is not empty, too few texts are left, or the limit would drop texts of a corpus.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not an empty folder", "name a new folder with --out")
    how, bases = options.cleaning, [source for source in sources if isinstance(source, Corpus)]
    plain = [source for source in sources if isinstance(source, Source)]
    kept = {text for base in bases for text in base.texts}
    if options.texts is not None and options.texts < len(kept):
        raise InputError(
            f"the corpora have {len(kept):,} texts, and a limit of {options.texts:,} would drop some of them",
            "leave --texts out to keep all, or raise it",
        )
    usable = clean((text for source in plain for text, _ in source.rows()), how, progress)
    others = [text for text in usable.texts if text not in kept]
    number = len(kept) + len(others)
    if number < FEWEST_TEXTS:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in usable.dropped.most_common()) or "none excluded"
        raise InputError(
            f"{number:,} texts are left of {usable.read:,} ({reasons}); allowed: {FEWEST_TEXTS:,} and more",
            "add sources, cut texts with --sentences, or widen the lengths with --words",
        )
    most = TEXTS if options.texts is None else options.texts - len(kept)
    texts, spare = _ordered([*kept, *others[:most]]), others[most:][:MOST_TEXTS]
    progress(f"{len(usable.texts):,} of {usable.read:,} texts of files are usable, {len(others[:most]):,} are used")
    if len(others) > most:
        progress(f"{len(others) - most:,} usable texts are excluded; --texts {number} keeps all")
    encoder, facts = _encoder(texts, options, progress)
    vectors = _encoded(encoder, texts, progress)
    progress("calibrating the hit rates on " + ("texts that were not used" if spare else "texts of the corpus"))
    if spare:
        hits = calibrate(vectors, encoder.encode(spare))
    else:  # a tenth of the corpus against the rest
        own = min(MOST_TEXTS, len(texts) // 10)
        hits = calibrate(vectors[own:], vectors[:own])
    counts = {
        "read": usable.read,
        "usable": len(usable.texts),
        "dropped": dict(sorted(usable.dropped.items())),
        "words": [how.fewest, how.most],
        "sentences": how.sentences,
        "texts": len(texts),
        **({"corpora": {base.sha256: len(base) for base in bases}} if bases else {}),
    }
    description = {
        "name": options.name,
        "licence": options.license,
        "provenance": options.provenance,
        "encoder": {"kind": options.encoder, **facts},
        "hits": {repr(hit.epsilon): f"{hit.hit:.4f}" for hit in hits},
        "hits_from": "public texts without labels",
        "build": {"sources": [_name(source) for source in sources], **counts},
    }
    words = encoder if isinstance(encoder, WordEncoder) else None
    inputs = [*(source.path for source in (*plain, *options.task)), *(base.path for base in bases)]
    models = [] if isinstance(encoder, WordEncoder) else [encoder.folder]
    lineage = made_from([*inputs, options.vectors, *models])
    corpus = Corpus.save(out, texts, description, encoder=words, vectors=vectors, lineage=lineage)
    _write_card(corpus, out)
    return corpus


def _encoded(encoder: Encoder, texts: Sequence[str], progress: Progress) -> Int8s:
    """Encode the texts of a corpus, and say how far a model is."""
    parts = []
    for first in range(0, len(texts), _AT_ONCE):
        parts.append(encoder.encode(texts[first : first + _AT_ONCE]))
        if not isinstance(encoder, WordEncoder):
            progress(f"{first + len(parts[-1]):,} of {len(texts):,} texts are encoded")
    return np.concatenate(parts)


def _name(source: Source | Corpus) -> str:
    return source.path.name if isinstance(source, Source) else str(source.description.get("name", source.path.name))


def _ordered(texts: Iterable[str]) -> list[str]:
    """Return texts in the order of their hashes."""
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())


def _encoder(texts: Sequence[str], options: Options, progress: Progress) -> tuple[Any, dict[str, Any]]:
    if options.model is not None:
        here = computing()
        dtype = "float32" if "dtype" in here.auto else here.dtype
        model = encoders().SentenceModel(options.model, dtype)
        progress(f"encoding the texts with the model on {here.device}, in {dtype}")
        return model, {"name": options.model, "files": model.sha256, "dtype": dtype, KIND: model.version}
    encoder: WordEncoder
    facts: dict[str, Any]
    if is_token_vectors(options.vectors):
        encoder, facts = read_token_vectors(Path(options.vectors))
        facts |= {"tokens": True, "tokenizers": version()}
        progress(f"encoding by the vectors of {len(encoder.vectors):,} tokens")
        return _with_task(encoder, facts, options, progress)
    words = WordVectors.load(options.vectors)
    progress(f"learning the encoder from {len(texts):,} texts and {len(words):,} word vectors")
    facts = {"name": Path(options.vectors).name, "vectors": words.artifact.sha256}
    encoder = learn(texts, words)
    facts |= {"smoothing": repr(SMOOTHING), "half_whitening": True}
    return _with_task(encoder, facts, options, progress)


def _with_task(
    encoder: WordEncoder, facts: dict[str, Any], options: Options, progress: Progress
) -> tuple[WordEncoder, dict[str, Any]]:
    """Add the directions of the task's public labels, if there are any."""
    if options.task:
        rows = [(normalized(text), label) for source in options.task for text, label in source.rows() if label]
        progress(f"learning the task's directions from {len(rows):,} public labeled texts")
        encoder = add_directions(encoder, [text for text, _ in rows], [label for _, label in rows], share=options.share)
        facts |= {"task": [source.path.name for source in options.task], "share": repr(options.share)}
    return encoder, facts


def recalibrate(corpus: Corpus, public: Sequence[Source], epsilons: Sequence[float] = EPSILONS) -> tuple[Hit, ...]:
    """Find the best hit rate of every epsilon on public texts; texts that the corpus holds are excluded."""
    old = frozenset(corpus.texts)
    rows = [(normalized(text), label) for source in public for text, label in source.rows()]
    rows = sorted({row for row in rows if row[0] and row[0] not in old}, key=lambda row: (row[0], row[1] or ""))
    if len(rows) < _FEWEST_PUBLIC:
        raise InputError(
            f"{len(rows):,} public texts are left that are not in the corpus; allowed: {_FEWEST_PUBLIC} and more",
            "name public texts like those that you will privatize; never those themselves",
        )
    rows = [rows[place] for place in np.linspace(0, len(rows) - 1, min(len(rows), MOST_TEXTS)).astype(int)]
    labels = [label for _, label in rows if label is not None]
    if labels and len(labels) != len(rows):
        raise InputError("some public texts have a label and others have none", "leave those without one out")
    queries = corpus.encoder.encode([text for text, _ in rows])
    return calibrate(corpus.vectors, queries, epsilons, labels=labels or None)


def write_recalibrated(
    corpus: Corpus, hits: Sequence[Hit], public: Sequence[Source], out: Path | None = None
) -> Corpus:
    """Write the corpus with new hit rates and return it; its hash is another one."""
    place = corpus.path.parent if out is None else out
    if out is None and not (corpus.path.name == CONTENT and (place / CARD).is_file()):
        raise PolicyError(
            "this corpus comes with the library or from an object store and stays as it is",
            "name a new folder with --out",
        )
    if out is not None and out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty", "name a new folder with --out")
    description = dict(corpus.description)
    description["hits"] = {repr(hit.epsilon): f"{hit.hit:.4f}" for hit in hits}
    names = ", ".join(source.path.name for source in public)
    labels = "with" if any(source.label is not None for source in public) else "without"
    description["hits_from"] = f"public texts {labels} labels: {names}"
    words = None if corpus.in_floats else corpus.word_encoder
    draft = place.with_name(f".{place.name}.new")
    lineage = made_from([corpus.path, *(source.path for source in public)])
    Corpus.save(draft, corpus.texts, description, encoder=words, vectors=corpus.vectors, lineage=lineage)
    place.mkdir(parents=True, exist_ok=True)
    for name in (CONTENT, CARD):
        (draft / name).replace(place / name)
    draft.rmdir()
    written = Corpus.open(place)
    _write_card(written, place)
    return written


def card_facts(corpus: Corpus) -> dict[str, Any]:
    """Return what people ask of a corpus first, plain data."""
    facts = corpus.description
    return {
        "name": facts.get("name", corpus.path.parent.name),
        "texts": len(corpus),
        "sha256": corpus.sha256,
        "licence": facts.get("licence"),
        "provenance": facts.get("provenance"),
        "encoder": facts.get("encoder", {}),
        "hits": facts.get("hits", {}),
        "build": facts.get("build", {}),
    }


def _write_card(corpus: Corpus, folder: Path) -> None:
    facts = card_facts(corpus)
    encoder, build = facts["encoder"], facts["build"]
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in build.get("dropped", {}).items()) or "none"
    lines = [
        f"# Corpus {facts['name']}",
        "",
        "**Every text of this corpus is published text.** A release that uses it shows texts of this corpus and no",
        "others: do not put in it text that must not be shown.",
        "",
        f"* texts: {facts['texts']:,}",
        f"* SHA-256 of `corpus.safetensors`: `{facts['sha256']}`",
        f"* license: {facts['licence']}",
        f"* provenance: {facts['provenance']}",
        f"* encoder: {encoder.get('kind', 'words')}, {encoder.get('name', 'unnamed')}",
        f"* sources: {', '.join(build.get('sources', [])) or 'not stated'}",
        f"* texts read: {build.get('read', 0):,}, usable: {build.get('usable', 0):,}, excluded: {dropped}",
        "",
        "| epsilon of one draw | hit rate | near texts |",
        "| --- | --- | --- |",
    ]
    for epsilon in ("1.0", "2.0", "4.0", "6.0", "8.0", "10.0", "16.0"):
        if epsilon in facts["hits"]:
            hit = float(facts["hits"][epsilon])
            near = near_texts(facts["texts"], Decimal(epsilon), Decimal(facts["hits"][epsilon]))
            lines.append(f"| {float(epsilon):g} | {hit:.2f} | {near:,} |")
    (folder / MARKDOWN).write_text("\n".join(lines) + "\n", "utf-8")
