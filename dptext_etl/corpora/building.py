"""Build a corpus from public texts: read, clean, choose, encode, calibrate, describe, write.

Everything in it is public and stays what it is: the file's hash names it in policies, plans and the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dptext_etl.corpora import cards
from dptext_etl.corpora.calibrating import MOST_TEXTS, Hit, calibrate
from dptext_etl.corpora.cleaning import Cleaning, Kept, Progress, clean, normalized
from dptext_etl.corpora.corpus import Corpus
from dptext_etl.corpora.encoder import Int8s, WordEncoder
from dptext_etl.corpora.learning import SMOOTHING, learn, vectors_of
from dptext_etl.corpora.sentence_model import SentenceModel
from dptext_etl.corpora.sources import Source, read
from dptext_etl.corpora.task import SHARE, add_directions
from dptext_etl.embeddings import DEFAULT_VECTORS, WordVectors
from dptext_etl.errors import InputError, PolicyError

EncoderKind = Literal["words", "task", "sentence-transformers"]

FEWEST_TEXTS = 1_000
TEXTS = 20_000
_HINT = "a corpus is published text by definition: anyone who uses it must know where it comes from and may use it"


@dataclass(frozen=True)
class Options:
    """Say how a corpus is built.

    Attributes:
        name: Name for people.
        licence: Terms of the texts' license.
        provenance: Where the texts come from.
        cleaning: Which texts stay.
        texts: Most texts; of more, those with the smallest hashes are taken.
        encoder: Kind of encoder.
        vectors: Word vectors of `words` and `task`: "english-20k" or a path.
        model: Model of `sentence-transformers`.
        task: Public labeled texts of `task`.
        share: Share of the task's directions.
        smoothing: Of word weights (`learning.learn`).
        half_whitening: Whether strong directions are weakened.
    """

    name: str
    licence: str
    provenance: str
    cleaning: Cleaning = field(default_factory=Cleaning)
    texts: int = TEXTS
    encoder: EncoderKind = "words"
    vectors: str = DEFAULT_VECTORS
    model: str | None = None
    task: Sequence[Source] = field(default=())
    share: float = SHARE
    smoothing: float = SMOOTHING
    half_whitening: bool = True

    def __post_init__(self) -> None:
        for what in ("licence", "provenance"):
            if not getattr(self, what).strip():
                raise PolicyError(f"a corpus states its {what}, got nothing", f"say it with --{what}; {_HINT}")
        if self.texts < FEWEST_TEXTS:
            raise PolicyError(f"{self.texts} texts are too few; allowed: {FEWEST_TEXTS:,} and more")
        if (self.encoder == "sentence-transformers") != (self.model is not None):
            raise PolicyError("a model belongs to the encoder sentence-transformers, and that encoder needs one")
        if (self.encoder == "task") != bool(self.task):
            raise PolicyError("labeled texts belong to the encoder task, and that encoder needs some")
        if not 0.0 < self.share < 1.0 or not self.smoothing > 0.0:
            raise PolicyError(f"share {self.share}, smoothing {self.smoothing}; allowed: 0 < share < 1, smoothing > 0")


def build(sources: Sequence[Source], out: Path, options: Options, progress: Progress = lambda _: None) -> Corpus:
    """Build a corpus and write it with its cards."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not an empty folder", "name a new folder with --out")
    kept = clean(read(sources), options.cleaning, progress)
    if len(kept.texts) < FEWEST_TEXTS:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in kept.dropped.most_common()) or "none left out"
        raise InputError(
            f"{len(kept.texts):,} texts are left of {kept.read:,} ({reasons}); allowed: {FEWEST_TEXTS:,} and more",
            "add sources, cut texts with --sentences, or widen the lengths with --words",
        )
    texts, spare = kept.texts[: options.texts], kept.texts[options.texts :][:MOST_TEXTS]
    progress(f"{len(kept.texts):,} of {kept.read:,} texts are usable, {len(texts):,} are taken")
    encoder, vectors, facts = _encoded(texts, options, progress)
    progress("calibrating the hit rates on " + ("texts that were not taken" if spare else "texts of the corpus"))
    hits = _hits(texts, vectors, spare, encoder, options)
    description = {
        "name": options.name,
        "licence": options.licence,
        "provenance": options.provenance,
        "encoder": {"kind": options.encoder, **facts},
        "hits": {repr(hit.epsilon): f"{hit.hit:.4f}" for hit in hits},
        "hits_from": "public texts without labels",
        "build": {"sources": [source.path.name for source in sources], **_counts(kept, texts, options.cleaning)},
    }
    corpus = Corpus.save(out, texts, description, encoder=encoder, vectors=vectors)
    cards.write(corpus, out)
    return corpus


def _encoded(
    texts: Sequence[str], options: Options, progress: Progress
) -> tuple[WordEncoder | None, Int8s, dict[str, Any]]:
    """Learn or load the encoder; return it, the vectors of the texts, and facts about it."""
    if options.model is not None:
        progress("encoding the texts with the model")
        return None, SentenceModel(options.model).encode(texts), {"name": options.model}
    words = WordVectors.load(options.vectors)
    progress(f"learning the encoder from {len(texts):,} texts and {len(words):,} word vectors")
    encoder = learn(texts, words, smoothing=options.smoothing, half_whitening=options.half_whitening)
    facts: dict[str, Any] = {
        "name": Path(options.vectors).name,
        "vectors": words.artifact.sha256,
        "smoothing": repr(options.smoothing),
        "half_whitening": options.half_whitening,
    }
    if options.task:
        rows = [(normalized(text), label) for source in options.task for text, label in source.rows() if label]
        progress(f"learning the task's directions from {len(rows):,} public labeled texts")
        encoder = add_directions(encoder, [text for text, _ in rows], [label for _, label in rows], share=options.share)
        facts |= {"task": [source.path.name for source in options.task], "share": repr(options.share)}
    return encoder, vectors_of(encoder, texts), facts


def _hits(
    texts: Sequence[str], vectors: Int8s, spare: Sequence[str], encoder: WordEncoder | None, options: Options
) -> tuple[Hit, ...]:
    """Calibrate on texts that were not taken; without any, on a tenth of the corpus against the rest."""
    if not spare:
        own = min(MOST_TEXTS, len(texts) // 10)
        return calibrate(vectors[own:], vectors[:own])
    queries = vectors_of(encoder, spare) if encoder is not None else SentenceModel(str(options.model)).encode(spare)
    return calibrate(vectors, queries)


def _counts(kept: Kept, texts: Sequence[str], how: Cleaning) -> dict[str, Any]:
    return {
        "read": kept.read,
        "usable": len(kept.texts),
        "dropped": dict(sorted(kept.dropped.items())),
        "words": [how.fewest, how.most],
        "sentences": how.sentences,
        "texts": len(texts),
    }
