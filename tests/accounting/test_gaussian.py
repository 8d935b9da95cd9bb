"""Gaussian noise: the exact profile, its inverses on their safe sides, the answers of the specification.

Specification: docs/spec/privacy.md#e15.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.accounting.conversion import largest_mu, log_delta, smallest_epsilon

KNOWN_MU = {
    1: 0.268051,
    10: 2.000446,
    100: 10.563019,
    250: 18.538360,
    500: 27.6733118,
    625: 31.373067,
    1000: 40.680531,
    1500: 50.690631,
    1875: 57.136396,
    2500: 66.587969,
}


@pytest.mark.parametrize(("epsilon", "mu"), KNOWN_MU.items())
def test_known_answers_at_delta_1e_5(epsilon, mu):
    assert largest_mu(epsilon, 1e-5) == pytest.approx(mu, abs=6e-7)
    assert smallest_epsilon(mu, 1e-5) == pytest.approx(epsilon, rel=1e-6)


def test_known_answers_of_sequence_latents():
    sigma = 0.1 * 2 * math.sqrt(20 * 768) / largest_mu(500, 1e-5)
    assert sigma == pytest.approx(0.8957039, abs=1e-7)
    assert 2 * 0.1 * math.sqrt(20 * 182) / largest_mu(500, 1e-5) == pytest.approx(0.4360332, abs=1e-7)
    assert 10 / largest_mu(250, 1e-5) == pytest.approx(0.539422, abs=1e-6)
    ten_records = smallest_epsilon(largest_mu(500, 1e-5) * math.sqrt(10), 1e-5)
    assert ten_records == pytest.approx(4201.3, abs=0.05)


@pytest.mark.parametrize(("claimed", "true"), [(1, 0.75), (10, 10.39), (100, 300.14), (250, 1550.48), (500, 5764.63)])
def test_the_classical_formula_fails_above_one(claimed, true):
    classical = math.sqrt(2 * math.log(1.25 / 1e-5)) / claimed  # sigma for sensitivity 1
    assert smallest_epsilon(1 / classical, 1e-5) == pytest.approx(true, rel=3e-3)


@given(st.floats(0.01, 5000), st.sampled_from([1e-12, 1e-7, 1e-5, 0.1]))
def test_the_inverses_stay_on_the_safe_side_and_are_sharp(epsilon, delta):
    mu = largest_mu(epsilon, delta)
    assert log_delta(epsilon, mu) <= math.log(delta) < log_delta(epsilon, mu * (1 + 1e-6))
    again = smallest_epsilon(mu, delta)
    assert again == pytest.approx(epsilon, rel=1e-6)
    assert log_delta(again, mu) <= math.log(delta)


@given(st.floats(0.05, 50), st.floats(0.05, 20))
def test_the_profile_is_the_integral_of_its_definition(epsilon, mu):
    """Delta is the mass of the worse Gaussian less e^epsilon times the other's, where the loss exceeds epsilon."""
    from scipy.integrate import quad

    edge = epsilon / mu + mu / 2  # outcomes above it lose more than epsilon
    density = lambda z: math.exp(-((z - mu) ** 2) / 2) - math.exp(epsilon - z * z / 2)
    mass, error = quad(density, edge, max(edge, mu) + 12, epsabs=1e-14, limit=200)
    assert math.exp(log_delta(epsilon, mu)) == pytest.approx(
        mass / math.sqrt(2 * math.pi), rel=1e-5, abs=10 * error + 1e-13
    )


@pytest.mark.parametrize("epsilon", [0.1, 1, 10, 100, 500, 2500])
def test_it_agrees_with_dp_accounting(epsilon):
    library = pytest.importorskip("dp_accounting.gaussian_mechanism", reason="dp-accounting is not installed")
    assert 1 / largest_mu(epsilon, 1e-5) == pytest.approx(library.get_sigma_gaussian(epsilon, 1e-5), rel=1e-9)
