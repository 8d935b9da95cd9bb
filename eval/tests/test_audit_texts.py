"""Audits of what one known word does not show: unknown words, texts without words, two passes, two columns."""

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
from dptext_etl_eval.auditing.trials import POSITIONS, limit_of, whole
from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from eval.tests.planted_keys import SECRETS

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


@pytest.mark.parametrize("reused", ["of the first", "of the second", "none"])
@pytest.mark.parametrize("name", ["custext", "santext", "madlib", "tem", "geometric", *MODELS])
def test_a_stream_that_two_passes_share_is_refuted(name, reused, monkeypatch):
    """Both passes use the stream of one of them: the noise of the second shows the release of the first."""
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
@pytest.mark.parametrize("name", WORDS)
def test_raw_texts_of_words_are_refuted(name, kept, monkeypatch):
    made = WORDS[name]()
    kind, honest, release = type(made), type(made).release, _raw_if(TEXTS[kept])
    monkeypatch.setattr(kind, "release", lambda self, texts, keys: release(honest, self, texts, keys))
    assert audit_mechanism(made, draws=1_000, secrets=SECRETS).refuted


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


GIVEN = Allocation(total=6.0, template=(23.0, 1.0))


def test_two_texts_of_two_draws_may_differ_in_both_divisions():
    scored = CusText(allocation=Allocation(total=4.0, scores=("ic",), eps_hi=3.0), limit=12, k=3)
    assert (limit_of(scored, "one draw", 3.0), limit_of(scored, POSITIONS, 3.0)) == (3.0, 4.0)
    template = CusText(allocation=Allocation(total=4.0, template=(3.0, 1.0)), limit=12, k=3)
    assert (limit_of(template, POSITIONS, 4.0), whole(template)) == (1.0, 4.0)
    plain = CusText(epsilon=2.0, limit=12, k=3)
    assert (limit_of(plain, POSITIONS, 2.0), whole(plain)) == (2.0, None)


@pytest.mark.parametrize(
    "mechanism",
    [
        CusText(allocation=Allocation(total=4.0, scores=("ic",), eps_hi=3.0), limit=12, k=3),
        Diffractor(variant="geometric", allocation=GIVEN, limit=3),
        Madlib(allocation=Allocation(total=4.0, first=2.0, scores=("ic",)), limit=12),
    ],
    ids=lambda made: made.name,
)
def test_true_claims_of_divided_budgets_hold(mechanism):
    found = audit_mechanism(mechanism, draws=1_000, secrets=SECRETS)
    assert not found.refuted
    (limit,) = (t.claim for t in found.trials if t.counts.trial == POSITIONS and t.epsilon == mechanism.epsilon)
    assert limit == {"custext": 4.0, "diffractor": 0.3, "madlib": 6.0}[mechanism.name]


def test_a_part_that_is_too_large_is_refuted(monkeypatch):
    """Every draw uses the largest part; by itself, no draw does wrong."""
    made, real = Diffractor(variant="geometric", allocation=GIVEN, limit=3), Diffractor.moved

    def greedy(self, words, slots, sampler, epsilons, purpose):
        return real(self, words, slots, sampler, [0 * parts + parts.max(initial=0) for parts in epsilons], purpose)

    monkeypatch.setattr(Diffractor, "moved", greedy)
    found = audit_mechanism(made, draws=2_000, secrets=SECRETS)
    assert {trial.counts.trial for trial in found.trials if trial.refuted} == {POSITIONS}
