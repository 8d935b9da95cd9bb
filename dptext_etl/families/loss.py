"""Compare the loss of a draw, as far as a family knows it, with the charge (docs/spec/privacy.md#charge-covers-loss).

The loss follows from what decides a draw: stored integers, or the rate of noise. Neither a mechanism's own statement
nor a number that is stored with a table is believed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from dptext_etl.accounting.conversion import allocated_rho
from dptext_etl.errors import PolicyError, counted
from dptext_etl.guarantee import MICRO, Micro, exact
from dptext_etl.mechanism import Mechanism

_SLACK = Fraction(1, 10**12)  # above the rounding error of a computed loss


class Loss(NamedTuple):
    """The privacy loss of one draw between any two words, or texts, with equal disclosures.

    Attributes:
        pure: Largest difference of the log probabilities of one output.
        width: Upper bound of the range of these differences over all outputs: a draw is (width^2 / 8)-zCDP.
    """

    pure: Fraction | float
    width: Fraction | float

    @classmethod
    def of(cls, pure: float | Fraction, spread: float | Fraction = math.inf) -> Loss:
        """Return a loss; `spread` is the largest log ratio of two probabilities of one word, if that is known."""
        return cls(pure, 2 * min(pure, spread))

    def less_rounding(self) -> Loss:
        """Return exact amounts that are not above the loss, whatever its computation rounded."""
        amounts = (amount if amount == math.inf else exact(amount) * (1 - _SLACK) - _SLACK for amount in self)
        return Loss(*(max(Fraction(0), amount) for amount in amounts))


def require_epsilon(mechanism: Mechanism, loss: Loss, epsilon: float | Fraction) -> None:
    """Refuse a mechanism one of whose draws loses more than its epsilon."""
    _compare(mechanism, "one draw", loss.less_rounding().pure, math.inf if epsilon == math.inf else exact(epsilon))


def require_charge(mechanism: Mechanism, loss: Loss, length: Fraction = Fraction(0)) -> None:
    """Refuse a mechanism whose charge is below the loss of its draws.

    `loss` is of one draw, with the largest share where a budget is divided; `length` is of a drawn length, pure.
    """
    if mechanism.allocation is not None:
        require_epsilon(mechanism, loss, mechanism.allocation.largest)
    loss, allocation = loss.less_rounding(), mechanism.allocation
    for draws in sorted({1, min(2, mechanism.most_positions), mechanism.most_positions}):
        cost, least = mechanism.spend(draws), dict[str, Fraction | float]()  # that such a text may be charged
        if allocation is None:
            least["eps_pure"] = least["eps_tight"] = draws * loss.pure + length
            least["rho"] = draws * loss.width**2 / 8
        else:
            least["eps_pure"] = exact(allocation.epsilon) + length
            largest = Fraction(allocation.bounds(draws)[1], MICRO)
            least["rho"] = allocated_rho(allocation.total, largest) * (loss.width / exact(allocation.largest)) ** 2
        if not cost.delta:
            least["eps_approx"] = least["eps_pure"]
        for name, lost in least.items():
            _compare(mechanism, f"{name} of {counted(draws, 'draw')}", lost, getattr(cost, name), MICRO)


def _compare(
    mechanism: Mechanism, amount: str, lost: Fraction | float, charged: Fraction | Micro, unit: int = 1
) -> None:
    if lost * unit <= charged:
        return
    numbers = f"a loss of {float(lost):.9g}, and a charge of {float(charged) / unit:.9g}"
    msg = f"{mechanism.name} charges less than its draws lose ({amount}: {numbers}); nothing was charged"
    hint = "correct the mechanism: its weights or its `epsilon_per_word`; `bounded_range` is False where the weights "
    raise PolicyError(msg, f"{hint}of a word differ by more than e^(epsilon/2) (docs/extending.md)")
