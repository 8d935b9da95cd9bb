"""Compute the largest loss and the largest probability of one draw from the data that the sampler reads.

A certificate never reads a stored claim. It is computed by other code than the claim, from the integers of a table, the
weights of lists or distances, or exact distributions, so that a defect cannot confirm itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import word_list
from dptext_etl.errors import PolicyError, seam
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.families.distance import PairWeights
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.families.words import WordMechanism
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import PAD
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.santext import SanText
from dptext_etl.sampling import integer_weights

_CELLS = 2**22  # in memory at once
CELLS = 2**18  # largest number of inputs times outputs for which distributions of fractions are compared word by word

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Certificate:
    """The computed loss of one draw."""

    source: str  # description of the data that it was computed from
    realized: float  # largest log ratio; infinite if an output is possible for one word and impossible for another
    exact: bool  # True if the loss is attained, False if it is an upper bound
    words: tuple[str, str]  # two words with a large log ratio, for the trials


def certificate_of(mechanism: WordMechanism | ChoiceMechanism) -> Certificate | None:
    """Compute the largest loss of one draw; None if the distribution of a word has no finite table."""
    if hasattr(mechanism, "certificate"):  # a mechanism of another package, with its own computation
        certificate: Certificate | None = mechanism.certificate()
        return certificate
    if isinstance(mechanism, ChoiceMechanism):
        source = f"the weights of {mechanism.near:,} near texts among {mechanism.size:,}"
        return Certificate(source, float(mechanism.weights.loss), exact=True, words=far_texts(mechanism))
    if isinstance(mechanism, TableMechanism):
        return of_table(mechanism.table.path, sets_are_disclosed=Disclosure.CLUSTER in mechanism.guarantee.disclosures)
    if isinstance(mechanism, Diffractor):
        return of_lists(mechanism.table.path)
    if isinstance(mechanism, SanText):
        return of_distances(mechanism.pair_weights, far_words(mechanism.words))
    return of_distributions(mechanism)


def far_words(words: WordVectors) -> tuple[str, str]:
    """Return two words at a large distance: go from a word to the farthest one, and again from there."""
    words_left, start, index = sum(word != PAD for word in words.words), 0, 0
    for _ in range(4):
        start, index = index, int(np.argmax(words.squared_distances([index], slice(None))[0][:words_left]))
    return words.words[start], words.words[index]


def far_texts(mechanism: ChoiceMechanism) -> tuple[str, str]:
    """Return two texts that are easy to distinguish: of a hundred, the second shares fewest near texts with one."""
    texts, size = mechanism.opened.texts, mechanism.size
    spread = [texts[number] for number in range(0, size, max(1, size // 100))]
    near_sets = [(text, set(near)) for text in spread if (near := mechanism.near_to(text)) is not None]
    if len(near_sets) < 2:
        return texts[0], texts[-1]
    (first, near_words), *others = near_sets
    return first, min(others, key=lambda other: len(near_words & other[1]))[0]


def of_distributions(mechanism: WordMechanism) -> Certificate | None:
    words, outputs = mechanism.input_words(), mechanism.output_words()
    if outputs is None or len(words) * len(outputs) > CELLS or mechanism.word_disclosures:
        return None
    most: dict[str, tuple[Fraction, str]] = {}
    least: dict[str, tuple[Fraction, str]] = {}
    for seen, word in enumerate(words):
        try:
            chances = dict(zip(*mechanism.transition(word), strict=True))
        except PolicyError:
            return None
        for output in chances.keys() | most.keys():
            chance = chances.get(output, Fraction(0))
            is_listed = output in most
            most[output] = max(most.get(output, (chance, word)), (chance, word))
            first = (chance, word) if is_listed or not seen else (Fraction(0), words[0])
            least[output] = min(least.get(output, first), (chance, word))
    worst = max(most, key=lambda output: _log_ratio(most[output][0], least[output][0]))
    realized = _log_ratio(most[worst][0], least[worst][0])
    words = most[worst][1], least[worst][1]
    return Certificate("the exact output distributions of all words", realized, exact=True, words=words)


def _log_ratio(most: Fraction, least: Fraction) -> float:
    if not most:
        return 0.0
    if not least:
        return math.inf
    return math.log(most.numerator * least.denominator) - math.log(most.denominator * least.numerator)


def read_table(path: Path) -> tuple[Arrays, dict[str, str]]:
    with seam("reading the table"), safe_open(str(path), framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118


def of_table(path: Path, *, sets_are_disclosed: bool) -> Certificate:
    """Compare all rows of integers of each output set of a table."""
    stored, _ = read_table(path)
    inputs, kept = word_list(stored["inputs"]), set(word_list(stored["kept"]))
    apart = not sets_are_disclosed and len(stored["set_offsets"]) > 2
    realized, words = (math.inf if apart else 0.0), (inputs[0], inputs[-1])
    drawn = np.array([word not in kept and word != PAD for word in inputs])
    for rows, weights in _sets(stored):
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(weights.astype(np.float64)) - np.log(weights.sum(axis=-1, keepdims=True, dtype=np.float64))
            worst = float((logs.max(axis=-2) - logs.min(axis=-2)).max(initial=0.0))
        worst = math.inf if not weights.all() else worst
        outputs = rows[drawn[rows]]
        if worst > realized or (words == (inputs[0], inputs[-1]) and len(outputs) > 1):
            realized = max(worst, realized)
            if len(outputs) > 1:
                words = _far_apart(weights[drawn[rows]], outputs, inputs)
    return Certificate(f"every row of the table, {len(inputs):,} words", realized, exact=True, words=words)


def _sets(stored: Arrays) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]]:
    """Yield the inputs of each output set, and their integer weights, shape (inputs, members)."""
    offsets, running = stored["row_offsets"].astype(np.int64), stored["cumulative"]
    order = np.argsort(stored["input_set"], kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(stored["input_set"][order])) + 1):
        ends = np.stack([running[offsets[row] : offsets[row + 1]] for row in rows])
        yield rows, np.diff(ends, axis=1, prepend=np.uint64(0))


def _far_apart(weights: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64], inputs: list[str]) -> tuple[str, str]:
    """Return the two words of a set whose probabilities of one output differ most."""
    chances = weights / weights.sum(axis=1, keepdims=True)
    least = np.maximum(chances.min(axis=0), 1e-300)
    output = int(np.argmax(chances.max(axis=0) / least))
    return inputs[rows[int(np.argmax(chances[:, output]))]], inputs[rows[int(np.argmin(chances[:, output]))]]


def of_lists(path: Path) -> Certificate:
    """Compute the certificate of stored lists from the weights by distance that the sampler reads, and nothing else."""
    stored, metadata = read_table(path)
    inputs = word_list(stored["inputs"])
    if "list_offsets" in stored:
        return Certificate("lists of different words", math.inf, exact=True, words=(inputs[0], inputs[-1]))
    lists = list(stored["lists"].reshape(-1, len(inputs)))
    distribution, places = json.loads(metadata["law"]), len(inputs)
    skipped = {PAD, *(word_list(stored["kept"]) if "kept" in stored else ())}
    order = [inputs[number] for number in lists[0] if inputs[number] not in skipped]
    ends = order[0], order[-1]
    if "geometric" in distribution:
        worst = float(Fraction(*distribution["geometric"]["rate"]) * (places - 1))
        source = f"closed form of the stored rate over {places:,} places"
        return Certificate(source, worst, exact=len(lists) == 1, words=ends)
    weights = [*distribution["tem"]["weights"], distribution["tem"]["outside"]]
    mixture = None if len(lists) == 1 else of_mixture(weights, lists)
    worst = of_one_list(weights, places) if mixture is None else mixture  # no mixture realizes more than one list
    source = f"the stored weights by distance, every output of {places:,} places"
    return Certificate(source, worst, exact=mixture is not None or len(lists) == 1, words=ends)


def list_distances(path: Path, word: str) -> dict[str, float] | None:
    """Return the largest distance of every drawn word from one over stored lists, in places."""
    stored, _ = read_table(path)
    inputs = word_list(stored["inputs"])
    kept = {PAD, *(word_list(stored["kept"]) if "kept" in stored else ())}
    if "list_offsets" in stored or word not in inputs or word in kept - {PAD}:
        return None
    places = np.argsort(stored["lists"].reshape(-1, len(inputs)), axis=1).astype(np.int64)
    farthest = np.abs(places - places[:, [inputs.index(word)]]).max(axis=0)
    return {other: float(apart) for other, apart in zip(inputs, farthest, strict=True) if other not in kept}


Floats = npt.NDArray[np.float64]
Order = npt.NDArray[np.integer]

DENSE = 2**26  # inputs times outputs up to which every chance of a mixture is written down


def of_one_list(weights: Sequence[int], places: int) -> float:
    """Return the worst log ratio of any output of one list, an unknown word's uniform chances included."""
    reach, logs = len(weights) - 1, np.log(np.array(weights, np.float64))
    rows = -np.log(_totals(weights, places))
    most = np.full(places, -math.log(places))
    least = most.copy()
    for distance in range(min(reach, places)):
        chances = rows + logs[distance]
        before, behind = slice(None, places - distance), slice(distance, None)
        for toward, source in ((behind, before), (before, behind)):
            most[toward] = np.maximum(most[toward], chances[source])
            least[toward] = np.minimum(least[toward], chances[source])
    if reach < places:
        chances = rows + logs[-1]
        for side in (slice(None), slice(None, None, -1)):
            seen_most, seen_least = np.maximum.accumulate(chances[side]), np.minimum.accumulate(chances[side])
            into_most, into_least = most[side], least[side]
            into_most[reach:] = np.maximum(into_most[reach:], seen_most[: places - reach])
            into_least[reach:] = np.minimum(into_least[reach:], seen_least[: places - reach])
    return float((most - least).max())


def of_mixture(weights: Sequence[int], lists: Sequence[Order]) -> float | None:
    """Return the worst log ratio of any output of a uniform mixture over lists of one vocabulary; None if too large."""
    places = len(lists[0])
    if places * places > DENSE:
        return None
    by_distance = np.array(weights, np.float64)
    totals, place_of = _totals(weights, places), [np.argsort(order, kind="stable") for order in lists]
    most = np.full(places, 1.0 / places)
    least = most.copy()
    step = max(1, _CELLS // places)
    for start in range(0, places, step):
        chances = np.zeros((min(step, places - start), places))
        for word_places in place_of:
            inputs = word_places[start : start + step]
            gaps = np.minimum(np.abs(inputs[:, None] - word_places), len(weights) - 1)
            chances += by_distance[gaps] / totals[inputs][:, None]
        chances /= len(lists)
        np.maximum(most, chances.max(axis=0), out=most)
        np.minimum(least, chances.min(axis=0), out=least)
    return float(np.log(most / least).max())


def _totals(weights: Sequence[int], places: int) -> Floats:
    """Return the sum of every place's row, counted distance by distance."""
    here, reach = np.arange(places), len(weights) - 1
    near = np.zeros(places, np.int64)
    total = np.zeros(places, np.int64)
    for distance in range(min(reach, places)):
        count = (here >= distance).astype(np.int64) + ((here + distance < places) if distance else 0)
        near += count
        total += count * weights[distance]
    return (total + (places - near) * weights[-1]).astype(np.float64)


CHECKED = 64  # rows that are made from the vectors, spread over the vocabulary


def of_distances(law: PairWeights, words: tuple[str, str]) -> Certificate:
    """Compute the certificate of a law by distance; words outside the vocabulary, drawn uniformly, are inputs, too."""
    if not _as_the_formula_says(law):
        return Certificate("weights that differ from the formula", math.inf, exact=True, words=words)
    inputs, outputs = len(law.inputs), len(law.outputs)
    most, least = (np.full(outputs, -math.log(outputs)) for _ in range(2))
    rarest, likeliest = (np.full(outputs, -1, np.int64) for _ in range(2))
    step = max(1, _CELLS // outputs)
    for first in range(0, inputs, step):
        rows = np.arange(first, min(first + step, inputs))
        weights = law.weights(rows)
        if not weights.all():
            return Certificate("a weight of zero", math.inf, exact=True, words=words)
        totals = weights.sum(axis=1, dtype=np.uint64).astype(np.float64)
        logs = np.log(weights.astype(np.float64)) - np.log(totals)[:, None]
        _take(logs, first, most, likeliest)
        np.negative(logs, out=logs)
        np.negative(least, out=least)
        _take(logs, first, least, rarest)
        np.negative(least, out=least)
    worst = int(np.argmax(most - least))
    chances = [_chance(law, int(row[worst]), worst) for row in (likeliest, rarest)]
    ratio = chances[0] / chances[1]
    realized = math.log(ratio.numerator) - math.log(ratio.denominator)
    return Certificate("the integer weights of every word, made anew", realized, exact=True, words=words)


def _take(logs: npt.NDArray[np.float64], first: int, best: npt.NDArray[np.float64], row: npt.NDArray[np.int64]) -> None:
    best_rows = logs.argmax(axis=0)
    values = logs[best_rows, np.arange(logs.shape[1])]
    better = values > best
    best[better], row[better] = values[better], first + best_rows[better]


def _chance(law: PairWeights, row: int, output: int) -> Fraction:
    """Return the chance of an output under a word, or under an unknown word (-1)."""
    if row < 0:
        return Fraction(1, len(law.outputs))
    weights = law.weights(np.array([row]))[0].tolist()
    return Fraction(weights[output], sum(weights))


def _as_the_formula_says(law: PairWeights) -> bool:
    """Whether some rows of weights equal exp(-epsilon d / 2), d from the vectors."""
    rows = np.unique(np.linspace(0, len(law.inputs) - 1, CHECKED).astype(np.int64))
    outputs = law.outputs.vectors.astype(np.int64)
    for row in rows.tolist():
        apart = outputs - law.inputs.vectors[row].astype(np.int64)
        distances = np.sqrt((apart * apart).sum(axis=1).astype(np.float64)) * law.inputs.scale
        wanted = integer_weights(-distances, law.exponent, low=-law.diameter, high=0.0)
        if not np.array_equal(law.weights(np.array([row]))[0], wanted):
            return False
    return True
