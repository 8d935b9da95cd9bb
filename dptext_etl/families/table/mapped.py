"""Draw words from output distributions that are stored in one file, which the kernel maps.

A subclass writes the file (`build`). This module stores it once and finds it by its hash. Every engine and process
releases from the same file, and everybody can read the exact distributions (`transition`, `epsilon_table`).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.artifacts import Artifact, store
from dptext_etl.families.division import release_divided
from dptext_etl.families.words import WordMechanism
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Released

TABLE_FORMAT = "dptext-table/1"


class MappedMechanism(WordMechanism):
    """A mechanism that replaces every word by a draw from a fixed distribution, stored in a file that the kernel maps.

    Subclasses define `build()` and `table_description()`. They override `epsilon_per_word` if a draw does not cost
    epsilon.
    """

    _format: ClassVar[str] = TABLE_FORMAT
    """The layout of the file."""

    @property
    def reproducible(self) -> bool:  # type: ignore[override]
        """Return True unless the law of a word depends on its text, which tools score in floats."""
        return self.allocation is None

    @abstractmethod
    def table_description(self) -> dict[str, Any]:
        """Return everything that the distributions depend on, as plain data; its hash names the stored file."""

    @abstractmethod
    def build(self, path: Path, description: dict[str, Any]) -> None:
        """Write the file."""

    @cached_property
    def table(self) -> Artifact:
        """Return the stored file, which is built once per machine and verified by its hash at every use."""
        description = {"format": self._format, **self.table_description()}
        return store(description, lambda path: self.build(path, description), suffix=".safetensors")

    def artifacts(self) -> dict[str, Artifact]:
        """Return the table and the inputs of scores that divide a budget, by role."""
        return {"table": self.table, **super().artifacts()}

    @cached_property
    def _mapped(self) -> _kernel.Table:
        return _kernel.Table.open(str(self.table.path), self.table.sha256)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._mapped.metadata()["description"])
        return facts

    @property
    def epsilon_table(self) -> float | None:
        """Return the exact pure parameter of one draw within an output set, from the stored integers.

        Specification: docs/spec/privacy.md#epsilon-table.
        """
        ratio = self._facts.get("epsilon_table")
        return None if ratio is None else float(ratio)

    def described(self) -> dict[str, dict[str, Any]]:
        """Return what the stored file says of its distributions, and what they were made of."""
        return {"table": self._facts}

    def positions(self, texts: pa.Array) -> pa.Array:
        """Count draws: words after the input policy, without those kept in clear."""
        return pa.array(self._mapped.positions(texts, self._input_policy_json))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw every word of every text from the table, in parallel, without the GIL."""
        if self.allocation is not None:
            return release_divided(self, self.allocation, texts, keys.of(texts))
        out = pa.array(self._mapped.release(keys.release, texts, keys.ids, self._input_policy_json, keys.nonce))
        return Released(out.field("text"), out.field("positions"))

    def release_with_keys(self, texts: pa.Array, record_keys: pa.Array) -> Released:
        """Release with given record keys, for tests that fix the stream; everything else calls `release`."""
        out = pa.array(self._mapped.release_with_keys(record_keys, texts, self._input_policy_json))
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
