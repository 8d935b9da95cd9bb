"""Audits of mechanisms with a model: true claims hold, planted defects do not, and no model is loaded."""

import json
import math
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from dptext_etl import sampling
from dptext_etl.accounting.conversion import log_delta, smallest_epsilon
from dptext_etl_eval import audit, audit_mechanism
from dptext_etl_eval.auditing import models as audited
from dptext_etl_eval.auditing import worst_models
from dptext_etl_models.families.latent_noise import Scale
from dptext_etl_models.inference import language_model
from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from dptext_etl_models.mechanisms.dpbart import DPBart
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from eval.tests import planted_keys
from eval.tests.planted_keys import SECRETS
from tests.policy_files import policy_in

pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")

DRAWS = 4_000


@pytest.fixture
def few(tmp_path):
    """DP-Prompt over five tokens: so few that trials show most of a loss."""
    listed = tmp_path / "allowed.json"
    listed.write_text("[7, 8, 9, 11]")
    known = DPPrompt.example().model_dump(exclude_unset=True) | {"allow_list": str(listed)}
    return lambda kind=DPPrompt, epsilon=2.0: kind(**known | {"epsilon": epsilon})


def masked(epsilon=2.0, **options):
    return DPMLM(**{"epsilon": epsilon, "model": "example-masked", **options})


def latent(kind=DPBart, epsilon=3.0, **options):
    models = {"dpbart": "example-bart", "adept": "example-adept"}
    known = {"epsilon": epsilon, "model": models["adept" if issubclass(kind, Adept) else "dpbart"]}
    return kind(**known | ({} if options.get("noise") == "laplace" else {"n_rec": 10_000}) | options)


def divided():
    return DPMLM(model="example-masked", allocation={"scores": ["ic"], "total": 3.0, "eps_hi": 2.0})


TRUE = {
    "masked": masked(), "masked, a large epsilon": masked(250.0, decoding="parallel"),
    "masked, hidden length": masked(length="fixed", n_max=5),
    "masked, plusminus": masked(variant="plusminus", addition=0.25), "masked, likeness": masked(alpha=0.01),
    "masked, faithful": masked(mode="faithful"), "masked, a divided budget": divided(), "gaussian": latent(),
    "gaussian, a large epsilon": latent(epsilon=500.0), "laplace": latent(noise="laplace"),
    "gaussian, sentences": latent(sentences=3), "laplace, sentences": latent(noise="laplace", sentences=2),
    "a length": latent(Adept), "a length, laplace": latent(Adept, noise="laplace"),
}  # fmt: skip


@pytest.mark.parametrize(
    "mechanism",
    TRUE.values(),
    ids=TRUE,
)
def test_true_claims_stand_and_no_weights_are_loaded(mechanism, monkeypatch):
    monkeypatch.setattr(language_model, "model", lambda *_: pytest.fail("a model was loaded"))
    found = audit_mechanism(mechanism, draws=1_000, secrets=SECRETS)
    assert not found.refuted
    assert (found.by_table, found.by_trials) == ("holds", "not refuted")
    assert found.certificate.realized <= found.charged * (1 + 1e-9) <= found.claim * (1 + 2e-9)
    assert all(trial.lower_bound <= trial.claim for trial in found.trials)
    assert {trial.counts.trial for trial in found.trials} >= {"one draw", "two records", "two keys"}
    assert json.dumps(found.as_dict())


def test_trials_come_close_to_what_is_realized(few):
    found = audit_mechanism(few(epsilon=1.5), draws=12_000, secrets=SECRETS)
    assert not found.refuted
    assert 0.8 * found.certificate.realized <= max(trial.lower_bound for trial in found.trials)


def test_the_law_of_a_step_is_that_of_the_sampler():
    for mechanism in (masked(1.0), masked(20.0), masked(250.0)):
        wanted = sampling.epsilon_implemented(mechanism.epsilon, mechanism.outputs)
        assert audited.of_scores(mechanism, ("a", "b")).realized == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.1, 0.5), (1.0, 1.0), (20.0, 3.2), (500.0, 27.673312), (2500.0, 66.0)])
def test_the_divergence_is_that_of_the_analytic_formula(epsilon, mu):
    assert math.log(audited.divergence(epsilon, mu)) == pytest.approx(log_delta(epsilon, mu), abs=1e-5)
    assert audited.epsilon_at(mu, 1e-6) == pytest.approx(smallest_epsilon(mu, 1e-6), rel=1e-6)


class Planted(DPPrompt):
    """DP-Prompt whose draws are made by another sampler."""

    def release(self, texts, keys):
        sampler = SimpleNamespace(choose=self.choose, choose_uniform=sampling.choose_uniform)
        return self.release_with(self.generator, texts, keys.of(texts), sampler=sampler)


class TwiceEpsilon(Planted):
    """Draws by twice the epsilon that is claimed."""

    def choose(self, scores, slots, **law):
        return sampling.choose(scores, slots, **law | {"epsilon": 2 * self.epsilon})


class TopAlone(Planted):
    """Filters after the clip: the outputs that a text can have depend on it."""

    def choose(self, scores, slots, **law):
        chosen = sampling.choose(scores, slots, **law)
        return np.where(np.arange(len(chosen)) % 2, np.asarray(scores).argmax(axis=1), chosen).astype(np.uint32)


class OneDraw(Planted):
    """One position for all steps of an answer."""

    def choose(self, scores, slots, **law):
        first = sampling.Slots(slots.keys, slots.records, np.zeros_like(slots.positions))
        return sampling.choose(scores, first, **law)


class PublicSeed(planted_keys.PublicSeed, DPPrompt):
    """A key that everybody knows."""


class SharedGenerator(planted_keys.SharedGenerator, DPPrompt):
    """One stream for all records."""


class Understated(DPPrompt):
    """Charges less than its integers realize."""

    @property
    def epsilon_tight(self):
        return super().epsilon_tight / 2


SCORES = {
    TwiceEpsilon: ("holds", {"one draw"}), TopAlone: ("holds", {"one draw"}), PublicSeed: ("holds", {"two keys"}),
    SharedGenerator: ("holds", {"two records"}), OneDraw: ("holds", {"two positions"}),
    Understated: ("refuted", set()),
}  # fmt: skip


@pytest.mark.parametrize("kind", SCORES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("epsilon", [2.0, 60.0])
def test_planted_defects_of_draws_are_refuted(kind, epsilon, few):
    found = audit_mechanism(few(kind, epsilon), draws=DRAWS, secrets=SECRETS)
    by_table, by_trials = SCORES[kind]
    assert found.by_table == by_table
    assert {trial.counts.trial for trial in found.trials if trial.refuted} >= by_trials
    assert found.refuted


def test_weights_without_a_floor_have_no_bound(monkeypatch):
    honest = sampling.weights
    monkeypatch.setattr(sampling, "weights", lambda *given: np.where(honest(*given) < 2**20, 0, honest(*given)))
    assert audit_mechanism(masked(60.0), draws=1_000, secrets=SECRETS).by_table == "refuted"


class Classical(DPBart):
    """The classical formula, far beyond epsilon 1."""

    def scale(self, size):
        return Scale(sigma=self.sensitivity(size) * math.sqrt(2 * math.log(1.25 / self.used_delta)) / self.epsilon)


class OneCoordinate(DPBart):
    """Noise for one number's distance, 2C, and not for the distance of all of them."""

    def sensitivity(self, size):
        return 2 * self.clip


class Broadcast(DPBart):
    """One noise for all coordinates of a record."""

    shared: ClassVar = np.s_[:, :1]

    def add_noise(self, latents, record_keys):
        noisy, clean = super().add_noise(latents, record_keys), np.clip(latents, -self.clip, self.clip)
        return (clean + (noisy - clean)[self.shared]).astype(np.float32)


class OneForAll(Broadcast):
    """One noise for all records of a batch."""

    shared: ClassVar = np.s_[:1]


class Habernal(Adept):
    """ADePT as it was published: Laplace noise for a sum that is as small as the length."""

    def scale(self, size):
        return Scale(rate=super().scale(size).rate * 4)


LATENTS = {
    Classical: (DRAWS, {"epsilon": 500.0}, "refuted", set()),
    OneCoordinate: (12_000, {"epsilon": 2.0}, "refuted", {"one draw"}),
    Broadcast: (DRAWS, {}, "holds", {"one draw"}),
    OneForAll: (DRAWS, {}, "holds", {"two records"}),
    Habernal: (12_000, {"epsilon": 2.0, "noise": "laplace"}, "not refuted", {"one draw"}),
}


@pytest.mark.parametrize(
    "kind",
    LATENTS,
    ids=lambda kind: kind.__name__,
)
def test_planted_defects_of_noise_are_refuted(kind):
    draws, options, by_table, by_trials = LATENTS[kind]
    found = audit_mechanism(latent(kind, **options), draws=draws, secrets=SECRETS)
    assert found.by_table == by_table
    assert {trial.counts.trial for trial in found.trials if trial.refuted} >= by_trials
    assert found.refuted


def test_large_output_sets_take_fewer_draws_and_say_so(monkeypatch):
    monkeypatch.setattr("dptext_etl_eval.auditing.models._WEIGHTS", 2**20)
    found = audit_mechanism(masked(), draws=2_000, secrets=SECRETS)
    assert "1,000 draws, because each is among" in found.note
    assert found.trials[0].counts.draws == 1_000


def test_a_policy_of_models_is_audited(tmp_path):
    column = {"name": "review", "mechanism": {"name": "dpmlm", "epsilon": 2.0, "model": "example-masked"}}
    (found,) = audit(policy_in(tmp_path, column), draws=1_000)
    assert (found.column, found.unit, found.by_table) == ("review", "draw", "holds")


def test_stand_ins_are_as_far_apart_as_can_be():
    assert worst_models.extreme_scores(3).tolist() == [
        [math.inf, -math.inf, -math.inf],
        [-math.inf, math.inf, math.inf],
    ]
    model = worst_models.WorstLatents(1.0, along="c")
    first, second, third, none = model.encode(["a", "b", "c", ""])
    assert (first == -second).all()
    assert abs(third @ first) == 0
    assert not none.any()
