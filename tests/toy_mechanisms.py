"""Small mechanisms that behave as models do, put into the catalog by their files, as every mechanism is."""

from __future__ import annotations

import importlib
import sys

import pytest

HEAD = """
import math
import os
from dataclasses import replace
from typing import ClassVar, Self

import pyarrow as pa

from dptext_etl import _kernel, device
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend, fine, micro
from dptext_etl.mechanism import Mechanism, Released


class Toy(Mechanism):
    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(GuaranteeClass.PURE_LDP, frozenset({Disclosure.NULLNESS}), "any two texts", "token")

    @property
    def most_positions(self) -> int:
        return 5

    def spend(self, positions: int) -> Spend:
        cost = micro(self.epsilon * positions)
        guarantee = self.guarantee
        return Spend(guarantee.guarantee_class, guarantee.disclosures, cost, cost, cost, 0, cost, n_worst=positions)

    def positions(self, texts):
        return pa.array([0 if text is None else 5 for text in texts.to_pylist()], pa.uint32())

    def drawn(self, texts, keys):
        return pa.array(_kernel.record_keys(keys.release, keys.ids, texts, keys.nonce)).to_pylist()

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0)

"""
STEPS = '''
class Steps(Toy):
    """Makes one to five draws, as many as a byte of the record's key says: coins that no text decides."""

    refundable: ClassVar = True

    def release(self, texts, keys):
        made = [None if text is None else key for text, key in zip(texts.to_pylist(), self.drawn(texts, keys))]
        steps = [0 if key is None else 1 + key[0] % 5 for key in made]
        hexes = [None if key is None else key.hex()[: 4 * n] for key, n in zip(made, steps)]
        words = [None if text is None else " ".join(text[i : i + 4] for i in range(0, len(text), 4)) for text in hexes]
        return Released(pa.array(words, pa.large_string()), self.positions(texts), pa.array(steps, pa.uint32()))
'''
FICKLE = '''
class Fickle(Toy):
    """Releases other words at every computation, as a model on other hardware may."""

    scored: ClassVar[list[int]] = []

    @property
    def computing(self):
        return device.computing()

    def release(self, texts, keys):
        self.scored.append(len(texts))
        words = [None if text is None else os.urandom(4).hex() for text in texts.to_pylist()]
        return Released(pa.array(words, pa.large_string()), self.positions(texts))
'''
FAILING = '''
class Failing(Toy):
    """States a delta, for as many records as are declared."""

    delta: float
    n_rec: int | None = None

    @property
    def used_delta(self) -> float:
        return self.delta

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(GuaranteeClass.APPROX_LDP, frozenset({Disclosure.NULLNESS}), "any two texts", "token")

    def spend(self, positions: int) -> Spend:
        cost = super().spend(positions)
        return replace(cost, eps_pure=math.inf, eps_tight=math.inf, delta=fine(self.delta) if positions else 0)

    def release(self, texts, keys):
        words = [None if text is None else "a b c d e" for text in texts.to_pylist()]
        return Released(pa.array(words, pa.large_string()), self.positions(texts))

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, delta=1e-6, n_rec=100)
'''
BLIND = '''
class Blind(Toy):
    """Draws by record id alone, and fails on texts with a digit: nothing that it releases depends on a text."""

    refundable: ClassVar = True

    def release(self, texts, keys):
        made = self.drawn(pa.array(["" if text.is_valid else None for text in texts], pa.large_string()), keys)
        words = [key.hex()[: 8 + key[0] % 40] if text.is_valid else None for text, key in zip(texts, made)]
        steps = [1 + key[1] % 5 if text.is_valid else 0 for text, key in zip(texts, made)]
        failed = [int(any(c.isdigit() for c in text or "")) for text in texts.to_pylist()]
        counts = (pa.array(numbers, pa.uint32()) for numbers in (steps, failed))
        return Released(pa.array(words, pa.large_string()), self.positions(texts), *counts)
'''
AGAIN = '''
"""Adds another word to released texts at every computation, as a model on other hardware may write another one."""

import os
from typing import ClassVar

import pyarrow as pa

from dptext_etl.mechanism import PostProcess, Provenance, Rewritten, Training


class Again(PostProcess):
    """Says what it got, and adds a word.

    Attributes:
        learnt: What it learnt from.
        marks: A parameter that changes its configuration alone.
    """

    got: ClassVar[list[str]] = []
    says: ClassVar = staticmethod(lambda text: f"{text} {os.urandom(4).hex()}")
    probed: ClassVar[list[str]] = []

    learnt: Provenance | None = "public"
    marks: str = ""

    @property
    def training(self):
        return Training(self.learnt)

    def rewrite(self, texts, keys, step=0):
        given = texts.to_pylist()
        self.got.extend(text for text in given if text is not None)
        written = [text and type(self).says(text) for text in given]
        return Rewritten(pa.array(written, pa.large_string()), pa.array([False] * len(given)))

    def foreign_word_chance(self):
        return 0.0

    def probe(self):
        self.probed.append(self.marks)

    @classmethod
    def example(cls):
        return cls()
'''
_TOYS = {"steps": STEPS, "fickle": FICKLE, "failing": FAILING, "blind": BLIND}


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """The toy mechanisms, in the catalog for one test."""
    from dptext_etl import catalog, mechanisms

    folder = tmp_path / "toys"
    folder.mkdir()
    for name, source in _TOYS.items():
        (folder / f"{name}.py").write_text(HEAD + source)
    with monkeypatch.context() as patch:
        patch.setattr(mechanisms, "__path__", [*mechanisms.__path__, str(folder)])
        importlib.invalidate_caches()
        yield {name: catalog.load(name) for name in _TOYS}
    for name in _TOYS:
        sys.modules.pop(f"dptext_etl.mechanisms.{name}", None)


def write_again(folder, source):
    """Write `again` as another package, and return its folder."""
    (folder / "again-1.0.dist-info").mkdir(parents=True)
    (folder / "again.py").write_text(source)
    (folder / "again-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: again\nVersion: 1.0\n")
    (folder / "again-1.0.dist-info" / "entry_points.txt").write_text("[dptext_etl.postprocesses]\nagain = again\n")
    return folder


@pytest.fixture
def again(tmp_path, monkeypatch):
    """The post-processing `again`, of another package for one test; its file is in the folder `again.folder`."""
    from dptext_etl import catalog, extensions

    folder = write_again(tmp_path / "posts", AGAIN)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        extensions.installed.cache_clear()
        made = catalog.load_postprocess("again")
        made.folder = folder
        yield made
    extensions.installed.cache_clear()
    sys.modules.pop("again", None)
