"""State the claims of a run on every text column; scan a published table and open its classifier by its manifest.

If a count over the whole run decides about publication, every row pays twice the gate's false-alarm probability as
delta, and its class becomes approximate (docs/spec/privacy.md#copy-gate). Without it the mechanisms' own claims hold.

Counts of excluded rows are noted inside the boundary. The statement reports them. They are not part of the manifest:
some of them depend on texts, and readers see that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.checks import Verdict
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.checks.text_counts import gate_delta
from dptext_etl.column import INFINITE
from dptext_etl.data_types import by_name, from_text, in_json, parsed, readable
from dptext_etl.errors import InputError, PolicyError, bare, seam
from dptext_etl.families.words import by_text
from dptext_etl.file_formats import FORMATS
from dptext_etl.guarantee import FINE, MICRO, OWN_PERSONS, PURE, Disclosure, Guarantee, GuaranteeClass, Micro, Spend
from dptext_etl.ledger import Ledger, ReleaseRef, anchor_files
from dptext_etl.mechanism import Mechanism, worst_spend
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.policy.policy_like import EQUAL_TEXTS
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.roles import shown_columns
from dptext_etl.runner.source.table import READ_HINT, Files
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from dptext_etl.families.aggregate import Classifier

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
    """Return the cost of the longest text, or of `positions`, with the delta of a gate in steps of 10^-15."""
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


def register(ledger: Ledger, policy: Policy, column: ColumnPolicy, id_type: str) -> ReleaseRef:
    """Pin the release of a column in the ledger, with its claims."""
    worst, claimed = worst_with_gate(column.mechanism, gate_delta(policy)), _claimed(policy, column)
    return ledger.releases.register(column, id_type, guarantee=claimed, worst_case=worst)


def _claimed(policy: Policy, column: ColumnPolicy) -> Guarantee:
    """Return the claims of a policy on a column: from its mechanism, and from its choices about rows.

    Specification: docs/spec/privacy.md#release-again, docs/spec/privacy.md#unknown-subject.
    """
    stated = guarantee_of(column.mechanism, gate_delta(policy))
    changed = {Disclosure.CHANGED} if policy.discloses_changes else set()
    assumptions = {OWN_PERSONS} if policy.on_null_subject == "own" else set()
    return replace(stated, disclosures=stated.disclosures | changed, assumptions=stated.assumptions | assumptions)


def claims(policy: Policy) -> list[dict[str, Any]]:
    """State the claims on every text column. Everything follows from the configuration and may be published."""
    delta = gate_delta(policy)
    claimed = [_claim(column, _claimed(policy, column), delta) for column in policy.charged_columns()]
    if policy.synthetic is None:
        return claimed
    labels, names = policy.synthetic.labels, policy.synthetic.names
    table: dict[str, Any] = {"rows": policy.table_rows} | ({"scores": True} if policy.synthetic.scores else {})
    if policy.synthetic.pool is not None:
        table["pool_sha256"] = policy.pool.sha256
    if labels is not None:
        labeled = {"label": labels.column} if labels.columns is None else {"labels": list(labels.columns)}
        table |= {**labeled, "names": names}
    return [{**claim, "synthetic": table} for claim in claimed]


def _claim(column: ColumnPolicy, guarantee: Guarantee, delta: int) -> dict[str, Any]:
    mechanism = column.mechanism
    worst = worst_with_gate(mechanism, delta)
    hidden = Disclosure.LENGTH not in mechanism.guarantee.disclosures
    central = guarantee.guarantee_class is GuaranteeClass.CENTRAL_ZCDP
    unit_cost = worst_with_gate(mechanism, delta, None if hidden else 1)
    claim: dict[str, Any] = {
        "name": column.column,
        "mechanism": mechanism.name,
        "parameter": mechanism.epsilon,
        # of a charge
        "unit": "record" if unit_cost.eps_approx == worst.eps_approx else mechanism.guarantee.unit,
        "unit_epsilon": _units(unit_cost.eps_approx),
        "unit_delta": _units(unit_cost.delta, FINE),
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
    if (choice := by_text(mechanism)) is not None and choice.shuffled is not None:
        condition = choice.shuffled.condition(choice.law)
        claim["shuffled"] = {**condition, "local_epsilon": _units(getattr(worst, PURE))}
    return claim


def postprocessing_facts(column: ColumnPolicy) -> list[dict[str, Any]]:
    """Return the facts in ledger and manifest about each post-processing of a column, in order."""
    steps = ((step, step.training) for step in column.postprocess)
    return [
        {"name": step.name, "cfg": step.cfg(), "model_hash": model.model_hash, "training_provenance": model.provenance}
        for step, model in steps
    ]


def _units(amount: Micro, unit: int = MICRO) -> float | str:
    return "inf" if math.isinf(amount) else amount / unit


def policy_notes(policy: Policy) -> list[str]:
    """Say which losses the choices of a policy about units and caps do not bound, and which may go unnoticed."""
    notes = {
        "the policy sets no cap: the loss of a unit over several releases is not bounded": policy.cap is None,
        'on_null_subject = "own": a person with k records that name no person has k times the loss': (
            policy.on_null_subject == "own"
        ),
        'unit = "record": a person with k records has k times the loss': policy.unit == "record",
        EQUAL_TEXTS: bool(policy.audiences),
    }
    return [*(note for note, applies in notes.items() if applies), *anchor_files.notes(policy.ledger)]


def require_provenance(policy: Policy) -> None:
    """Refuse post-processing that may have learned from protected records (docs/spec/privacy.md#rewrite-again)."""
    for column in policy.charged_columns():
        for step in column.postprocess:
            where = f"column {column.column!r}: {step.name}"
            if step.training.provenance is None:
                msg = f"{where} costs nothing only if it learned from public texts; no one declares it"
                hint = (
                    'give a model with a training.json that says "training_provenance": "public", or declare '
                    'training_provenance = "public" in the entry, if it is true'
                )
                raise PolicyError(msg, hint)
            if step.training.provenance != "public":
                msg = f"{where} learned from other private records, and nothing is charged for revealing them"
                raise PolicyError(msg, "use a model that learned from public texts, or from released ones")


def continues(policy: Policy, layout: Layout, manifest: Manifest | None) -> bool:
    """Return whether an incremental run adds to the files of a manifest."""
    if manifest is None:
        return False
    if manifest.dataset != policy.dataset or manifest.partition != layout.partition:
        msg = f"the sink holds dataset {manifest.dataset!r}, the policy is for {policy.dataset!r}"
        raise PolicyError(msg, "give every dataset its own sink")
    if not policy.incremental or manifest.release != policy.release:
        return False
    items = policy.column_policies()
    now: dict[str, Any] = {
        "columns": list(shown_columns(policy)),
        "format": layout.sink_format,
        "cfg": {item.column: item.mechanism.cfg() for item in items},
        "ids": policy.ids,
        "audience": policy.audience,
        "keep": _labels({item.column: item.rule for item in policy.kept}),
        "postprocess": {item.column: item.chain for item in items if item.chain is not None},
    }
    then = {
        "columns": list(manifest.schema),
        "format": manifest.file_format,
        "ids": manifest.ids,
        "audience": manifest.audience,
        "keep": _labels(manifest.coarse),
        "cfg": {item["name"]: item["cfg"] for item in manifest.columns},
        "postprocess": {item["name"]: item["chain"] for item in manifest.columns if "chain" in item},
    }
    if now != then:
        changed = ", ".join(name for name in now if now[name] != then[name])
        msg = f"the published table differs from the policy in: {changed}; new parts would not fit the old ones"
        raise PolicyError(msg, "run once with incremental = false, which publishes every row again at no cost")
    return True


def _labels(rules: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Write how columns are coarsened as their labels are: bins 2 and 2.0 are equal, and their labels are not."""
    return {name: json.dumps(rule) for name, rule in rules.items() if rule}


LEFT_OUT, _NOTING = "left-out.json", "noting which rows were excluded"
_WAYS = frozenset({"new", "resumed", "replayed", "changed_released"})
"""Counts of how released rows came to be: a run that was killed and continues has others, and the same table."""


def note_excluded(staging: Storage, manifest: str | None, rows: Mapping[str, int], verdicts: Iterable[Verdict]) -> None:
    """Write the counts of a run, and the gates that had nothing to judge, with the digest of its manifest."""
    if manifest is not None:
        idle = [verdict.name for verdict in verdicts if not verdict.applicable]
        counts = {name: count for name, count in rows.items() if name not in _WAYS}
        facts = {"manifest": manifest, "rows": counts, "idle": idle}
        staging.write(LEFT_OUT, json.dumps(facts).encode(), action=_NOTING)


def carry_excluded(staging: Storage, before: str, now: str) -> None:
    """Take the counts over to a version that lacks forgotten people in addition."""
    facts = read_excluded(staging, before)
    if facts is not None:
        staging.write(LEFT_OUT, json.dumps({**facts, "manifest": now}).encode(), action=_NOTING)


def read_excluded(staging: Storage, manifest: str) -> dict[str, Any] | None:
    """Return `rows` and `idle` as they were noted of a version; None if this folder holds nothing of it."""
    try:
        facts = json.loads(staging.read(LEFT_OUT) or b"null")
    except ValueError:
        return None
    complete = isinstance(facts, dict) and {"manifest", "rows", "idle"} <= facts.keys()
    return facts if complete and facts["manifest"] == manifest else None


_CLAIMS = (
    "mechanism", "unit", "class", "unit_epsilon", "unit_delta", "largest_epsilon", "largest_delta", "disclosures",
    "assumptions", "cfg",
)  # fmt: skip


def stated(manifest: Manifest) -> dict[str, Any]:
    """Return the facts of a version for a data contract and a lineage event: names, gates, claims by text column."""
    columns = {item["name"]: {name: item[name] for name in _CLAIMS if name in item} for item in manifest.columns}
    names = {"release": manifest.release, "ids": manifest.ids, "manifestSha256": manifest.digest}
    return {**names, "gates": manifest.gates, "columns": columns}


def published_manifest(layout: Layout, *, verify: bool = False) -> Manifest:
    """Return the manifest of a sink, its files checked if asked for."""
    manifest = Manifest.read(layout)
    if manifest is None:
        raise InputError(f"nothing is published at {layout.sink}", "`dptext run POLICY` publishes")
    if verify:
        require_whole(layout, manifest)
    return manifest


def require_whole(layout: Layout, manifest: Manifest) -> None:
    """Refuse files that do not match the manifest, byte for byte."""
    changed = _changed(layout, manifest)
    if changed:
        msg = f"{len(changed):,} of {len(manifest.parts):,} published files do not match their manifest: {changed[0]}"
        raise InputError(msg, "`dptext check` says more; the same policy, run again, replaces damaged files")


def is_whole(layout: Layout, manifest: Manifest) -> bool:
    """Return whether all files of a manifest, its classifier included, are as it says."""
    return manifest.holds_classifier(layout) and not _changed(layout, manifest)


def _changed(layout: Layout, manifest: Manifest) -> list[str]:
    files = layout.published if layout.remote_sink else Storage("")
    with seam("reading a published file", InputError, "is it readable? `dptext check` says more"):
        return [
            part.path
            for part in manifest.parts
            if files.sha256(part.path if layout.remote_sink else layout.part(part.path)) != part.sha256
        ]


def scan_published(sink: str, storage_options: Mapping[str, str] | None = None, *, verify: bool = True) -> pl.LazyFrame:
    """Scan the current version of a published table, and check first that its files match its manifest.

    Args:
        sink: Folder or object-store URL of the table.
        storage_options: Options for object stores; values may be "env:NAME".
        verify: Read every file once and compare its hash.

    Returns:
        A lazy frame of the rows, in order; columns of text files get the types of the manifest.

    Raises:
        InputError: Nothing is published there, or a file has changed.
    """
    layout = Layout.of_sink(sink, dict(storage_options or {}))
    return scan(layout, published_manifest(layout, verify=verify))


def scan(layout: Layout, manifest: Manifest) -> pl.LazyFrame:
    """Scan the parts of a manifest; columns of CSV and NDJSON files get its types."""
    paths = tuple(layout.part(part.path) for part in manifest.parts)
    rows = as_stored(layout, manifest, paths)
    if FORMATS[manifest.file_format].holds == "all":
        return rows
    with seam("opening the published table", InputError, READ_HINT):
        schema = rows.collect_schema()
    types = {name: parsed(kind) for name, kind in manifest.schema.items() if schema.get(name) == pl.String}
    return rows.with_columns(
        from_text(by_name(name), dtype, strict=True)
        for name, dtype in types.items()
        if dtype is not None and readable(dtype)
    )


def as_stored(layout: Layout, manifest: Manifest, paths: tuple[str, ...]) -> pl.LazyFrame:
    """Scan parts of a manifest as their files hold them: all columns of CSV files are text."""
    files = Files(paths, manifest.file_format, layout.storage_options)
    return files.scan(all_text=True, in_json=in_json(manifest.schema))


EXPORTED = "classifier.safetensors"
"""Name of the classifier in an export."""
_CLASSIFIERS = (
    "name the folder or URL that `dptext run` published, a folder of `dptext export`, or the file of a classifier"
)


@bare
def open_classifier(place: str | Path, storage_options: Mapping[str, str] | None = None) -> Classifier:
    """Return the classifier of a release, after its file is compared with the manifest.

    Args:
        place: The published folder or URL, a folder of `dptext export`, or the file of a classifier.
        storage_options: Options for object stores, as a policy has them.

    Raises:
        InputError: There is no release, it has no classifier, or the file is another one than the manifest names.
    """
    from dptext_etl.families.aggregate import Classifier

    path = Path(place)
    if path.suffix == ".safetensors" and path.is_file():
        return Classifier.read(path)
    manifest: Manifest | None
    content: bytes | None
    if (path / EXPORTED).is_file() or (path / "manifest.json").is_file():
        with seam("reading the export", InputError, _CLASSIFIERS):
            manifest = Manifest.parse((path / "manifest.json").read_text("ascii"))
            content = (path / EXPORTED).read_bytes() if (path / EXPORTED).is_file() else None
        if content is not None and hashlib.sha256(content).hexdigest() != manifest.classifier:
            content = None
    else:
        layout = Layout.of_sink(str(place), dict(storage_options or {}))
        manifest = Manifest.read(layout)
        content = None if manifest is None else manifest.read_classifier(layout)
    if manifest is None:
        raise InputError("nothing is published there", _CLASSIFIERS)
    if manifest.classifier is None:
        raise InputError("the release has no classifier: only synthetic tables with labels have one", _CLASSIFIERS)
    if content is None:
        raise InputError(
            "the file of the classifier is missing, or is not the one that the manifest names", _CLASSIFIERS
        )
    return Classifier.read(content)
