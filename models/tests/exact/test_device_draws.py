"""A device draws by scores as the kernel does."""

import numpy as np
import pytest

from dptext_etl.errors import InputError, PolicyError
from dptext_etl.sampling import TOKEN, integer_weights, smallest_weight, weight_bits
from dptext_etl_models.inference import device_draws
from dptext_etl_models.inference.device_draws import choose
from tests.later import later
from tests.score_oracle import HEAVY, ROBERTA, WIDE, device_weights, odd_scores, slots_of, some_slots

torch = later("torch")


@pytest.mark.parametrize(("row", "first", "expected"), [
    ([5, 1, 3], 0, [0, 0, 2, 0, 2, 0, 2, 0, 2, 0, 0, 0, 2, 2, 2, 2]),
    (WIDE, 0, [2683, 2683, 2473, 9827, 984, 2279, 2552, 2681]),
    (HEAVY, 0, [4303, 3349, 5161, 660, 834, 255, 2469, 255, 255]), (HEAVY, 10, [4501]), (HEAVY, 18, [255]),
    (HEAVY, 50, [26]),
])  # fmt: skip
def test_golden_vectors_of_both_widths_on_a_device(row, first, expected):
    slots = slots_of([0] * len(expected), range(first, first + len(expected)))
    drawn = device_draws.draw_on_device(device_weights(torch, [row] * len(expected)), slots, TOKEN)
    assert drawn.tolist() == expected


@pytest.mark.parametrize("m", [2, 100, 256, 4096, 4097, 9000])
@pytest.mark.parametrize("epsilon", [1.0, 30.0, 150.0])
def test_a_device_draws_what_the_kernel_draws(m, epsilon, monkeypatch):
    monkeypatch.setattr(device_draws, "CELLS_AT_ONCE", 5 * m)  # several parts
    n = 24
    scores, slots = odd_scores(n, m).round(), some_slots(n)
    tensor = torch.from_numpy(scores)
    made = device_draws.weigh_on_device(tensor, (epsilon, *ROBERTA.values())).numpy()
    exact = integer_weights(scores, epsilon, **ROBERTA).astype(np.int64)
    assert np.abs(made[:, :m] - exact).max() <= 1
    assert (made[:, m:] == 0).all()
    assert made[:, :m].min() >= smallest_weight(epsilon, m)
    assert (made.max(axis=1) == 2 ** weight_bits(m)).all()
    on_device = choose(tensor, slots, epsilon=epsilon, on_device=True, **ROBERTA)
    np.testing.assert_array_equal(on_device, choose(tensor, slots, epsilon=epsilon, **ROBERTA))
    np.testing.assert_array_equal(on_device, choose(scores, slots, epsilon=epsilon, **ROBERTA))
    assert on_device.dtype == np.uint32


@pytest.mark.parametrize("m", [3, 5000])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int32"])
def test_tensors_of_any_type_are_read(m, dtype):
    slots = some_slots(6)
    tensor = torch.from_numpy(np.random.default_rng(m).integers(-4, 17, (6, m))).to(getattr(torch, dtype))
    expected = choose(tensor.double().numpy(), slots, epsilon=20.0, **ROBERTA)
    for on_device in (True, False):
        tensor.requires_grad_(tensor.is_floating_point())
        drawn = choose(tensor, slots, epsilon=20.0, on_device=on_device, **ROBERTA)
        np.testing.assert_array_equal(drawn, expected)
    assert len(choose(tensor[:0], slots.take(slice(0)), epsilon=20.0, on_device=True, **ROBERTA)) == 0


@pytest.mark.parametrize("m", [2, 257, 5000])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("each", [False, True])
def test_fewer_passes_give_the_same_weights(m, dtype, each):
    """The formula step by step, with a pass for each: NaN, clip, distance from the best, power, floor, bounds."""
    scores = torch.from_numpy(np.random.default_rng(m).normal(0, 12, (7, m))).to(getattr(torch, dtype))
    for row, number in enumerate(("nan", "inf", "-inf")):
        scores[row, row % m] = float(number)
        scores[row + 3] = float(number)
    epsilons, (low, high), top = np.linspace(0.5, 90.0, 7), ROBERTA.values(), float(2 ** weight_bits(m))
    law = epsilons if each else 20.0
    clipped = scores.double()
    clipped = torch.where(clipped.isnan(), torch.full_like(clipped, low), clipped).clamp(low, high)
    half, least = (
        torch.tensor([[find(one)] for one in np.broadcast_to(law, 7).tolist()], dtype=torch.float64)
        for find in (lambda one: one / 2, lambda one: smallest_weight(one, m))
    )
    away = clipped.amax(dim=1, keepdim=True) - clipped
    expected = torch.maximum((away * -half / (high - low)).exp().mul(top).floor().clamp(max=top), least)
    made = device_draws.weigh_on_device(scores, (law, low, high))
    assert torch.equal(made[:, :m], expected.long())
    assert not made[:, m:].any()


def test_a_device_leaves_the_scores_as_they_were():
    for dtype in (torch.float32, torch.float64):
        tensor = torch.from_numpy(odd_scores(4, 50)).to(dtype)
        before = tensor.clone()
        choose(tensor, some_slots(4), epsilon=5.0, on_device=True, **ROBERTA)
        assert torch.equal(tensor.nan_to_num(7.0), before.nan_to_num(7.0))


def test_a_device_refuses_what_the_host_refuses():
    scores, law = torch.zeros((3, 10)), {"epsilon": 1.0, "low": 0.0, "high": 1.0, "on_device": True}
    with pytest.raises(InputError, match="its own slot"):
        choose(scores, some_slots(2), **law)
    with pytest.raises(RuntimeError, match="drawn twice"):
        choose(scores, slots_of([0, 1, 0], [4, 4, 4]), **law)
    with pytest.raises(InputError, match="below 3"):
        choose(scores, slots_of([0, 1, 3], [4, 4, 4]), **law)
    with pytest.raises(PolicyError, match="low"):
        choose(scores[:1], some_slots(1), **law | {"high": 0.0})


@pytest.mark.parametrize("m", [6, 5000])
def test_rows_with_epsilons_of_their_own_draw_as_each_would_alone(m):
    given = torch.from_numpy(np.random.default_rng(5).normal(size=(7, m)))
    epsilons, slots = np.array([0.5, 40.0, 1e-6, 250.0, 3.0, 3.0, 12.0]), some_slots(7)
    law = {"low": -2.0, "high": 2.0, "on_device": True}
    together = choose(given, slots, epsilon=epsilons, **law)
    alone = [
        choose(given[at : at + 1], slots.take(slice(at, at + 1)), epsilon=epsilon, **law)
        for at, epsilon in enumerate(epsilons.tolist())
    ]
    assert together.tolist() == [int(chosen[0]) for chosen in alone]
    with pytest.raises(InputError, match="its own epsilon"):
        choose(given, slots, epsilon=epsilons[:6], **law)
