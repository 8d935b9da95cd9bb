"""Draw words by their places on public lists, in which neighbors stand in parallel."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from dptext_etl import _kernel
from dptext_etl.artifacts import save_tensors
from dptext_etl.embeddings.grid import stored_words, written
from dptext_etl.embeddings.neighbour_lists import NeighbourLists
from dptext_etl.families.places import GeometricDistribution, TemDistribution
from dptext_etl.families.table import MappedMechanism
from dptext_etl.mechanism import PAD
from dptext_etl.scoring import Slots, WordSampler

LISTS_FORMAT = "dptext-lists/1"
Order = npt.NDArray[np.uint32]
PlaceDistribution = GeometricDistribution | TemDistribution
"""The distribution of the places of a list for each of its places."""


class ListMechanism(MappedMechanism):
    """A mechanism that replaces every word by a draw from the places of a list."""

    _format: ClassVar[str] = LISTS_FORMAT
    _pads: ClassVar[bool] = True

    @abstractmethod
    def neighbour_lists(self) -> NeighbourLists:
        """Read or make the public lists."""

    @abstractmethod
    def _place_distribution(self, places: int) -> PlaceDistribution:
        """Return the distribution of places on lists of that length."""

    def _kept(self) -> Iterable[str]:
        """Return the words that are released in clear (a disclosed list)."""
        return ()

    def build(self, path: Path, description: dict[str, Any]) -> None:
        """Write the lists, the distribution and its loss; `PAD` ends every list if the length is hidden."""
        lists = self.neighbour_lists()
        words, orders = lists.words, lists.lists
        if self.hides_length:
            words = (*words, PAD)
            orders = tuple(np.append(order, np.uint32(len(words) - 1)) for order in orders)
        places = max(map(len, orders))
        distribution = self._place_distribution(places)
        facts = {"even": lists.even, "places": places, **(distribution.realised(orders) if lists.even else {})}
        tensors: dict[str, npt.NDArray[Any]] = {"inputs": stored_words(words), "lists": np.concatenate(orders)}
        if kept := sorted(self._kept()):
            tensors["kept"] = stored_words(kept)
        if not lists.even:
            tensors["list_offsets"] = np.cumsum([0, *map(len, orders)]).astype(np.uint64)
        described = json.dumps({**description, **facts}, sort_keys=True)
        save_tensors(
            path, tensors, {"format": self._format, "description": described, "law": json.dumps(distribution.written())}
        )

    @property
    def places(self) -> int:
        """Return the number of words of the longest list, `PAD` included."""
        return int(self._facts["places"])

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        tensors = load_file(self.table.path)
        ends = tensors.get("list_offsets", np.arange(0, len(tensors["lists"]) + 1, self.places))
        return tuple(np.split(tensors["lists"], ends[1:-1].astype(np.int64)))

    @cached_property
    def _places_of_words(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Return the place of each word on each list, of lists that hold the same words."""
        found = tuple(np.empty(self.places, np.int64) for _ in self.orders)
        for place, order in zip(found, self.orders, strict=True):
            place[order] = np.arange(self.places)
        return found

    def _draw_by_steps(  # noqa: PLR0917
        self,
        words: Order,
        lists: Order,
        rates: Sequence[Fraction],
        slots: Slots,
        sampler: WordSampler,
        purpose: int,
    ) -> Order:
        """Move words along their lists by discrete Laplace steps, each of its own rate; shape (n,)."""
        chosen = np.empty_like(words)
        for number, (order, place) in enumerate(zip(self.orders, self._places_of_words, strict=True)):
            at = np.flatnonzero(lists == number)
            mine = [rates[draw] for draw in at.tolist()]
            chosen[at] = order[sampler.move(place[words[at]], self.places, mine, slots.take(at), purpose=purpose)]
        return chosen

    @cached_property
    def _ids(self) -> dict[str, int]:
        kept = set(self._mapped.kept_words())
        return {word: at for at, word in enumerate(self._mapped.input_words()) if word not in kept}

    @cached_property
    def _stored_distribution(self) -> PlaceDistribution:
        return self._place_distribution(self.places)

    def _at(self, word: str) -> list[tuple[int, int]]:
        """Return the list and place of a word for each list that holds it; empty for words without a place."""
        known = self._ids.get(word if word == PAD else written(word) or "")
        if known is None:
            return []
        found = [(number, np.flatnonzero(order == known)) for number, order in enumerate(self.orders)]
        return [(number, int(at[0])) for number, at in found if len(at)]

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the output distribution of one word, which is the mean over the lists and sums to 1."""
        self._undivided()
        at = self._at(word)
        if not at and self._unknown == "first" and _kernel.split(word) == [(word, True)]:
            return self.transition(self._mapped.input_words()[0])
        if not at:
            return super().transition(word)
        outputs = self._mapped.output_words()
        chances = [Fraction(0)] * len(outputs)
        for number, place in at:
            order = self.orders[number]
            for output, chance in zip(
                order.tolist(), self._stored_distribution.chances(place, len(order)), strict=True
            ):
                chances[output] += chance
        return outputs, [chance / len(at) for chance in chances]

    def survival(self, word: str) -> Fraction:
        at = self._at(word)
        if not at or self.allocation is not None:
            return super().survival(word)
        return sum((self._stored_distribution.stays(place, len(self.orders[n])) for n, place in at), Fraction(0)) / len(
            at
        )

    def collision(self, word: str) -> float:
        """Return an upper bound of the probability that two draws agree; for a mixture, the mean over the lists."""
        at = self._at(word)
        if not at or self.allocation is not None:
            return super().collision(word)
        return sum(self._stored_distribution.agrees(place, len(self.orders[number])) for number, place in at) / len(at)

    def largest_probability(self) -> float:
        if self.mode == "faithful":
            return 1.0
        return max(float(self._stored_distribution.stays(0, len(order))) for order in self.orders) * (1 + 1e-12)
