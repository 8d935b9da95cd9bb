"""Audits of what one known word does not show: unknown words, texts without words, two passes, two columns."""

import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dptext_etl import _kernel
from dptext_etl.allocation import Allocation
from dptext_etl.allocation import allocation as dividing
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import Released
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.madlib import Madlib
from dptext_etl.mechanisms.santext import SanText
from dptext_etl.mechanisms.surrogate import Surrogate
from dptext_etl_eval import audit_mechanism
from dptext_etl_eval.auditing.results import Audit
from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from tests.quick import quick

SECRETS = tuple(_kernel.Secret.from_bytes(bytes([number]) * 32) for number in (1, 2))
TWICE = Allocation(total=3.0, first=2.0, scores=("ic",))
MODELS = {"dpmlm": DPMLM, "dp_prompt": DPPrompt, "adept": Adept}


def refuted(found: Audit) -> set[str]:
    return {trial.counts.trial for trial in found.trials if trial.refuted}


def divided(name):
    """Return a mechanism of two passes, by name."""
    if name in MODELS:
        pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
        kind = MODELS[name]
        known = {key: value for key, value in kind.example().model_dump(exclude_unset=True).items() if key != "epsilon"}
        return kind(**known, **({"sentences": 2} if name == "adept" else {}), allocation=TWICE)
    kinds = {"custext": CusText, "santext": SanText, "madlib": Madlib}
    if name in kinds:
        return kinds[name](limit=12, allocation=TWICE, **({"k": 3} if name == "custext" else {}))
    return Diffractor(variant=name, limit=12, allocation=TWICE)


QUICK = {"custext", "madlib"}


def cases(names):
    """Return names as parameters; `make test` takes the quick ones, one of each way to draw."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough) for name in names]


REUSED = itertools.product(
    ["custext", "santext", "madlib", "tem", "geometric", *MODELS], ["of the first", "of the second", "none"]
)
FIRST = [("custext", "of the first"), ("custext", "none"), ("madlib", "of the second")]


@pytest.mark.parametrize(
    ("name", "reused"), quick(sorted(REUSED, key=lambda case: case not in FIRST), first=len(FIRST))
)
def test_a_stream_that_two_passes_share_is_refuted(name, reused, monkeypatch):
    """Both passes take the stream of one of them: the noise of the second says what the first released."""
    made = divided(name)
    if reused == "of the first":
        monkeypatch.setattr(dividing, "PASS", 0)
    elif reused == "of the second":
        monkeypatch.setattr(dividing, "TOKEN", dividing.TOKEN + dividing.PASS)
        monkeypatch.setattr(dividing, "PASS", 0)
    found = audit_mechanism(made, draws=1_000, secrets=SECRETS)
    assert refuted(found) == (set() if reused == "none" else {"two passes"})


class RawWithoutKnownWords(Surrogate):
    """A text that says nothing keeps its words."""

    def release(self, texts, keys):
        released = super().release(texts, keys)
        known = pa.array([self.near_to(text) is not None or not text for text in texts.to_pylist()])
        return Released(pc.if_else(known, released.text, texts), released.positions)


class EmptyStaysEmpty(Surrogate):
    """An empty text is not drawn for."""

    def release(self, texts, keys):
        released = super().release(texts, keys)
        return Released(pc.if_else(pc.equal(texts, ""), texts, released.text), released.positions)


class NullStaysNull(Surrogate):
    """A null stays null, although no text has to be distinguished from it."""

    def release(self, texts, keys):
        released = super().release(texts, keys)
        return Released(pc.if_else(texts.is_valid(), released.text, None), released.positions)


@pytest.mark.parametrize("kind", [RawWithoutKnownWords, EmptyStaysEmpty, NullStaysNull, Surrogate])
def test_texts_that_say_nothing_are_compared_with_texts_that_do(kind):
    made = kind(epsilon=2.0, corpus="example", null_as_empty=kind is NullStaysNull)
    found = audit_mechanism(made, draws=1_000, secrets=SECRETS)
    assert refuted(found) == (set() if kind is Surrogate else {"one draw"})


def _raw_if(chosen):
    """Release the texts that `chosen` finds, and mechanisms of only words' texts, unchanged."""

    def release(honest, self, texts, keys):
        released = honest(self, texts, keys)
        found = pa.array([chosen(self, text.split()) for text in texts.to_pylist()])
        return Released(pc.if_else(found, texts, released.text), released.positions)

    return release


def _unknown(self, words):
    known = set(self.input_words())
    return [word for word in words if word not in known]


TEXTS = {
    "no known word": lambda self, words: bool(words) and len(_unknown(self, words)) == len(words),
    "an unknown word among known ones": lambda self, words: 0 < len(_unknown(self, words)) < len(words),
    "punctuation alone": lambda self, words: bool(words) and not any(w.isalnum() for w in words),
}
WORDS = {
    "custext": lambda: CusText(epsilon=2.0, limit=12, k=3),
    "santext": lambda: SanText(epsilon=2.0, limit=12),
    "santext, hidden": lambda: SanText(epsilon=2.0, limit=12, length="fixed", n_max=4),
    "madlib": lambda: Madlib(epsilon=1.0, limit=12),
    "tem": lambda: Diffractor(epsilon=1.0, limit=12),
    "geometric": lambda: Diffractor(epsilon=0.1, variant="geometric", limit=12),
}


@pytest.mark.parametrize("kept", TEXTS)
@pytest.mark.parametrize("name", cases(WORDS))
def test_raw_texts_of_words_are_refuted(name, kept, monkeypatch):
    made = WORDS[name]()
    kind, honest, release = type(made), type(made).release, _raw_if(TEXTS[kept])
    monkeypatch.setattr(kind, "release", lambda self, texts, keys: release(honest, self, texts, keys))
    assert audit_mechanism(made, draws=1_000, secrets=SECRETS).refuted


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODELS)
def test_raw_unknown_and_empty_texts_are_refuted_with_models(name, monkeypatch):
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    made = MODELS[name].example()
    kind, honest = type(made), type(made).release

    def raw(self, texts, keys):
        released = honest(self, texts, keys)
        found = pc.match_substring_regex(texts, "[q-z][q-z]|[0-9]")
        return Released(pc.if_else(found, texts, released.text), released.positions)

    monkeypatch.setattr(kind, "release", raw)
    assert audit_mechanism(made, draws=1_000, secrets=SECRETS).refuted


class NoColumn(CusText):
    """A key that does not depend on the column."""

    def release(self, texts, keys):
        return super().release(texts, RecordKeys(_same(self), keys.ids, keys.nonce))


class NoNonce(CusText):
    """A key that forgets the number of an extra release."""

    def release(self, texts, keys):
        return super().release(texts, RecordKeys(keys.release, keys.ids, 0))


def _same(mechanism):
    return _kernel.ReleaseKey(SECRETS[0], "audit", "words", "audit", mechanism.cfg())


@pytest.mark.parametrize(
    ("kind", "trial"), [(NoColumn, "two columns"), (NoColumn, "two releases"), (NoNonce, "two nonces")]
)
def test_keys_that_columns_and_releases_share_are_refuted(kind, trial):
    found = audit_mechanism(kind(epsilon=2.0, limit=12, k=3), draws=1_000, secrets=SECRETS)
    assert trial in refuted(found)
