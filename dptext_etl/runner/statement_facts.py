"""Collect the facts of a statement from a published manifest and its ledger; no text is read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import dptext_etl
from dptext_etl.accounting import log10_odds
from dptext_etl.checks.gate import every
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import InputError, bare
from dptext_etl.guarantee import MICRO, Disclosure, GuaranteeClass
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Policy
from dptext_etl.policy.column_policy import INTERMEDIATE
from dptext_etl.runner import table_check
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source import selection

_EXCLUDED = ("quarantined", "over_contribution", "without_subject", "changed_excluded", "forgotten", "changed_kept")
"""Counts of rows that are not published as they are in the source, as the summary of a run names them."""


@bare
def facts(
    sink: str | None = None,
    policy: Policy | None = None,
    partition: str | None = None,
    *,
    public: bool = False,
    evidence: Path | None = None,
) -> dict[str, Any]:
    """Return the facts about the current version of a published table.

    `evidence` is the folder of `dptext evaluate`; its figures for another version are excluded, and all of them if the
    page is `public`.
    """
    if sink is not None:
        layout = Layout.of_sink(sink, policy.storage_options if policy else {})
    elif policy is not None:
        layout = Layout.of(policy, partition)
    else:
        raise InputError("neither a published table nor a policy is given", "name one of them")
    manifest = Manifest.read(layout)
    if manifest is None:
        raise InputError("nothing is published there", "give the folder that `dptext run` published, or its policy")
    if policy is not None:
        manifest.require_of(policy, layout.partition if sink is None else manifest.partition)
    place, catches = sink or layout.sink, {gate.name: gate.catches for gate in every()}
    texts = {name for column in manifest.columns for name in (column["name"], *labels_of(column))}
    texts |= {f"{column['name']}{INTERMEDIATE}" for column in manifest.columns if column.get("postprocess")}
    result: dict[str, Any] = {
        "format": "dptext-statement/1",
        "dataset": manifest.dataset,
        "release": manifest.release,
        "partition": manifest.partition,
        "version": manifest.version,
        "rows": manifest.rows,
        "files": len(manifest.parts),
        "id": manifest.id,
        "ids": manifest.ids,
        "in_clear": [
            name for name in manifest.schema if name not in texts and (manifest.ids == "keep" or name != manifest.id)
        ],
        "coarse": manifest.coarse,
        "traceable": table_check.of_published(layout, manifest),
        "manifest_sha256": manifest.digest,
        "published_at": None,
        "reidentified": [] if public or evidence is None else _reidentified(evidence, manifest.digest),
        "sink": Path(place).name if public and "://" not in place else place,  # no folders of a machine for outsiders
        "gates": [{"name": name, "catches": catches.get(name, ""), "idle": False} for name in manifest.gates],
        "columns": [_column(column) for column in manifest.columns],
        "record": record(manifest.columns),
        "excluded": None,
        "caps": [],
        "lacks": [],
        "public": public,
        "written_by": f"dptext_etl {dptext_etl.__version__}",
    }
    if policy is None:
        result["lacks"].append(
            "the facts of the ledger: name the policy, `dptext statement POLICY --released RELEASED`"
        )
    else:
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            releases = ledger.reports.export()["datasets"].get(result["dataset"], {}).get("releases", [])
            for column, release in product(result["columns"], releases):
                if (release["column"], release["release"]) == (column["name"], result["release"]):
                    wanted = ("neighbors", "configuration", "artifact_hashes", "burnt")
                    column |= {name: release[name] for name in wanted if name in release}
            history = None if public else ledger.reports.history()
            pinned_caps = [pinned for pinned in ledger.reports.caps() if manifest.dataset in pinned["datasets"]]
            result["caps"] = [_cap(ledger, pinned, history) for pinned in pinned_caps]
            if not public:
                result["published_at"] = ledger.releases.published_at(manifest.digest)
                _add_excluded(result, layout if sink is None else Layout.of(policy, partition), ledger, policy)
                for column, release in product(result["columns"], ledger.reports.show()):
                    named = (release["dataset"], release["column"], release["release"])
                    if named == (result["dataset"], column["name"], result["release"]):
                        largest = _units(release["max_eps_approx"])
                        column["charged"] = {
                            "largest_epsilon": largest,
                            "largest_delta": _units(release["max_delta"]),
                            "records": release["records"] - release["canaries"],
                            "log10_odds": _odds(largest),
                            "by": "draws made" if release["expost"] else "worst case of the record's own length",
                        }
                result["person"] = _person(ledger, policy, manifest)
    return result


def _reidentified(folder: Path, manifest: str) -> list[dict[str, Any]]:
    """Return by column how often an attacker finds the raw text behind a release again, as measured of a manifest."""
    try:
        columns = json.loads((folder / "evidence.json").read_bytes())["columns"]
        return [
            {"column": str(column["column"]), "rows": int(column["rows"])}
            | {name: float(score[name]) for name in ("value", "blind")}
            for column in columns
            for attack in column["attacks"]
            for score in attack["scores"][:1]
            if (column["cost"].get("manifest sha256"), attack["name"]) == (manifest, "nearest_neighbour")
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # none, or not as `dptext evaluate` wrote it
        return []


def _add_excluded(facts: dict[str, Any], layout: Layout, ledger: Ledger, policy: Policy) -> None:
    """Add how many rows of the source the table lacks, by reason, and which gates had nothing to judge."""
    noted = selection.read(layout.staging, facts["manifest_sha256"])
    if noted is None:
        facts["lacks"].append("which rows were excluded: the staging folder of the run holds these counts")
        return
    gone = max((ledger.people.count_forgotten(ref) for ref in ledger.releases.find_all(policy).values()), default=0)
    counts = {**noted["rows"], "forgotten": max(gone, noted["rows"].get("forgotten", 0))}
    names = _EXCLUDED if policy.shuffled is None else (*_EXCLUDED, "null")  # nulls are rows of other releases
    facts["excluded"] = {"read": counts["read"], **{name: counts[name] for name in names if counts.get(name)}}
    for gate in facts["gates"]:
        gate["idle"] = gate["name"] in noted["idle"]


def labels_of(column: Mapping[str, Any]) -> list[str]:
    synthetic = column.get("synthetic", {})
    return synthetic.get("labels") or ([synthetic["label"]] if "label" in synthetic else [])


def _column(claim: Mapping[str, Any]) -> dict[str, Any]:
    worst, delta, words = claim["largest_epsilon"], claim["largest_delta"], claim["longest_text_words"]
    return {
        **claim,
        "meaning": GuaranteeClass(claim["class"]).meaning,
        "disclosures": {name: Disclosure(name).meaning for name in claim["disclosures"]},
        "worst_case": {"epsilon": worst, "delta": delta, "words": words, "log10_odds": _odds(worst)},
    }


def record(columns: Sequence[Mapping[str, Any]]) -> dict[str, float | str]:
    """Return the worst case or the charge of one record over all its text columns, which add up."""
    worst = {name: [column[f"largest_{name}"] for column in columns] for name in ("epsilon", "delta")}
    return {name: "inf" if "inf" in amounts else math.fsum(amounts) for name, amounts in worst.items()}


def _person(ledger: Ledger, policy: Policy, manifest: Manifest) -> dict[str, Any]:
    """Return the charges of the most charged person, or record: in this release, and in all releases."""
    unit = "record" if policy.subject is None else "person"
    names = {column["name"] for column in manifest.columns}
    refs = [ref for name, ref in ledger.releases.find_all(policy).items() if name in names]
    loss = {"release": ledger.reports.largest(refs), "all": ledger.reports.largest() if unit == "person" else None}
    return {"unit": unit} | {
        name: amounts and {part: _units(amount) for part, amount in amounts.items()} for name, amounts in loss.items()
    }


def _cap(ledger: Ledger, pinned: Mapping[str, Any], history: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return whom a cap protects and its limits; with the history also its use and who set it, which stay inside."""
    limits = {name: _units(amount) for name, amount in pinned["limits"].items()}
    facts = {"scope": f"{pinned['scope']}, period {pinned['period']}", "unit": pinned["unit"], "limits": limits}
    if history is None:
        return facts
    balance = ledger.remaining(Scope.of_cap(pinned)).as_dict()
    return facts | {
        "units": balance["units"],
        "at_the_cap": balance["exhausted"],
        "most_used": {name: _units(at["max"]) for name, at in balance["used"].items() if at},
        "least_left": {name: _units(at["min"]) for name, at in balance["left"].items() if at},
        "set": [
            {name: event[name] for name in ("user", "at", "change", "reason")}
            for event in history
            if event["kind"] == "CAP_SET" and event["of"] == balance["scope"]
        ],
    }


def _units(amount: float | str) -> float | str:
    return amount if isinstance(amount, str) else amount / MICRO


def _odds(epsilon: float | str) -> float | str:
    return "inf" if isinstance(epsilon, str) else log10_odds(round(epsilon * MICRO))
