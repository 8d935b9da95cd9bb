"""How many of a text's rarer words are left in what a mechanism makes of it, next to those in another row's output."""

import polars as pl
import pyarrow as pa

from dptext_etl.column import draw
from dptext_etl.embeddings import WordVectors
from dptext_etl.keys import throwaway
from dptext_etl_eval.pairs import words_of
from dptext_etl_models.training.corpus import clean

FREQUENT = frozenset(WordVectors.load(limit=100).words)
"""Words that any text has."""
LONGEST = 18


def cut(texts, count):
    """The first words of texts of four words and more."""
    found = (" ".join(words_of(clean(text))[:LONGEST]) for text in texts)
    return [text for text in found if text.count(" ") >= 3][:count]


def unseen(shared_data, count):
    """Texts of two sets that no training of a shipped model saw."""
    found = {}
    for name, path in (("Snips", "snips/snips.parquet"), ("SST-2", "sst2/sst2.parquet")):
        frame = pl.read_parquet(shared_data / path).filter(pl.col("split") == "test")
        found[name] = cut(frame["text"].to_list()[::3], count)
    return found


def released(mechanism, texts):
    ids = pa.array([str(row) for row in range(len(texts))])
    return draw(mechanism, pa.array(texts, pa.large_string()), ids, throwaway(mechanism.cfg())).text.to_pylist()


def share(texts, outputs):
    """Share of the texts' rarer words that are in the output of the same row."""
    kept = [
        word in set(words_of(output))
        for text, output in zip(texts, outputs, strict=True)
        for word in set(text.split()) - FREQUENT
    ]
    return sum(kept) / len(kept)


def kept(mechanism, texts):
    """Share of rarer words kept, and the same of the outputs of other rows, from 0 to 1."""
    outputs = released(mechanism, texts)
    return share(texts, outputs), share(texts, outputs[1:] + outputs[:1])
