"""Compute the certificate of stored lists from the weights by distance that the sampler reads, and nothing else."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np

from dptext_etl.families.certificate import Certificate, read_table, word_list
from dptext_etl.families.lists.tem_certificate import of_mixture, of_one_list
from dptext_etl.mechanism import PAD


def of_lists(path: Path) -> Certificate:
    """Compute the certificate of lists (`families.lists.listed`)."""
    stored, said = read_table(path)
    inputs = word_list(stored["inputs"])
    if "list_offsets" in stored:
        return Certificate("lists of different words", math.inf, exact=True, words=(inputs[0], inputs[-1]))
    lists = list(stored["lists"].reshape(-1, len(inputs)))
    distribution, places = json.loads(said["law"]), len(inputs)
    shown = {PAD, *(word_list(stored["kept"]) if "kept" in stored else ())}
    order = [inputs[number] for number in lists[0] if inputs[number] not in shown]
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


def distances_from(path: Path, word: str) -> dict[str, float] | None:
    """Return the largest distance of every drawn word from one over stored lists, in places.

    Lists of different words have no such distance: then it is None, as for a word that is not drawn.
    """
    stored, _ = read_table(path)
    inputs = word_list(stored["inputs"])
    kept = {PAD, *(word_list(stored["kept"]) if "kept" in stored else ())}
    if "list_offsets" in stored or word not in inputs or word in kept - {PAD}:
        return None
    places = np.argsort(stored["lists"].reshape(-1, len(inputs)), axis=1).astype(np.int64)
    farthest = np.abs(places - places[:, [inputs.index(word)]]).max(axis=0)
    return {other: float(apart) for other, apart in zip(inputs, farthest, strict=True) if other not in kept}
