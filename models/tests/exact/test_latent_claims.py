"""What latent mechanisms claim: noise for the largest distance there is, delta, spends.

Specification: docs/spec/privacy.md#e13, docs/spec/privacy.md#e14, docs/spec/privacy.md#e15,
docs/spec/privacy.md#known-gaussian, docs/spec/privacy.md#known-adept.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import catalog
from dptext_etl.accounting import compose, joint
from dptext_etl.accounting.conversion import log_delta
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import MICRO, Disclosure, GuaranteeClass
from dptext_etl.mechanism import worst_spend
from dptext_etl_models.families.latent_noise import STEPS, noisy_latents
from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.mechanisms.dpbart import DPBart
from models.tests.latent_toys import MECHANISMS, adept, dpbart, keys, paper

CLV = 20 * 768
PR = 20 * 182
SILENT = Fraction(2**20)  # a rate per step at which discrete noise is 0


@pytest.fixture(params=MECHANISMS.values(), ids=MECHANISMS)
def mechanism(request):
    return request.param


def clipped(mechanism, latents):
    """What noise is added to, exactly: the same call with noise that is 0."""
    rows = np.asarray(latents, np.float64)
    return noisy_latents(rows, keys(len(rows)), clip=mechanism.clip, norm=mechanism.norm, rate=SILENT).astype(float)


def largest_distances(mechanism, size):
    """The largest l1 and l2 distance of two clipped latents, over all signs and the corners of the clip."""
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=size)))
    corners = np.concatenate([signs * 1e9, np.eye(size) * 1e9, -np.eye(size) * 1e9])
    rows = clipped(mechanism, corners)
    between = rows[:, None] - rows[None]
    return np.abs(between).sum(2).max(), np.sqrt((between**2).sum(2)).max()


def sound(mechanism, size):
    """Whether the noise of a mechanism covers the largest distance that its own clip leaves."""
    l1, l2 = largest_distances(mechanism, size)
    scale = mechanism.scale(size)
    if scale.rate is not None:
        return scale.rate * Fraction(l1) * STEPS <= Fraction(repr(mechanism.epsilon))
    return log_delta(mechanism.epsilon, l2 / scale.sigma) <= math.log(mechanism.used_delta)


def sharp(mechanism, size):
    """Whether hardly any of the noise is wasted: the clip is a little lower on the grid than as given."""
    l1, l2 = largest_distances(mechanism, size)
    stated = mechanism.sensitivity(size)
    return (l2 if mechanism.noise == "gaussian" else l1) >= stated * (1 - 2.0**-12)


@pytest.mark.parametrize("size", [2, 5, 9])
def test_e14_noise_covers_the_largest_distance_and_wastes_nothing(mechanism, size):
    small = mechanism.model_copy(update={"clip": 1.0})
    assert sound(small, size)
    assert sharp(small, size)


@given(st.floats(0.1, 2500), st.integers(1, 10**7), st.sampled_from(list(MECHANISMS)), st.integers(1, 40_000))
def test_e15_sigma_keeps_delta_at_any_epsilon_and_size(epsilon, n_rec, name, size):
    mechanism = MECHANISMS[name].model_copy(update={"epsilon": epsilon})
    if mechanism.noise == "gaussian":
        mechanism = mechanism.model_copy(update={"n_rec": n_rec})
        sigma, delta = mechanism.scale(size).sigma, mechanism.used_delta
        mu = mechanism.sensitivity(size) / sigma
        assert log_delta(epsilon, mu) <= math.log(delta) < log_delta(epsilon, mu * (1 + 1e-6))
    else:
        rate = mechanism.scale(size).rate
        assert rate * Fraction(mechanism.sensitivity(size)) * STEPS <= Fraction(repr(epsilon)) * (
            1 + Fraction(1, 2**50)
        )


@pytest.mark.parametrize(("kind", "epsilon", "size", "sigma"), [
    (DPBart, 500.0, CLV, 0.8957039), (DPBart, 500.0, PR, 0.4360332), (DPBart, 500.0, 512 * 768, 4.531943),
    (Adept, 250.0, 1024, 0.539422), (Adept, 500.0, 1024, 0.361359),
])  # fmt: skip
def test_known_answers_gaussian(kind, epsilon, size, sigma):
    assert paper(kind, epsilon=epsilon).scale(size).sigma == pytest.approx(sigma, abs=6e-7)


@pytest.mark.parametrize(
    ("kind", "epsilon", "size", "scale"),
    [(DPBart, 500.0, CLV, 6.144), (DPBart, 500.0, PR, 1.456), (Adept, 250.0, 1024, 1.28), (Adept, 500.0, 1024, 0.64)],
)
def test_known_answers_laplace(kind, epsilon, size, scale):
    rate = kind(epsilon=epsilon, noise="laplace", model="example").scale(size).rate
    assert 1 / (rate * STEPS) == Fraction(repr(scale))


def test_a_size_that_is_no_square_gets_a_little_more_noise_never_less():
    rate = Adept(epsilon=500.0, noise="laplace", model="example").scale(1000).rate
    assert rate**2 * (2 * 5 * STEPS) ** 2 * 1000 <= 500**2
    assert float(rate) == pytest.approx(500 / (2 * 5 * math.sqrt(1000) * STEPS), rel=1e-6)


def test_ten_records_of_a_subject_cost_jointly():
    """003 adds up: 5000 at 1e-4."""
    ten = [paper(DPBart).spend(1)] * 10
    by_rule = {bound.rule: bound for bound in joint(ten, 1e-5)}
    assert by_rule["gaussian"].epsilon / MICRO == pytest.approx(4201.3, abs=0.05)
    added = compose([ten[0]] * 10)
    assert (added.eps_approx, added.delta) == (5000 * MICRO, 100 * 10**9)


def test_spends_of_gaussian_noise():
    cost = paper(DPBart).spend(1)
    assert cost.guarantee_class is GuaranteeClass.APPROX_LDP
    assert (cost.eps_pure, cost.eps_tight, cost.eps_metric) == (math.inf, math.inf, math.inf)
    assert (cost.eps_approx, cost.delta) == (500 * MICRO, 10 * 10**9)
    assert cost.rho == pytest.approx(382.9061 * MICRO, abs=60)
    assert math.sqrt(cost.mu2 / MICRO) == pytest.approx(27.6733118, abs=1e-6)
    assert "IDEAL_GAUSSIAN" in cost.assumptions
    assert cost.disclosures == {Disclosure.NULLNESS}


def test_spends_of_laplace_noise():
    cost = dpbart(noise="laplace", n_rec=None, epsilon=3.5).spend(1)
    assert cost.guarantee_class is GuaranteeClass.PURE_LDP
    assert (cost.eps_pure, cost.eps_approx, cost.delta) == (3_500_000, 3_500_000, 0)
    assert cost.eps_tight == math.ceil(3_500_000 * Fraction(6553, 1) / (Fraction(1, 10) * STEPS))  # C on the grid
    assert (cost.rho, cost.mu2) == (6_125_000, math.inf)
    assert "IDEAL_GAUSSIAN" not in cost.assumptions
    assert adept(noise="laplace", n_rec=None, epsilon=3.5).spend(1).eps_tight == 3_500_000


def test_a_null_costs_nothing_no_text_more_than_one_release_and_no_length_is_disclosed(mechanism):
    assert mechanism.positions(pa.array(["", None, " ", "x " * 500])).to_pylist() == [1, 0, 1, 1]
    nothing = mechanism.spend(0)
    assert (nothing.eps_pure, nothing.eps_approx, nothing.delta, nothing.rho, nothing.mu2) == (0, 0, 0, 0, 0)
    assert worst_spend(mechanism) == worst_spend(mechanism, 10_000) == mechanism.spend(1)
    assert (worst_spend(mechanism, 0), mechanism.guarantee.disclosures) == (nothing, {Disclosure.NULLNESS})
    assert mechanism.guarantee.unit == "record"


@pytest.mark.parametrize(
    ("n_rec", "delta"), [(1, 1e-6), (10_000, 1e-6), (20_000, 5e-7), (30_000, 0.01 / 30_000), (10**9, 1e-11)]
)
def test_the_delta_that_is_excluded_is_the_largest_allowed(n_rec, delta):
    used = dpbart(n_rec=n_rec).used_delta
    assert used == pytest.approx(delta, rel=1e-12)
    assert Fraction(repr(used)) * n_rec <= Fraction(1, 100)
    assert dpbart(n_rec=n_rec, delta=used).used_delta == used


@pytest.mark.parametrize(("given", "said"), [
    ({"n_rec": None}, "n_rec"), ({"delta": 1e-5}, "at most 1e-06"),
    ({"delta": 1e-6, "n_rec": 10_001}, "n_rec \\* delta"), ({"noise": "laplace"}, "no delta"),
    ({"noise": "laplace", "n_rec": None, "delta": 1e-7}, "no delta"), ({"n_max": 50}, "n_max counts words"),
    ({"clip": 0.0}, "clip"), ({"length": 1}, "length"),
])  # fmt: skip
def test_parameters_that_promise_nothing_are_refused(given, said):
    with pytest.raises(PolicyError, match=said):
        catalog.build({"name": "dpbart", "epsilon": 500.0, "n_rec": 10_000, **given})


@pytest.mark.parametrize("name", ["dpbart", "adept"])
@pytest.mark.parametrize("given", [
    {"allocation": {"scores": ["ic"], "total": 500.0}},
    {"allocation": {"scores": ["ic"], "total": 500.0}, "sentences": 3},
    {"per_sentence": "sentence", "mode": "faithful"}, {"epsilons": "sentence", "mode": "faithful"},
])  # fmt: skip
def test_e13_epsilon_cannot_follow_the_text(name, given):
    asked = {"name": name, "epsilon": 500.0, "n_rec": 10_000, "model": "example", **given}
    with pytest.raises(PolicyError, match="size of the noise would depend on the text") as caught:
        catalog.build(asked)
    assert "one epsilon per record" in str(caught.value).replace("\n", " ")
