"""Claims of `privacy.md` about laws, checked by enumeration; `verify_privacy.py` runs them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from formulas import (
    BITS,
    Floats,
    distances,
    epsilon_implemented,
    epsilon_star,
    f,
    g,
    generator,
    geometric,
    largest_mu,
    least_weight,
    log_pmax,
    log_pmin,
    mechanism,
    ratios,
    realised,
)
from scipy.special import logsumexp
from scipy.stats import laplace

Prefix = tuple[int, ...]


def v2_exact_parameter() -> str:
    """Epsilon* is attained, and at most epsilon."""
    for m, epsilon in itertools.product((2, 3, 4, 5), (0.3, 1.0, 4.0, 9.0)):
        for scores in itertools.product((0, 0.5, 1.0), repeat=m):
            law = mechanism(scores, epsilon)
            assert law.max() <= math.exp(log_pmax(epsilon, m)) + 1e-12
            assert law.min() >= math.exp(log_pmin(epsilon, m)) - 1e-12
        firsts = [mechanism(scores, epsilon)[0] for scores in itertools.product((0, 1.0), repeat=m)]
        worst = math.log(max(firsts) / min(firsts))
        assert abs(worst - epsilon_star(epsilon, m)) < 1e-9
        assert worst <= epsilon + 1e-12
    assert abs(epsilon_star(10, 50265) - 9.9971) < 1e-4
    assert abs(epsilon_star(100, 50265) - 60.825) < 1e-3
    assert abs(epsilon_star(1, 20) - 0.9482) < 1e-4
    return "the exact epsilon*(epsilon, m) is attained and at most epsilon"


def v3_theorem_a() -> str:
    """Allocations that depend on the data stay below n f(E/n) + g(E) <= E."""
    random = generator()

    def transcripts(m: int, n: int, total: float) -> dict[Prefix, float]:
        known: dict[Prefix, tuple[Floats, float]] = {}
        mode, laws = random.integers(0, 3), {}

        def extend(prefix: Prefix, chance: float, left: float) -> None:
            if len(prefix) == n:
                laws[prefix] = chance
                return
            if prefix not in known:
                scores = random.uniform(0, 1, m) if mode == 0 else random.integers(0, 2, m).astype(float)
                known[prefix] = scores, random.uniform() if mode < 2 else float(random.integers(0, 2))
            scores, share = known[prefix]
            here = left if len(prefix) == n - 1 else left * share
            for y, p in enumerate(mechanism(scores, here)):
                extend((*prefix, y), chance * p, left - here)

        extend((), 1.0, total)
        return laws

    for _ in range(1500):
        m, n, total = int(random.integers(2, 5)), int(random.integers(1, 4)), float(random.uniform(0.1, 12))
        first, second = transcripts(m, n, total), transcripts(m, n, total)
        worst = max(abs(math.log(first[y] / second[y])) for y in first)
        assert worst <= n * f(total / n, m) + g(total, m) + 1e-9 <= total + 2e-9
    m, n, total = 4, 2, 6.0
    even, one = mechanism(np.eye(m)[0], total / n), mechanism(1 - np.eye(m)[0], total)
    attained = max(
        math.log(math.prod(even[i] for i in y) / (one[y[0]] / m)) for y in itertools.product(range(m), repeat=n)
    )
    assert abs(attained - (n * f(total / n, m) + g(total, m))) < 1e-9
    assert abs(attained - 4.476449) < 1e-6
    return "the supremum over data-dependent allocations is n f(E/n) + g(E) <= E, attained"


def v3b_theorem_a_with_integers() -> str:
    """Integer weights saturate: the tight value, and the substitution that is too low."""
    m, n, total = 4, 2, 140.0
    step, saturated = 2 * BITS * math.log(2), math.log((1 + (m - 1) * 2**BITS) / m)
    assert abs(step - 63.77) < 0.01
    assert int(total // step) >= n
    tight = n * f(total / n, m) + n * saturated
    attained = n * sum(realised(total / n, m))  # one input takes the best outcome twice, the other the worst
    substituted = n * realised(total / n, m)[0] + realised(total, m)[1]
    assert abs(attained - 65.97) < 0.01
    assert abs(substituted - 34.37) < 0.01
    assert substituted < attained <= tight + 1e-9 <= total
    for epsilon in np.linspace(0.01, 120, 200):
        high, low = realised(float(epsilon), m)
        assert high <= f(epsilon, m) + 1e-12
        assert low <= g(epsilon, m) + 1e-12
    return "at m = 4, n = 2, E = 140 integers realize 65.97; f_int and g_int in the formula say 34.37"


def v4a_geometric_allocation() -> str:
    """The same token under two epsilons."""
    found = np.log(geometric(50, 100, 1.0) / geometric(50, 100, 0.1))
    assert abs(found.max() - math.log(math.tanh(0.5) / math.tanh(0.05))) < 1e-9
    assert found.max() > 2.2
    assert found.min() < -44
    return f"geometric, same token, epsilon 1 against 0.1: log-ratio up to {-found.min():.2f}, so no epsilon d bound"


def v4b_latent_allocation() -> str:
    """The scale of Gaussian noise reveals the allocation."""
    ratio = (largest_mu(100, 1e-5) / largest_mu(250, 1e-5)) ** 2
    divergence = 15360 / 2 * (ratio - 1 - math.log(ratio))
    assert divergence > 3000
    return f"DP-BART, same sentence, epsilon 250 against 100: KL divergence {divergence:.0f} nats"


def v4c_unequal_lists() -> str:
    """Lists of unequal vocabularies tell a word with certainty."""
    lists = ["abc", "acz"]

    def law(token: str) -> dict[str, float]:
        found, having = dict.fromkeys("abcz", 0.0), [one for one in lists if token in one]
        for one in having:
            for word, p in zip(one, geometric(one.index(token), 3, 1.0), strict=True):
                found[word] += p / len(having)
        return found

    assert law("a")["z"] > 0
    assert law("b")["z"] == 0
    return "1-Diffractor with unequal vocabularies: P(z|a) > 0, P(z|b) = 0"


def v5_permute_and_flip() -> str:
    """Permute-and-flip keeps the exponential mechanism's band."""

    def law(scores: Sequence[float], epsilon: float) -> Floats:
        exact, m = np.asarray(scores, float), len(scores)
        heads, found = np.exp(epsilon * (exact - exact.max()) / 2), np.zeros(m)
        for order in itertools.permutations(range(m)):
            left = 1.0
            for i in order:
                found[i] += left * heads[i]
                left *= 1 - heads[i]
        return found / math.factorial(m)

    for m, epsilon in itertools.product((2, 3, 4, 5), (0.5, 2.0, 6.0)):
        for scores in itertools.product((0, 0.4, 1.0), repeat=m):
            found = law(scores, epsilon)
            assert found.max() <= math.exp(epsilon / 2) / m + 1e-12
            assert found.min() >= math.exp(-epsilon / 2) / m - 1e-12
        worst = math.log(law([1] + [0] * (m - 1), epsilon)[0] / law([0] + [1] * (m - 1), epsilon)[0])
        assert abs(worst - (epsilon + math.log(1 - (1 - math.exp(-epsilon / 2)) ** m))) < 1e-9
    return "permute-and-flip stays in the band; exact epsilon = epsilon + ln(1 - (1 - e^(-epsilon/2))^m)"


def v6a_geometric_lists() -> str:
    """The geometric mechanism and a mixture of lists keep epsilon times the distance."""
    random = generator()
    for places, epsilon in itertools.product((2, 5, 9), (0.2, 1.0)):
        table = np.array([geometric(i, places, epsilon) for i in range(places)])
        gaps = abs(np.subtract.outer(range(places), range(places)))
        assert (ratios(table) - epsilon * gaps).max() <= 1e-9
        assert abs(ratios(table)[0, -1] - epsilon * (places - 1)) < 1e-9
        orders = [random.permutation(places) for _ in range(3)]
        mixture = np.mean([table[np.ix_(order, order)] for order in orders], axis=0)
        farthest = np.max([abs(np.subtract.outer(order, order)) for order in orders], axis=0)
        assert (ratios(mixture) - epsilon * farthest).max() <= 1e-9
    return "geometric and mixtures of lists: log-ratio <= epsilon times the largest index distance"


def v6b_word_mechanisms() -> str:
    """TEM, SanText+, MADLIB in one dimension and CusText, by enumeration."""
    random, epsilon = generator(), 1.3
    gaps = distances(random.normal(size=(12, 2)) * 3)
    for gamma in (1.0, 3.0, 100.0):
        table = np.zeros((12, 12))
        for x in range(12):
            near = gaps[x] <= gamma
            outside = int((~near).sum())
            shared = epsilon / 2 * (2 * math.log(outside) / epsilon - gamma) if outside else -np.inf
            law = np.append(np.where(near, -epsilon * gaps[x] / 2, -np.inf), shared)
            law = np.exp(law - logsumexp(law))
            table[x] = np.where(near, law[:-1], law[-1] / max(outside, 1))
        capped = np.minimum(gaps, gamma)
        direct = np.exp(-epsilon * capped / 2)
        np.testing.assert_allclose(table, direct / direct.sum(1, keepdims=True), rtol=1e-5, atol=1e-8)
        assert (ratios(table) - epsilon * capped).max() <= 1e-9
    p, sensitive, table = 0.2, list(range(6)), np.zeros((12, 12))
    for x in range(12):
        law = np.exp(-epsilon * gaps[x, sensitive] / 2)
        table[x, sensitive] = law / law.sum() * (1 if x in sensitive else p)
        table[x, x] += 0 if x in sensitive else 1 - p
    assert (ratios(table[:, sensitive]) - epsilon * gaps).max() <= math.log(1 / p) + 1e-9
    words = np.sort(random.normal(size=8) * 2)
    edges = np.concatenate([[-np.inf], (words[1:] + words[:-1]) / 2, [np.inf]])
    table = np.array([np.diff(laplace.cdf(edges, loc=x, scale=1 / epsilon)) for x in words])
    assert (ratios(table) - epsilon * abs(np.subtract.outer(words, words))).max() <= 1e-9
    for members, by_row in itertools.product((2, 5, 20), (False, True)):
        gaps = distances(random.normal(size=(members, 3)))
        low, high = (gaps.min(1, keepdims=True), gaps.max(1, keepdims=True)) if by_row else (gaps.min(), gaps.max())
        logs = -3.0 * ((gaps - low) / (high - low)) / 2
        logs -= logsumexp(logs, axis=1, keepdims=True)
        assert (logs[:, None] - logs[None]).max() <= epsilon_star(3.0, members) + 1e-9 <= 3 + 1e-9
    return "TEM is the exponential mechanism of -min(d, gamma); SanText+, MADLIB in 1-d, CusText in both norms"


def v8_realised_parameter() -> str:
    """What integers realize is at most epsilon*."""
    for m, epsilon in itertools.product((2, 5, 32128, 50265), (0.1, 1, 10, 25, 50, 137.34, 250)):
        assert epsilon_implemented(epsilon, m) <= epsilon_star(epsilon, m) + 1e-9
    assert abs(epsilon_implemented(100, 50265) - 42.7098) < 1e-3
    assert abs(epsilon_implemented(10, 50265) - 9.9971) < 1e-3
    return "epsilon_impl <= epsilon*; at epsilon 100, m = 50,265 it is 42.7098"


def v14_integer_weights() -> str:
    """The sampler's integers, shifted per input, stay within epsilon_impl; the golden weights."""
    random, top = generator(), 2**BITS

    def weights(scores: Floats, epsilon: float, span: float = 1.0) -> list[int]:
        exponents = (epsilon / 2) * (scores.max() - scores) / span
        return [max(least_weight(epsilon), min(top, math.floor(top * math.exp(-e)))) for e in exponents]

    for _ in range(2000):
        m, epsilon = int(random.integers(2, 9)), float(random.uniform(0.05, 120))
        logs = []
        for _ in range(2):
            row = weights(random.choice([random.uniform(0, 1, m), random.integers(0, 2, m).astype(float)]), epsilon)
            assert max(row) == top
            logs.append([math.log(weight) - math.log(sum(row)) for weight in row])
        assert max(a - b for a, b in zip(*logs, strict=True)) <= epsilon_implemented(epsilon, m) + 1e-9
    low, high = -3.2093127, 16.304797887802124
    row = weights(np.clip(np.array([-10, 0, 5, 16.4, low]), low, high), 10.0, high - low)
    golden = [474140868662, 1079021751925, 3885217941667, 70368744177664, 474140868662]
    assert max(abs(a - b) for a, b in zip(row, golden, strict=True)) <= 1
    number = 0xC77E98A7007B9524 % sum(golden)
    assert (number, sum(golden)) == (42962242577572, 76281265608580)
    assert next(i for i, total in enumerate(itertools.accumulate(golden)) if total > number) == 3
    return "integer weights with a shift per input: ratio <= epsilon_impl; golden weights give index 3"
