"""A public number of sentences, each with its own vector: their noise, their streams, and what all of them cost.

Specification: docs/spec/privacy.md#allocation-sentences.
"""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.accounting.conversion import log_delta
from dptext_etl.allocation import Allocation
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.sampling import epsilon_implemented
from dptext_etl_models.families.latent_noise import clipped_steps, cut, noisy_latents
from models.tests.latent_toys import Given, Toy, adept, constant, dpbart, keys, released
from tests.fixed_allocations import FixedAllocation, scores_exist

SIZE = 64
LAPLACE = {"noise": "laplace", "n_rec": None}
TEXT = "It rained. We left! Anna stayed. She read."


@pytest.fixture(autouse=True)
def _scores(monkeypatch):
    scores_exist(monkeypatch)


def several(make, **options):
    return make(sentences=3, **options)


def shared(made, size, parts):
    whole = round(made.allocation.total * 1e6)
    return [made.scale_of(size, part, whole) for part in parts]


@pytest.mark.parametrize("make", [dpbart, adept])
def test_all_sentences_together_have_one_epsilon_and_one_delta(make):
    """The vectors of k sentences are one vector: its largest distance, its noise, no more and hardly less."""
    one, three = make(), several(make)
    assert three.spend(1) == one.spend(1)
    apart = three.sensitivity(SIZE) * math.sqrt(3)
    least = log_delta(three.epsilon, apart / three.scale(SIZE).sigma)
    assert math.log(three.used_delta) - 1e-5 < least <= math.log(three.used_delta)
    split = make(epsilon=one.epsilon / 3, delta=one.used_delta / 3)
    assert three.scale(SIZE).sigma < 0.9 * split.scale(SIZE).sigma, "less than adding up (E/k, delta/k) asks for"


@pytest.mark.parametrize("make", [dpbart, adept])
def test_pure_noise_of_all_sentences_adds_up_to_epsilon(make):
    made = several(make, clip=1.0, **LAPLACE)
    assert made.norm != "value" or made.scale(SIZE).rate * 2 * SIZE * clipped_steps(1.0) * 3 == 500
    assert made.spend(1).eps_pure == 500_000_000
    assert made.spend(1).rho == math.ceil(Fraction(500**2, 2 * 3) * 10**6), "each sentence is pure by itself"


@pytest.mark.parametrize("shares", [(3.0, 2.0, 1.0), (1.0,)])
def test_the_parts_of_a_template_add_up(shares):
    allocation = Allocation(total=600.0, template=shares)
    made = several(dpbart, epsilon=600.0, allocation=allocation, clip=1.0)
    parts = allocation.by_position(shares, 3)
    assert len(set(parts)) == len(shares)
    scales = shared(made, SIZE, parts)
    used = sum((made.sensitivity(SIZE) / scale.sigma) ** 2 for scale in scales)
    assert made.mu**2 * (1 - 1e-6) < used <= made.mu**2
    pure = several(dpbart, epsilon=600.0, allocation=allocation, clip=1.0, **LAPLACE)
    rates = [scale.rate for scale in shared(pure, SIZE, parts)]
    assert sum(rates) * 2 * SIZE * clipped_steps(1.0) == Fraction(sum(parts), 10**6) <= 600
    assert pure.spend(1).eps_pure == 600_000_000


def drawn(made, model, text):
    """Vectors that the decoder gets for one text, of shape (sentences, size), and the release."""
    out = released(made, model, [text], keys(1))
    return np.stack(model.decoded[: made.sentences]), out


def check_noise(made, got, scales, first=0):
    """Check that every vector has the noise of one stream and of its size."""
    for at, scale in enumerate(scales):
        size, stream = {"sigma": scale.sigma, "rate": scale.rate}, 4 + 256 * (first + at)
        alone = noisy_latents(np.full((1, SIZE), 0.05), keys(1), clip=made.clip, **size, purpose=stream)
        assert (got[at] == alone[0]).all()


@pytest.mark.parametrize("noise", [{}, LAPLACE])
def test_every_sentence_has_noise_of_its_own_stream_and_size(noise):
    allocation = Allocation(total=600.0, template=(3.0, 2.0, 1.0))
    for budget in ({}, {"epsilon": 600.0, "allocation": allocation}):
        made = several(dpbart, **budget, **noise)
        scales = [made.scale(SIZE)] * 3 if not budget else shared(made, SIZE, allocation.by_position((3, 2, 1), 3))
        got, _ = drawn(made, constant(SIZE), TEXT)
        check_noise(made, got, scales)
    assert len({row.tobytes() for row in got}) == 3


@pytest.mark.parametrize("text", ["", "One.", TEXT, TEXT * 9])
def test_the_number_of_sentences_is_never_disclosed(text):
    seen = []
    model = Toy(4, lambda piece: seen.append(piece) or np.zeros(4))
    made = several(dpbart)
    _, out = drawn(made, model, text)
    assert (seen[:3], "".join(seen[:3]).replace(" ", "")) == (cut(text, 3), text.replace(" ", ""))
    assert (len(out.text[0].as_py().split(" ")), out.positions.to_pylist()) == (3, [1])
    assert made.guarantee.disclosures == {Disclosure.NULLNESS}


def test_a_sentence_that_fails_is_the_zero_vector_and_the_others_stay():
    def encoder(piece):
        if "left" in piece:
            raise ValueError(piece)
        return np.full(4, 0.05)

    made = several(dpbart, **LAPLACE, epsilon=1e6)
    got, out = drawn(made, Toy(4, encoder), TEXT)
    assert np.abs(got[1]).max() < 0.01
    assert np.abs(got[[0, 2]] - 0.05).max() < 0.01
    assert out.failed.to_pylist() == [1]


def test_a_chosen_template_costs_the_choice_and_sets_the_noise():
    """Whose sentences ask for the second template gets it: the choice is nearly sure at that price."""
    words = ("It", "rained", "We", "left", "Anna", "stayed", "She", "read")
    templates = ((4.0, 1.0, 1.0), (1.0, 1.0, 4.0))
    allocation = FixedAllocation(
        total=600.0, divisions={words: (100.0, 100.0, 400.0)}, templates=templates, choosing=200.0
    )
    made = several(dpbart, allocation=allocation, epsilon=800.0)
    got, _ = drawn(made, constant(SIZE), TEXT)
    check_noise(made, got, shared(made, SIZE, allocation.by_position(templates[1], 3)))
    cost, plain = made.spend(1), several(dpbart, epsilon=600.0).spend(1)
    assert (cost.eps_approx, cost.delta, cost.mu2) == (800_000_000, plain.delta, math.inf)
    assert cost.rho == pytest.approx(plain.rho + 200**2 / 8 * 1e6, abs=2)
    pure = several(dpbart, allocation=allocation, epsilon=800.0, clip=1.0, **LAPLACE).spend(1)
    assert pure.eps_pure == 800_000_000
    assert pure.eps_tight == math.ceil((600 + epsilon_implemented(200.0, 2)) * 1e6)


class Speaking(Toy):
    """A model that writes "up" or "down" by the sign of its first number."""

    def decode(self, latents):
        self.decoded += list(latents)
        return ["up" if row[0] > 0 else "down" for row in latents]


def test_the_second_pass_sees_only_what_the_first_released():
    seen = []

    class Watching(FixedAllocation):
        def over(self, tokens, places=None, *, draws=None):
            seen.append((tuple(tokens), list(places)))
            return [300_000_000, 200_000_000, 100_000_000]

    allocation = Watching(total=600.0, first=300.0)
    made = several(dpbart, allocation=allocation, epsilon=900.0)
    model = Speaking(SIZE, lambda _: np.full(SIZE, 0.05))
    out = released(made, model, [TEXT], keys(1))
    first, last = model.decoded[:3], model.decoded[model.rows : model.rows + 3]
    ((tokens, places),) = seen
    assert tokens == tuple("up" if row[0] > 0 else "down" for row in first)
    assert places == [range(1), range(1, 2), range(2, 3)]
    even = made.scale_of(SIZE, 100_000_000, 300_000_000)
    scales = shared(made, SIZE, [300_000_000, 200_000_000, 100_000_000])
    check_noise(made, first, [even] * 3)
    check_noise(made, last, scales, first=3)
    assert out.text[0].as_py() == " ".join("up" if row[0] > 0 else "down" for row in last)


def test_two_passes_share_delta_and_their_costs_add_up():
    made = several(dpbart, allocation=FixedAllocation(total=600.0, first=300.0), epsilon=900.0)
    cost = made.spend(1)
    assert (cost.eps_approx, cost.delta) == (900_000_000, round(made.used_delta * 1e15))
    apart, squared = made.sensitivity(SIZE), []
    for epsilon in (300.0, 600.0):
        whole = round(epsilon * 1e6)
        each = (apart / made.scale_of(SIZE, whole // 3, whole).sigma) ** 2
        squared.append(3 * each)
        assert log_delta(epsilon, math.sqrt(3 * each)) <= math.log(made.used_delta / 2)
    assert cost.mu2 == pytest.approx(sum(squared) * 1e6, rel=1e-5)
    assert cost.mu2 >= sum(squared) * 1e6
    assert cost.rho == pytest.approx(cost.mu2 / 2, abs=2)


def test_vectors_of_all_sentences_may_leave_and_are_decoded_again():
    made = several(dpbart, releases="latents").with_model(constant(SIZE))
    texts = pa.array([TEXT, None, "One."], pa.large_string())
    noisy = made.noisy(texts, Given(keys(3)))
    assert noisy.type.list_size == 3 * SIZE
    assert made.decode(noisy).to_pylist() == made.release(texts, Given(keys(3))).text.to_pylist()
    with pytest.raises(PolicyError, match="in each of 3 sentences"):
        made.decode(pa.array([[0.0]], pa.list_(pa.float32(), 1)))


def test_one_vector_has_nothing_to_divide():
    with pytest.raises(PolicyError, match="set sentences, a public number"):
        dpbart(epsilon=600.0, allocation=Allocation(total=600.0, template=(2, 1)))


@pytest.mark.parametrize("make", [dpbart, adept])
@pytest.mark.parametrize("options", [{}, {**LAPLACE, "clip": 1.0}])
def test_faithful_mode_gives_every_sentence_its_own_epsilon_and_claims_nothing(make, options):
    """Paper 001, section 4.1: a sentence is released at its part of epsilon, with the whole delta."""
    parts = [100_000_000, 150_000_000, 250_000_000]
    made = several(make, mode="faithful", allocation=Allocation(scores=("fixed",), total=500.0), **options)
    alone = [make(mode="faithful", epsilon=part / 1e6, **options).scale(SIZE) for part in parts]
    assert shared(made, SIZE, parts) == alone
    assert made.guarantee.guarantee_class is GuaranteeClass.NONE
    assert made.spend(1).eps_pure == made.spend(1).rho == math.inf
