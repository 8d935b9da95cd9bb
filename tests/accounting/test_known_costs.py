"""Costs of a column, which are computed once for every number of draws, equal its mechanism's."""

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import column
from dptext_etl.guarantee import ADDITIVE
from dptext_etl.mechanism import worst_spend
from dptext_etl.mechanisms.custext import CusText

COUNTS = np.array([0, 7, 1, 0, 250, 7, 9_999], np.uint32)


def plain(mechanism, of):
    """Amounts of every record, each asked of only the mechanism."""
    costs = [of(mechanism, int(count)) for count in COUNTS]
    amounts = {name: [getattr(cost, name) for cost in costs] for name in ADDITIVE}
    endless = {
        name: [column.INFINITE if amount == float("inf") else amount for amount in amounts[name]] for name in ADDITIVE
    }
    return [cost.n_worst for cost in costs], endless


@pytest.mark.parametrize("kept", [1, 1 << 16])
def test_costs_are_those_of_the_mechanism(monkeypatch, kept):
    monkeypatch.setattr(column, "KNOWN_COSTS", kept)
    mechanism = CusText.example()
    for changed in (mechanism, mechanism.model_copy(update={"epsilon": 3.5}), mechanism):
        found = column.spends(changed, pa.array(COUNTS))
        assert {name: amounts.tolist() for name, amounts in found.items()} == plain(changed, CusText.spend)[1]
        positions, worst = column.worst_case(changed, pa.array(COUNTS), pa.array(["a"] * len(COUNTS)))
        assert (positions.tolist(), {name: amounts.tolist() for name, amounts in worst.items()}) == plain(
            changed, worst_spend
        )
    some = column.worst_case(mechanism, pa.array(COUNTS), pa.array(["a"] * len(COUNTS)), ("rho", "delta"))[1]
    assert set(some) == {"rho", "delta"}
    assert some["rho"].tolist() == worst["rho"].tolist()
