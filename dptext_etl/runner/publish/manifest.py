"""State the claims of a run on every text column, and write the manifest of a published table.

If a count over the whole run decides about publication, every row pays twice the gate's false-alarm probability as
delta, and its class becomes approximate (docs/spec/privacy.md#copy-gate). Without it the mechanisms' own claims hold.

It is replaced in one step. Nothing in it depends on a text, except through published rows: configuration, its
constants, row counts, and hashes of the published files. It holds no time, so a run that was killed and resumed writes
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl import files
from dptext_etl.checks.sink_files import MANIFEST, classifier_name
from dptext_etl.checks.text_counts import gate_delta
from dptext_etl.column import INFINITE
from dptext_etl.data_types import by_name, from_text, in_json, parsed, readable
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.file_formats import FORMATS
from dptext_etl.guarantee import FINE, MICRO, OWN_PERSONS, PURE, Disclosure, Guarantee, GuaranteeClass, Micro, Spend
from dptext_etl.ledger import Ledger, ReleaseRef, anchor_files
from dptext_etl.mechanism import Mechanism, worst_spend
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.policy.audience import EQUAL_TEXTS
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard.staging import ColumnHardware
from dptext_etl.runner.source.table import READ_HINT, Files
from dptext_etl.storage import Objects, Storage

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
    if isinstance(mechanism, ChoiceMechanism) and mechanism.shuffled is not None:
        condition = mechanism.shuffled.condition(mechanism.law)
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


FORMAT = "dptext-release/1"


@dataclass(frozen=True)
class Part:
    """One published file: its path under the sink, rows, and the SHA-256 of its bytes."""

    path: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The list of parts that readers follow."""

    dataset: str
    release: str
    partition: str | None
    version: int  # number of this version, from 1
    file_format: str  # a name of `FORMATS`
    id: str | None  # column of record ids; None where none are published
    schema: dict[str, str]  # output columns and their types, in order
    # the claims on every text column: mechanism, configuration hash, class, disclosures, constants; and where a
    # model computed (`computed`)
    columns: list[dict[str, Any]]
    gates: list[str]  # names of the gates that all passed
    parts: tuple[Part, ...]  # the files
    # which version of a table of Delta Lake or Iceberg the rows of the last run are from; None, and not written, for
    # anything else
    source: dict[str, str] | None = None
    ids: str = "keep"  # the policy's `ids`; not written for "keep"
    exact: bool = False  # whether values of CSV columns keep their spelling under their types; written if true
    coarse: dict[str, dict[str, Any]] = field(default_factory=dict)  # coarsened columns by `Kept.rule`; if any, written
    classifier: str | None = None  # SHA-256 of the classifier of a synthetic table with labels; if any, written
    audience: str | None = None  # whose table it is; written for audiences

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def computed(self) -> ColumnHardware:
        return {column["name"]: column["computed"] for column in self.columns if "computed" in column}

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()

    def text(self) -> str:
        facts: dict[str, Any] = {"format": FORMAT, "rows": self.rows}
        facts |= {item.name: getattr(self, item.name) for item in fields(self)}
        facts["parts"] = [vars(part) for part in self.parts]
        for name, unwritten in (
            ("source", None),
            ("ids", "keep"),
            ("exact", False),
            ("coarse", {}),
            ("classifier", None),
            ("audience", None),
        ):
            if facts[name] == unwritten:
                del facts[name]
        return json.dumps(facts, indent=1, ensure_ascii=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> Self:
        facts = json.loads(text)
        if facts.pop("format") != FORMAT:
            msg = "another format"
            raise ValueError(msg)
        facts.pop("rows")
        return cls(**{**facts, "parts": tuple(Part(**part) for part in facts["parts"])})

    @property
    def name(self) -> str:
        """Its name in the ledger: unique over partitions and sinks, the same when a killed run continues.

        It ends with ":" and the name of an audience, and "@" follows where it names a version of a table with a log.
        """
        where = "" if self.partition is None else f"{self.partition}/"
        return f"{where}v{self.version}-{self.digest[:12]}{'' if self.audience is None else f':{self.audience}'}"

    @classmethod
    def read(cls, layout: Layout) -> Self | None:
        """Return the manifest of a sink, or None if nothing was published there."""
        hint = f"restore the {MANIFEST} of the sink; without a copy, remove it, and run the same policy again"
        with seam("reading the manifest of the sink", InputError, hint):
            if layout.remote_sink:
                content = layout.described.read(MANIFEST)
                return None if content is None else cls.parse(content.decode("ascii"))
            try:
                return cls.parse(layout.local.manifest.read_bytes().decode("ascii"))
            except (FileNotFoundError, NotADirectoryError):
                return None

    @classmethod
    def of_release(cls, policy: Policy, layout: Layout) -> Self | None:
        """Return the manifest of a sink, or None if it is not one of this release."""
        manifest = cls.read(layout)
        same = manifest is not None and (manifest.dataset, manifest.release) == (policy.dataset, policy.release)
        return manifest if same else None

    def require_of(self, policy: Policy, partition: str | None) -> None:
        """Refuse a version of another release, or of another configuration of a column, than the policy's."""
        hint = "`dptext run POLICY` publishes; or name the policy of the published release"
        here, wanted = (self.dataset, self.release, self.partition), (policy.dataset, policy.release, partition)
        if here != wanted:
            there, named = (" / ".join(filter(None, names)) for names in (here, wanted))
            raise InputError(f"the sink holds the release {there}, and the policy is of {named}", hint)
        stated = {item["name"]: (item["cfg"], item.get("chain")) for item in self.columns}
        for column in policy.charged_columns():
            was, now = stated.get(column.column, ("", None)), (column.mechanism.cfg(), column.chain)
            if was != now:
                msg = f"the sink holds column {column.column!r} under the configuration {_short(was)}"
                raise InputError(f"{msg}, and the policy has {_short(now)}", hint)

    def read_classifier(self, layout: Layout) -> bytes | None:
        """Return the bytes of the classifier; None if the manifest names none, or the file is not the named one."""
        if self.classifier is None:
            return None
        storage, name = layout.beside(classifier_name(self.classifier))
        content = storage.read(name)
        return content if content is not None and hashlib.sha256(content).hexdigest() == self.classifier else None

    def write_classifier(self, layout: Layout, content: bytes) -> None:
        """Write the file of the classifier, unless it is there; readers find it by its hash in the manifest."""
        if self.classifier is None or self.read_classifier(layout) is not None:
            return
        storage, name = layout.beside(classifier_name(self.classifier))
        if isinstance(storage, Objects):
            storage.put(name, content)
        else:
            files.write(storage.folder / name, content, mode=files.PUBLIC_FILE, action="writing the classifier")

    def expire_classifiers(self, layout: Layout, before: Manifest | None) -> None:
        """Delete the classifiers that neither this manifest nor the one before names."""
        shas = {self.classifier, None if before is None else before.classifier} - {None}
        storage, pattern = layout.beside(classifier_name("*"))
        head, _, tail = pattern.rpartition("*")
        named = {layout.beside(classifier_name(sha))[1] for sha in shas if sha is not None}
        storage.delete(*({*storage.glob(f"{escape(head)}*{tail}")} - named))

    def write(self, layout: Layout, before: Manifest | None) -> None:
        """Replace the manifest of a sink in one step; a store must still hold the one that the run began with."""
        content, store = self.text().encode(), layout.described
        if not isinstance(store, Objects):
            path = Path(layout.manifest)
            for stale in path.parent.glob(f".{escape(path.name)}-*.draft"):  # of a run that was killed
                stale.unlink(missing_ok=True)
            files.write(path, content, mode=files.PUBLIC_FILE, action="writing the manifest")
            return
        now, etag = store.read_versioned(MANIFEST) or (None, None)
        begun = None if before is None else before.digest
        there = None if now is None else self.parse(now.decode("ascii")).digest
        if there != begun or store.replace_object(MANIFEST, content, etag) is None:
            raise PolicyError("another run has published to this sink meanwhile", "run the same policy again")

    def restore(self, layout: Layout) -> bool:
        """Write the manifest again if its file says the same in other bytes, and return whether it does."""
        store = layout.described
        now = store.read(MANIFEST) if isinstance(store, Objects) else layout.local.manifest.read_bytes()
        changed = now != self.text().encode()
        if changed:
            self.write(layout, self)
        return changed


def _short(configured: tuple[str, str | None]) -> str:
    """Return the first digits of the hashes of a configuration and of its post-processing."""
    return " and ".join(f"{digest[:12]}…" for digest in configured if digest) or "none"


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
    classifier = manifest.classifier is None or manifest.read_classifier(layout) is not None
    return classifier and not _changed(layout, manifest)


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
