"""Check that a column's mechanism can be published as the policy asks, and that its cap can hold the spends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptext_etl.accounting import is_finite
from dptext_etl.errors import PolicyError
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.guarantee import DEFAULT_ALLOWED, Disclosure, GuaranteeClass
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.terms import Cap
from dptext_etl.synthetic import Synthetic
from dptext_etl.unlinked import COUNT, Unlinked

if TYPE_CHECKING:
    from dptext_etl.policy.dataset_policy import Policy

_APPROXIMATE = frozenset({GuaranteeClass.APPROX_LDP, GuaranteeClass.COND_APPROX})


def require_fit(column: ColumnPolicy, cap: Cap | None, *, publish: bool) -> None:
    """Refuse a mechanism that cannot be published, or whose spends no cap of this measure can hold."""
    mechanism = column.mechanism
    kind = mechanism.guarantee.guarantee_class
    if publish and mechanism.mode != "strict":
        msg = f"column {column.column!r}: a {mechanism.mode} mechanism is for benchmarks; set publish = false"
        raise ValueError(msg)
    if cap is None:
        return
    if cap.measure == "pure" and kind in _APPROXIMATE and not is_finite(mechanism.spend(1), "pure"):
        msg = f"column {column.column!r}: {mechanism.name} has a delta, class {kind.value}: no cap on pure epsilon can "
        msg += 'hold it; write cap = { measure = "approx", epsilon = …, delta = … }, or measure = "zcdp" with rho, '
        msg += "which adds up better"
        raise ValueError(msg)
    if kind is GuaranteeClass.UMLDP:
        msg = f"column {column.column!r}: {mechanism.name} costs an infinite amount on every measure, class UMLDP: "
        msg += "no cap can hold it; put it into a dataset of its own, without a cap"
        raise ValueError(msg)


def require_choices(policy: Policy) -> None:
    """Refuse choices about null persons and changed texts that the rest of the policy has no place for."""
    whole = policy.unlinked is not None or policy.synthetic is not None
    adds = (
        f'on_changed = "{policy.on_changed}" takes records out of what is published; an incremental run only adds, and '
    )
    adds += "incremental = false publishes every row again, at no cost where its text is the same"
    problems = [
        (
            policy.unit == "record" and policy.on_null_subject != "refuse",
            'on_null_subject is about subjects, and unit = "record" has none',
        ),
        (
            whole and policy.on_null_subject == "own",
            'on_null_subject = "own" cannot bound what a person has in an [unlinked] or [synthetic] release',
        ),
        (
            whole and policy.on_changed != "refuse",
            "on_changed is about records: an [unlinked] or [synthetic] release is one table, whole",
        ),
        (policy.incremental and policy.discloses_changes, adds),
    ]
    for found, problem in problems:
        if found:
            raise ValueError(problem)


def require_changes(column: ColumnPolicy, *, again: bool) -> None:
    """Refuse to show which texts changed without consent, and second draws that another machine could not repeat.

    Specification: docs/spec/privacy.md#release-again.
    """
    if Disclosure.CHANGED not in column.allow:
        chosen = "release_again" if again else "quarantine"
        line = ", ".join(f'"{item.value}"' for item in sorted((column.allow | {Disclosure.CHANGED}) - DEFAULT_ALLOWED))
        msg = f'column {column.column!r}: on_changed = "{chosen}" discloses {Disclosure.CHANGED.meaning}; to consent, '
        raise ValueError(f'{msg}write: allow = [{line}]; on_changed = "keep" discloses nothing')
    if again and not column.mechanism.reproducible:
        msg = f'column {column.column!r}: on_changed = "release_again" needs a mechanism that gives the same bytes '
        msg += f"again, and a model such as {column.mechanism.name} may not: where a text comes back to what it was, "
        raise ValueError(f'{msg}its draw is repeated; write "keep", or take a new release name')


def require_unlinkable(policy: Policy, mechanism: Mechanism, unlinked: Unlinked) -> None:
    """Refuse a policy whose published multiset would link texts to records, or would have no central bound."""
    names = [item.name for item in policy.columns]
    problems = [
        (
            not isinstance(mechanism, ChoiceMechanism),
            f"the bound is that of surrogate; {mechanism.name} is released row by row",
        ),
        (len(names) > 1, "an unlinked release has one text column: give each column a policy of its own"),
        (COUNT in names, f'the text column must not be called "{COUNT}", which is a column of the form "counts"'),
        (bool(policy.keep), "keep must be empty: other columns would link texts to records"),
        (policy.ids != "keep", "leave out ids: no ids are published"),
        (policy.incremental, "incremental must be false: a release is one batch; new rows take a new release name"),
        ("{partition}" in policy.source, "a release is one batch: give each partition a release name of its own"),
        (policy.copy_gate_false_alarm is not None, "leave out copy_gate_false_alarm: it counts draws by record"),
        (any(item.postprocess for item in policy.columns), "leave out postprocess"),
        (policy.unit == "record" and unlinked.per_subject > 1, 'per_subject is for unit = "subject"'),
        (
            isinstance(mechanism, ChoiceMechanism) and mechanism.has_model,
            "the corpus needs the encoder `words` or `task`: what a model computes may depend on other texts",
        ),
    ]
    for found, problem in problems:
        if found:
            raise ValueError(f"[unlinked]: {problem}")


def require_synthetic(policy: Policy, synthetic: Synthetic) -> None:
    """Refuse entries that a synthetic table has no use for, and a cap that cannot hold its charges."""
    pure = policy.cap is not None and policy.cap.measure == "pure"
    one_each = policy.unit == "record" and synthetic.per_subject > 1
    problems = [
        (bool(policy.keep), "keep must be empty: its rows are public texts, which have no other columns"),
        (policy.ids != "keep", "leave out ids: no ids are published"),
        (policy.incremental, "incremental must be false: a release is one table; new rows take a new release name"),
        ("{partition}" in policy.source, "a release is one table: give each partition a release name of its own"),
        (policy.copy_gate_false_alarm is not None, "leave out copy_gate_false_alarm: no text of a record is released"),
        (bool(policy.reports), "leave out reports: no text of a record is released"),
        (policy.unlinked is not None, "leave out [unlinked]: a policy publishes either of them"),
        (pure, 'a discrete Gaussian has no pure epsilon: a cap of measure "zcdp" or "approx" counts it'),
        (one_each, 'per_subject is for unit = "subject"'),
    ]
    for found, problem in problems:
        if found:
            raise ValueError(f"[synthetic]: {problem}")


def require_ids(policy: Policy) -> None:
    """Refuse a policy whose published table does not say whose rows it holds.

    Raises:
        PolicyError: `ids` is "drop" or "keyed".
    """
    if policy.ids != "keep":
        msg = f"with ids = {policy.ids!r} a published table does not say whose rows these are"
        raise PolicyError(msg, "`dptext check POLICY` judges it, with the list of ids in staging")
