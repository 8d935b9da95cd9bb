#!/usr/bin/env python3
"""Check the claims of `privacy.md` that are marked [V]: every function asserts, and says in a sentence what held.

Needs numpy and scipy; `dp-accounting` for V7c. Nothing of dptext_etl is imported: this is evidence next to the code.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from collections.abc import Callable

import numpy as np
import verify_mechanisms
from formulas import (
    BITS,
    epsilon_implemented,
    epsilon_star,
    generator,
    geometric,
    heads,
    largest_mu,
    log_pmax,
    profile,
    ratios,
    tails,
    true_epsilon,
)
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom


def v1_analytic_gaussian() -> str:
    """Sigma at epsilon 500, and what the classical formula gives there."""
    clv, pruned, mu = 0.2 * math.sqrt(15360), 0.2 * math.sqrt(3640), largest_mu(500, 1e-5)
    assert abs(clv - 24.787093) < 1e-6
    assert abs(pruned - 12.066483) < 1e-6
    assert abs(clv / mu - 0.895704) < 1e-6
    assert abs(pruned / mu - 0.436033) < 1e-6
    assert abs((clv / mu) ** 2 - 0.802285) < 1e-6
    assert abs((pruned / mu) ** 2 - 0.190125) < 1e-6
    assert (round(24.79 / mu, 4), round(12.07 / mu, 4)) == (0.8958, 0.4362)
    assert abs(true_epsilon(500 / math.sqrt(2 * math.log(1.25e5)), 1e-5) - 5764.634) < 0.01
    return "sigma = 0.895704, 0.436033; classical sigma at epsilon 500 is really epsilon 5764.6"


def v7a_bounded_range() -> str:
    """One draw of bounded range: Kullback-Leibler, Renyi, profile."""
    for epsilon in (0.5, 1.0, 3.0, 8.0):
        inner = np.linspace(1e-6, epsilon - 1e-6, 1001)
        share = epsilon / (1 - math.exp(-epsilon))
        kappa = share - 1 - math.log(share)
        assert abs(max(t + (heads(t, epsilon) - 1) * epsilon for t in inner) - kappa) < 1e-4
        assert kappa <= epsilon**2 / 8 + 1e-12
        for order, t in itertools.product((1.01, 1.5, 2, 5, 20, 100), inner[::10]):
            p, q = heads(t, epsilon), tails(t, epsilon)
            yes = order * math.log(p) + (1 - order) * math.log(q)
            no = order * math.log1p(-p) + (1 - order) * math.log1p(-q)
            assert np.logaddexp(yes, no) / (order - 1) <= order * epsilon**2 / 8 + 1e-7
        for x in np.linspace(-epsilon + 0.01, epsilon - 0.01, 9):
            t = np.linspace(1e-9, epsilon - 1e-9, 4001)
            p, q = heads(t, epsilon), tails(t, epsilon)
            worst = np.maximum(p - math.exp(x) * q, 0) + np.maximum(1 - p - math.exp(x) * (1 - q), 0)
            assert abs(worst.max() - max(profile(x, epsilon), 1 - math.exp(x))) < 1e-5
        assert abs(profile(0.0, epsilon) - math.tanh(epsilon / 4)) < 1e-12
    return "bounded range: largest KL divergence, Renyi <= order epsilon^2/8, profile, total variation tanh(epsilon/4)"


def nonadaptive_delta(epsilon: float, k: int, total: float) -> float:
    """Delta of k non-adaptive draws of bounded range (Dong, Durfee and Rogers 2020)."""
    offsets = [min(max((total + (i + 1) * epsilon) / (k + 1), 0), epsilon) for i in range(k + 1)]
    return max(one_offset_delta(t, epsilon, k, total) for t in offsets)


def one_offset_delta(t: float, epsilon: float, k: int, total: float) -> float:
    """Delta where every draw has the same offset."""
    i = np.arange(k + 1)
    losses, chances = k * t - i * epsilon, binom.pmf(i, k, 1 - heads(t, epsilon))
    above = losses > total
    return float((chances[above] * (1 - np.exp(total - losses[above]))).sum())


def nonadaptive_epsilon(epsilon: float, k: int, delta: float) -> float:
    """Epsilon of k non-adaptive draws."""
    return brentq(lambda total: nonadaptive_delta(epsilon, k, total) - delta, 0, k * epsilon)


def v7b_nonadaptive_optimum() -> str:
    """The finite formula is the maximum over all offsets."""
    for epsilon, k, total in ((1, 10, 3), (0.5, 50, 5), (3, 10, 15)):
        grid = np.linspace(1e-9, epsilon - 1e-9, 2000)
        assert nonadaptive_delta(epsilon, k, total) >= max(one_offset_delta(t, epsilon, k, total) for t in grid) - 1e-9
    known = {(1.0, 20): 12.02, (1.0, 50): 21.77, (2.0, 20): 27.78, (3.0, 20): 45.72}
    for (epsilon, k), expected in known.items():
        assert abs(nonadaptive_epsilon(epsilon, k, 1e-6) - expected) < 0.006
    return "Dong-Durfee-Rogers: k = 20, epsilon = 1, delta = 1e-6 gives 12.02"


def v7c_composed_profile() -> str:
    """The profile of bounded range composed numerically, epsilons that are no multiple of the bin included."""
    if importlib.util.find_spec("dp_accounting") is None:
        return "left out: dp-accounting is not installed"
    import dp_accounting
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    def composed(epsilon: float, k: int, bin_size: float = 1e-3) -> float:
        bins = math.ceil(epsilon / bin_size)
        losses = np.arange(-bins, bins + 1)
        deltas = np.maximum(profile(losses * bin_size, epsilon), 1 - np.exp(losses * bin_size))
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots(bin_size, losses, deltas)
        one = privacy_loss_distribution.PrivacyLossDistribution(pmf)
        return one.self_compose(k).get_epsilon_for_delta(1e-6)

    known = {(1.0, 20): 13.43, (1.0, 50): 25.42, (2.0, 20): 30.53, (3.0, 20): 49.35}
    for (epsilon, k), expected in known.items():
        assert abs(composed(epsilon, k) - expected) < 0.006
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(dp_accounting.ZCDpEvent(k * epsilon**2 / 8))
        best = zcdp_epsilon(k * epsilon**2 / 8, 1e-6)
        assert best <= accountant.get_epsilon(1e-6) + 1e-9 < best + 0.04
    for epsilon in (0.0004, 0.99995, 1.00037):  # no multiple of the bin; never below the optimum of weaker adversaries
        assert nonadaptive_epsilon(epsilon, 20, 1e-6) <= composed(epsilon, 20) <= 20 * epsilon + 0.03
    assert composed(1.0, 20) <= composed(1.00037, 20) <= composed(1.001, 20)
    return "adaptive: composed profile 13.43 at k = 20, epsilon = 1, delta = 1e-6; pure 20"


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP at delta, by the best order (Canonne, Kamath and Steinke 2020)."""

    def at(order: float) -> float:
        rest = math.log(1 / delta) + order * math.log1p(-1 / order) - math.log(order - 1)
        return order * rho + rest / (order - 1)

    return minimize_scalar(at, bounds=(1 + 1e-6, 1000), method="bounded", options={"xatol": 1e-9}).fun


def v7d_other_conversions() -> str:
    """Epsilon by zCDP and by Azuma, as stated for delta 1e-6."""
    known = {(1, 20): (13.37, 14.22), (1, 50): (23.70, 24.75), (2, 20): (32.22, 33.00), (3, 20): (56.19, 55.41)}
    for (epsilon, k), (concentrated, azuma) in known.items():
        share = epsilon / (1 - math.exp(-epsilon))
        found = k * (share - 1 - math.log(share)) + epsilon * math.sqrt(k / 2 * math.log(1e6))
        assert abs(zcdp_epsilon(k * epsilon**2 / 8, 1e-6) - concentrated) < 0.006
        assert abs(min(k * epsilon, found) - azuma) < 0.006
    return "zCDP 13.37, Azuma 14.22 at k = 20, epsilon = 1, delta = 1e-6"


def v9_printed_algorithm_3() -> str:
    """Algorithm 3 as printed leaves original words; with its plan drawn first none; likely numbers of draws."""
    random = generator()

    def printed(n: int, deletion: float, addition: float) -> tuple[list[bool], int]:
        private, added, deleted, calls = [True] * n, 0, 0, 0  # True is an original word
        for i in range(1, n + 1):
            if random.random() >= deletion:
                calls += 1
                place = i + added - deleted
                if 1 <= place <= len(private):
                    private[place - 1] = False
            else:
                deleted += 1
            if random.random() <= addition:
                added, calls = added + 1, calls + 1
                private.insert(i + added - deleted - 1, False)
        return private, calls

    def corrected(n: int, deletion: float, addition: float) -> list[bool]:
        private, place, calls = [True] * n, 0, 0
        for _ in range(n):
            if random.random() < deletion:
                del private[place]
            else:
                private[place] = False
                place, calls = place + 1, calls + 1
            if random.random() < addition:
                private.insert(place, False)
                place, calls = place + 1, calls + 1
        assert place == len(private) == calls
        return private

    runs = [printed(20, 0.05, 0.25) for _ in range(4000)]
    leaks = np.mean([any(private) for private, _ in runs])
    assert abs(leaks - (1 - 0.95**20)) < 0.04
    assert abs(np.mean([calls for _, calls in runs]) - 20 * 1.2) < 0.2
    assert not any(any(corrected(20, 0.05, 0.25)) for _ in range(2000))
    for n, few, many in ((20, 30, 35), (50, 66, 77), (100, 124, 144), (200, 236, 273)):
        for addition, likely in ((0.1, few), (0.25, many)):
            counts = np.arange(n + 1)
            chances = np.convolve(binom.pmf(counts, n, 0.95), binom.pmf(counts, n, addition))
            assert int(np.argmax(1 - np.cumsum(chances) <= 1e-6)) == likely
    return f"printed Algorithm 3 leaves originals with probability {leaks:.3f}; likely draws at delta 1e-6 as stated"


def v10_relative_gain() -> str:
    """Known answers of both relative gains."""

    def by_base(u: float, p: float, u_base: float, p_base: float) -> float:
        return u / u_base - p / p_base

    def by_majority(u: float, p: float, bases: tuple[float, float], guesses: tuple[float, float]) -> float:
        return (u - guesses[0]) / (bases[0] - guesses[0]) - (p - guesses[1]) / (bases[1] - guesses[1])

    assert round(by_base(97.30, 59.74, 99.62, 69.60), 2) == 0.12
    assert round(by_base(95.51, 13.72, 97.50, 87.20), 2) == 0.82
    yelp, trustpilot = ((95.09, 95.90), (96.65, 29.89)), ((99.49, 72.16), (95.83, 66.67))
    assert abs(by_majority(93.53, 42.20, *yelp) - 1.8135) < 1e-3  # the table has 1.81
    assert abs(by_majority(94.70, 65.84, *yelp) - 0.7054) < 1e-3  # the table prints 0.19
    assert abs(by_majority(98.89, 67.28, *trustpilot) - 0.7250) < 1e-3  # the table prints 1.34
    collapsed = 1618 / 1730
    assert abs(2 * collapsed / (1 + collapsed) * 100 - 96.655) < 1e-2
    assert abs(100 * collapsed - 93.526) < 1e-2
    return "two wrong cells in table 1 of Meisenbacher et al. 2025; MG_u is an F1 while scores are accuracies"


def v11_ner_test() -> str:
    """A test of membership that is never true."""
    scores: list[object] = [("Paris", 1), ("is", 0)]
    assert 1 not in scores
    return "EpsilonDistributor's test `1 in list_of_tuples` is always False"


def v12_allocation_rule() -> str:
    """Allocation by inverse scores."""
    figure = [2.17, 1.01, 0.43, 0.38, 0.38, 1.49, 2.07, 0.79, 0.28]
    assert abs(sum(figure) - 9) < 1e-9
    inverse = 1 / np.array([0.1, 0.2, 0.4])
    assert np.allclose(7 * inverse / inverse.sum(), [4, 2, 1])
    return "s = (.1, .2, .4), E = 7 gives (4, 2, 1)"


def v13_float_samplers() -> str:
    """Where samplers in floating point lose outputs."""
    for bits, expected in ((24, 19.447), (53, 40.341)):
        width = math.log(-math.log(2.0**-bits)) - math.log(-math.log1p(-(2.0**-bits)))
        assert abs(width - expected) < 1e-3
    for bits, expected in ((53, 51.82), (24, 11.62)):
        assert abs(2 * (bits * math.log(2) - math.log(50265)) - expected) < 0.01
    return "outputs of probability 0 above epsilon 38.9, 80.7 (Gumbel), 51.8 (float64 CDF), 11.6 (float32 CDF)"


def v15_known_answers() -> str:
    """Spends and tables of the page."""
    star = {20: (0.948209, 2.799893, 7.824329, 15.444368, 27.944439, 52.944439)}
    star |= {32128: (0.999968, 2.999867, 9.995391, 22.764368, 35.377452, 60.377452, 79.044119, 113.377452, 135.377452)}
    star |= {50265: (0.999979, 2.999915, 9.997052, 23.153349, 35.825044, 60.825044, 79.491711, 113.825044, 135.825044)}
    implemented = {32128: (0.999968, 2.999867, 9.995391, 22.764368, 35.376712, *[42.262222] * 4)}
    implemented |= {50265: (0.999979, 2.999915, 9.997052, 23.153349, 35.824304, *[42.709815] * 4)}
    for table, parameter in ((star, epsilon_star), (implemented, epsilon_implemented)):
        for m, row in table.items():
            for epsilon, expected in zip((1, 3, 10, 25, 50, 100, 412 / 3, 206, 250), row, strict=False):
                assert abs(parameter(epsilon, m) - expected) < 1e-6
    assert abs(12 * epsilon_implemented(25, 50265) - 277.8402) < 1e-4
    assert abs(100 * epsilon_star(412 / 3, 32128) - 7904.41) < 0.01
    assert abs(100 * epsilon_implemented(412 / 3, 32128) - 4226.22) < 0.01
    assert abs(8 * epsilon_star(3, 20) - 22.3991) < 1e-4
    return "epsilon*, epsilon_impl and spends as stated"


def v16_gates() -> str:
    """Correct runs copy rows: a check per row has no threshold."""
    assert abs(math.exp(log_pmax(3, 20)) - 0.19) < 0.001
    assert abs(math.exp(10 * log_pmax(50, 50265)) - 0.999993) < 1e-6
    return "CusText keeps one word with probability 0.19; ten words at epsilon 50 with 0.999993"


def v17_rounded_tails() -> str:
    """A table of integer weights breaks the claim per distance."""
    gaps = np.abs(np.subtract.outer(np.arange(100), np.arange(100)))
    exact = np.array([geometric(i, 100, 1.0) for i in range(100)])
    assert (ratios(exact) - gaps).max() <= 1e-9
    weights = np.maximum(np.floor(exact / exact.max(axis=1, keepdims=True) * 2**BITS), 1.0)
    worst = ratios(weights / weights.sum(axis=1, keepdims=True))[gaps == 1].max()
    assert abs(worst - 1.333) < 0.001
    return f"geometric, N = 100, epsilon 1, one place apart: rounded weights realize {worst:.3f}"


def v18_noisy_length() -> str:
    """The first clamp of a noisy length is needed."""

    def law(start: int, most: int, epsilon: float) -> list[float]:
        found = [0.0] * most  # lengths 1 .. most
        a = math.exp(-epsilon / (most - 1))
        for step in range(-4000, 4001):
            found[min(max(start + step, 1), most) - 1] += (1 - a) / (1 + a) * a ** abs(step)
        return found

    for most, epsilon in ((2, 2.5), (5, 1.0), (30, 0.5)):
        table = np.array([law(n, most, epsilon) for n in range(most + 1)])
        assert ratios(table[1:]).max() <= epsilon + 1e-9
        assert abs(ratios(table).max() - epsilon * most / (most - 1)) < 1e-6
    return "noisy length: E_len with n clamped to 1..N first, N / (N-1) of it without (5.0 at N = 2, E_len = 2.5)"


def v19_second_moment() -> str:
    """No pair of records found by search moves sums, counts, and second moment further than opposite vectors do."""
    random, count = generator(), 11 / 16

    def clipped(x: np.ndarray) -> np.ndarray:
        return x / max(1.0, float(np.linalg.norm(x)))

    def loss(u: np.ndarray, v: np.ndarray, same: bool) -> float:
        """2 rho V / G^2, in units of the clip: T_ij counts once for i < j, T_ii by half."""
        sums = ((u - v) ** 2).sum() if same else (u**2).sum() + (v**2).sum() + 2 * count**2
        moment = np.outer(u, u) - np.outer(v, v)
        return float(sums + (np.triu(moment, 1) ** 2).sum() + (np.diag(moment) ** 2).sum() / 2)

    def climbed(d: int, same: bool) -> float:
        u, v, step = clipped(random.normal(size=d)), clipped(random.normal(size=d)), 0.5
        best = loss(u, v, same)
        for _ in range(1500):
            a, b = clipped(u + step * random.normal(size=d)), clipped(v + step * random.normal(size=d))
            value = loss(a, b, same)
            u, v, best = (a, b, value) if value > best else (u, v, best)
            step = step if value == best else max(1e-3, step * 0.995)
        return best

    for d in (1, 2, 3, 8):
        assert 3.99 < max(climbed(d, same=True) for _ in range(5)) <= 4 + 1e-9
        assert 2 < max(climbed(d, same=False) for _ in range(5)) <= 3.9454 + 1e-9
    return "sums, counts, and second moment: 2 rho V / G^2 = 4 at most, 3.95 if the label changes"


def claims() -> dict[str, Callable[[], str]]:
    """Return every claim by its number."""
    found = {
        name: value
        for module in (verify_mechanisms, sys.modules[__name__])
        for name, value in vars(module).items()
        if name[:1] == "v" and name[1:2].isdigit()
    }
    return dict(sorted(found.items(), key=lambda item: (int("".join(filter(str.isdigit, item[0][:3]))), item[0])))


if __name__ == "__main__":
    for name, claim in claims().items():
        print(f"{name.partition('_')[0].upper():5}", claim())
    print("ALL OK")
