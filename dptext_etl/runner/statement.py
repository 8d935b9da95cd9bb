"""Collect the facts of a release from its manifest and ledger, and write its statement, as Markdown and as HTML.

No text is read. `statement.md.jinja` has the order of the page. Facts for readers inside the boundary come first, in
separate sections, which a public page omits.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import dptext_etl
from dptext_etl import files, markup
from dptext_etl.accounting import log10_odds
from dptext_etl.checks.gate import every
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.checks.verdict import catches
from dptext_etl.errors import InputError, bare, counted, seam
from dptext_etl.guarantee import MICRO, PURE, Disclosure, GuaranteeClass
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Policy
from dptext_etl.policy.column_policy import INTERMEDIATE
from dptext_etl.runner import table_check
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import read_excluded
from dptext_etl.runner.shard.charging import VACUOUS, at_most


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
    place, by_gate = sink or layout.sink, {gate.name: gate.catches for gate in every()}
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
        "gates": [{"name": name, "catches": by_gate.get(name, ""), "idle": False} for name in manifest.gates],
        "columns": [_column(column) for column in manifest.columns],
        "record": record(manifest.columns),
        "excluded": None,
        "caps": [],
        "lacks": [],
        "public": public,
        "written_by": f"dptext_etl {dptext_etl.__version__}",
    }
    if policy is None:
        lack = "the facts of the ledger: name the policy, `dptext statement POLICY --released RELEASED`"
        result["lacks"].append(lack)
    else:
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            releases = ledger.reports.export()["datasets"].get(result["dataset"], {}).get("releases", [])
            for column, release in product(result["columns"], releases):
                if (release["column"], release["release"]) == (column["name"], result["release"]):
                    wanted = ("neighbors", "configuration", "artifact_hashes", "burnt")
                    column |= {name: release[name] for name in wanted if name in release}
            history = None if public else ledger.reports.history()
            pinned_caps = [pinned for pinned in ledger.reports.caps() if manifest.dataset in pinned["datasets"]]
            result["caps"] = [_cap_facts(ledger, pinned, history) for pinned in pinned_caps]
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
                # the charges of the most charged person, or record: in this release, and in all releases
                names, released = {item["name"] for item in manifest.columns}, ledger.releases.find_all(policy)
                refs = [ref for name, ref in released.items() if name in names]
                unit = "record" if policy.subject is None else "person"
                everywhere = ledger.reports.largest() if unit == "person" else None
                result["person"] = {"unit": unit} | {
                    name: amounts and {part: _units(amount) for part, amount in amounts.items()}
                    for name, amounts in (("release", ledger.reports.largest(refs)), ("all", everywhere))
                }
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
    noted = read_excluded(layout.staging, facts["manifest_sha256"])
    if noted is None:
        facts["lacks"].append("which rows were excluded: the staging folder of the run holds these counts")
        return
    gone = max((ledger.people.count_forgotten(ref) for ref in ledger.releases.find_all(policy).values()), default=0)
    counts = {**noted["rows"], "forgotten": max(gone, noted["rows"].get("forgotten", 0))}
    names = [*table_check.EXCLUDED, "changed_kept"]
    names += [] if policy.shuffled is None else ["null"]  # nulls are rows of other releases
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


def _cap_facts(ledger: Ledger, pinned: Mapping[str, Any], history: list[dict[str, Any]] | None) -> dict[str, Any]:
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


_STYLE = """
thead { display: none } td { overflow-wrap: anywhere } td:first-child { font-weight: 500; width: 38% }
pre { overflow-x: auto; font-size: .85rem } body > p:last-child { margin-top: 4rem; break-inside: avoid }
@page {
  size: 210mm 297mm; margin: 20mm 18mm;
  @bottom-right { content: counter(page) " / " counter(pages); font: 8pt serif }
}
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --line: #999; --soft: #000 }
  body { font: 9.5pt/1.4 Georgia, "Times New Roman", serif; padding: 0 }
  h1 { font-size: 15pt; margin: 0 0 4mm } h2 { font-size: 11pt; margin: 6mm 0 1mm; break-after: avoid }
  p { margin: 0 0 2mm } blockquote { background: none; color: #000; padding: 0; font-style: italic }
  td { font-size: 8.5pt; line-height: 1.35; padding: 1mm 3mm 1mm 0 } tr { break-inside: avoid }
  code { white-space: nowrap } code, pre { font-size: 8pt } pre { white-space: pre-wrap; overflow: visible }
}
"""
ASSUMES = {
    "PRF": "The secret key is secret, and HMAC-SHA256 and ChaCha20 look random without it.",
    "TRUSTED_CURATOR": "You keep the exact sums of a synthetic table inside your boundary, and release noisy ones.",
    "TRUSTED_IDS": "Record ids are given inside your boundary; no one outside can have a text released under an id.",
    "NO_CRASH_CHANNEL": "Whether a process crashed reveals nothing.",
    "OWN_PERSONS": "Rows that name no person are each of another person; k rows of one have k times the loss.",
    "UNIQUE_IDS": "No two rows share an id and a text.",
    "SCORES_LOCAL": "A model scores every row only from its own text.",
    "IDEAL_LAPLACE": "Noise on a fine grid approximates a continuous density.",
    "IDEAL_GAUSSIAN": "Noise on a fine grid approximates a continuous density.",
}
_ONE_NAME = (
    "The column of persons names each person once: a person with two variants of an id or two accounts counts as two, "
    "and has two caps. `dptext plan POLICY` counts variants."
)


Rows = Sequence[tuple[str, str]]
Section = tuple[str, Sequence[str], Rows]  # heading, paragraphs, and a table of names and values


def markdown(facts: dict[str, Any]) -> str:
    """Return the page as Markdown, without the sections for readers inside the boundary if the facts are public."""
    from jinja2 import Environment, StrictUndefined

    facts = markup.one_line_each(facts)
    # the page is Markdown, so `finalize` escapes each value instead of the escaping for HTML
    page = Environment(
        autoescape=False,  # noqa: S701
        finalize=_escaped,
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    template = page.from_string(Path(__file__).with_name("statement.md.jinja").read_text("utf-8"))
    commands = [f"dptext check POLICY --released {shlex.quote(facts['sink'])}      # gates, files, charges"]
    if not any("synthetic" in column for column in facts["columns"]):
        commands.append("dptext audit POLICY                  # the guarantee itself, computed and attacked")
    commands.append("dptext ledger verify --ledger URL    # every balance, from the journal")
    return template.render(
        title=_title(facts),
        inside=inside(facts),
        sections=sections(facts),
        commands=commands,
        lacks=facts["lacks"],
    )


def page(facts: dict[str, Any]) -> str:
    """Return the page as HTML that loads nothing."""
    _, _, body = markdown(facts).partition("\n")
    return markup.document(_title(markup.one_line_each(facts)), markup.of_markdown(body), _STYLE)


def write(facts: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write both forms into a folder, which is made if it is missing."""
    paths = folder / "statement.md", folder / "statement.html"
    with seam("writing the statement", InputError, "give a folder that can be written: --out FOLDER"):
        files.make_folders(folder)
        mode = files.PUBLIC_FILE if facts["public"] else files.PRIVATE_FILE
        for path, text in zip(paths, (markdown(facts), page(facts)), strict=True):
            files.write(path, text.encode(), mode=mode, action="writing the statement")
    return paths


def _title(facts: Mapping[str, Any]) -> str:
    part = f", {facts['partition']}" if facts["partition"] else ""
    return f"Statement: {facts['dataset']}, release {facts['release']}{part}, version {facts['version']}"


def _escaped(value: Any) -> Any:
    """Escape everything except commands between "`" and `safe` lines; facts hold no "`" (`markup.one_line_each`)."""
    if hasattr(value, "__html__") or not isinstance(value, str):
        return value
    parts = value.split("`")
    return "`".join(part if number % 2 else markup.markdown(part) for number, part in enumerate(parts))


def inside(facts: Mapping[str, Any]) -> list[Section]:
    """Return the sections that depend on raw texts, the loss of the most charged person first; none if public."""
    if facts["public"] or not all("charged" in column for column in facts["columns"]):
        return []
    used = [_cap(cap) for cap in facts["caps"] if "units" in cap]
    charges = list[Section]()
    for column, charged in ((column, column["charged"]) for column in facts["columns"]):
        largest = {"epsilon": charged["largest_epsilon"], "delta": charged["largest_delta"]}
        rows = (("largest charge of a record", _amounts(largest)), ("records charged", f"{charged['records']:,}"))
        charges.append((f"{column['name']}: charges", (), rows))
    sentences = [
        f"An attacker with all raw texts finds the one behind a release at the first try in {score['value']:.1%} of "
        f"{counted(score['rows'], 'row')} of {score['column']} ({score['blind']:.1%} by chance)."
        for score in facts["reidentified"]
    ]
    sentences += [f"Published at {at}."] if (at := facts["published_at"]) else []
    attacked: list[Section] = [("Attack and time", sentences, ())] if sentences else []
    return [_loss(facts), *charges, *_excluded(facts), *used, *attacked]


def sections(facts: Mapping[str, Any]) -> list[Section]:
    """Return the sections for all readers; every bound in them follows from the policy."""
    promises = map(_promise, facts["columns"])
    rule = "A table is published only if all of these pass. None of them compares a released text with its raw text."
    gates = [
        (gate["name"], "Not applicable: it judges other mechanisms.")
        if gate["idle"]
        else (gate["name"], f"Passed. {catches(gate['catches'])}" if gate["catches"] else "Passed.")
        for gate in facts["gates"]
    ]
    assumed = sorted({name for column in facts["columns"] for name in column["assumptions"]})
    true = ["The guarantee holds as long as these statements are true:"]
    true += [_ONE_NAME] if any(cap["unit"] == "subject" for cap in facts["caps"]) else []
    return [
        _bounds(facts),
        _traced(facts),
        _released(facts),
        *promises,
        ("Checks before publication", (rule,), gates),
        ("Assumptions", true, [(ASSUMES.get(name, "See the specification."), name) for name in assumed]),
    ]


def _loss(facts: Mapping[str, Any]) -> Section:
    """State the loss of the most charged person, in this release and in all releases of the ledger."""
    disclosed = any(column["disclosures"] for column in facts["columns"])
    person, loss = facts["person"]["unit"], facts["person"]
    sentences = []
    for name, start in (("release", "This release"), ("all", "All releases in this ledger together")):
        if loss[name] is not None:
            meaning = meaning_of(loss[name]["epsilon"], loss[name]["delta"], disclosed=disclosed)
            sentences.append(f"{start} charged the most charged {person} {_amounts(loss[name])}. {meaning}")
    return f"Loss of the most charged {person}", sentences, ()


def _bounds(facts: Mapping[str, Any]) -> Section:
    """State the bounds that the policy sets: per person by its caps, and per record."""
    disclosed = any(column["disclosures"] for column in facts["columns"])
    worst = facts["record"]
    caps = [cap for cap in facts["caps"] if cap["limits"]]
    rows = [(f"cap of a {cap['unit']}: {cap['scope']}", _limit(cap["limits"])) for cap in caps]
    rows.append(("worst case of a record, over its text columns", _amounts(worst)))
    sentence = "There is no cap per person: a person with k records loses k times as much."
    if caps:
        sentence = "Everything that is released of one person or record under a cap adds up."
    elif facts["lacks"]:
        sentence = "This page was made without the policy, so it does not say whether there is a cap per person."
    meaning = meaning_of(worst["epsilon"], worst["delta"], disclosed=disclosed)
    return "Bounds per person and per record", (sentence, f"The text columns of a record add up. {meaning}"), rows


def _traced(facts: Mapping[str, Any]) -> Section:
    """Say whether someone who knows a record could find its row."""
    if any("synthetic" in column for column in facts["columns"]):
        sentence = "No row belongs to a record."
    elif facts["traceable"]:
        sentence = f"{'; '.join(table_check.traceable_lines(facts['traceable']))}."
    else:
        by_id = "No id is published." if facts["id"] is None else _TRACED_BY_ID[facts["ids"]]
        only = f"Only {_listed([*facts['coarse']])} of the other columns" if facts["coarse"] else "No other column"
        sentence = f"{by_id} {only} of the source is published."
    return "Could a row be traced?", (sentence,), ()


_TRACED_BY_ID = {
    "keep": "Record ids are published unchanged: a person who knows the ids can find every row.",
    "keyed": "Record ids are keyed hashes: without the key, they do not show whose row it is.",
}


def _released(facts: Mapping[str, Any]) -> Section:
    where = (
        ("where", facts["sink"]),
        ("SHA-256 of the manifest, which lists the SHA-256 of every file", facts["manifest_sha256"]),
        ("this page was written by", facts["written_by"]),
    )
    if any("synthetic" in column for column in facts["columns"]):
        (column,) = facts["columns"]
        names = ", ".join(labels_of(column))
        labels = f" with labels in {names}" if names else ""
        sentence = (
            f"{facts['rows']:,} rows of public texts{labels}. They follow one noisy statistic of {column['name']}, "
            "which is in the manifest. No text of a record was released, and no row belongs to a record."
        )
        return "Contents", (sentence,), where
    texts = _listed([column["name"] for column in facts["columns"]])
    rows = (
        "different texts with their counts"
        if facts["id"] is None and facts["ids"] != "drop" and "count" in facts["in_clear"]
        else "rows"
    )
    clear = (("rewritten", texts), ("unchanged", _listed(facts["in_clear"])))
    sentence = f"{facts['rows']:,} {rows}. The text in {texts} was rewritten under differential privacy."
    return "Contents", (sentence, _in_clear(facts)), (*where, *clear)


_REASONS = {
    "quarantined": ("over the cap", "record", "people with many records, or with long texts where cost grows by word"),
    "over_contribution": ("beyond per_subject", "record", "people with many records"),
    "without_subject": ("without a person", "row", "people whom the source does not name, such as guests"),
    "changed_excluded": ("with a changed text", "record", "cases that were corrected or are still open"),
    "forgotten": ("forgotten on request", "record", "people who asked to be erased"),
    "null": ("without a text to publish", "record", "records whose text is null or whose label is not listed"),
}


def _excluded(facts: Mapping[str, Any]) -> list[Section]:
    """Say which rows of the source the table lacks, and whom that biases it against."""
    counts = facts["excluded"]
    if counts is None:
        return []
    reasons = [(*_REASONS[name], counts[name]) for name in _REASONS if name in counts]
    rows = [(why, counted(count, what)) for why, what, _, count in reasons]
    if kept := counts.get("changed_kept"):
        rows.append(("published as before their text changed", counted(kept, "record")))
    whom = ", and of ".join(dict.fromkeys(f"{people} ({why})" for why, _, people, _ in reasons))
    bias = f"Exclusion biases the table: it says less of {whom} than the source does."
    says = f"The source had {counted(counts['read'], 'row')}. {bias if reasons else 'None of them was excluded.'}"
    return [("Excluded rows", (says,), rows)]


_IDS = {
    "keep": "",
    "keyed": "The record id is a keyed hash, the same within this release: without the key it does not show the id.",
    "drop": "The record id is not published.",
}


def _in_clear(facts: Mapping[str, Any]) -> str:
    coarse = [f"{name} ({table_check.way_of(rule)})" for name, rule in facts["coarse"].items()]
    if facts["id"] is None and facts["ids"] != "drop":
        sentence = "The texts are published without ids, in alphabetical order, and without other columns of their rows"
        return f"{sentence} than {_listed(coarse)}: this page makes no claim about it." if coarse else f"{sentence}."
    others = [name for name in facts["in_clear"] if name not in {facts["id"], *facts["coarse"]}]
    record_id = ["the record id" if others else "The record id"] if facts["ids"] == "keep" else []
    sentence = f"Coarsened columns pass: {_listed(coarse)}. " if coarse else ""
    if names := [*others, *record_id]:
        *first, last = names
        both, verb, them = (f"{', '.join(first)} and {last}", "pass", "them") if first else (last, "passes", "it")
        sentence += f"{both} {verb} unchanged: this page makes no claim about {them}."
    return f"{_IDS[facts['ids']]} {sentence}".strip()


def _promise(column: Mapping[str, Any]) -> Section:
    exact = [f"{name}: {meaning}" for name, meaning in column["disclosures"].items()]
    facts = [f"These facts of each text are released exactly: {'; '.join(exact)}."] if exact else []
    worst, by_record = column["worst_case"], "synthetic" in column or column.get("unit") == "record"
    longest = "" if by_record else f" (a text of {worst['words']:,} words, the longest that is allowed)"
    rows = (
        ("mechanism", column["mechanism"]),
        ("its parameter ε", at_most(column["parameter"])),
        ("kind of guarantee", f"{column['meaning']} ({column['class']})"),
        ("compared are", column.get("neighbors", "see the ledger")),
        ("worst case of a record", f"{_amounts(worst)}{longest}"),
        *((f"ε {at_most(part['epsilon'])} pays for", part["pays"]) for part in column.get("budget", ())),
        *(("rewritten again, at no cost", step["name"]) for step in column.get("postprocess", ())),
        ("configuration", column["cfg"]),
        *((f"public input: {name}", digest) for name, digest in column.get("artifact_hashes", {}).items()),
    )
    return f"{column['name']}: guarantee", (_bound(column), *facts), rows


def _bound(column: Mapping[str, Any]) -> str:
    worst = column["worst_case"]
    if isinstance(worst["epsilon"], str):
        return (
            "No bound holds: a reader may tell two texts apart with certainty, whatever the mechanism's parameter is."
        )
    if shuffled := column.get("shuffled"):
        labels = shuffled.get("labels")
        agree = f" and on {labels['column']}, the label" if labels else ""
        return (
            f"Consider two tables that differ in the text of one record, and agree on which texts are null{agree}. "
            "Whatever a reader knows, all other texts included, any published table is at most e^ε times as likely "
            f"under one as under the other, plus δ. For every record, {_amounts(worst)}. The bound holds because at "
            f"least {counted(shuffled['rows'], 'text')} {'of each label ' if labels else ''}are published together. It "
            "relies on you: drafts, key, and ledger stay inside your boundary. To someone who sees which text was "
            f"drawn for which record, ε is {at_most(shuffled['local_epsilon'])} for every text."
        )
    if "synthetic" in column:
        most = column["statistic"]["per_subject"]
        persons = "one record of each person counts" if most == 1 else f"at most {most} records of a person count"
        return (
            "Consider two tables that differ in the text, the label, or both of one record. Whatever a reader knows, "
            "all other records included, any published statistic and table is at most e^ε times as likely under one as "
            f"under the other, plus δ. For every record, {_amounts(worst)}; {persons}. The guarantee is central. It "
            "relies on you: the exact sums, drafts, key, and ledger stay inside your boundary. It does not hold "
            "against someone who sees them."
        )
    agree = " that agree on the facts below" if column["disclosures"] else ""
    plus = ", plus δ" if worst["delta"] else ""
    says = (
        f"Consider any two texts{agree}. Whatever a reader knows, any released text is at most e^ε times as likely "
        f"under one as under the other{plus}. "
    )
    per_unit = _amounts({"epsilon": column["unit_epsilon"], "delta": column["unit_delta"]})
    if column["unit"] == "record":
        return says + f"For every text, {per_unit}."
    longest = f"{_amounts(worst)} for the longest text that the policy admits ({worst['words']:,} words)"
    return says + f"For a text of one {column['unit']}, {per_unit}. It grows with the text, up to {longest}."


def _limit(limits: Mapping[str, float]) -> str:
    """Write a cap and its bound; odds have no bound where there is a delta, or only rho."""
    if "rho" in limits:
        return f"rho {at_most(limits['rho'])}"
    epsilon, delta = limits.get(PURE, limits.get("eps_approx", 0.0)), limits.get("delta", 0.0)
    power = at_most(epsilon / math.log(10), 3)
    bound = f"an outcome is at most 10^{power} times as likely, plus δ" if delta else f"odds move by 10^{power} at most"
    return f"{_amounts({'epsilon': epsilon, 'delta': delta})}: {bound}"


def meaning_of(epsilon: float | str, delta: float | str = 0, *, disclosed: bool = False) -> str:
    """Explain an epsilon: by how much odds move, and how likely a guess can become."""
    if isinstance(epsilon, str):
        return "No bound on the odds holds."
    if epsilon >= VACUOUS:
        return (
            f"At ε = {at_most(epsilon)} the odds may move by 10^{at_most(epsilon / math.log(10), 3)}: the bound says "
            "nothing in practice. Only the failure of attacks protects then: `dptext evaluate` measures it."
        )
    factor = math.exp(epsilon)
    at, times = at_most(epsilon), at_most(factor, 3)
    agree = " that agree on all exact disclosures" if disclosed else ""
    if delta:
        return (
            f"At ε = {at} and δ = {at_most(delta)}, of two texts{agree}, any outcome is at most {times} times as "
            "likely under one as under the other, plus δ. δ is not the chance that the odds move further: that chance "
            "can be larger."
        )
    odds = factor * 0.01 / 0.99
    guess = at_most(100 * odds / (1 + odds), 3)
    among = f"Among texts{agree}, a guess" if disclosed else "A guess"
    becomes = f"is right with a chance of {guess}% at most after the release"
    if guess == "100":
        becomes = (
            "may be near certain after the release: the bound protects only against guesses that were far less likely"
        )
    besides = " Exact disclosures may rule out the other texts with certainty." if disclosed else ""
    return (
        f"At ε = {at} the odds between two texts{agree} move by a factor of {times} at most. {among} that was right "
        f"with a chance of 1% {becomes}.{besides}"
    )


def _amounts(amounts: Mapping[str, float | str]) -> str:
    """Write an epsilon, and its delta if there is one; no finite epsilon where there is none."""
    if isinstance(amounts["epsilon"], str):
        return "no finite ε"
    delta = amounts["delta"]
    return f"ε {at_most(amounts['epsilon'])}" + (f", δ {at_most(delta)}" if delta else "")


def _cap(cap: Mapping[str, Any]) -> Section:
    limits = ", ".join(f"{name} {at_most(amount)}" for name, amount in cap["limits"].items()) or "none"
    rows = (
        ("cap", limits),
        *(("set by", _listed([item for item in event.values() if item])) for event in cap["set"]),
        (f"{cap['unit']}s charged", f"{cap['units']:,}, {cap['at_the_cap']:,} of them at the cap"),
        *((f"most used ({name})", at_most(amount)) for name, amount in cap["most_used"].items()),
        *((f"least left ({name})", at_most(amount)) for name, amount in cap["least_left"].items()),
    )
    sentence = f"All releases in this scope add up for each {cap['unit']}."
    return f"Cap: {cap['scope']}", (f"{sentence} A run that would exceed the cap excludes rows or stops.",), rows


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
