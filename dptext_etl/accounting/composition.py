"""What several releases cost together (docs/spec/privacy.md#composition): components add, or the largest counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from operator import add

from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import ADDITIVE, GuaranteeClass, Spend

_STRENGTH = list(GuaranteeClass)


def compose(spends: Iterable[Spend]) -> Spend:
    """Return what releases of one unit cost together: components add, disclosures unite, the weakest class stays.

    Valid for adaptive releases; the sum is between histories that agree on every disclosure
    (docs/spec/privacy.md#spend-composition).
    """
    listed = list(spends)
    return reduce(add, listed) if listed else Spend.zero()


def repeat(spend: Spend, count: int) -> Spend:
    """Return what `count` releases at one spend cost: exactly `compose([spend] * count)`.

    Raises:
        PolicyError: A negative count.
    """
    if count < 0:
        raise PolicyError(f"a release happens 0 times or more, got {count}")
    if count == 0:
        return Spend.zero()
    return replace(spend, n_worst=spend.n_worst * count, **{name: getattr(spend, name) * count for name in ADDITIVE})


def parallel(spends: Iterable[Spend]) -> Spend:
    """Return what releases of *different* subjects cost each of them at most: the largest of every component.

    Valid only where no artifact was made from several subjects' texts (docs/spec/privacy.md#public-parameters).
    """
    listed = list(spends)
    if not listed:
        return Spend.zero()
    first = listed[0]
    return replace(
        first,
        guarantee_class=max((item.guarantee_class for item in listed), key=_STRENGTH.index),
        disclosures=frozenset().union(*(item.disclosures for item in listed)),
        assumptions=frozenset().union(*(item.assumptions for item in listed)),
        metric_id=first.metric_id if len({item.metric_id for item in listed}) == 1 else None,
        n_worst=max(item.n_worst for item in listed),
        **{name: max(getattr(item, name) for item in listed) for name in (*ADDITIVE, "diameter")},
    )
