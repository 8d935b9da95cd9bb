"""Audits of mechanisms that divide one budget: each trial is compared with what its texts may cost."""

import pytest

from dptext_etl import _kernel
from dptext_etl.allocation import Allocation
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.madlib import Madlib
from dptext_etl_eval import audit_mechanism
from dptext_etl_eval.auditing.trials import POSITIONS, limit_of, whole
from tests.quick import quick

SECRETS = tuple(_kernel.Secret.from_bytes(bytes([number]) * 32) for number in (1, 2))
GIVEN = Allocation(total=6.0, template=(23.0, 1.0))


def test_two_texts_of_two_draws_may_differ_in_both_divisions():
    scored = CusText(allocation=Allocation(total=4.0, scores=("ic",), eps_hi=3.0), limit=12, k=3)
    assert limit_of(scored, "one draw", 3.0) == 3.0
    assert limit_of(scored, POSITIONS, 3.0) == 4.0
    template = CusText(allocation=Allocation(total=4.0, template=(3.0, 1.0)), limit=12, k=3)
    assert limit_of(template, POSITIONS, 4.0) == 1.0
    assert whole(template) == 4.0
    plain = CusText(epsilon=2.0, limit=12, k=3)
    assert (limit_of(plain, POSITIONS, 2.0), whole(plain)) == (2.0, None)


@pytest.mark.parametrize(
    "mechanism",
    quick(
        [
            CusText(allocation=Allocation(total=4.0, scores=("ic",), eps_hi=3.0), limit=12, k=3),
            Diffractor(variant="geometric", allocation=GIVEN, limit=3),
            Madlib(allocation=Allocation(total=4.0, first=2.0, scores=("ic",)), limit=12),
        ],
        first=2,
    ),
    ids=lambda made: made.name,
)
def test_true_claims_stand(mechanism):
    found = audit_mechanism(mechanism, draws=1_000, secrets=SECRETS)
    assert not found.refuted
    (limit,) = (t.claim for t in found.trials if t.counts.trial == POSITIONS and t.epsilon == mechanism.epsilon)
    assert limit == {"custext": 4.0, "diffractor": 0.3, "madlib": 6.0}[mechanism.name]


def test_a_part_that_is_too_large_is_refuted(monkeypatch):
    """Every draw takes the largest part; by itself, no draw does wrong."""
    made, real = Diffractor(variant="geometric", allocation=GIVEN, limit=3), Diffractor.moved

    def greedy(self, words, slots, sampler, epsilons, purpose):
        return real(self, words, slots, sampler, [0 * parts + parts.max(initial=0) for parts in epsilons], purpose)

    monkeypatch.setattr(Diffractor, "moved", greedy)
    found = audit_mechanism(made, draws=2_000, secrets=SECRETS)
    assert {trial.counts.trial for trial in found.trials if trial.refuted} == {POSITIONS}
