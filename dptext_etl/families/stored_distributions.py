"""Draw words from output distributions that are stored in one file, which the kernel maps."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from safetensors import safe_open

from dptext_etl import _kernel
from dptext_etl.artifacts import Artifact, save_tensors, store
from dptext_etl.embeddings.vectors import stored_words
from dptext_etl.errors import PolicyError, seam
from dptext_etl.families.words import WordMechanism, parts, release_divided
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Released
from dptext_etl.sampling import ROUNDING, stated, worst_log_ratio

TABLE_FORMAT = "dptext-table/1"
_CELLS = 2**22  # in memory at once


class MappedMechanism(WordMechanism):
    """A mechanism that replaces every word by a draw from a fixed distribution, stored in a file that the kernel maps.

    Subclasses define `_build` and `table_description`. They override `_epsilon_per_word` if a draw does not cost
    `epsilon`.
    """

    _format: ClassVar[str] = TABLE_FORMAT  # the layout of the file

    @abstractmethod
    def table_description(self) -> dict[str, Any]:
        """Return everything that the distributions depend on, as plain data; its hash names the stored file."""

    @abstractmethod
    def _build(self, path: Path, description: dict[str, Any]) -> None:
        """Write the file."""

    @cached_property
    def table(self) -> Artifact:
        """Return the stored file, which is built once per machine and verified by its hash at every use."""
        description = {"format": self._format, **self.table_description()}
        return store(description, lambda path: self._build(path, description), suffix=".safetensors")

    def artifacts(self) -> dict[str, Artifact]:
        return {"table": self.table, **super().artifacts()}

    @cached_property
    def _mapped(self) -> _kernel.Table:
        return _kernel.Table.open(str(self.table.path), self.table.sha256)

    @cached_property
    def _lexicon(self) -> _kernel.Vocabulary | _kernel.Table:
        """The table itself, unless it keeps words unchanged: these are known, and have no position."""
        kept = self._mapped.kept_words()
        return _kernel.Vocabulary([*dict.fromkeys((*self.input_words(), *kept))]) if kept else self._mapped

    @cached_property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._mapped.metadata()["description"])
        return facts

    @property
    def epsilon_table(self) -> float | None:
        """Return the exact pure parameter of one draw within an output set, from the stored integers."""
        ratio = self._facts.get("epsilon_table")
        return None if ratio is None else float(ratio)

    def described(self) -> dict[str, dict[str, Any]]:
        return {"table": self._facts}

    def positions(self, texts: pa.Array) -> pa.Array:
        """Count draws: words after the input policy, without those kept unchanged."""
        return pa.array(self._mapped.positions(texts, self._input_policy_json))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        if self.allocation is not None:
            return release_divided(self, self.allocation, texts, keys.of(texts))
        out = pa.array(self._mapped.release(keys.release, texts, keys.ids, self._input_policy_json, keys.nonce))
        return Released(out.field("text"), out.field("positions"))

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""
        self._undivided()
        outputs, weights = self._mapped.row(word, self._input_policy_json)
        total = sum(weights)
        return outputs, [Fraction(weight, total) for weight in weights]

    def input_words(self) -> tuple[str, ...]:
        """Return the words of the table in public order; every other word counts as unknown."""
        return tuple(word for word in self._mapped.input_words() if word != PAD)

    def output_words(self) -> frozenset[str] | None:
        """Return all output words and kept words; None in faithful mode, where unknown words stay."""
        if self.mode == "faithful":
            return None
        words = set(self._mapped.output_words())
        words.discard(PAD)
        words.update(self._mapped.kept_words())
        return frozenset(words)


@dataclass(frozen=True)
class TableParts:
    """The parts of a table before it is stored.

    Attributes:
        inputs: Unique input words in public order.
        sets: Output set of each set id, as indices into `outputs`.
        input_set: Set id of each input, shape (inputs,).
        weights: One array per set, shape (inputs of the set, members): integer weights, in the order of the inputs.
        outputs: The output words; None uses the inputs.
        kept: Words that are released unchanged (a disclosed list), in lower case.
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

    def _build(self, path: Path, description: dict[str, Any]) -> None:
        """Write the table with its exact loss and the disclosure of its sets; refuse sets of one word."""
        parts = self.parts()
        smallest = min(len(members) for members in parts.sets)
        if smallest < 2:
            raise PolicyError("an output set has a single member, which would release its word unchanged", "raise k")
        ratio = max(worst_log_ratio(rows) for rows in parts.weights)
        share = np.bincount(parts.input_set, minlength=len(parts.sets)) / len(parts.inputs)
        share = share[share > 0]
        bits = float(-(share * np.log2(share)).sum()) + 0.0
        parts.save(path, {**description, "epsilon_table": stated(ratio), "disclosed_bits_per_token": stated(bits)})

    def largest_probability(self) -> float:
        return _largest_in_table(self.table.path, self.table.sha256)


@lru_cache(maxsize=16)
def _largest_in_table(path: Path, sha256: str) -> float:  # noqa: ARG001  (the hash is the table's identity)
    """Bound the probabilities of a stored table from its integers, block of rows by block of rows."""
    with seam("reading the table"), safe_open(str(path), framework="numpy") as table:
        offsets = table.get_tensor("row_offsets").astype(np.int64)
        running = table.get_slice("cumulative")
        best = 0.0
        for first, last in parts(offsets, _CELLS):
            ends = running[int(offsets[first]) : int(offsets[last])]
            starts = offsets[first:last] - offsets[first]
            weights = np.diff(ends, prepend=np.uint64(0))
            weights[starts] = ends[starts]
            totals = ends[offsets[first + 1 : last + 1] - offsets[first] - 1]
            tops = np.maximum.reduceat(weights, starts)
            best = max(best, float((tops / totals).max()))
        return min(1.0, best * ROUNDING)
