"""Train the small tagger of word classes that comes with the library, from public text that NLTK's tagger labeled.

The paper uses NLTK's tagger, whose weights a user downloads (6 MB). Ours is a stand-in, so that scores of words need
no download: an averaged perceptron of NLTK's kind with eight classes, as small as they allow. Its labels come from
NLTK's tagger, so it makes that one's mistakes and more; the card says how many, against texts tagged by people.

    python -m studies.shipped_data.tagger --corpus wiki_en.parquet --corpus sgd_utterances.parquet \
        --nltk-data FOLDER --out models/dptext_etl_models/data/english-tags.json
"""

from __future__ import annotations

import argparse
import json
import random
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl import _kernel
from dptext_etl.errors import InputError
from dptext_etl_models.tagging import CLASSES, NltkTagger, class_of

Tagged = list[tuple[str, str]]

ENDS = frozenset(".!?")
PASSES = 5
DIGITS = 1
"""Decimals of a weight that are kept."""
LOWER = 0.25
"""Share of the sentences that are lower-cased, so that texts without capitals are read, too."""
SMALLEST, LEAST_FEATURE = 1.0, 3.0
"""Weights below the first are skipped, and features without a weight of the second."""
BROWN_FILE = re.compile(r"/c[a-r]\d\d$")
LEAF = re.compile(r"\((\S+) ([^()\s]+)\)")
BROWN = {"N": "NN", "NP": "NNP", "PP": "PR", "PN": "PR", "WP": "O", "V": "VB", "B": "VB", "H": "VB", "DO": "VB"}


def sentences(texts: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield the first two sentences of each text as words and marks, until there are `most` tokens."""
    tokens = 0
    for text in texts:
        sentence: list[str] = []
        count = 0
        for piece, is_word in _kernel.split(text):
            if is_word:
                sentence.append(piece)
            elif piece.strip():
                sentence.append(piece.strip())
            if piece.strip() and piece.strip()[0] in ENDS and len(sentence) > 2:
                yield sentence
                tokens, count, sentence = tokens + len(sentence), count + 1, []
            if count == 2:
                break
        if sentence and count < 2:
            yield sentence
            tokens += len(sentence)
        if tokens >= most:
            return


def labelled(sentence: Sequence[str], tagger: NltkTagger) -> Tagged:
    """Label a sentence; a contraction gets the class of its first part."""
    parts = [token.replace("\u2019", "'").partition("'")[0] or token for token in sentence]
    parts = [
        part.removesuffix("n") if token.lower().endswith(("n't", "n\u2019t")) else part
        for part, token in zip(parts, sentence, strict=True)
    ]
    return list(zip(sentence, tagger.classes(parts), strict=True))


def variants(tagged: Iterable[Tagged], seed: int) -> list[Tagged]:
    """Lower-case some sentences, and drop the marks of every second, as mechanisms may see them."""
    drawn = random.Random(seed)
    variants_ = []
    for sentence in tagged:
        kept = sentence if drawn.random() < 0.5 else [pair for pair in sentence if any(map(str.isalnum, pair[0]))]
        lower = drawn.random() < LOWER
        variants_.append([(word.lower() if lower else word, label) for word, label in kept])
    return [sentence for sentence in variants_ if sentence]


def train(tagged: list[Tagged], seed: int = 0) -> dict[str, Any]:
    """Train NLTK's averaged perceptron, and round its weights."""
    from nltk.tag.perceptron import PerceptronTagger

    random.seed(seed)  # NLTK shuffles by the module's generator
    tagger = PerceptronTagger(load=False)
    tagger.train(tagged, nr_iter=PASSES)
    weights = {}
    for feature, row in sorted(tagger.model.weights.items()):
        kept = {label: round(weight, DIGITS) for label, weight in sorted(row.items()) if abs(weight) >= SMALLEST}
        if max(map(abs, kept.values()), default=0.0) >= LEAST_FEATURE:
            weights[feature] = kept
    return {"classes": sorted(tagger.classes), "tagdict": dict(sorted(tagger.tagdict.items())), "weights": weights}


def brown_class(tag: str) -> str:
    """Return our class of a tag of the Brown corpus."""
    tag = tag.partition("+")[0].partition("-")[0].rstrip("*$")
    if tag.startswith(("CD", "JJ", "RB")):
        return tag[:2]
    if tag.startswith(("PPS", "PPO", "PPL", "PP")):
        return "PR"
    for start in sorted(BROWN, key=len, reverse=True):
        if tag.startswith(start):
            return BROWN[start]
    return "O"


def gold(folder: Path, corpus: str, most: int) -> list[Tagged]:
    """Read sentences that people tagged, from every part of "brown" or "treebank" of NLTK's data."""
    sentences_: list[Tagged] = []
    with zipfile.ZipFile(folder / "corpora" / f"{corpus}.zip") as archive:
        for name in sorted(archive.namelist()):
            text = archive.read(name).decode("ascii", "replace")
            if corpus == "brown" and BROWN_FILE.search(name):
                lines = [line.split() for line in text.splitlines() if line.strip()]
                pairs = [[token.rpartition("/")[::2] for token in line] for line in lines]
                sentences_ += [[(word, brown_class(tag.upper())) for word, tag in line] for line in pairs]
            if corpus == "treebank" and name.endswith(".mrg"):
                trees = [LEAF.findall(tree) for tree in re.split(r"^\(", text, flags=re.MULTILINE)]
                sentences_ += [
                    [(word, class_of(tag)) for tag, word in tree if tag != "-NONE-"] for tree in trees if tree
                ]
    return sentences_[:: max(1, len(sentences_) // most)]


def right(tagger: Any, tagged: Sequence[Tagged], *, lower: bool) -> float:
    """Return the share of words whose class is found; proper and other nouns are different classes."""
    hits = every = 0
    for sentence in tagged:
        words = [word.lower() if lower else word for word, _ in sentence]
        for (word, label), got in zip(sentence, tagger.classes(words), strict=True):
            if any(map(str.isalnum, word)):
                hits, every = hits + (got == label), every + 1
    return hits / every


def main(arguments: Sequence[str] | None = None) -> None:
    """Label, train, write, and print how often classes are found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--corpus", type=Path, action="append", required=True, help="parquet with a column text")
    parser.add_argument("--nltk-data", type=Path, required=True, help="folder with NLTK's tagger, Brown and treebank")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=250_000, help="of each corpus")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.out.exists():
        raise InputError(f"{given.out} exists", "name a new file with --out")
    teacher = NltkTagger.load(given.nltk_data)
    tagged: list[Tagged] = []
    for place in given.corpus:
        texts = pl.read_parquet(place, columns=["text"])["text"].sample(fraction=1, seed=given.seed, shuffle=True)
        tagged += [labelled(sentence, teacher) for sentence in sentences(texts, given.tokens)]
    learnt = train(variants(tagged, given.seed), given.seed)
    facts = {"corpora": [place.name for place in given.corpus], "tokens": sum(map(len, tagged)), "classes": CLASSES}
    given.out.write_text(json.dumps({"facts": facts, **learnt}, separators=(",", ":")), encoding="utf-8")
    ours = NltkTagger.read(given.out)
    print(f"{given.out.stat().st_size:,} bytes, {facts['tokens']:,} tokens")
    for corpus in ("brown", "treebank"):
        for lower in (False, True):
            truth = gold(given.nltk_data, corpus, 3_000)
            most = Counter(label for sentence in truth for _, label in sentence).most_common(1)[0][0]
            blind = right(_Always(most), truth, lower=lower)
            cells = f"{right(ours, truth, lower=lower):.3f} | {right(teacher, truth, lower=lower):.3f} | {blind:.3f}"
            print(f"| {corpus}{', lower case' if lower else ''} | {cells} |")


class _Always:
    """Say one class of all words."""

    def __init__(self, label: str) -> None:
        self._label = label

    def classes(self, words: Sequence[str]) -> list[str]:
        return [self._label] * len(words)


if __name__ == "__main__":
    main()
