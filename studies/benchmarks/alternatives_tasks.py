"""Measurements of other tools, each by the Python of an environment that has it; this file imports nothing of ours.

    PYTHON alternatives_tasks.py TOOL FOLDER

The folder holds `texts.json`, `vectors.txt` (word2vec format), and `roberta/`. Data that a tool would download at its
start have stand-ins: a tokenizer that splits at blanks, and no stopwords. The last line is a JSON object.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Release = Callable[[list[str]], Any]
PATTERNS = {
    "EMAIL": r"[\w.+-]+@[\w-]+\.[\w.-]+",
    "URL": r"https?://\S+|www\.\S+",
    "PHONE": r"\+?\d[\d() -]{7,}\d",
    "IP": r"\b(?:\d{1,3}\.){3}\d{1,3}\b",
    "CARD": r"\b(?:\d[ -]?){13,16}\b",
}
SECONDS = 1.0
"""The least duration of a measurement, where there are texts enough."""
REPEATED = {"polars_patterns": 40, "duckdb_patterns": 20}
"""How often a tool processes the texts again that processes all of them in a tenth of a second."""


def presidio_patterns(folder: Path) -> Release:  # noqa: ARG001
    """Presidio's recognizers that need no language model, and its spans replaced."""
    import logging

    from presidio_analyzer import predefined_recognizers as known

    logging.disable(logging.WARNING)
    names = ("Email", "Url", "Phone", "Ip", "CreditCard", "Iban", "Crypto", "Date", "UsSsn")
    each = [getattr(known, f"{name}Recognizer")() for name in names]
    kinds = [kind for one in each for kind in one.supported_entities]

    def one(text: str) -> str:
        spans = [span for tool in each for span in tool.analyze(text, kinds, None) or ()]
        for span in sorted(spans, key=lambda span: -span.start):
            text = f"{text[: span.start]}<{span.entity_type}>{text[span.end :]}"
        return text

    return lambda texts: [one(text) for text in texts]


def presidio_spacy(folder: Path) -> Release:  # noqa: ARG001
    """Presidio as it comes, with a small model of spaCy."""
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider

    models = [{"lang_code": "en", "model_name": "en_core_web_sm"}]
    engine = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models}).create_engine()
    analyzer = AnalyzerEngine(nlp_engine=engine)
    return lambda texts: [analyzer.analyze(text, "en") for text in texts]


def scrubadub(folder: Path) -> Release:  # noqa: ARG001
    import scrubadub as tool

    return lambda texts: [tool.clean(text) for text in texts]


def polars_patterns(folder: Path) -> Release:  # noqa: ARG001
    """A floor: regular expressions over a column."""
    import polars as pl

    def release(texts: list[str]) -> Any:
        column = pl.col("text")
        for kind, pattern in PATTERNS.items():
            column = column.str.replace_all(pattern, f"<{kind}>")
        return pl.DataFrame({"text": texts}).select(column)

    return release


def duckdb_patterns(folder: Path) -> Release:  # noqa: ARG001
    """A floor: the same regular expressions."""
    import duckdb
    import pyarrow as pa

    column = "text"
    for kind, pattern in PATTERNS.items():
        column = f"regexp_replace({column}, '{pattern}', '<{kind}>', 'g')"
    session = duckdb.connect(config={"threads": 1})

    def release(texts: list[str]) -> Any:
        session.register("raw", pa.table({"text": texts}))
        return session.execute(f"SELECT {column} FROM raw").fetchall()

    return release


def without_downloads() -> None:
    """Put stand-ins where NLTK would read data that it downloads."""
    from types import SimpleNamespace

    import nltk

    nltk.word_tokenize = str.split
    nltk.corpus.stopwords = SimpleNamespace(words=lambda _: [])


def dpmlm(folder: Path) -> Release:
    """Word by word, over a model with random weights."""
    without_downloads()
    from dpmlm import DPMLM

    made = DPMLM(MODEL=str(folder / "roberta"))
    return lambda texts: [made.dpmlm_rewrite(text, 100.0) for text in texts]


def dpmlm_batch(folder: Path) -> Release:
    """The same in batches: all words of a text at once."""
    without_downloads()
    from dpmlm import DPMLM

    made = DPMLM(MODEL=str(folder / "roberta"))
    return lambda texts: [made.dpmlm_rewrite_batch(text, 100.0) for text in texts]


def diffractor(folder: Path) -> Release:
    """One list, in the process that the package starts for each."""
    without_downloads()
    from diffractor import Diffractor, DiffractorConfig
    from diffractor.downloader import Downloader

    clone = folder / "diffractor"
    clone.mkdir(exist_ok=True)
    shutil.copy(folder / "vectors.txt", clone / "glove-wiki-gigaword-300.txt")
    defaults = Downloader.__init__
    Downloader.__init__ = lambda self, _=None: defaults(self, str(clone))
    made = Diffractor(DiffractorConfig(epsilon=1.0, verbose=False), ["glove-wiki-gigaword-300"])
    release: Release = made.rewrite
    return release


def mldp(folder: Path, name: str) -> Release:
    import mldp_text

    words = [line.split(" ", 1)[0] for line in (folder / "vectors.txt").read_text("utf-8").splitlines()[1:]]
    made = mldp_text.get_mechanism(name, epsilon=10.0, embed=str(folder / "vectors.txt"), vocab=words)
    return lambda texts: [" ".join(str(made.replace_word(word)) for word in text.split()) for text in texts]


def mldp_multivariate(folder: Path) -> Release:
    return mldp(folder, "multivariate_calibrated")


def mldp_gumbel(folder: Path) -> Release:
    return mldp(folder, "truncated_gumbel")


def spent() -> float:
    """Return the CPU-seconds of this process and of those that it started, whether they ended or not."""
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ended = sum(one.ru_utime + one.ru_stime for one in each)
    live = (Path(f"/proc/{child.pid}/stat").read_text("utf-8") for child in multiprocessing.active_children())
    ticks = sum(sum(map(int, text.rpartition(")")[2].split()[11:13])) for text in live)
    return ended + ticks / os.sysconf("SC_CLK_TCK")


def measured(release: Release, texts: list[str]) -> dict[str, float]:
    """Release more and more texts until that lasts long enough, after two texts that warm it up."""
    release(texts[:2])
    count = 4
    while True:
        some = texts[2 : 2 + count]
        began = spent()
        release(some)
        cpu = spent() - began
        if cpu >= SECONDS or len(some) < count:
            return {"cpu": cpu, "words": sum(len(text.split()) for text in some)}
        count *= 4 if cpu < SECONDS / 8 else 2


TOOLS: dict[str, Callable[[Path], Release]] = {
    one.__name__: one
    for one in (
        presidio_patterns, presidio_spacy, scrubadub, polars_patterns, duckdb_patterns, dpmlm, dpmlm_batch, diffractor,
        mldp_multivariate, mldp_gumbel,
    )
}  # fmt: skip

if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    sources = Path(sys.argv[2])
    given = [re.sub(r"\s+", " ", text) for text in json.loads((sources / "texts.json").read_text("utf-8"))]
    print(json.dumps(measured(TOOLS[sys.argv[1]](sources), given * REPEATED.get(sys.argv[1], 1))))
