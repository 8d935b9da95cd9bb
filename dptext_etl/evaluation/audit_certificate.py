"""The exact certificate of one draw: the worst log ratio of any output between any two words, computed anew.

It is computed from what the sampler reads, the integers of the stored table or the weights of the law, and never read
from a stored claim. Where a law has no finite table (continuous noise) there is no certificate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from dptext_etl.errors import PolicyError, seam
from dptext_etl.families.distance import DistanceLaw
from dptext_etl.families.list_tem import TemLaw
from dptext_etl.families.listed import ListMechanism
from dptext_etl.families.table import TableMechanism
from dptext_etl.families.vector import VectorMechanism
from dptext_etl.families.words import WordMechanism
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import PAD
from dptext_etl.sampling import worst_log_ratio

CELLS = 2**18
"""Inputs times outputs up to which a law of fractions is compared word by word."""

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Certificate:
    """What one draw realises.

    Attributes:
        source: What it was computed from.
        realised: Worst log ratio; infinite where an output is possible for one word and impossible for another.
        exact: Whether it is attained, or an upper bound of what is.
        words: Two words between which it is large, for the trials.
    """

    source: str
    realised: float
    exact: bool
    words: tuple[str, str]


def certificate(mechanism: WordMechanism) -> Certificate | None:
    """Compute the certificate of a mechanism with a finite claim; None where its law has no finite table.

    Raises:
        ArtifactError: The stored table cannot be read.
    """
    if isinstance(mechanism, TableMechanism):
        return _of_table(mechanism)
    if isinstance(mechanism, ListMechanism):
        return _of_lists(mechanism)
    law = getattr(mechanism, "law", None)
    if isinstance(law, DistanceLaw):
        exact = law.worst_log_ratio()
        return Certificate(
            "the integer weights of every word, made anew", exact, exact=True, words=far_words(mechanism)
        )
    return _of_fractions(mechanism)


def far_words(mechanism: WordMechanism) -> tuple[str, str]:
    """Return two words that a mechanism is likely to tell apart best, chosen from public inputs alone."""
    words = [word for word in mechanism.input_words() if word != PAD]
    if not isinstance(mechanism, VectorMechanism):
        return words[0], words[-1]
    vectors, index = mechanism.words, 0
    for _ in range(4):  # from one word to the farthest, and on from there
        start, index = index, int(np.argmax(vectors.squared_distances([index], slice(None))[0][: len(words)]))
    return words[start], words[index]


def _of_table(mechanism: TableMechanism) -> Certificate:
    stored, _ = _stored(mechanism)
    inputs = bytes(stored["inputs"]).decode().split("\n")
    kept = set(bytes(stored["kept"]).decode().split("\n"))
    apart = Disclosure.CLUSTER not in mechanism.guarantee.disclosures and len(stored["set_offsets"]) > 2
    realised, words = (math.inf if apart else 0.0), (inputs[0], inputs[-1])
    drawn = np.array([word not in kept and word != PAD for word in inputs])
    for rows, weights in _sets(stored):
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = worst_log_ratio(weights)
        worst = math.inf if not weights.all() else worst
        shown = rows[drawn[rows]]
        if worst > realised or (words == (inputs[0], inputs[-1]) and len(shown) > 1):
            realised = max(worst, realised)
            if len(shown) > 1:
                words = _apart(weights[drawn[rows]], shown, inputs)
    return Certificate(f"every row of the table, {len(inputs):,} words", realised, exact=True, words=words)


def _sets(stored: Arrays) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]]:
    """The inputs of each output set, and their integer weights, shape (inputs, members)."""
    offsets, running = stored["row_offsets"].astype(np.int64), stored["cumulative"]
    order = np.argsort(stored["input_set"], kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(stored["input_set"][order])) + 1):
        ends = np.stack([running[offsets[row] : offsets[row + 1]] for row in rows])
        yield rows, np.diff(ends, axis=1, prepend=np.uint64(0))


def _apart(weights: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64], inputs: list[str]) -> tuple[str, str]:
    """The two words of a set whose chances of one output differ most."""
    chances = weights / weights.sum(axis=1, keepdims=True)
    least = np.maximum(chances.min(axis=0), 1e-300)
    output = int(np.argmax(chances.max(axis=0) / least))
    return inputs[rows[int(np.argmax(chances[:, output]))]], inputs[rows[int(np.argmin(chances[:, output]))]]


def _of_lists(mechanism: ListMechanism) -> Certificate:
    stored, said = _stored(mechanism)
    inputs = bytes(stored["inputs"]).decode().split("\n")
    if "list_offsets" in stored:
        return Certificate("lists of different words", math.inf, exact=True, words=(inputs[0], inputs[-1]))
    lists = list(stored["lists"].reshape(-1, len(inputs)))
    law, places = json.loads(said["law"]), len(inputs)
    shown = {PAD, *(bytes(stored["kept"]).decode().split("\n") if "kept" in stored else ())}
    order = [inputs[number] for number in lists[0] if inputs[number] not in shown]
    ends = order[0], order[-1]
    if "geometric" in law:
        worst = float(Fraction(*law["geometric"]["rate"]) * (places - 1))
        source = f"closed form of the stored rate over {places:,} places"
        return Certificate(source, worst, exact=len(lists) == 1, words=ends)
    tem = TemLaw(tuple(law["tem"]["weights"]), law["tem"]["outside"])
    mixture = tem.loss(places)[0] if len(lists) == 1 else tem.mixture_loss(lists)
    worst = tem.loss(places)[0] if mixture is None else mixture
    source = f"the stored weights by distance, every pair of {places:,} places"
    return Certificate(source, worst, exact=mixture is not None, words=ends)


def _of_fractions(mechanism: WordMechanism) -> Certificate | None:
    """Compare the laws of all words, each as fractions, where there are few and they can be written down."""
    words, outputs = mechanism.input_words(), mechanism.output_words()
    if outputs is None or len(words) * len(outputs) > CELLS or mechanism.word_disclosures:
        return None
    most: dict[str, tuple[Fraction, str]] = {}
    least: dict[str, tuple[Fraction, str]] = {}
    for seen, word in enumerate(words):
        try:
            law = dict(zip(*mechanism.transition(word), strict=True))
        except PolicyError:
            return None
        for output in law.keys() | most.keys():
            chance = law.get(output, Fraction(0))
            known = output in most
            most[output] = max(most.get(output, (chance, word)), (chance, word))
            first = (chance, word) if known or not seen else (Fraction(0), words[0])
            least[output] = min(least.get(output, first), (chance, word))
    worst = max(most, key=lambda output: _logged(most[output][0], least[output][0]))
    realised = _logged(most[worst][0], least[worst][0])
    return Certificate("the exact laws of all words", realised, exact=True, words=(most[worst][1], least[worst][1]))


def _logged(most: Fraction, least: Fraction) -> float:
    if not most:
        return 0.0
    if not least:
        return math.inf
    return math.log(most.numerator * least.denominator) - math.log(most.denominator * least.numerator)


def _stored(mechanism: TableMechanism | ListMechanism) -> tuple[Arrays, dict[str, str]]:
    with seam("reading the table"), safe_open(str(mechanism.table.path), framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118
