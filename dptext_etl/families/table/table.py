"""Draw every word from its output set by the integer weights of a table.

A subclass defines its table (`parts`). This module writes the table into the file that the kernel maps.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import save_tensors
from dptext_etl.errors import PolicyError
from dptext_etl.families import extremes
from dptext_etl.families.certificate import Certificate, stored_words
from dptext_etl.families.table.certificate import of_table
from dptext_etl.families.table.mapped import TABLE_FORMAT, MappedMechanism
from dptext_etl.guarantee import Disclosure
from dptext_etl.sampling import stated, worst_log_ratio


@dataclass(frozen=True)
class TableParts:
    """The parts of a table before it is stored.

    Attributes:
        inputs: Unique input words in public order.
        sets: Output set of each set id, as indices into `outputs`.
        input_set: Set id of each input, shape (inputs,).
        weights: One array per set, shape (inputs of the set, members): integer weights, in the order of the inputs.
        outputs: The output words; None takes the inputs.
        kept: Words that are released in clear (a disclosed list), in lower case.
    """

    inputs: Sequence[str]
    sets: Sequence[npt.NDArray[np.integer[Any]]]
    input_set: npt.NDArray[np.integer[Any]]
    weights: Sequence[npt.NDArray[np.uint64]]
    outputs: Sequence[str] | None = None
    kept: Iterable[str] = ()

    @classmethod
    def partition(
        cls,
        words: Sequence[str],
        sets: Sequence[npt.NDArray[np.integer[Any]]],
        weights: Sequence[npt.NDArray[np.uint64]],
        kept: Iterable[str] = (),
    ) -> Self:
        """Make a table in which every word stays in its set: inputs are outputs, and sets are disjoint."""
        order = np.concatenate(sets)
        input_set = np.empty(len(words), dtype=np.uint32)
        input_set[order] = np.repeat(np.arange(len(sets)), [len(members) for members in sets])
        ascending = [np.argsort(members, kind="stable") for members in sets]
        return cls(words, sets, input_set, [rows[by] for rows, by in zip(weights, ascending, strict=True)], kept=kept)

    def save(self, path: Path, description: dict[str, Any]) -> None:
        """Write the table file that the kernel maps (one safetensors file; its SHA-256 is its identity)."""
        by_set = np.argsort(self.input_set, kind="stable")
        sizes = np.array([len(members) for members in self.sets], dtype=np.uint64)
        row_sizes = sizes[self.input_set[by_set]]
        row_offsets = np.zeros(len(self.inputs) + 1, dtype=np.uint64)
        starts = np.concatenate([[0], np.cumsum(row_sizes)]).astype(np.uint64)
        running = np.concatenate([np.cumsum(rows, axis=1, dtype=np.uint64).ravel() for rows in self.weights])
        # rows are stored in the order of the inputs, so that one array of offsets is enough
        lengths = sizes[self.input_set]
        row_offsets[1:] = np.cumsum(lengths)
        cumulative = np.empty(len(running), dtype=np.uint64)
        shift = np.repeat(
            row_offsets[by_set].astype(np.int64) - starts[:-1].astype(np.int64), row_sizes.astype(np.int64)
        )
        cumulative[np.arange(len(running)) + shift] = running
        tensors: dict[str, npt.NDArray[Any]] = {
            "inputs": stored_words(self.inputs),
            "outputs": stored_words(self.outputs or ()),
            "kept": stored_words(sorted(set(self.kept))),
            "input_set": np.asarray(self.input_set, dtype=np.uint32),
            "set_offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64),
            "members": np.concatenate(self.sets).astype(np.uint32),
            "row_offsets": row_offsets,
            "cumulative": cumulative,
        }
        save_tensors(path, tensors, {"format": TABLE_FORMAT, "description": json.dumps(description, sort_keys=True)})


class TableMechanism(MappedMechanism):
    """A mechanism with a table that gives every word an output set and integer weights over it.

    Subclasses define `parts()`, `table_description()` and the class-level facts.
    """

    @abstractmethod
    def parts(self) -> TableParts:
        """Compute the table."""

    def build(self, path: Path, description: dict[str, Any]) -> None:
        """Write the table with its exact loss and the disclosure of its sets; refuse sets of one word."""
        parts = self.parts()
        smallest = min(len(members) for members in parts.sets)
        if smallest < 2:
            raise PolicyError("an output set has a single member, which would release its word in clear", "raise k")
        ratio = max(worst_log_ratio(rows) for rows in parts.weights)
        bits = _entropy_bits(parts)
        parts.save(path, {**description, "epsilon_table": stated(ratio), "disclosed_bits_per_token": stated(bits)})

    def certificate(self) -> Certificate:
        """Compute the largest loss of one draw from the integers of the stored table."""
        return of_table(self.table.path, sets_are_disclosed=Disclosure.CLUSTER in self.guarantee.disclosures)

    def largest_probability(self) -> float:
        """Return the largest probability of any output word, from the table's integers."""
        return extremes.of_table(self.table.path, self.table.sha256)


def _entropy_bits(parts: TableParts) -> float:
    share = np.bincount(parts.input_set, minlength=len(parts.sets)) / len(parts.inputs)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum()) + 0.0
