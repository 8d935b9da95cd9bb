"""State what a run claims of every text column, with the delta of the copy gate if the gate may decide.

If a count over the whole run decides about publication, every row pays twice the gate's false-alarm probability as
delta, and its class becomes approximate (docs/spec/privacy.md#copy-gate). Without it the mechanisms' own claims hold.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.checks.reports import gate_delta
from dptext_etl.column import INFINITE
from dptext_etl.errors import PolicyError
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.guarantee import FINE, MICRO, OWN_PERSONS, PURE, Disclosure, Guarantee, GuaranteeClass, Micro, Spend
from dptext_etl.ledger import Ledger, ReleaseRef, anchor_files
from dptext_etl.mechanism import Mechanism, worst_spend
from dptext_etl.policy import ColumnPolicy, Policy

Amounts = dict[str, npt.NDArray[np.int64]]

_APPROXIMATE = {
    GuaranteeClass.PURE_LDP: GuaranteeClass.APPROX_LDP,
    GuaranteeClass.COND_PURE: GuaranteeClass.COND_APPROX,
}
_WITHOUT_DELTA = (PURE, "eps_tight", "rho", "mu2", "eps_metric")
"""Components that are infinite for a row with a delta from a gate."""


def guarantee_of(mechanism: Mechanism, delta: int) -> Guarantee:
    """Return the claim of a mechanism where a gate adds a delta, in steps of 10^-15."""
    stated = mechanism.guarantee
    if not delta:
        return stated
    return replace(stated, guarantee_class=_APPROXIMATE.get(stated.guarantee_class, stated.guarantee_class))


def worst_with_gate(mechanism: Mechanism, delta: int, positions: int | None = None) -> Spend:
    """Return the cost of the longest text, or of so many positions, with the delta of a gate in steps of 10^-15."""
    spend = worst_spend(mechanism, positions)
    if not delta:
        return spend
    gone: dict[str, Any] = dict.fromkeys(_WITHOUT_DELTA, math.inf)
    kind = _APPROXIMATE.get(spend.guarantee_class, spend.guarantee_class)
    return replace(spend, guarantee_class=kind, delta=spend.delta + delta, **gone)


def with_gate(amounts: Amounts, delta: int) -> Amounts:
    """Add the delta of a gate, in steps of 10^-15, to amounts per record, shape (records,)."""
    if not delta:
        return amounts
    gone = {name: np.full_like(amounts[name], INFINITE) for name in _WITHOUT_DELTA if name in amounts}
    return {**amounts, **gone, "delta": amounts["delta"] + delta}


def register(ledger: Ledger, policy: Policy, column: ColumnPolicy, id_type: str, *, pin: bool = True) -> ReleaseRef:
    """Pin the release of a column in the ledger, with what is claimed of it; without `pin`, only refuse it.

    What is pinned was looked at before, with `pin=False` and `refuse_unproven_key`.
    """
    worst, claimed = worst_with_gate(column.mechanism, gate_delta(policy)), _claimed(policy, column)
    return ledger.releases.register(column, id_type, guarantee=claimed, worst_case=worst, proven=pin, pin=pin)


def _claimed(policy: Policy, column: ColumnPolicy) -> Guarantee:
    """Return what a policy claims of a column: the claim of its mechanism, and what its choices about rows add to it.

    Specification: docs/spec/privacy.md#release-again, docs/spec/privacy.md#unknown-subject.
    """
    stated = guarantee_of(column.mechanism, gate_delta(policy))
    changed = {Disclosure.CHANGED} if policy.discloses_changes else set()
    own = {OWN_PERSONS} if policy.on_null_subject == "own" else set()
    return replace(stated, disclosures=stated.disclosures | changed, assumptions=stated.assumptions | own)


def claims(policy: Policy) -> list[dict[str, Any]]:
    """State what is claimed of every text column. Everything follows from the configuration and may be published."""
    delta = gate_delta(policy)
    claimed = [_claim(column, _claimed(policy, column), delta) for column in policy.charged_columns()]
    if policy.synthetic is None:
        return claimed
    labels, names = policy.synthetic.labels, policy.synthetic.names
    table: dict[str, Any] = {"rows": policy.synthetic.rows}
    if labels is not None:
        said = {"label": labels.column} if labels.columns is None else {"labels": list(labels.columns)}
        table |= {**said, "names": names}
    return [{**claim, "synthetic": table} for claim in claimed]


def _claim(column: ColumnPolicy, guarantee: Guarantee, delta: int) -> dict[str, Any]:
    mechanism = column.mechanism
    worst = worst_with_gate(mechanism, delta)
    hidden = Disclosure.LENGTH not in mechanism.guarantee.disclosures
    central = guarantee.guarantee_class is GuaranteeClass.CENTRAL_ZCDP
    one = worst_with_gate(mechanism, delta, None if hidden else 1)
    claim: dict[str, Any] = {
        "name": column.column,
        "mechanism": mechanism.name,
        "parameter": mechanism.epsilon,
        "unit": "record" if one.eps_approx == worst.eps_approx else mechanism.guarantee.unit,  # what a charge is per
        "unit_epsilon": _units(one.eps_approx),
        "unit_delta": _units(one.delta, FINE),
        "class": guarantee.guarantee_class.value,
        "disclosures": sorted(item.value for item in guarantee.disclosures),
        "assumptions": sorted(guarantee.assumptions),
        "longest_text_words": mechanism.n_max,
        "largest_epsilon": _units(worst.eps_approx),
        "largest_delta": _units(worst.delta, FINE),
        **({"largest_rho": _units(worst.rho)} if central else {}),
        "cfg": mechanism.cfg(),
    }
    if column.chain is not None:
        claim |= {"chain": column.chain, "postprocess": postprocessing_facts(column)}
    if mechanism.allocation is not None and (parts := mechanism.allocation.parts()):
        claim["budget"] = parts
    if isinstance(mechanism, ChoiceMechanism) and mechanism.unlinked is not None:
        condition = mechanism.unlinked.condition(mechanism.law)
        claim["unlinked"] = {**condition, "local_epsilon": _units(getattr(worst, PURE))}
    return claim


def postprocessing_facts(column: ColumnPolicy) -> list[dict[str, Any]]:
    """Return what the ledger and the manifest hold of each post-processing of a column, in order."""
    return [
        {"name": step.name, "cfg": step.cfg(), "model_hash": step.model_hash, "training_provenance": step.provenance}
        for step in column.postprocess
    ]


def _units(amount: Micro, unit: int = MICRO) -> float | str:
    return "inf" if math.isinf(amount) else amount / unit


def policy_notes(policy: Policy) -> list[str]:
    """Say what the choices of a policy about units and caps do not bound, and what may go unnoticed."""
    notes = {
        "the policy sets no cap: what a unit can lose over several releases is not bounded": policy.cap is None,
        'on_null_subject = "own": a person with k records that name no person has k times the loss': (
            policy.on_null_subject == "own"
        ),
        'unit = "record": a person with k records has k times the loss': policy.unit == "record",
    }
    return [*(note for note, applies in notes.items() if applies), *anchor_files.notes(policy.ledger.anchors)]


def require_provenance(policy: Policy) -> None:
    """Refuse post-processing that may have learned from protected records (docs/spec/privacy.md#rewrite-again)."""
    for column in policy.charged_columns():
        for step in column.postprocess:
            where = f"column {column.column!r}: {step.name}"
            if step.provenance is None:
                msg = f"{where} costs nothing only if it learned from public texts; no one declares it"
                hint = (
                    'give a model with a training.json that says "training_provenance": "public", or declare '
                    'training_provenance = "public" in the entry, if it is true'
                )
                raise PolicyError(msg, hint)
            if step.provenance != "public":
                msg = f"{where} learned from other private records, and what it reveals about them is charged nowhere"
                raise PolicyError(msg, "take a model that learned from public texts, or from released ones")
