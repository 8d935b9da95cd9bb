"""Draw every word of a text independently, from its own distribution, and divide the budget of a record among words.

Each mechanism returns a `Division`, which draws words with given epsilons. Draws from integer weights have a
floor of every probability, so the text itself may divide their budget (Theorem A). Noise has none: what divides its
budget is public, or was released before. A bound per distance does not survive: two texts may give one word two
epsilons (docs/spec/privacy.md#allocation-by-mechanism).
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import model_validator

from dptext_etl import _kernel, sampling
from dptext_etl.accounting import Composed, Event, MetricClaim, PureDraws, Unbounded, computed
from dptext_etl.allocation import Allocation, Epsilons, Marked, draw_in_passes
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import MICRO, Disclosure, Guarantee, GuaranteeClass, exact
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Mechanism, Released, count_words
from dptext_etl.parameters import Epsilon, PositiveInt
from dptext_etl.sampling import TOKEN, Slots, WordSampler, largest_range_bounded

if TYPE_CHECKING:
    from dptext_etl.families.choice import ChoiceMechanism

LONGEST_PADDED = 100_000
"""Largest public length: every text costs as many draws, and as much time and memory, as one of that length."""
STRICT_INPUT = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass"}
FAITHFUL_INPUT = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass"}


class WordByWord(Mechanism):
    """A mechanism whose released words are drawn one by one, each in the place of one word of the text.

    Chances are upper bounds that hold for every text, word and history of draws.

    Specification: docs/spec/privacy.md#length-options.

    Attributes:
        length: "disclose" shows the number of words; "fixed" cuts and pads every text to `n_max` words; "noisy" pads to
            a noisy number of words up to `n_max`. The last two need `n_max`.
        epsilon_length: Cost of the noisy length per text; only for length "noisy".
    """

    _faithful_disclosures: ClassVar[frozenset[Disclosure]] = frozenset(
        {Disclosure.PUNCT, Disclosure.NUMBERS, Disclosure.OOV, Disclosure.CASE}
    )

    length: Literal["disclose", "fixed", "noisy"] = "disclose"
    epsilon_length: Epsilon | None = None

    @model_validator(mode="after")
    def _length_can_be_hidden(self) -> Self:
        if (self.epsilon_length is not None) != (self.length == "noisy"):
            raise ValueError('epsilon_length is the price of length "noisy": give both or neither')
        if self.length == "disclose":
            return self
        reason = self._length_is_shown_by
        if reason is not None:
            msg = f'length "{self.length}" would hide nothing: {reason}; use length "disclose", or a '
            msg += "mechanism whose words disclose nothing: `dptext explain NAME` lists the facts that each can hide"
            raise ValueError(msg)
        least = 2 if self.length == "noisy" else 1
        if "n_max" not in self.model_fields_set or not least <= self.n_max <= LONGEST_PADDED:
            msg = f'length "{self.length}" needs n_max, the public length to pad to, from {least} to {LONGEST_PADDED}'
            raise ValueError(msg)
        return self

    @property
    def _in_place(self) -> bool:
        """Return True if word i of a release is drawn for word i; False if words are inserted or deleted."""
        return True

    @property
    def _unknown(self) -> Literal["uniform", "first", "drop"]:
        """Return how words outside `input_words` are drawn in strict mode: uniformly, as the first word, or never."""
        return "uniform"

    @property
    def _length_is_shown_by(self) -> str | None:
        """Return the reason why the number of words shows whatever `length` says; None if it can be hidden."""
        disclosures = sorted(self.word_disclosures)
        if disclosures:
            return f"its words disclose {', '.join(disclosures)}"
        return "faithful mode keeps it" if self.mode == "faithful" else None

    @property
    def _length_cost(self) -> Fraction:
        """Return the pure epsilon of the draw of a noisy length."""
        return Fraction(0) if self.epsilon_length is None else exact(self.epsilon_length)

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosures of a released word next to its draw, in strict mode."""
        return frozenset()

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between any two texts if the length is hidden, otherwise if disclosures are equal."""
        disclosures = {Disclosure.NULLNESS} | self.word_disclosures
        if self.length != "disclose":
            return Guarantee(
                GuaranteeClass.PURE_LDP, frozenset(disclosures), "any two texts of one record", self._unit("word")
            )
        disclosures |= {Disclosure.LENGTH} | (self._faithful_disclosures if self.mode == "faithful" else frozenset())
        return Guarantee(
            guarantee_class=GuaranteeClass.COND_PURE,
            disclosures=frozenset(disclosures),
            neighbors="two texts of one record that agree on everything disclosed and differ in any words",
            unit=self._unit("word"),
        )

    def input_policy(self) -> dict[str, Any]:
        """Return the treatment of case, punctuation, numbers, unknown words, nulls and long texts, as data."""
        if self.mode == "faithful":
            return {**FAITHFUL_INPUT, **self._length_policy()}
        return {**STRICT_INPUT, "numbers": self._unknown, "oov": self._unknown, **self._length_policy()}

    def _length_policy(self) -> dict[str, Any]:
        """Return the part of the input policy about the length of texts."""
        if self.length == "fixed":
            return {"n_max": self.n_max, "length": "fixed"}
        if self.length == "noisy":
            rate = self._length_cost / (self.n_max - 1)
            return {"n_max": self.n_max, "length": {"noisy": [rate.numerator, rate.denominator]}}
        return {"n_max": self.n_max}

    @property
    def _input_policy_json(self) -> str:
        return json.dumps(self.input_policy(), sort_keys=True)

    @abstractmethod
    def input_words(self) -> tuple[str, ...]:
        """Return the words that the mechanism knows, in public order; every other word counts as unknown."""

    @abstractmethod
    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word; 1 if no bound is known."""

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:  # noqa: ARG002
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""
        raise PolicyError(
            f"{self.name} draws a word by its whole text, so a single word has no distribution",
            "call `release` with a whole text, or use `survival` for a bound",
        )

    def survival(self, word: str) -> Fraction:  # noqa: ARG002
        """Return (an upper bound of) the probability that `word` comes back as itself."""
        return Fraction(self.largest_probability())

    def collision(self, word: str) -> float:  # noqa: ARG002
        """Return an upper bound of the probability that two independent draws for `word` agree."""
        return self.largest_probability()


@runtime_checkable
class Simulated(Protocol):
    """A mechanism that can be simulated without the code that releases.

    This is for distributions without exact fractions, which `survival` and `collision` bound only loosely.
    """

    def simulated_survivals(self, word: str, trials: int) -> int:
        """Simulate `trials` draws, and return how often the word comes back."""

    def simulated_collisions(self, words: Sequence[str], pairs: int) -> int:
        """Simulate pairs of independent draws, which use the words in turn, and return how many pairs agree."""


def by_word(mechanism: Mechanism) -> WordByWord | None:
    """Return the mechanism if it releases word i for word i, otherwise None."""
    return mechanism if isinstance(mechanism, WordByWord) and mechanism._in_place else None  # noqa: SLF001


def by_text(mechanism: Mechanism) -> ChoiceMechanism | None:
    """Return the mechanism if it releases a whole public text for a text, otherwise None; corpora stay unloaded."""
    whole = any(kind.__module__ == "dptext_etl.families.choice" for kind in type(mechanism).__mro__)
    return cast("ChoiceMechanism", mechanism) if whole else None


class Read(NamedTuple):
    """The words of a text."""

    words: list[str]  # words that the model reads, in faithful mode also marks of punctuation
    kept: list[bool]  # True for each that is released unchanged


def read_strict(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read the first `n_max` words of a text in the form of lookups."""
    words = lookup_forms([segment for segment, is_word in _kernel.split(text) if is_word][:n_max])
    return Read(words, [word in kept for word in words] if kept else [False] * len(words))


def read_faithful(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read up to `n_max` words and the punctuation between them unchanged; keep punctuation and stopwords."""
    words, in_clear, seen = [], [], 0
    for segment, is_word in _kernel.split(text):
        seen += is_word
        if seen > n_max:
            break
        if segment.strip():
            words.append(segment.strip())
            in_clear.append(not is_word or _form(segment) in kept)
    return Read(words, in_clear)


def lookup_forms(words: list[str]) -> list[str]:
    """Return words in the form of the kernel's lookups."""
    # no word holds a line end, and a letter's form does not depend on it
    return _form("\n".join(words)).split("\n") if words else []


def _form(word: str) -> str:
    """Return a word in the form of the kernel's lookups."""
    return word.lower().replace("\u2019", "'")


def parts(offsets: npt.NDArray[np.integer[Any]], most: int) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of at most `most` draws or cells; a longer row is its own part."""
    ends = offsets.astype(np.int64)
    first, rows = 0, len(ends) - 1
    while first < rows:
        last = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
        last = max(first + 1, min(last, rows))
        yield first, last
        first = last


AT_ONCE = 2**18  # draws that are processed at once
UNKNOWN = 2**32 - 1  # number of every word outside the vocabulary
NOISE = (
    "its noise has no least probability, so two scales of one word can be distinguished without a bound; divide by "
    "something public: template = [3, 2, 1] by position, templates and choosing, or first, a first release "
    'whose words are scored; or use santext, or diffractor with variant "tem", which the text itself may divide'
)
"""Why the words of a text do not divide the budget of noise, and the sound alternatives."""
PAPER = "faithful mode divides a budget by the words of the text only, as the paper does: give scores and total"

Indices = npt.NDArray[np.uint32]
Draw = Callable[[Indices, Slots, WordSampler, Sequence[Epsilons], int], Indices]
"""Draws an output for every word at its epsilon: from the numbers of the words, shape (n,), their slots, a sampler, the
epsilons of each text, and the purpose number of the draws; returns numbers, shape (n,)."""


class Scored(NamedTuple):
    """Draws over output sets of one size."""

    places: npt.NDArray[np.int64]  # indices of the draws, shape (n,)
    scores: npt.NDArray[np.float64]  # scores of their outputs, shape (n, m)
    outputs: npt.NDArray[np.integer[Any]]  # numbers of the outputs, shape (n, m) or (m,)


@dataclass(frozen=True)
class Division:
    """How a mechanism reads texts as words, and draws words that have their own epsilons."""

    reader: _kernel.Vocabulary  # reads texts as numbers of words
    names: Sequence[str]  # the words by their numbers, `PAD` included
    draw: Draw
    largest_set: int  # size of the largest output set
    kept: frozenset[str] = frozenset()  # words that are released unchanged


@dataclass(frozen=True)
class ScoredDraw:
    """The `draw` of a mechanism that makes weights from scores, each at its own epsilon; unknown words are uniform.

    `scored` scores the outputs of known words, in groups of one size: of words, their slots, and the difference of the
    purpose number from the number of a first pass.
    """

    scored: Callable[[Indices, Slots, int], Iterator[Scored]]
    low: float  # least score
    high: float  # largest score
    uniform: npt.NDArray[np.integer[Any]]  # numbers of the outputs of an unknown word
    largest_set: int  # size of the largest output set

    def __call__(
        self, words: Indices, slots: Slots, sampler: WordSampler, epsilons: Sequence[Epsilons], purpose: int
    ) -> Indices:
        """Draw an output for every word at its epsilon."""
        chosen, in_vocabulary = np.empty_like(words), words != UNKNOWN
        width = sampling.slot_width(self.largest_set)
        drawn = _kernel.uniform_choices(*slots.take(~in_vocabulary).arrays(), purpose, width, len(self.uniform))
        chosen[~in_vocabulary] = self.uniform[pa.array(drawn).to_numpy()]
        epsilon_of, at = np.concatenate([[], *epsilons]), np.flatnonzero(in_vocabulary)
        for places, scores, outputs in self.scored(words[at], slots.take(at), purpose - TOKEN):
            draws = at[places]
            draw_slots, amounts = slots.take(draws), epsilon_of[draws]
            index = sampler.choose(scores, draw_slots, epsilon=amounts, low=self.low, high=self.high, purpose=purpose)
            chosen[draws] = outputs[index] if outputs.ndim == 1 else outputs[np.arange(len(draws)), index]
        return chosen


def release_divided(
    mechanism: WordMechanism,
    allocation: Allocation,
    texts: pa.Array,
    record_keys: pa.Array,
    sampler: WordSampler = sampling,
) -> Released:
    """Release texts whose budget is divided, with given record keys; tests give another sampler."""
    division, policy = mechanism.division, json.dumps(mechanism.input_policy(), sort_keys=True)
    reader, known = division.reader, frozenset(division.names)
    numbers, offsets = (pa.array(side).to_numpy() for side in reader.encode(texts, policy, record_keys))
    chosen, ends = np.empty(len(numbers), np.uint32), offsets.astype(np.int64)
    charged = pa.array(reader.positions(texts, policy)).to_pylist()
    for first, last in parts(offsets, AT_ONCE):
        draws, bounds = slice(int(ends[first]), int(ends[last])), ends[first : last + 1]
        values, keys = texts.slice(first, last - first).to_pylist(), record_keys.slice(first, last - first)
        counts = np.diff(bounds).tolist()
        of_texts = zip(values, np.split(numbers[draws], bounds[1:-1] - bounds[0]), charged[first:last], strict=True)
        marks = [_marked(mechanism, known, *of_text) for of_text in of_texts]
        records = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
        positions = np.concatenate([np.zeros(0, np.uint64), *(np.arange(count, dtype=np.uint64) for count in counts)])

        once = partial(division.draw, numbers[draws], Slots(keys, records, positions), sampler)
        again = partial(_marked_again, division.names, marks, counts)
        chosen[draws] = draw_in_passes(allocation, marks, keys, sampler, once=once, words=again)[-1]
    out = pa.array(reader.assemble(texts, pa.array(offsets), pa.array(chosen), policy))
    return Released(out.field("text"), out.field("positions"))


def _marked(mechanism: WordMechanism, known: Collection[str], text: str | None, numbers: Indices, most: int) -> Marked:
    """Read a text as words, and say which word each draw represents; the draws of padding represent none."""
    division, count = mechanism.division, len(numbers)
    if mechanism.input_policy()["oov"] == "drop":
        words = [division.names[number] for number in numbers.tolist()]
        drawn = [None if word == PAD else place for place, word in enumerate(words)]
        return Marked(["" if word == PAD else word for word in words], drawn, most)
    reading = read_faithful if mechanism.mode == "faithful" else read_strict
    read = reading(text or "", division.kept, mechanism.n_max)
    places = [place for place, kept in enumerate(read.kept) if not kept]
    if mechanism.input_policy()["oov"] == "keep":
        places = [place for place in places if _form(read.words[place]) in known]
    elif mechanism.length != "disclose":
        places = places[:count]
    if mechanism.length == "disclose" and len(places) != count:
        return Marked([], [None] * count, most)
    return Marked(read.words, [*places, *[None] * (count - len(places))], most)


def _marked_again(
    names: Sequence[str], marks: Sequence[Marked], counts: Sequence[int], chosen: Indices
) -> list[Marked]:
    """Put the drawn words into the places of the words; padding represents no word."""
    outputs, marked = iter(chosen.tolist()), []
    for (tokens, places, most), count in zip(marks, counts, strict=True):
        words, drawn = list(tokens), [names[next(outputs)] for _ in range(count)]
        at: list[int | None] = []
        for place, word in zip(places, drawn, strict=True):
            here = place if isinstance(place, int) else len(words)
            words[here : here + 1] = [word]
            at.append(None if word == PAD else here)
        marked.append(Marked(["" if word == PAD else word for word in words], at, most))
    return marked


Exact = float | Fraction


class WordMechanism(WordByWord):
    """A mechanism that replaces every word by a draw, word by word.

    Attributes:
        limit: First words of the public vocabulary to use; None uses all.
    """

    _pads: ClassVar[bool] = False
    """True if the mechanism can put `PAD` among its inputs and outputs, which is needed to hide the length."""

    limit: PositiveInt | None = None

    @property
    def reproducible(self) -> bool:  # type: ignore[override]
        """Return True unless scores divide a budget: their tools may differ by machine."""
        return self.allocation is None

    @property
    def _length_is_shown_by(self) -> str | None:
        reason = super()._length_is_shown_by
        return reason if reason or self._pads else "this mechanism cannot pad texts"

    def refuses_allocation(self, allocation: Allocation) -> str | None:
        """Return why the budget cannot be divided; None in strict mode, if every word is drawn over one fixed set."""
        if self.mode == "faithful":
            return None if allocation.source == "text" else PAPER
        return None if self.bounded_range or allocation.source != "text" else NOISE

    @property
    def _unproven(self) -> bool:
        """Return True if faithful mode divides a budget: words kept unchanged and scales of noise have no bound."""
        return self.mode == "faithful" and self.allocation is not None

    @property
    def division(self) -> Division:
        """Return how words with given epsilons are drawn; only where `cannot_divide` is None."""
        raise NotImplementedError

    @property
    def loss_range(self) -> Exact:
        """Return the loss of a draw between the two farthest words, per unit of its epsilon: the range of scores."""
        return 1

    @property
    def unit_epsilon(self) -> float:
        """Return the epsilon of the dearest draw in the unit of tables: per unit of the scores or of the distances."""
        if self.allocation is None:
            return self.epsilon
        return float(exact(self.allocation.largest) / exact(self.loss_range))

    @cached_property
    def dearest(self) -> Self:
        """Return the mechanism that gives every draw the largest epsilon, undivided: no word is likelier to return."""
        return self.model_copy(update={"allocation": None, "epsilon": self.unit_epsilon})

    def configuration(self) -> dict[str, Any]:
        """Return the configuration; where unknown words are drawn as the first word, it has version 2."""
        entries = {name: value for name, value in super().configuration().items() if name != "unknown_words"}
        return {**entries, "mechanism_version": 2} if self.mode == "strict" and self._unknown == "first" else entries

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee; the number of released words reveals which unknown words were dropped."""
        stated = super().guarantee
        flags = {Disclosure.OOV_FLAG} if self._unknown == "drop" and self.length == "disclose" else set()
        claimed = GuaranteeClass.NONE if self._unproven else stated.guarantee_class
        return replace(stated, guarantee_class=claimed, disclosures=stated.disclosures | flags)

    @property
    def bounded_range(self) -> bool:
        """Return True if one draw is range-bounded (zCDP epsilon^2/8), False if it is only pure (epsilon^2/2)."""
        return True

    @property
    def epsilon_per_word(self) -> Exact:
        """Return the pure parameter of one draw between any two words with equal disclosures."""
        return exact(self.unit_epsilon)

    @property
    def epsilon_table(self) -> float | None:
        """Return the exact pure parameter of one draw, from the sampler's own data; None if unknown."""
        return None

    @property
    def epsilon_tight(self) -> float | None:
        """Return the exact parameter of a draw for spends: `epsilon_table`, or a bound that needs no computation."""
        return self.epsilon_table

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the METRIC claim of one draw, if its certificate holds; None if there is no such claim."""
        return None

    def _metric_of(self, allocation: Allocation) -> MetricClaim | None:  # noqa: ARG002
        """Return the claim per distance of a draw of epsilon 1 between the farthest words; None without one."""
        return None

    def event(self, positions: int) -> Event:
        """Return n draws, or draws that divide one budget, and, for a noisy length, the draw of the length."""
        if self._unproven and positions:
            return Unbounded()
        words: Event
        if self.allocation is not None and self.bounded_range:
            words = self.allocation.event(positions, self.division.largest_set)
        elif self.allocation is not None:
            claim = self._metric_of(self.allocation) if positions and self.length != "noisy" else None
            if claim is not None:
                most = Fraction(self.allocation.bounds(positions)[1] + self.allocation.even(positions), MICRO)
                claim = claim._replace(epsilon=most * exact(claim.epsilon))
            words = self.allocation.event(positions, None, claim)
        else:
            tight = self.epsilon_tight
            words = PureDraws(
                epsilon=self.epsilon_per_word,
                count=positions,
                tight=None if tight is None else computed(tight),
                range_bounded=self.bounded_range,
                metric=self.metric_claim if positions else None,
            )
        if self.length != "noisy":
            return words
        return Composed((words, PureDraws(self._length_cost, min(positions, 1), range_bounded=False)))

    def text_units(self, text: str) -> tuple[list[str], Marked]:
        """Return the words of a public text; those that vanish before words are counted, or stay, get no share."""
        if self._unknown != "drop" and self.mode != "faithful":
            return super().text_units(text)
        read = self.division.reader.encode(pa.array([text], pa.large_string()), self._input_policy_json)[0]
        marks = _marked(self, self.division.names, text, pa.array(read).to_numpy(), max(1, len(read)))
        return [marks.tokens[place] if isinstance(place, int) else PAD for place in marks.places], marks

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        return {"∞": math.inf} if self._unproven else super().cost_factors(positions)

    def count_known_words(self, texts: pa.Array) -> npt.NDArray[np.uint32]:
        """Count the words of the vocabulary among those read, and words that are kept unchanged, shape (texts,)."""
        return count_words(texts, self.n_max, self._lexicon)

    @cached_property
    def _lexicon(self) -> _kernel.Vocabulary | _kernel.Table:
        return _kernel.Vocabulary(self.input_words())

    def _undivided(self) -> None:
        """Refuse to state the distribution of a single word, where every text divides a budget among its words."""
        if self.allocation is not None:
            raise PolicyError(
                "a budget is divided by whole texts, so a single word has no distribution",
                "leave `allocation` out to get the distribution of a word",
            )

    @abstractmethod
    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""

    def survival(self, word: str) -> Fraction:
        """Return (an upper bound of) the probability that `word` comes back as itself: it grows with epsilon."""
        if self.allocation is not None:
            return self.dearest.survival(word)
        outputs = zip(*self.transition(word), strict=True)
        return sum((chance for output, chance in outputs if output == word), Fraction(0))

    def collision(self, word: str) -> float:
        """Return an upper bound of the probability that two independent draws of `word` agree: sum P(y)^2.

        With weights, it grows with epsilon. Much noise, however, piles up words at the ends, so where a budget of noise
        is divided the largest probability of any word is used.
        """
        if self.allocation is not None:
            return self.dearest.collision(word) if self.bounded_range else self.largest_probability()
        return min(1.0, sum(float(chance) ** 2 for chance in self.transition(word)[1]) * (1 + 1e-12))

    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word; 1 if no bound is known."""
        outputs = self.output_words()
        if not self.bounded_range or self.word_disclosures or not outputs:
            return 1.0
        return largest_range_bounded(float(self.epsilon_per_word), len(outputs))


def sample_many(mechanism: WordMechanism, word: str, n: int, *, secret: _kernel.Secret | None = None) -> list[str]:
    """Draw n outputs of one word independently, through the code that releases texts (audits, query attack).

    Where a budget is divided, every draw has the largest epsilon.
    """
    padding = word == PAD and mechanism.length != "disclose"
    if n < 1 or not (padding or _kernel.split(word) == [(word, True)]):
        raise PolicyError("sampling needs one word and at least one draw", "give a word without blanks")
    same: dict[str, Any] = {"n_max": n}
    if mechanism.length != "disclose":
        same |= {"length": "fixed", "epsilon_length": None}
    drawing = (mechanism if mechanism.allocation is None else mechanism.dearest).model_copy(update=same)
    key = _kernel.ReleaseKey(secret or _kernel.Secret(), "samples", word, "samples", drawing.cfg())
    text = pa.array(["" if padding else " ".join([word] * n)], pa.large_string())
    released = drawing.release(text, RecordKeys(key, pa.array(["0"]), 0)).text[0].as_py()
    outputs = released.split(" ") if released else []
    if mechanism.length != "disclose":
        return [*outputs, *[PAD] * (n - len(outputs))]
    if len(outputs) != n:
        raise PolicyError("the word is not in the vocabulary, and is not drawn", "use one of input_words()")
    return outputs
