"""Score words by features of their own text, as YAKE ranks key words (Campos et al. 2020). It needs no public data."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl.allocation.score import Score, Scores

_ENDS = frozenset(".!?")


class Yake(Score):
    """YAKE's least number of a text, divided by the number of the word; a mark without letters and digits gets 0.

    YAKE's number is small for key words. It is position * relatedness / (case + (frequency + spread) / relatedness).
    Position grows with the median sentence of a word, case with its capitals, frequency with its count over the mean
    count plus one deviation, spread with the share of sentences that hold it, and relatedness with the number of
    different words next to it. In strict mode a text has no marks, so it is one sentence.
    """

    title: ClassVar[str] = "YAKE"

    def compute(self, tokens: Sequence[str]) -> Scores:
        numbers = _numbers(tokens)
        least = min(numbers.values(), default=0.0)
        rated = {word: least / number for word, number in numbers.items()}
        return np.array([rated.get(token.lower(), 0.0) for token in tokens])


def _numbers(tokens: Sequence[str]) -> dict[str, float]:
    """Return YAKE's number of each word of a text, in lower case."""
    sentences = _sentences(tokens)
    counts = Counter(token.lower() for sentence in sentences for token in sentence)
    if not counts:
        return {}
    capital: Counter[str] = Counter()
    places_of: dict[str, list[int]] = defaultdict(list)
    left: dict[str, Counter[str]] = defaultdict(Counter)
    right: dict[str, Counter[str]] = defaultdict(Counter)
    for number, sentence in enumerate(sentences):
        words = [token.lower() for token in sentence]
        for place, (token, word) in enumerate(zip(sentence, words, strict=True)):
            capital[word] += token.isupper() or (place > 0 and token[:1].isupper())
            places_of[word].append(number)
            if place:
                left[word][words[place - 1]] += 1
                right[words[place - 1]][word] += 1
    usual = statistics.fmean(counts.values()) + statistics.pstdev(counts.values())
    most = max(counts.values())
    numbers = {}
    for word, count in counts.items():
        sides = (len(next_) / next_.total() if next_ else 0.0 for next_ in (left[word], right[word]))
        related = 1.0 + sum(sides) * count / most
        case = capital[word] / (1.0 + math.log(count))
        position = math.log(math.log(3.0 + statistics.median(places_of[word])))
        spread = len(set(places_of[word])) / len(sentences)
        numbers[word] = position * related / (case + (count / usual + spread) / related)
    return numbers


def _sentences(tokens: Sequence[str]) -> list[list[str]]:
    """Cut a text after marks that end sentences, and leave out marks."""
    sentences: list[list[str]] = [[]]
    for token in tokens:
        if any(map(str.isalnum, token)):
            sentences[-1].append(token)
        elif sentences[-1] and _ENDS & set(token):
            sentences.append([])
    return [sentence for sentence in sentences if sentence]
