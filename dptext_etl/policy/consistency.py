"""Refuse a policy whose entries contradict each other, or whose mechanism cannot be published or paid as it asks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from dptext_etl.accounting import is_finite
from dptext_etl.errors import PolicyError
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.families.unlinked import COUNT, OTHER, Unlinked
from dptext_etl.guarantee import DEFAULT_ALLOWED, Disclosure, GuaranteeClass
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.synthetic import Synthetic

if TYPE_CHECKING:
    from dptext_etl.policy.dataset_policy import Policy

PARTITION = "{partition}"
_FILES = frozenset({".parquet", ".csv", ".ndjson", ".jsonl"})
_APPROXIMATE = frozenset({GuaranteeClass.APPROX_LDP, GuaranteeClass.COND_APPROX})


def _refuse(problems: Iterable[tuple[bool, str]], where: str = "") -> None:
    for present, problem in problems:
        if present:
            raise ValueError(where + problem)


def require_consistent(policy: Policy) -> None:
    synthetic, record, cap = policy.synthetic, policy.unit == "record", policy.cap
    names = policy.text_columns if synthetic is None else synthetic.columns
    roles = [
        *names,
        policy.id,
        *policy.kept_columns,
        *(item.intermediate for item in policy.columns if item.intermediate),
    ]
    no_subject = 'no subject column: name it with `subject = "user_id"`, or declare `unit = "record"`'
    kinds = "name text columns in entries [[column]], or one in a table [synthetic]; a policy has either of them"
    null_subject = 'on_null_subject is about subjects, and unit = "record" has none'
    own = 'on_null_subject = "own" cannot bound what a person has in an [unlinked] or [synthetic] release'
    table = "on_changed is about records: an [unlinked] or [synthetic] release is one table, whole"
    adds = f'on_changed = "{policy.on_changed}" takes records out of what is published; an incremental run only adds, '
    adds += "and incremental = false publishes every row again, at no cost where its text is the same"
    types = "csv.types names columns of keep; ids, subjects, and texts of CSV files are strings"
    subject = 'subject must be another column than id and text columns; where every record is a unit: unit = "record"'
    two = "a column has two roles: text columns, what they keep as NAME_intermediate, id and keep must differ"
    copies = 'copy_gate_false_alarm needs a cap of measure "approx": the bound is charged as delta'
    most = "[unlinked] and [synthetic] have their own per_subject: write it there"
    most = 'per_subject limits the rows of a subject, and unit = "record" has none' if record else most
    whole = 'per_subject needs a source with all rows of a person; with deletions = "keep" it may lack published ones'
    problems = [
        (not record and policy.subject is None, no_subject),
        (policy.per_subject is not None and (record or policy.one_table), most),
        (policy.per_subject is not None and policy.incremental and policy.deletions == "keep", whole),
        (record and bool(policy.normalize), 'normalize spells subjects, and unit = "record" has none'),
        ((synthetic is None) != bool(policy.columns), kinds),
        (record and policy.on_null_subject != "refuse", null_subject),
        (policy.one_table and policy.on_null_subject == "own", own),
        (policy.one_table and policy.on_changed != "refuse", table),
        (policy.incremental and policy.discloses_changes, adds),
        (bool(policy.csv.types.keys() - {*policy.kept_columns} | policy.csv.types.keys() & {policy.subject}), types),
    ]
    _refuse(problems)
    if synthetic is not None:
        _require_synthetic(policy, synthetic)
    if policy.table is not None:
        _require_table(policy)
    partition = (PARTITION in policy.source) != (PARTITION in policy.sink)
    coarse = {item.column for item in policy.kept if item.rule} & {policy.subject}
    problems = [
        (policy.subject in {policy.id, *names}, subject),
        (bool(coarse), "keep coarsens the subject: name another column, or keep it unchanged"),
        (len(set(roles)) < len(roles), two),
        (partition, f"{PARTITION} must be in both source and sink, or in neither"),
        (policy.copy_gate_false_alarm is not None and (cap is None or cap.measure != "approx"), copies),
    ]
    _refuse(problems)


def _require_table(policy: Policy) -> None:
    """Refuse a sink that names files of another format."""
    suffix = PurePosixPath(policy.sink.rstrip("/")).suffix.lower()
    name = None if policy.table is None else policy.table.name
    other = name is not None and (PARTITION in name) != (PARTITION in policy.sink)
    problems = [
        (suffix in _FILES, f"sink is the folder of the table, got a name that ends with {suffix}"),
        (other, f"{PARTITION} must be in both name and sink, or in neither"),
    ]
    _refuse(problems, "[table]: ")


def require_fit(policy: Policy, column: ColumnPolicy) -> None:
    """Refuse a mechanism that cannot be published as the policy asks, or whose spends its cap cannot hold."""
    mechanism, cap, where = column.mechanism, policy.cap, f"column {column.column!r}: "
    kind = mechanism.guarantee.guarantee_class
    if policy.publish and mechanism.mode != "strict":
        msg = f"{where}a {mechanism.mode} mechanism is for benchmarks; set publish = false"
        raise ValueError(msg)
    pure = cap is not None and cap.measure == "pure"
    if pure and kind in _APPROXIMATE and not is_finite(mechanism.spend(1), "pure"):
        msg = (
            f"{where}{mechanism.name} has a delta, class {kind.value}: no cap on pure epsilon can hold it; write cap = "
        )
        msg += '{ measure = "approx", epsilon = …, delta = … }, or measure = "zcdp" with rho, which adds up better'
        raise ValueError(msg)
    if cap is not None and kind is GuaranteeClass.UMLDP:
        msg = f"{where}{mechanism.name} costs an infinite amount on every measure, class UMLDP: "
        msg += "no cap can hold it; put it into a dataset of its own, without a cap"
        raise ValueError(msg)
    if policy.discloses_changes:
        _require_changes(policy, column)


def _require_changes(policy: Policy, column: ColumnPolicy) -> None:
    """Refuse to show which texts changed without consent, and second draws that another machine could not repeat.

    Specification: docs/spec/privacy.md#release-again.
    """
    if Disclosure.CHANGED not in column.allow:
        line = ", ".join(f'"{item.value}"' for item in sorted((column.allow | {Disclosure.CHANGED}) - DEFAULT_ALLOWED))
        msg = f'column {column.column!r}: on_changed = "{policy.on_changed}" discloses {Disclosure.CHANGED.meaning}; '
        raise ValueError(f'{msg}to consent, write: allow = [{line}]; on_changed = "keep" discloses nothing')
    if policy.on_changed == "release_again" and not column.mechanism.reproducible:
        msg = f'column {column.column!r}: on_changed = "release_again" needs a mechanism that gives the same bytes '
        msg += f"again, and a model such as {column.mechanism.name} may not: where a text comes back to what it was, "
        raise ValueError(f'{msg}its draw is repeated; write "keep", or take a new release name')


def require_unlinkable(policy: Policy, mechanism: Mechanism, unlinked: Unlinked) -> None:
    """Refuse a policy whose published multiset would link texts to records, or would have no central bound."""
    names, choice = [item.name for item in policy.columns], isinstance(mechanism, ChoiceMechanism)
    labels = unlinked.labels
    published = names if labels is None else [*names, labels.column]
    drawn = isinstance(mechanism, ChoiceMechanism) and mechanism.null_as_empty
    problems = [
        (not choice, f"the bound is that of surrogate; {mechanism.name} is released row by row"),
        (len(names) > 1, "an unlinked release has one text column: give each column a policy of its own"),
        (COUNT in published, f'other columns must not be called "{COUNT}", which is a column of the form "counts"'),
        (bool(policy.keep), "keep must be empty: other columns would link texts to records; labels names public ones"),
        (
            labels is not None and drawn and OTHER not in labels.values,
            f'null_as_empty draws a text for every record: labels.values must list "{OTHER}"',
        ),
        (policy.ids != "keep", "leave out ids: no ids are published"),
        (policy.incremental, "incremental must be false: a release is one batch; new rows take a new release name"),
        (PARTITION in policy.source, "a release is one batch: give each partition a release name of its own"),
        (policy.copy_gate_false_alarm is not None, "leave out copy_gate_false_alarm: it counts draws by record"),
        (any(item.postprocess for item in policy.columns), "leave out postprocess"),
        (policy.unit == "record" and unlinked.per_subject > 1, 'per_subject is for unit = "subject"'),
        (
            isinstance(mechanism, ChoiceMechanism) and mechanism.has_model,
            "the corpus needs the encoder `words` or `task`: what a model computes may depend on other texts",
        ),
    ]
    _refuse(problems, "[unlinked]: ")


def _require_synthetic(policy: Policy, synthetic: Synthetic) -> None:
    """Refuse entries that a synthetic table has no use for, and a cap that cannot hold its charges."""
    pure = policy.cap is not None and policy.cap.measure == "pure"
    problems = [
        (bool(policy.kept_columns), "keep must be empty: its rows are public texts, which have no other columns"),
        (policy.ids != "keep", "leave out ids: no ids are published"),
        (policy.incremental, "incremental must be false: a release is one table; new rows take a new release name"),
        (PARTITION in policy.source, "a release is one table: give each partition a release name of its own"),
        (policy.copy_gate_false_alarm is not None, "leave out copy_gate_false_alarm: no text of a record is released"),
        (bool(policy.reports), "leave out reports: no text of a record is released"),
        (policy.unlinked is not None, "leave out [unlinked]: a policy publishes either of them"),
        (pure, 'a discrete Gaussian has no pure epsilon: a cap of measure "zcdp" or "approx" counts it'),
        (policy.unit == "record" and synthetic.per_subject > 1, 'per_subject is for unit = "subject"'),
    ]
    _refuse(problems, "[synthetic]: ")


def require_ids(policy: Policy) -> None:
    """Refuse a policy whose published table does not say whose rows it holds."""
    if policy.ids != "keep":
        msg = f"with ids = {policy.ids!r} a published table does not say whose rows these are"
        raise PolicyError(msg, "`dptext check POLICY` judges it, with the list of ids in staging")
