"""Train classifiers on one kind of text and test them on another, so that every row of a sample is tested once.

The rows that the sample leaves out are for training only.

The classifier is TF-IDF over words with logistic regression, one label against the rest. Its regularization is strong,
because released texts are noisy. Labels weigh the same, however often they occur, so that a rare one is found. Metrics,
attacks, rehearsals, and the studies of this repository use this one learner. Folds never part the rows of one person
where persons are known.

Labels that are numbers, some of them not whole, are regressed on by ridge regression over the same words. For a pair of
texts, the words of both, and those that they share, are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import InputError, seam
from dptext_etl_eval.measure import Score, library
from dptext_etl_eval.pairs import LABEL, SECOND, SUBJECT, Pairs, Values, words_of
from dptext_etl_eval.statistics import accuracy, bootstrapped, macro_f1, pearson, spearman, unseen

FOLDS = 5
MOST_CLASSES = 200
COLUMNS = 2**17
Figure = Callable[[Any, Any], float]
FIGURES: Mapping[str, Figure] = {"macro-F1": macro_f1, "accuracy": accuracy}
OF_NUMBERS: Mapping[str, Figure] = {"Pearson correlation": pearson, "Spearman correlation": spearman}


@dataclass(frozen=True)
class Guesses:
    """A classifier's guesses, and the random baseline."""

    truth: Values  # True values, shape (n,); numbers in a regression
    guessed: Values  # guesses of the classifier, shape (n,)
    blind: Values  # the most frequent value of the training rows, or their mean, shape (n,)
    groups: Values | None = None  # persons of the rows, shape (n,)


def crossed(pairs: Pairs, target: str, *, train: str, test: str) -> Guesses:
    """Guess a column from texts by cross-validation, or from the training rows of a split.

    Equal questions are answered once.
    """
    key = (target, train, test, pairs.seed)
    if key not in pairs.memory:
        paired = target == LABEL and pairs.second is not None
        truth: Any = getattr(pairs, target)
        if target == LABEL and pairs.numbers is not None:
            truth = pairs.numbers
        else:
            require_classes(truth, target)
        learned, tested = (_counts(pairs, which, paired=paired) for which in (train, test))
        rest = _rest(pairs, target, train, truth.dtype, paired=paired)
        pairs.memory[key] = guess(learned, tested, truth, pairs.subject, rest, seed=pairs.seed, split=pairs.split)
    guesses: Guesses = pairs.memory[key]
    return guesses


def counted(texts: Sequence[str], seconds: Sequence[str] | None = None) -> Any:
    """Return how often each text holds each word, as a sparse matrix, shape (n, COLUMNS); words are hashed to columns.

    Of pairs of texts, the words of each, those in both, and the overlap are counted.
    """
    make = library("sklearn.feature_extraction.text").HashingVectorizer
    given = texts if seconds is None else list(zip(texts, seconds, strict=True))
    analyzer = words_of if seconds is None else _words_of_pair
    with seam("counting words", InputError):
        return make(n_features=COLUMNS, alternate_sign=False, norm=None, analyzer=analyzer).transform(given)


def _words_of_pair(pair: tuple[str, str]) -> list[str]:
    first, second = map(words_of, pair)
    both, either = set(first) & set(second), set(first) | set(second)
    shared = round(10 * len(both) / max(1, len(either)))
    overlap = [f"overlap {tenth}" for tenth in range(shared + 1)]
    return [*first, *(f"second {word}" for word in second), *(f"both {word}" for word in both), *overlap]


@dataclass(frozen=True)
class Rest:
    """Rows to learn from that are not tested."""

    words: Any  # how often each text holds each word, sparse, shape (n, COLUMNS)
    truth: Values  # true values, shape (n,)
    groups: Values | None  # persons, shape (n,)

    def without(self, persons: Values | None) -> Rest:
        """Return the rows of other persons."""
        if persons is None or self.groups is None:
            return self
        other = ~np.isin(self.groups, persons)
        return Rest(self.words[other], self.truth[other], self.groups[other])


def guess(
    train: Any,
    test: Any,
    truth: Values,
    groups: Values | None = None,
    rest: Rest | None = None,
    *,
    seed: int = 0,
    split: bool = False,
) -> Guesses:
    """Guess `truth` of every row of `test` by a classifier that learned from other rows of `train` and from `rest`.

    With a `split`, one classifier learns from `rest` as it is. If `rest` has at least four fifths of all rows, without
    the persons of `test`, one classifier learns from it. Otherwise there are five folds, and each learns from the other
    folds and from `rest`.
    """
    guessed = truth.astype(np.result_type(truth, truth if rest is None else rest.truth))
    blind = guessed.copy()
    everything = np.arange(len(truth))
    folds: Any = None
    if split and rest is not None:
        folds = [(everything[:0], everything)]
    elif rest is not None and len((others := rest.without(groups)).truth) >= (FOLDS - 1) * len(truth):
        folds, rest = [(everything[:0], everything)], others
    for learnt, judged in folds or _folds(truth, groups, seed):
        words, words_and_truth = train[learnt], truth[learnt]
        if rest is not None:
            more = rest if split else rest.without(None if groups is None else groups[judged])
            words = library("scipy.sparse").vstack([words, more.words], format="csr")
            words_and_truth = np.concatenate([words_and_truth, more.truth])
        values, counts = np.unique(words_and_truth, return_counts=True)
        blind[judged] = words_and_truth.mean() if words_and_truth.dtype.kind == "f" else values[counts.argmax()]
        guessed[judged] = blind[judged] if len(values) < 2 else fit(words, words_and_truth)(test[judged])
    return Guesses(truth, guessed, blind, groups)


def scores(
    guesses: Guesses, raw: Guesses, what: str, groups: Values | None, figures: Mapping[str, Figure] | None = None
) -> list[Score]:
    """Return figures of guesses, next to figures from raw texts and from the random baseline (`unseen`)."""
    figures = (OF_NUMBERS if guesses.truth.dtype.kind == "f" else FIGURES) if figures is None else figures
    return [
        Score(
            what.format(figure=name),
            figure(guesses.truth, guesses.guessed),
            bootstrapped(figure, guesses.truth, guesses.guessed, groups),
            blind=unseen(figure, guesses.truth, guesses.blind),
            raw=figure(raw.truth, raw.guessed),
        )
        for name, figure in figures.items()
    ]


def _counts(pairs: Pairs, which: str, *, paired: bool) -> Any:
    key = ("counted", which, paired)
    if key not in pairs.memory:
        pairs.memory[key] = counted(pairs.texts(which), pairs.seconds(which) if paired else None)
    return pairs.memory[key]


def _rest(pairs: Pairs, target: str, train: str, kind: np.dtype[Any], *, paired: bool) -> Rest | None:
    """Return the rows outside the sample, counted once for each kind of text."""
    if pairs.rest is None:
        return None
    key = ("counted rest", train, paired)
    if key not in pairs.memory:
        seconds = pairs.rest[SECOND[train]].to_list() if paired else None
        pairs.memory[key] = counted(pairs.rest[train].to_list(), seconds)
    truth = pairs.rest[target].to_numpy().astype(str)
    if kind.kind == "f":
        truth = rest_numbers(truth)
    groups = None if pairs.subject is None else pairs.rest[SUBJECT].to_numpy().astype(str)
    return Rest(pairs.memory[key], truth, groups)


def rest_numbers(truth: Values) -> Any:
    """Return labels of rows outside the sample as numbers."""
    try:
        numbers = truth.astype(np.float64)
    except ValueError:
        numbers = np.array([np.nan])
    if not np.isfinite(numbers).all():
        raise InputError(
            "labels of some rows are numbers, and of others not", "name a column of numbers, or of classes"
        )
    return numbers


def require_classes(truth: Values, target: str) -> None:
    """Refuse a column that no classifier can learn."""
    classes = len(np.unique(truth))
    if classes < 2:
        raise InputError(f"the {target} column has one value in all rows", "name a column with two values or more")
    if classes > min(MOST_CLASSES, len(truth) // 2):
        msg = f"the {target} column has {classes:,} values in {len(truth):,} rows"
        msg += f"; {MOST_CLASSES} are the most, each of two rows or more on average"
        raise InputError(msg, "name a column of classes; numbers go into ranges first")


def _folds(
    truth: Values, groups: Values | None, seed: int = 0
) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    selection = library("sklearn.model_selection")
    smallest = int(np.unique(truth, return_counts=True)[1].min())
    splits: Any
    if groups is not None and len(np.unique(groups)) >= FOLDS:
        splits = selection.GroupKFold(FOLDS, shuffle=seed > 0, random_state=seed or None).split(truth, truth, groups)
    elif smallest >= FOLDS and truth.dtype.kind != "f":
        splits = selection.StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(truth, truth)
    else:
        splits = selection.KFold(FOLDS, shuffle=True, random_state=seed).split(truth)
    return list(splits)


def fit(words: Any, truth: Values) -> Any:
    """Return a function that guesses labels (or numbers) from counted words, learned from counted words and labels."""
    transformer = library("sklearn.feature_extraction.text").TfidfTransformer
    with seam("training a classifier", InputError):
        weighted = transformer(sublinear_tf=True).fit(words)
        learnt = weighted.transform(words)
        there = np.unique(learnt.indices)  # words that no text holds get the weight 0; leaving them out is much faster
        if not len(there):
            there = np.arange(1)
        ridge = library("sklearn.linear_model").Ridge(alpha=1.0, solver="lsqr")
        model = (ridge if truth.dtype.kind == "f" else learner()).fit(learnt[:, there], truth)
    return lambda judged: model.predict(weighted.transform(judged)[:, there])


def learner() -> Any:
    """Return the logistic regression of this library, not yet fitted: one label against the rest, equal weights."""
    regression = library("sklearn.linear_model").LogisticRegression
    one_by_one = library("sklearn.multiclass").OneVsRestClassifier
    return one_by_one(regression(C=3.0, solver="liblinear", class_weight="balanced"))
