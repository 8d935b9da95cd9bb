"""Collect what a statement says, from the manifest of a published table and from its ledger; no text is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dptext_etl
from dptext_etl import extensions
from dptext_etl.accounting import log10_odds
from dptext_etl.checks.gate import load
from dptext_etl.errors import InputError, bare
from dptext_etl.guarantee import MICRO, Disclosure, GuaranteeClass
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.types import Scope
from dptext_etl.policy import Policy
from dptext_etl.policy.column_policy import INTERMEDIATE
from dptext_etl.runner import left_out
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest

FORMAT = "dptext-statement/1"
LEFT_OUT = ("quarantined", "over_contribution", "without_subject", "changed_left_out", "forgotten")
"""Reasons for which rows of the source are not published, as the summary of a run names them."""


@bare
def facts(
    sink: str | None = None, policy: Policy | None = None, partition: str | None = None, *, public: bool = False
) -> dict[str, Any]:
    """Return what there is to say of the current version of a published table."""
    if sink is None and policy is None:
        raise InputError("neither a published table nor a policy is given", "name one of them")
    if sink is None:
        assert policy is not None  # noqa: S101  (said above)
        layout = Layout.of(policy, partition)
    else:
        layout = Layout.of_sink(sink, policy.storage_options if policy else {})
    manifest = Manifest.read(layout)
    if manifest is None:
        raise InputError("nothing is published there", "give the folder that `dptext run` published, or its policy")
    texts = {name for column in manifest.columns for name in _released(column)}
    found: dict[str, Any] = {
        "format": FORMAT,
        "dataset": manifest.dataset,
        "release": manifest.release,
        "partition": manifest.partition,
        "version": manifest.version,
        "rows": manifest.rows,
        "files": len(manifest.parts),
        "id": manifest.id,
        "in_clear": [name for name in manifest.schema if name not in texts],
        "manifest_sha256": manifest.digest,
        "sink": _place(sink or layout.sink, public=public),
        "gates": [{"name": name, "catches": _catches(name), "idle": False} for name in manifest.gates],
        "columns": [_column(column) for column in manifest.columns],
        "record": _record(manifest.columns),
        "left_out": None,
        "caps": [],
        "lacks": [],
        "public": public,
        "written_by": f"dptext_etl {dptext_etl.__version__}",
    }
    if policy is not None:
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            _add_claims(found, ledger.export())
            if not public:
                _add_left_out(found, layout if sink is None else Layout.of(policy, partition), ledger, policy)
                _add_charges(found, ledger.show())
                ours = [pinned for pinned in ledger.caps() if manifest.dataset in pinned["datasets"]]
                found["caps"] = [_cap(ledger, pinned) for pinned in ours]
    if policy is None:
        found["lacks"].append("what the ledger holds: name the policy, `dptext statement POLICY --released RELEASED`")
    return found


def _add_left_out(found: dict[str, Any], layout: Layout, ledger: Ledger, policy: Policy) -> None:
    """Add how many rows of the source the table lacks, by reason, and which gates had nothing to judge."""
    noted = left_out.read(layout.staging, found["manifest_sha256"])
    if noted is None:
        found["lacks"].append("which rows were left out: the staging folder of the run holds these counts")
        return
    gone = max((ledger.count_forgotten(ref) for ref in ledger.find_all(policy).values()), default=0)
    counts = {**noted.rows, "forgotten": gone}
    found["left_out"] = {
        "read": noted.rows["read"],
        **{name: counts[name] for name in (*LEFT_OUT, "changed_kept") if counts.get(name)},
    }
    for gate in found["gates"]:
        gate["idle"] = gate["name"] in noted.idle


def _place(sink: str, *, public: bool) -> str:
    """Return where the table lies; readers outside see no folders of a machine."""
    return Path(sink).name if public and "://" not in sink else sink


def _released(column: Mapping[str, Any]) -> list[str]:
    """Return the names under which a column's released texts are published."""
    kept = [f"{column['name']}{INTERMEDIATE}"] if column.get("postprocess") else []
    labels = [column["synthetic"]["label"]] if "label" in column.get("synthetic", {}) else []
    return [column["name"], *kept, *labels]


def _column(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the manifest says of a text column, in words next to the names."""
    worst = claim["largest_epsilon"]
    return {
        **claim,
        "meaning": GuaranteeClass(claim["class"]).meaning,
        "disclosures": {name: Disclosure(name).meaning for name in claim["disclosures"]},
        "worst_case": {
            "epsilon": worst,
            "delta": claim["largest_delta"],
            "words": claim["longest_text_words"],
            "log10_odds": _odds(worst),
        },
    }


def _record(columns: Sequence[Mapping[str, Any]]) -> dict[str, float | str]:
    """Return the worst case of one record over all its text columns, which add up."""
    worst = {name: [column[f"largest_{name}"] for column in columns] for name in ("epsilon", "delta")}
    return {name: "inf" if "inf" in amounts else math.fsum(amounts) for name, amounts in worst.items()}


def _add_claims(found: dict[str, Any], exported: Mapping[str, Any]) -> None:
    """Add what the ledger pinned for each column: neighbors, configuration, hashes of public inputs."""
    releases = exported["datasets"].get(found["dataset"], {}).get("releases", [])
    for column in found["columns"]:
        for release in releases:
            if (release["column"], release["release"]) == (column["name"], found["release"]):
                wanted = ("neighbours", "configuration", "artifact_hashes", "burnt")
                column |= {name: release[name] for name in wanted if name in release}


def _add_charges(found: dict[str, Any], releases: list[dict[str, Any]]) -> None:
    """Add the largest charge of a record, and how many records were charged; canary rows are no records."""
    for column in found["columns"]:
        for release in releases:
            named = (release["dataset"], release["column"], release["release"])
            if named == (found["dataset"], column["name"], found["release"]):
                largest = _units(release["max_eps_approx"])
                column["charged"] = {
                    "largest_epsilon": largest,
                    "largest_delta": _units(release["max_delta"]),
                    "records": release["records"] - release["canaries"],
                    "log10_odds": _odds(largest),
                    "by": "draws made" if release["expost"] else "worst case of the record's own length",
                }


def _cap(ledger: Ledger, pinned: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cap, and how much of it is left to the unit that has least."""
    kind, _, name = pinned["scope"].partition(":")
    scope = Scope(pinned["datasets"][0], pinned["period"], name if kind == "group" else None, pinned["unit"])
    held = ledger.remaining(scope).as_dict()
    return {
        "scope": held["scope"],
        "unit": held["unit"],
        "limits": {name: _units(amount) for name, amount in held["limits"].items()},
        "units": held["units"],
        "at_the_cap": held["exhausted"],
        "most_used": {name: _units(at["max"]) for name, at in held["used"].items() if at},
        "least_left": {name: _units(at["min"]) for name, at in held["left"].items() if at},
    }


def _catches(gate: str) -> str:
    """Say what a gate finds; nothing of one that this version does not know."""
    return load(gate).catches if extensions.known("gates", gate) else ""


def _units(amount: float | str) -> float | str:
    return amount if isinstance(amount, str) else amount / MICRO


def _odds(epsilon: float | str) -> float | str:
    return "inf" if isinstance(epsilon, str) else round(log10_odds(round(epsilon * MICRO)), 1)
