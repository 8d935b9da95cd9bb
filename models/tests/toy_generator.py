"""Scorers of tokens that need no model, and samplers that enumerate the draws of a release."""

import itertools
import math

import numpy as np
import pyarrow as pa

from dptext_etl import sampling
from dptext_etl_models.families.generative import GenerativeMechanism
from tests.fixed_allocations import Forced

CLIP = (0.0, 1.0)
END = 2


class Toy(GenerativeMechanism):
    """A generative mechanism without a model: its scorer is always given."""

    continues = True
    default_limit = 64
    model: str = "toy"
    template: str = "{text}"
    clip: tuple[float, float] | str | None = CLIP

    @property
    def outputs(self):
        return 3

    @property
    def most_positions(self):
        return self.l_max

    @classmethod
    def example(cls):
        return cls(epsilon=1.0)


class ToyGenerator:
    """Scores by a function of a text and its draws, like a model that reads bytes.

    Args:
        score: score(text, drawn) -> scores of the outputs.
        outputs: Size of the output set.
        rows: Of every batch.
        fails: fails(texts, rows) -> an exception to raise where a batch of these texts is scored, or None.
        stride: Steps after which batches adopt rows.
        held: Batches that may wait.
    """

    def __init__(self, score, outputs=3, ends=(END,), rows=4, fails=lambda texts, rows: None, stride=2, held=8):
        self.stride, self.held, self.computed = stride, held, 0
        self.score, self.outputs, self.ends, self._rows, self.fails = score, outputs, frozenset(ends), rows, fails
        self.begun = []

    def prompts(self, texts):
        return [list(text.encode()) for text in texts]

    def bucket(self, length):
        return 1 << length.bit_length()

    def rows(self, bucket):
        return self._rows

    def waiting(self, bucket):
        return self.held

    def begin(self, prompts, bucket, rows, longest):
        assert len(prompts) <= rows
        assert all(len(prompt) < bucket for prompt in prompts)
        self.begun.append((bucket, rows, len(prompts)))
        return ToyBatch(self, [bytes(prompt).decode() for prompt in prompts], rows)

    def text(self, outputs):
        return "".join(chr(ord("a") + output) for output in outputs if output not in self.ends)


class ToyBatch:
    def __init__(self, generator, texts, rows):
        self.generator, self.rows = generator, rows
        self.texts = [*texts, *[None] * (rows - len(texts))]
        self.drawn = [()] * rows

    @property
    def real(self):
        return [text for text in self.texts if text is not None]

    def scores(self):
        failure = self.generator.fails(self.real, self.rows)
        if failure is not None:
            raise failure
        self.generator.computed += self.rows
        rows = zip(self.texts, self.drawn, strict=True)
        return np.array([self.generator.score(text or "", drawn) for text, drawn in rows])

    def append(self, chosen):
        self.drawn = [(*drawn, int(one)) for drawn, one in zip(self.drawn, chosen, strict=True)]

    def adopt(self, places, other, rows):
        for place, row in zip(places, rows, strict=True):
            assert len(other.drawn[row]) == len(self.drawn[place])
            self.texts[place], self.drawn[place] = other.texts[row], other.drawn[row]
            other.texts[row] = None


class Recorded:
    """The sampler of releases, which notes every slot and refuses to use one twice.

    Specification: docs/spec/stream.md#one-stream-per-draw.
    """

    def __init__(self):
        self.slots, self.uniform = set(), set()

    def _note(self, slots):
        taken = list(zip(slots.records.tolist(), slots.positions.tolist(), strict=True))
        assert not self.slots & set(taken)
        self.slots |= set(taken)
        return taken

    def choose(self, scores, slots, **law):
        self._note(slots)
        return sampling.choose(scores, slots, **law)

    def choose_uniform(self, slots, m, **stream):
        self.uniform |= set(self._note(slots))
        return sampling.choose_uniform(slots, m, **stream)


def sequences(outputs, end, longest):
    """Return every answer there is: the end closes it, or it has the most tokens."""
    others = [output for output in range(outputs) if output != end]
    ended = [(*body, end) for n in range(longest) for body in itertools.product(others, repeat=n)]
    return ended + list(itertools.product(others, repeat=longest))


def law(mechanism, generator, text):
    """Return the exact probability of every answer to a text."""
    found = {}
    for sequence in sequences(generator.outputs, END, mechanism.l_max):
        sampler = Forced({sampling.TOKEN: sequence})
        released = mechanism.release_with(generator, pa.array([text]), KEY, sampler=sampler)
        assert released.steps.to_pylist() == [len(sequence)]
        found[sequence] = sampler.probability
    return found


def worst(one, other):
    """Return by sequence how far two laws are apart, in nats; infinite where only one can give it."""
    return {
        sequence: abs(math.log(chance) - math.log(other[sequence])) if chance and other[sequence] else math.inf
        for sequence, chance in one.items()
    }


KEY = pa.array([bytes(range(100, 132))], pa.binary(32))


def keys(n):
    """Return n record keys."""
    return pa.array([bytes([i % 256, i // 256, *range(30)]) for i in range(n)], pa.binary(32))
