"""Draw words from output distributions that are stored in one file, which the kernel maps."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from dptext_etl.artifacts import Artifact, save_tensors, sha256_file, store
from dptext_etl.embeddings.vectors import stored_words
from dptext_etl.errors import ArtifactError, PolicyError, seam
from dptext_etl.families.words import WordMechanism, parts, release_divided
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Loss, Released, require_charge, require_epsilon
from dptext_etl.sampling import ROUNDING, stated

TABLE_FORMAT = "dptext-table/1"
_CELLS = 2**22  # in memory at once
_DECIMALS = 2e-9  # by which a stated amount may differ between processors


class MappedMechanism(WordMechanism):
    """A mechanism that replaces every word by a draw from a fixed distribution, stored in a file that the kernel maps.

    Subclasses define `_build` and `table_description`. They override `epsilon_per_word` if a draw does not cost
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
        """Return the stored file, which is built once per machine and verified by its hash at every use.

        A file whose loss is above the charge is not stored.
        """
        description = {"format": self._format, **self.table_description()}

        def build(path: Path) -> None:
            self._build(path, description)
            self._verified(path, sha256_file(path))

        return store(description, build, suffix=".safetensors")

    def artifacts(self) -> dict[str, Artifact]:
        return {"table": self.table, **super().artifacts()}

    def require_charge(self) -> None:
        loss, _ = self._loss(self._mapped, self.table.path, self.table.sha256)
        require_charge(self, loss, self._length_cost)

    @cached_property
    def _mapped(self) -> _kernel.Table:
        return self._verified(self.table.path, self.table.sha256)

    def _verified(self, path: Path, sha256: str) -> _kernel.Table:
        """Map a file; refuse a loss above the epsilon of a draw, and facts that do not follow from its integers."""
        law = self.__dict__["_law"] = _kernel.Table.open(str(path), sha256)  # the charge may depend on the file
        try:
            self._verify(law, path, sha256)
        except BaseException:
            self.__dict__.pop("_law", None)
            raise
        return law

    def _verify(self, law: _kernel.Table, path: Path, sha256: str) -> None:
        if law.kept_words() and Disclosure.STOPWORDS not in self.guarantee.disclosures:
            msg = f"{self.name} releases {len(law.kept_words()):,} words unchanged, and does not disclose stopwords"
            raise PolicyError(msg, "return Disclosure.STOPWORDS from `word_disclosures`, or keep no word")
        loss, facts = self._loss(law, path, sha256)
        for name, fact in facts.items():
            if not same_fact(self._facts.get(name, fact), fact):
                msg = f"the table {path} states another {name} than its integers have"
                raise ArtifactError(msg, "delete the folder of this cache entry; it is built again")
        if self.guarantee.guarantee_class is not GuaranteeClass.NONE:
            epsilon = self.epsilon_per_word if self.allocation is None else self.allocation.largest
            require_epsilon(self, loss, epsilon)

    @cached_property
    def _law(self) -> _kernel.Table:
        """The mapped file; while it is verified, before it is."""
        return self._mapped

    def _loss(self, law: _kernel.Table, path: Path, sha256: str) -> tuple[Loss, dict[str, Any]]:
        """Return the loss of one draw by the integers of a file, and facts that follow from them."""
        loss = _loss_in_file(path, sha256, *self._compared(law.output_words))
        return loss, {} if loss.pure == math.inf else {"epsilon_table": stated(float(loss.pure))}

    def _compared(self, outputs: Callable[[], Sequence[str]]) -> tuple[int | None, bool]:
        """Return the number of outputs (None if words are compared within their sets), and if one draw is uniform."""
        if Disclosure.CLUSTER in self.guarantee.disclosures:  # an unknown word is a set by itself
            return None, False  # `cfg` asks often, and a list of outputs is slow
        return len(outputs()), self.input_policy()["oov"] == "uniform"

    @cached_property
    def _lexicon(self) -> _kernel.Vocabulary | _kernel.Table:
        """The table itself, unless it keeps words unchanged: these are known, and have no position."""
        kept = self._mapped.kept_words()
        return _kernel.Vocabulary([*dict.fromkeys((*self.input_words(), *kept))]) if kept else self._mapped

    @cached_property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._law.metadata()["description"])
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

    `weights` has one array per set, shape (inputs of the set, members): integer weights, in the order of the inputs.
    """

    inputs: Sequence[str]  # unique input words in public order
    sets: Sequence[npt.NDArray[np.integer[Any]]]  # output set of each set id, as indices into `outputs`
    input_set: npt.NDArray[np.integer[Any]]  # set id of each input, shape (inputs,)
    weights: Sequence[npt.NDArray[np.uint64]]
    outputs: Sequence[str] | None = None  # the output words; None uses the inputs
    kept: Iterable[str] = ()  # words that are released unchanged (a disclosed list), in lower case

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

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """Return the content of the table file."""
        by_set = np.argsort(self.input_set, kind="stable")
        sizes = np.array([len(members) for members in self.sets], dtype=np.uint64)
        row_sizes = sizes[self.input_set[by_set]]
        row_offsets = np.zeros(len(self.inputs) + 1, dtype=np.uint64)
        starts = np.concatenate([[0], np.cumsum(row_sizes)]).astype(np.uint64)
        running = np.concatenate([np.cumsum(rows, axis=1, dtype=np.uint64).ravel() for rows in self.weights])
        # rows are stored in the order of the inputs, so that one array of offsets is enough
        row_offsets[1:] = np.cumsum(sizes[self.input_set])
        cumulative = np.empty(len(running), dtype=np.uint64)
        shift = np.repeat(
            row_offsets[by_set].astype(np.int64) - starts[:-1].astype(np.int64), row_sizes.astype(np.int64)
        )
        cumulative[np.arange(len(running)) + shift] = running
        return {
            "inputs": stored_words(self.inputs),
            "outputs": stored_words(self.outputs or ()),
            "kept": stored_words(sorted(set(self.kept))),
            "input_set": np.asarray(self.input_set, dtype=np.uint32),
            "set_offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64),
            "members": np.concatenate(self.sets).astype(np.uint32),
            "row_offsets": row_offsets,
            "cumulative": cumulative,
        }


def save_table(path: Path, tensors: Mapping[str, npt.NDArray[Any]], description: dict[str, Any]) -> None:
    """Write the table file that the kernel maps (one safetensors file; its SHA-256 is its identity)."""
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
        if not len(parts.inputs) or not len(parts.sets):
            raise PolicyError(f"the vocabulary of {self.name} is empty", "name a list that holds words")
        smallest = min(len(members) for members in parts.sets)
        if smallest < 2:
            raise PolicyError("an output set has a single member, which would release its word unchanged", "raise k")
        tensors = parts.tensors()
        loss = table_loss(tensors, *self._compared(lambda: parts.outputs or parts.inputs))
        if loss.pure == math.inf:
            msg = "words draw from different output sets, so that an output can rule a word out: no loss is finite"
            raise PolicyError(msg, "give all words one set, or return Disclosure.CLUSTER from `word_disclosures`")
        share = np.bincount(parts.input_set, minlength=len(parts.sets)) / len(parts.inputs)
        share = share[share > 0]
        bits = float(-(share * np.log2(share)).sum()) + 0.0
        facts = {"epsilon_table": stated(float(loss.pure)), "disclosed_bits_per_token": stated(bits)}
        save_table(path, tensors, {**description, **facts})

    def largest_probability(self) -> float:
        return _largest_in_table(self.table.path, self.table.sha256)


def same_fact(stored: Any, computed: Any) -> bool:
    """Return whether a stored fact is the computed one, whose last decimal may differ between processors."""
    try:
        return stored == computed or abs(float(stored) - float(computed)) <= _DECIMALS
    except (TypeError, ValueError):
        return False


@lru_cache(maxsize=16)
def _loss_in_file(path: Path, sha256: str, outputs: int | None, uniform: bool) -> Loss:  # noqa: ARG001
    with seam("reading the table"), safe_open(str(path), framework="numpy") as table:
        names = ("row_offsets", "input_set", "set_offsets", "members")
        tensors = {name: table.get_tensor(name) for name in names}
        return table_loss({**tensors, "cumulative": table.get_slice("cumulative")}, outputs, uniform)


def table_loss(tensors: Mapping[str, Any], outputs: int | None, uniform: bool) -> Loss:
    """Return the loss of one draw by the integers of a table (`TableParts.tensors`), block of rows by block of rows.

    With a number of outputs, all words are compared with each other, otherwise words of one set; `uniform` compares
    also with a uniform draw, as of unknown words.
    """
    offsets, sets = tensors["row_offsets"].astype(np.int64), tensors["input_set"]
    starts, members = tensors["set_offsets"].astype(np.int64), tensors["members"]
    size = len(members) if outputs is None else outputs
    most, least, rows = np.full(size, -np.inf), np.full(size, np.inf), np.zeros(size, np.int64)
    spread = 0.0
    for first, last, at, weights in _rows(offsets, tensors["cumulative"]):
        sizes = np.diff(offsets[first : last + 1])
        with np.errstate(divide="ignore"):
            logs = np.log(weights.astype(np.float64))
        logs -= np.repeat(np.log(np.add.reduceat(weights, at).astype(np.float64)), sizes)
        places = np.repeat(starts[sets[first:last]] - at, sizes) + np.arange(len(weights))
        places = places if outputs is None else members[places]
        np.maximum.at(most, places, logs)
        np.minimum.at(least, places, logs)
        rows += np.bincount(places, minlength=size)
        spread = max(spread, float((np.maximum.reduceat(logs, at) - np.minimum.reduceat(logs, at)).max()))
    if outputs is not None:
        least[rows < len(sets)] = -np.inf
        if uniform:
            most, least = np.maximum(most, -math.log(outputs)), np.minimum(least, -math.log(outputs))
    reached = most > -np.inf
    return Loss.of(float((most[reached] - least[reached]).max(initial=0.0)), spread)


@lru_cache(maxsize=16)
def _largest_in_table(path: Path, sha256: str) -> float:  # noqa: ARG001  (the hash is the table's identity)
    """Bound the probabilities of a stored table from its integers, block of rows by block of rows."""
    with seam("reading the table"), safe_open(str(path), framework="numpy") as table:
        offsets = table.get_tensor("row_offsets").astype(np.int64)
        best = 0.0
        for _, _, at, weights in _rows(offsets, table.get_slice("cumulative")):
            best = max(best, float((np.maximum.reduceat(weights, at) / np.add.reduceat(weights, at)).max()))
        return min(1.0, best * ROUNDING)


def _rows(offsets: npt.NDArray[np.int64], cumulative: Any) -> Iterator[tuple[int, int, Any, npt.NDArray[np.uint64]]]:
    """Yield rows of a table, block by block: the first, the one after the last, where each begins, and all weights."""
    for first, last in parts(offsets, _CELLS):
        ends, at = cumulative[int(offsets[first]) : int(offsets[last])], offsets[first:last] - offsets[first]
        weights = np.diff(ends, prepend=np.uint64(0))
        weights[at] = ends[at]
        yield first, last, at, weights
