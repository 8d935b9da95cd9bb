"""Learn labels from a synthetic table as its readers may: from words, from vectors, from scores, or from both.

Each reader has lines of scikit-learn that do the same outside this library. `dptext evaluate` measures all of them and
names the best one. Scores follow from the published statistic, so they are measured for every table with labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptext_etl.corpora import Corpus
from dptext_etl.errors import InputError, seam
from dptext_etl.families.aggregate import Classifier, Noisy, linear_discriminant, scored
from dptext_etl.parallel import single_threaded_products
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.measure import library
from dptext_etl_eval.pairs import Values

Floats = npt.NDArray[np.float64]
WORDS, VECTORS, SCORES = "learned from the synthetic table", "reader of its vectors", "reader of its scores"
VECTOR_SCORES = "reader of its vectors and scores"
_RIDGE = 0.3
_STRENGTH = 10.0
_ITERATIONS = 100
LINES: Mapping[str, tuple[str, ...]] = {
    WORDS: (
        "words = TfidfVectorizer(sublinear_tf=True)",
        'learner = LogisticRegression(C=3, class_weight="balanced", solver="liblinear")',
        "model = make_pipeline(words, OneVsRestClassifier(learner)).fit(table.text, table.label)",
        "labels = model.predict(texts)",
    ),
    VECTORS: (
        "unit = lambda texts: normalize(classifier.encode(list(texts)).astype(float))",
        'learner = LogisticRegression(C=10, class_weight="balanced")',
        "labels = learner.fit(unit(table.text), table.label).predict(unit(texts))",
    ),
    SCORES: (
        "words = TfidfVectorizer(sublinear_tf=True)",
        'model = make_pipeline(words, Ridge(alpha=0.3, solver="lsqr")).fit(table.text, list(table.scores))',
        "labels = np.array(classifier.labels)[model.predict(texts).argmax(axis=1)]",
    ),
    VECTOR_SCORES: (
        "unit = lambda texts: normalize(classifier.encode(list(texts)).astype(float))",
        "model = Ridge().fit(unit(table.text), list(table.scores))",
        "labels = np.array(classifier.labels)[model.predict(unit(texts)).argmax(axis=1)]",
    ),
}
"""Lines that reproduce a reader. `table` is the published table, `classifier` comes with it, and `texts` are yours."""


@dataclass(frozen=True, eq=False)
class Readers:
    """The readers of one table.

    Attributes:
        texts: Texts of the table.
        labels: Their labels.
        statistic: The noisy statistic of the table.
        names: Public words that describe a label, by label.
        pool: The corpus whose texts get scores; None for the corpus of the statistic.
    """

    texts: Sequence[str]
    labels: Values
    statistic: Noisy
    names: Mapping[str, str]
    pool: Corpus | None = None

    @cached_property
    def classifier(self) -> Classifier:
        return linear_discriminant(self.statistic, self.names)

    def classify(self, texts: Sequence[str]) -> Values:
        """Return the labels that the published classifier gives texts, shape (texts,)."""
        return np.array(self.classifier.predict(self._vectors(texts)))

    def guesses(self, texts: Sequence[str], names: Sequence[str] = tuple(LINES)) -> dict[str, Values]:
        """Return the labels of readers for raw texts, by name of the reader, shape (texts,)."""
        if len(np.unique(self.labels)) < 2:
            return {name: np.repeat(self.labels[:1], len(texts)) for name in names}
        learners: Mapping[str, Callable[[], Values]] = {
            WORDS: lambda: self._by_words(texts),
            VECTORS: lambda: self._by_vectors(texts),
            SCORES: lambda: self._by_scores(counted(texts)),
            VECTOR_SCORES: lambda: self._by_vector_scores(texts),
        }
        return {name: learners[name]() for name in names}

    def _vectors(self, texts: Sequence[str]) -> npt.NDArray[np.int8]:
        return self.classifier.encode(list(texts), self.statistic.statistic.corpus)

    def _by_words(self, texts: Sequence[str]) -> Values:
        guessed: Values = fit(counted(self.texts), self.labels)(counted(texts))
        return guessed

    def _by_vectors(self, texts: Sequence[str]) -> Values:
        regression = library("sklearn.linear_model").LogisticRegression
        learner = regression(C=_STRENGTH, class_weight="balanced", max_iter=_ITERATIONS)
        with seam("training a classifier", InputError), warnings.catch_warnings(), single_threaded_products():
            warnings.simplefilter("ignore")  # a search that ends early is a regularized one
            learner.fit(_unit(self._vectors(self.texts)), self.labels)
            learned: Values = learner.predict(_unit(self._vectors(texts)))
        return learned

    def _by_scores(self, words: object) -> Values:
        table = scored(self.statistic, self.names, self.pool)
        targets = np.array(table["scores"].to_pylist())
        transformer = library("sklearn.feature_extraction.text").TfidfTransformer(sublinear_tf=True)
        with seam("training a regression", InputError):
            learnt = transformer.fit_transform(counted(table["text"].to_pylist()))
            there = np.unique(learnt.indices)
            ridge = library("sklearn.linear_model").Ridge(alpha=_RIDGE, solver="lsqr").fit(learnt[:, there], targets)
            return self._named(ridge.predict(transformer.transform(words)[:, there]))

    def _by_vector_scores(self, texts: Sequence[str]) -> Values:
        table = scored(self.statistic, self.names, self.pool)
        targets, learned = np.array(table["scores"].to_pylist()), _unit(self._vectors(table["text"].to_pylist()))
        with seam("training a regression", InputError), single_threaded_products():
            return self._named(
                library("sklearn.linear_model").Ridge().fit(learned, targets).predict(_unit(self._vectors(texts)))
            )

    def _named(self, scores: Floats) -> Values:
        labels: Values = np.array(self.classifier.labels)[scores.reshape(len(scores), -1).argmax(axis=1)]
        return labels


def _unit(vectors: npt.NDArray[np.int8]) -> Floats:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    units: Floats = vectors / np.where(lengths > 0, lengths, 1.0)
    return units
