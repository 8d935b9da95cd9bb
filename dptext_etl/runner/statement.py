"""Collect the facts of a statement from a published manifest and its ledger, and write them; no text is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import dptext_etl
from dptext_etl import escaping, extensions, files
from dptext_etl.accounting import log10_odds
from dptext_etl.checks.gate import load
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.escaping import html as escape
from dptext_etl.guarantee import MICRO, Disclosure, GuaranteeClass
from dptext_etl.html_output import document
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Policy
from dptext_etl.policy.column_policy import INTERMEDIATE
from dptext_etl.runner import left_out
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.statement_sections import Section, sections, title

_LEFT_OUT = ("quarantined", "over_contribution", "without_subject", "changed_left_out", "forgotten", "changed_kept")
"""Counts of rows that are not published as they are in the source, as the summary of a run names them."""
_INSIDE = (
    "For readers inside your boundary: what records were charged depends on their texts. "
    "`--public` leaves these amounts out."
)
_SIGNED = ("Signed", "Name", "Date")
_STYLE = """
th { font-weight: 500; width: 38% } td { overflow-wrap: anywhere } pre { overflow-x: auto; font-size: .85rem }
.sign { display: grid; grid-template-columns: 2fr 2fr 1fr; gap: 2rem; margin-top: 4rem }
.sign span { border-top: 1px solid var(--ink); padding-top: .3rem }
@page {
  size: 210mm 297mm; margin: 20mm 18mm;
  @bottom-right { content: counter(page) " / " counter(pages); font: 8pt serif }
}
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --line: #999; --soft: #000 }
  body { font: 9.5pt/1.4 Georgia, "Times New Roman", serif; padding: 0 }
  h1 { font-size: 15pt; margin: 0 0 4mm } h2 { font-size: 11pt; margin: 6mm 0 1mm; break-after: avoid }
  p { margin: 0 0 2mm }
  .inside { background: none; color: #000; padding: 0; border-radius: 0; font-style: italic }
  th, td { font-size: 8.5pt; line-height: 1.35; padding: 1mm 3mm 1mm 0 } tr, .sign { break-inside: avoid }
  code { white-space: nowrap } code, pre { font-size: 8pt } pre { white-space: pre-wrap; overflow: visible }
  .sign { margin-top: 18mm }
}
"""


@bare
def facts(
    sink: str | None = None, policy: Policy | None = None, partition: str | None = None, *, public: bool = False
) -> dict[str, Any]:
    """Return what there is to say of the current version of a published table."""
    if sink is not None:
        layout = Layout.of_sink(sink, policy.storage_options if policy else {})
    elif policy is not None:
        layout = Layout.of(policy, partition)
    else:
        raise InputError("neither a published table nor a policy is given", "name one of them")
    manifest = Manifest.read(layout)
    if manifest is None:
        raise InputError("nothing is published there", "give the folder that `dptext run` published, or its policy")
    place = sink or layout.sink
    texts = {name for column in manifest.columns for name in _released(column)}
    found: dict[str, Any] = {
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
        "manifest_sha256": manifest.digest,
        "sink": Path(place).name if public and "://" not in place else place,  # no folders of a machine for outsiders
        "gates": [
            {"name": name, "catches": load(name).catches if extensions.known("gates", name) else "", "idle": False}
            for name in manifest.gates
        ],
        "columns": [_column(column) for column in manifest.columns],
        "record": _record(manifest.columns),
        "left_out": None,
        "caps": [],
        "lacks": [],
        "public": public,
        "written_by": f"dptext_etl {dptext_etl.__version__}",
    }
    if policy is None:
        found["lacks"].append("what the ledger holds: name the policy, `dptext statement POLICY --released RELEASED`")
    else:
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            _add_claims(found, ledger.export())
            if not public:
                _add_left_out(found, layout if sink is None else Layout.of(policy, partition), ledger, policy)
                _add_charges(found, ledger.show())
                ours = [pinned for pinned in ledger.caps() if manifest.dataset in pinned["datasets"]]
                found["caps"] = [_cap(ledger, pinned) for pinned in ours]
    return found


def _add_left_out(found: dict[str, Any], layout: Layout, ledger: Ledger, policy: Policy) -> None:
    """Add how many rows of the source the table lacks, by reason, and which gates had nothing to judge."""
    noted = left_out.read(layout.staging, found["manifest_sha256"])
    if noted is None:
        found["lacks"].append("which rows were left out: the staging folder of the run holds these counts")
        return
    gone = max((ledger.count_forgotten(ref) for ref in ledger.find_all(policy).values()), default=0)
    counts = {**noted["rows"], "forgotten": max(gone, noted["rows"].get("forgotten", 0))}
    found["left_out"] = {"read": counts["read"], **{name: counts[name] for name in _LEFT_OUT if counts.get(name)}}
    for gate in found["gates"]:
        gate["idle"] = gate["name"] in noted["idle"]


def _released(column: Mapping[str, Any]) -> list[str]:
    """Return the names of the published columns that come from a column of the source."""
    kept = [f"{column['name']}{INTERMEDIATE}"] if column.get("postprocess") else []
    labels = [column["synthetic"]["label"]] if "label" in column.get("synthetic", {}) else []
    return [column["name"], *kept, *labels]


def _column(claim: Mapping[str, Any]) -> dict[str, Any]:
    worst, delta, words = claim["largest_epsilon"], claim["largest_delta"], claim["longest_text_words"]
    return {
        **claim,
        "meaning": GuaranteeClass(claim["class"]).meaning,
        "disclosures": {name: Disclosure(name).meaning for name in claim["disclosures"]},
        "worst_case": {"epsilon": worst, "delta": delta, "words": words, "log10_odds": _odds(worst)},
    }


def _record(columns: Sequence[Mapping[str, Any]]) -> dict[str, float | str]:
    """Return the worst case of one record over all its text columns, which add up."""
    worst = {name: [column[f"largest_{name}"] for column in columns] for name in ("epsilon", "delta")}
    return {name: "inf" if "inf" in amounts else math.fsum(amounts) for name, amounts in worst.items()}


def _add_claims(found: dict[str, Any], exported: Mapping[str, Any]) -> None:
    """Add what the ledger pinned for each column: neighbors, configuration, hashes of public inputs."""
    releases = exported["datasets"].get(found["dataset"], {}).get("releases", [])
    for column, release in product(found["columns"], releases):
        if (release["column"], release["release"]) == (column["name"], found["release"]):
            wanted = ("neighbours", "configuration", "artifact_hashes", "burnt")
            column |= {name: release[name] for name in wanted if name in release}


def _add_charges(found: dict[str, Any], releases: list[dict[str, Any]]) -> None:
    """Add the largest charge of a record, and how many records were charged; canary rows are no records."""
    for column, release in product(found["columns"], releases):
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


def _units(amount: float | str) -> float | str:
    return amount if isinstance(amount, str) else amount / MICRO


def _odds(epsilon: float | str) -> float | str:
    return "inf" if isinstance(epsilon, str) else log10_odds(round(epsilon * MICRO))


def markdown(found: dict[str, Any]) -> str:
    found = escaping.one_line_each(found)
    lines = [f"# {_markdown(title(found))}", *map(_markdown, _inside(found))]
    for part in sections(found):
        lines += [f"## {_markdown(part.title)}", *map(_markdown, part.paragraphs)]
        if part.rows:
            cells = ([_markdown(cell) for cell in row] for row in part.rows)
            lines.append("\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in cells)]))
        if part.commands:
            lines.append("\n".join(["```sh", *part.commands, "```"]))
    lines.append("  \n".join(f"{word}: ____________________" for word in _SIGNED))
    return "\n\n".join(lines) + "\n"


def page(found: dict[str, Any]) -> str:
    found = escaping.one_line_each(found)
    body = [f'<p class="inside">{_html(line)}</p>' for line in _inside(found)]
    body += map(_section, sections(found))
    body.append(f'<p class="sign">{"".join(f"<span>{word}</span>" for word in _SIGNED)}</p>')
    return document(title(found), "".join(body), _STYLE)


def write(found: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write both forms into a folder, which is made if it is missing."""
    paths = folder / "statement.md", folder / "statement.html"
    with seam("writing the statement", InputError, "give a folder that can be written: --out FOLDER"):
        files.make_folders(folder)
        mode = files.PUBLIC_FILE if found["public"] else files.PRIVATE_FILE
        for path, text in zip(paths, (markdown(found), page(found)), strict=True):
            files.write(path, text.encode(), mode=mode, action="writing the statement")
    return paths


def _inside(found: dict[str, Any]) -> Iterable[str]:
    return () if found["public"] or not any("charged" in column for column in found["columns"]) else (_INSIDE,)


def _section(part: Section) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{_html(value)}</td></tr>" for name, value in part.rows)
    table = f'<div class="scroll"><table>{rows}</table></div>' if rows else ""
    commands = f"<pre>{chr(10).join(map(escape, part.commands))}</pre>" if part.commands else ""
    says = "".join(f"<p>{_html(line)}</p>" for line in part.paragraphs)
    return f"<h2>{escape(part.title)}</h2>{says}{table}{commands}"


def _html(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _markdown(text: str) -> str:
    """Escape all but commands between "`"."""
    parts = text.split("`")
    return "`".join(part if number % 2 else escaping.markdown(part) for number, part in enumerate(parts))
