"""Privatize public texts by a mechanism, so that a rewriter learns to write them anew (paper 002, section 3).

The key is thrown away: a policy's own key would draw, for equal ids and texts, what a release draws. Pairs are kept
next to the checkpoint until the training ends, because no one can draw them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dptext_etl.column import draw
from dptext_etl.errors import InputError
from dptext_etl.keys import throwaway
from dptext_etl.mechanism import Mechanism
from dptext_etl_models.training.corpus import Corpus, clean, held_out
from dptext_etl_models.training.sentence_pairs import Pair, SentencePairs
from dptext_etl_models.training.token_rows import public_texts, short_texts

HELD = 256
"""Held-out texts whose pairs are scored before and after a training."""
_CHUNK = 500  # texts that are privatized between two reports


def made(
    mechanism: Mechanism,
    corpora: Sequence[Corpus],
    path: Path,
    identity: str,
    *,
    words: int,
    count: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> SentencePairs:
    """Return pairs of a privatized public text and the text, those of an earlier attempt if they are there."""
    import pyarrow.parquet as pq

    if path.is_file():
        table = pq.read_table(path)
        if (table.schema.metadata or {}).get(b"identity") == identity.encode():
            return _pairs(table, path)
    chosen = [*_held(corpora, words, seed), None, *public_texts(corpora, words, count, seed)]
    split = chosen.index(None)
    texts = [text for text in chosen if text is not None]
    table = pa.table(
        {
            "read": pa.array(_privatised(mechanism, texts, progress), pa.large_string()),
            "written": pa.array(texts, pa.large_string()),
            "held": pa.array([place < split for place in range(len(texts))]),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".new")
    pq.write_table(table.replace_schema_metadata({"identity": identity}), aside)
    aside.replace(path)
    return _pairs(table, path)


def _held(corpora: Sequence[Corpus], words: int, seed: int) -> list[str]:
    kept = [clean(text) for corpus in corpora for text in corpus.texts() if held_out(text)]
    return short_texts(kept, words, HELD, seed)


def _privatised(
    mechanism: Mechanism, texts: Sequence[str], progress: Callable[[int, int], None] | None
) -> list[str | None]:
    key = throwaway(mechanism.cfg())
    mechanism.probe()
    found: list[str | None] = []
    for start in range(0, len(texts), _CHUNK):
        some = texts[start : start + _CHUNK]
        ids = pa.array([str(start + place) for place in range(len(some))])
        found += draw(mechanism, pa.array(some, pa.large_string()), ids, key).text.to_pylist()
        if progress is not None:
            progress(len(found), len(texts))
    mechanism.probe()
    return found


def _pairs(table: Any, path: Path) -> SentencePairs:
    """Return the pairs both of whose texts say something."""
    kept: tuple[list[Pair], list[Pair]] = ([], [])
    for row in table.to_pylist():
        if (row["read"] or "").strip() and row["written"].strip():
            kept[row["held"]].append((row["read"], row["written"]))
    if not kept[False]:
        raise InputError(
            "nothing is left of any text after the mechanism", "give more texts, or a mechanism that keeps some words"
        )
    return SentencePairs(tuple(kept[False]), tuple(kept[True]), path.name, "")
