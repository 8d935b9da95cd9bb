"""Table mechanisms: every word has an output set and integer weights over it; the kernel does the rest.

A subclass says what its table is (`parts`); this module stores it once under its hash, and gives every engine the
same release, and every reviewer the exact distribution (`transition`, `epsilon_table`).
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.artifacts import Artifact, save_tensors, store
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend, micro
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import Mechanism, Released
from dptext_etl.sampling import worst_log_ratio

FORMAT = "dptext-table/1"

STRICT_INPUT = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass"}
FAITHFUL_INPUT = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass"}
FAITHFUL_DISCLOSURES = frozenset({Disclosure.PUNCT, Disclosure.NUMBERS, Disclosure.OOV, Disclosure.CASE})


@dataclass(frozen=True)
class TableParts:
    """A table before it is stored.

    Attributes:
        inputs: The input words, unique, in public order.
        sets: Output set of each set id: indices into `outputs`.
        input_set: Set id of each input, shape (inputs,).
        weights: One array per set, shape (inputs of the set, members): integer weights, in the order of the inputs.
        outputs: The output words; the inputs where None.
        kept: Words that are released in clear (a disclosed list), lower case.
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
        """A table of words that stay in their set: inputs are outputs, sets are disjoint, weights in member order."""
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
        # rows are stored in the order of the inputs, so that one offset array says where each begins
        lengths = sizes[self.input_set]
        row_offsets[1:] = np.cumsum(lengths)
        cumulative = np.empty(len(running), dtype=np.uint64)
        shift = np.repeat(
            row_offsets[by_set].astype(np.int64) - starts[:-1].astype(np.int64), row_sizes.astype(np.int64)
        )
        cumulative[np.arange(len(running)) + shift] = running
        tensors: dict[str, npt.NDArray[Any]] = {
            "inputs": _blob(self.inputs),
            "outputs": _blob(self.outputs or ()),
            "kept": _blob(sorted(set(self.kept))),
            "input_set": np.asarray(self.input_set, dtype=np.uint32),
            "set_offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64),
            "members": np.concatenate(self.sets).astype(np.uint32),
            "row_offsets": row_offsets,
            "cumulative": cumulative,
        }
        save_tensors(path, tensors, {"format": FORMAT, "description": json.dumps(description, sort_keys=True)})


def _blob(words: Iterable[str]) -> npt.NDArray[np.uint8]:
    return np.frombuffer("\n".join(words).encode(), dtype=np.uint8)


class TableMechanism(Mechanism):
    """A mechanism that replaces every word by a draw from a fixed table.

    Subclasses give `parts()`, `table_description()` and the class-level facts; strict and faithful input policies,
    storage, release, the exact distribution and the spend of `positions` draws of a range-bounded exponential
    mechanism are here. Override `spend` where a table is of another kind.
    """

    output_set_disclosure: ClassVar[frozenset[Disclosure]] = frozenset()
    """What the choice of output sets discloses."""

    @abstractmethod
    def parts(self) -> TableParts:
        """Compute the table."""

    @abstractmethod
    def table_description(self) -> dict[str, Any]:
        """Everything that `parts` depends on, as plain data: names the stored table."""

    def input_policy(self) -> dict[str, Any]:
        """What happens to case, punctuation, numbers, unknown words, nulls and long texts, as data (section 1.6)."""
        return {**(STRICT_INPUT if self.mode == "strict" else FAITHFUL_INPUT), "n_max": self.n_max}

    @cached_property
    def table(self) -> Artifact:
        """The stored integer table: built once per machine, verified by hash wherever it is used."""
        description = {"format": FORMAT, **self.table_description()}
        return store(description, lambda path: self._build(path, description), suffix=".safetensors")

    def _build(self, path: Path, description: dict[str, Any]) -> None:
        parts = self.parts()
        smallest = min(len(members) for members in parts.sets)
        if smallest < 2:
            raise PolicyError("an output set has a single member, which would release its word in clear", "raise k")
        ratio = max(worst_log_ratio(rows) for rows in parts.weights)
        bits = _entropy_bits(parts)
        parts.save(path, {**description, "epsilon_table": repr(ratio), "disclosed_bits_per_token": repr(bits)})

    def artifacts(self) -> dict[str, Artifact]:
        """The table, by its hash."""
        return {"table": self.table}

    @cached_property
    def _mapped(self) -> _kernel.Table:
        return _kernel.Table.open(str(self.table.path), self.table.sha256)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._mapped.metadata()["description"])
        return facts

    @property
    def epsilon_table(self) -> float:
        """Exact pure parameter of one draw within an output set, from the stored integers (section 2.3)."""
        return float(self._facts["epsilon_table"])

    @property
    def disclosed_bits_per_token(self) -> float:
        """What the disclosed output set tells about a uniform vocabulary word: its entropy, in bits."""
        return float(self._facts["disclosed_bits_per_token"])

    @property
    def guarantee(self) -> Guarantee:
        """Given equal disclosures, epsilon per word."""
        disclosures = {Disclosure.LENGTH, Disclosure.NULLNESS} | self.output_set_disclosure
        if self.mode == "faithful":
            disclosures |= FAITHFUL_DISCLOSURES
        return Guarantee(
            guarantee_class=GuaranteeClass.COND_PURE,
            disclosures=frozenset(disclosures),
            neighbours="two texts of one record that agree on everything disclosed and differ in any words",
            unit="word",
        )

    def spend(self, positions: int) -> Spend:
        """N draws of a range-bounded exponential mechanism: n*epsilon; tight n*epsilon_table; rho n*epsilon^2/8."""
        epsilon = Fraction(repr(self.epsilon))
        guarantee = self.guarantee
        pure = micro(positions * epsilon)
        return Spend(
            guarantee_class=guarantee.guarantee_class,
            disclosures=guarantee.disclosures,
            eps_pure=pure,
            eps_tight=min(pure, micro(positions * (Fraction(self.epsilon_table) + Fraction(1, 10**12)))),
            eps_approx=pure,
            delta=0,
            rho=micro(positions * epsilon * epsilon / 8),
            mu2=math.inf if positions else 0,
            eps_metric=math.inf if positions else 0,
            n_worst=positions,
            assumptions=guarantee.assumptions,
        )

    def unit_micro(self) -> int:
        """Declared epsilon of one draw in millionths, for engines that multiply it by positions themselves.

        Raises:
            PolicyError: Spends are no exact multiples of it.
        """
        unit = self.spend(1).eps_approx
        if self.spend(1_000_003).eps_approx != unit * 1_000_003:
            raise PolicyError("epsilon is finer than a millionth", "give epsilon with at most 6 decimals")
        return int(unit)

    def positions(self, texts: pa.Array) -> pa.Array:
        """Count draws: words after the input policy, less those kept in clear."""
        return pa.array(self._mapped.positions(texts, self._input_policy_json))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw every word of every text from the table, in parallel, without the GIL."""
        out = pa.array(self._mapped.release(keys.release, texts, keys.ids, self._input_policy_json, keys.nonce))
        return Released(out.field("text"), out.field("positions"))

    @property
    def _input_policy_json(self) -> str:
        return json.dumps(self.input_policy(), sort_keys=True)

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1.

        Raises:
            PolicyError: `word` is no single word, or the mechanism keeps unknown words in clear.
        """
        outputs, weights = self._mapped.row(word, self._input_policy_json)
        total = sum(weights)
        return outputs, [Fraction(weight, total) for weight in weights]

    def input_words(self) -> tuple[str, ...]:
        """Return the words that the table knows, in public order; every other word counts as unknown."""
        return tuple(self._mapped.input_words())

    def output_words(self) -> frozenset[str] | None:
        """All output words and kept words; None in faithful mode, where unknown words stay."""
        if self.mode == "faithful":
            return None
        return frozenset(self._mapped.output_words()) | frozenset(self._mapped.kept_words())


def _entropy_bits(parts: TableParts) -> float:
    share = np.bincount(parts.input_set, minlength=len(parts.sets)) / len(parts.inputs)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum()) + 0.0
