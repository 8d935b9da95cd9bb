"""No error of ours keeps, as its context, an error of a library that quotes a secret or a text."""

import pytest

from dptext_etl.errors import GateError, LedgerError
from dptext_etl.ledger.storage.postgres import split_url
from dptext_etl.policy.plan_rules import PlanRules

SECRET = "zanzibar"


def plan():
    def follow(_):
        raise KeyError(SECRET)

    PlanRules.judge(object.__new__(PlanRules), follow)


@pytest.mark.parametrize(
    ("broken", "error"),
    [(lambda: split_url(f"postgresql://user:{SECRET}@[host/ledger"), LedgerError), (plan, GateError)],
)
def test_no_context_of_an_error_quotes(broken, error):
    with pytest.raises(error) as caught:
        broken()
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert SECRET not in str(caught.value)
