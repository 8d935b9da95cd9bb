"""Write the statement of a release from its facts (`statement_facts`).

A statement is one Markdown document for readers who know little about differential privacy; its HTML is made of it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from dptext_etl import escaping, files
from dptext_etl.errors import InputError, counted, seam
from dptext_etl.guarantee import PURE
from dptext_etl.html_output import document, of_markdown
from dptext_etl.runner import statement_facts, table_check
from dptext_etl.runner.shard.charging import VACUOUS, at_most

facts = statement_facts.facts

_INSIDE = (
    "For readers inside your boundary: the charges of records depend on their texts. "
    "`--public` leaves these amounts out."
)
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
    "PRF": "the secret key is secret, and HMAC-SHA256 and ChaCha20 look random without it",
    "TRUSTED_CURATOR": "you keep the exact sums of a synthetic table inside your boundary, and release only noisy ones",
    "TRUSTED_IDS": "record ids are given inside your boundary; no one outside can have a text released under an id",
    "NO_CRASH_CHANNEL": "whether a process crashed reveals nothing",
    "OWN_PERSONS": "rows that name no person are each of another person; k rows of one have k times the loss",
    "UNIQUE_IDS": "no two rows share an id and a text",
    "SCORES_LOCAL": "a model scores every row only from its own text",
    "IDEAL_LAPLACE": "noise on a fine grid approximates a continuous density",
    "IDEAL_GAUSSIAN": "noise on a fine grid approximates a continuous density",
}


def markdown(facts: dict[str, Any], *, full: bool = True) -> str:
    facts = escaping.one_line_each(facts)
    return f"# {_escaped(_title(facts))}\n\n{_body(facts, full=full)}\n"


def page(facts: dict[str, Any], *, full: bool = True) -> str:
    facts = escaping.one_line_each(facts)
    return document(_title(facts), of_markdown(_body(facts, full=full)), _STYLE)


def write(facts: dict[str, Any], folder: Path, *, full: bool = True) -> tuple[Path, Path]:
    """Write both forms into a folder, which is made if it is missing."""
    paths = folder / "statement.md", folder / "statement.html"
    with seam("writing the statement", InputError, "give a folder that can be written: --out FOLDER"):
        files.make_folders(folder)
        mode = files.PUBLIC_FILE if facts["public"] else files.PRIVATE_FILE
        for path, text in zip(paths, (markdown(facts, full=full), page(facts, full=full)), strict=True):
            files.write(path, text.encode(), mode=mode, action="writing the statement")
    return paths


def _title(facts: Mapping[str, Any]) -> str:
    part = f", {facts['partition']}" if facts["partition"] else ""
    return f"Statement: {facts['dataset']}, release {facts['release']}{part}, version {facts['version']}"


def _body(facts: Mapping[str, Any], *, full: bool) -> str:
    inside = not facts["public"] and any("charged" in column for column in facts["columns"])
    return "\n\n".join(
        [
            *([f"> {_escaped(_INSIDE)}"] if inside else []),
            *sections(facts, full=full),
            "  \n".join(f"{word}: ____________________" for word in ("Signed", "Name", "Date")),
        ]
    )


class _Section(NamedTuple):
    heading: str
    paragraphs: Sequence[str]
    rows: Sequence[tuple[str, str]] = ()  # names and values
    detail: Sequence[tuple[str, str]] = ()  # of the full page only
    commands: Sequence[str] = ()  # lines for a shell, of the full page only

    def markdown(self, *, full: bool) -> str:
        """Write paragraphs, a table, and lines for a shell; or all of them but details on two lines."""
        heading, said = f"## {_escaped(self.heading)}", [*map(_escaped, self.paragraphs)]
        if not full:
            rows = "; ".join(f"{_escaped(name)}: {_escaped(value)}" for name, value in self.rows)
            return "\n\n".join([heading, "  \n".join(filter(None, (" ".join(said), rows)))])
        table = [f"| {_escaped(name)} | {_escaped(value)} |" for name, value in (*self.rows, *self.detail)]
        blocks = [heading, *said, *(["\n".join(["| | |", "|---|---|", *table])] if table else [])]
        return "\n\n".join([*blocks, *(["\n".join(["```sh", *self.commands, "```"])] if self.commands else [])])


def _section(heading: str, *paragraphs: str, rows: Iterable[tuple[str, str]] = (), **more: Any) -> _Section:
    return _Section(heading, paragraphs, tuple(rows), **more)


def _escaped(text: str) -> str:
    """Escape everything except commands between "`"; facts hold no "`" (`escaping.one_line_each`)."""
    parts = text.split("`")
    return "`".join(part if number % 2 else escaping.markdown(part) for number, part in enumerate(parts))


def sections(facts: Mapping[str, Any], *, full: bool = True) -> list[str]:
    """Write the sections of the page; without `full`, those that one screen has room for."""
    lacks = [_section("Missing from this page", *facts["lacks"])] if facts["lacks"] else []
    first, promises = [_traced(facts), _released(facts), *_excluded(facts)], [*map(_promise, facts["columns"])]
    if not full:
        parts = [*first, *promises, _whole(facts), *lacks, _more(facts)]
        return [part.markdown(full=False) for part in parts]
    each = chain.from_iterable(zip(promises, map(_cost, facts["columns"]), strict=True))
    caps = (_cap(cap, facts) for cap in facts["caps"] if "units" in cap)
    parts = [*first, *each, _whole(facts), *caps, _gates(facts), _assumptions(facts), _verify(facts), *lacks]
    return [part.markdown(full=True) for part in parts]


def _more(facts: Mapping[str, Any]) -> _Section:
    """List the contents of the full page."""
    gates, assumed = len(facts["gates"]), {name for column in facts["columns"] for name in column["assumptions"]}
    return _section(
        "More on the full page",
        f"{counted(gates, 'gate')} passed before publication. It assumes {_listed(sorted(assumed))}. `--full` explains "
        "this, and adds the cost of each column, the rest of caps, configurations, and how to verify all of it.",
    )


def _traced(facts: Mapping[str, Any]) -> _Section:
    """Say whether someone who knows a record could find its row, and since when."""
    if any(map(_is_synthetic, facts["columns"])):
        said = ["No row belongs to a record."]
    elif lines := table_check.traceable_lines(facts["traceable"]):
        said = [f"{'; '.join(lines)}."]
    else:
        by_id = "No id is published." if facts["id"] is None else _TRACED_BY_ID[facts["ids"]]
        only = f"Only {_listed([*facts['coarse']])} of the other columns" if facts["coarse"] else "No other column"
        said = [f"{by_id} {only} of the source is published."]
    said += [
        f"An attacker with all raw texts finds the one behind a release at the first try in {one['value']:.1%} of "
        f"{counted(one['rows'], 'row')} of {one['column']} ({one['blind']:.1%} by chance)."
        for one in facts.get("reidentified", ())
    ]
    at = facts.get("published_at")
    return _section("Could a row be traced?", *said, *([f"Published at {at}."] if at else []))


_TRACED_BY_ID = {
    "keep": "Record ids are published unchanged: a person who knows the ids can find every row.",
    "keyed": "Record ids are keyed hashes: without the key, they do not show whose row it is.",
}


def _released(facts: Mapping[str, Any]) -> _Section:
    where = (
        ("where", facts["sink"]),
        ("SHA-256 of the manifest, which lists the SHA-256 of every file", facts["manifest_sha256"]),
        ("this page was written by", facts["written_by"]),
    )
    if any(map(_is_synthetic, facts["columns"])):
        return _section("Contents", _released_synthetic(facts), rows=where)
    texts = _listed([column["name"] for column in facts["columns"]])
    rewritten = f"The text in {texts} was rewritten under differential privacy."
    rows = (
        "different texts with their counts"
        if facts["id"] is None and facts["ids"] != "drop" and "count" in facts["in_clear"]
        else "rows"
    )
    clear = (("rewritten", texts), ("unchanged", _listed(facts["in_clear"])))
    said = f"{facts['rows']:,} {rows}. {rewritten} {_in_clear(facts)}"
    return _section("Contents", said, rows=where, detail=clear)


def _is_synthetic(column: Mapping[str, Any]) -> bool:
    return "synthetic" in column


def _released_synthetic(facts: Mapping[str, Any]) -> str:
    (column,) = facts["columns"]
    names = ", ".join(statement_facts.labels_of(column))
    labels = f" with labels in {names}" if names else ""
    return (
        f"{facts['rows']:,} rows of public texts{labels}. They follow one noisy statistic of {column['name']}, "
        "which is in the manifest. No text of a record was released, and no row belongs to a record."
    )


_REASONS = {
    "quarantined": ("over the cap", "record", "people with many records, or with long texts where cost grows by word"),
    "over_contribution": ("beyond per_subject", "record", "people with many records"),
    "without_subject": ("without a person", "row", "people whom the source does not name, such as guests"),
    "changed_excluded": ("with a changed text", "record", "cases that were corrected or are still open"),
    "forgotten": ("forgotten on request", "record", "people who asked to be erased"),
    "null": ("without a text to publish", "record", "records whose text is null or whose label is not listed"),
}


def _excluded(facts: Mapping[str, Any]) -> list[_Section]:
    """Say which rows of the source the table lacks, and whom that biases it against."""
    counts = facts["excluded"]
    if counts is None:
        return []
    reasons = [(*_REASONS[name], counts[name]) for name in _REASONS if name in counts]
    rows = [(why, counted(count, what)) for why, what, _, count in reasons]
    if kept := counts.get("changed_kept"):
        rows.append(("published as before their text changed", counted(kept, "record")))
    says = f"The source had {counted(counts['read'], 'row')}. "
    if not reasons:
        says += "None of them was left out."
    else:
        whom = dict.fromkeys(f"{people} ({why})" for why, _, people, _ in reasons)
        says += f"Leaving rows out biases the table: it says less of {', and of '.join(whom)} than the source does."
    return [_section("Rows left out", says, rows=rows)]


_IDS = {
    "keep": "",
    "keyed": "The record id is a keyed hash, the same within this release: without the key it does not show the id.",
    "drop": "The record id is left out.",
}


def _in_clear(facts: Mapping[str, Any]) -> str:
    if facts["id"] is None and facts["ids"] != "drop":
        said = "The texts are published without ids, in alphabetical order, and without other columns of their rows"
        labels = [f"{name} ({table_check.way_of(rule)})" for name, rule in facts["coarse"].items()]
        return f"{said} than {_listed(labels)}: this page promises nothing about it." if labels else f"{said}."
    others = [name for name in facts["in_clear"] if name not in {facts["id"], *facts["coarse"]}]
    record_id = "the record id" if others else "The record id"
    names = [*others, record_id] if facts["ids"] == "keep" else others
    coarse = [f"{name} ({table_check.way_of(rule)})" for name, rule in facts["coarse"].items()]
    said = f"Coarsened columns pass: {_listed(coarse)}. " if coarse else ""
    if not names:
        return f"{_IDS[facts['ids']]} {said}".strip()
    *first, last = names
    both, verb, them = (f"{', '.join(first)} and {last}", "pass", "them") if first else (last, "passes", "it")
    said += f"{both} {verb} unchanged: this page promises nothing about {them}."
    return f"{_IDS[facts['ids']]} {said}".lstrip()


def _promise(column: Mapping[str, Any]) -> _Section:
    exact = [f"{name}: {meaning}" for name, meaning in column["disclosures"].items()]
    facts = [f"These facts of each text are released exactly: {'; '.join(exact)}."] if exact else []
    return _section(
        f"{column['name']}: guarantee",
        _bound(column),
        *facts,
        rows=(
            ("mechanism", column["mechanism"]),
            ("its parameter ε", at_most(column["parameter"])),
            ("kind of guarantee", f"{column['class']}: {column['meaning']}"),
        ),
        detail=(
            ("compared are", column.get("neighbours", "see the ledger")),
            *((f"ε {at_most(part['epsilon'])} pays for", part["pays"]) for part in column.get("budget", ())),
            *(("rewritten again, at no cost", step["name"]) for step in column.get("postprocess", ())),
            ("configuration", column["cfg"]),
            *((f"public input: {name}", digest) for name, digest in column.get("artifact_hashes", {}).items()),
        ),
    )


def _bound(column: Mapping[str, Any]) -> str:
    worst = column["worst_case"]
    if isinstance(worst["epsilon"], str):
        return (
            "No bound holds: a reader may tell two texts apart with certainty, whatever the mechanism's parameter is."
        )
    agree = " that agree on the facts below" if column["disclosures"] else ""
    if shuffled := column.get("shuffled"):
        return _central_bound(worst, shuffled)
    if _is_synthetic(column):
        return _synthetic_bound(column)
    plus = ", plus δ" if worst["delta"] else ""
    says = (
        f"Consider any two texts{agree}. Whatever a reader knows, any released text is at most e^ε times as likely "
        f"under one as under the other{plus}. "
    )
    one = _amounts({"epsilon": column["unit_epsilon"], "delta": column["unit_delta"]})
    if column["unit"] == "record":
        return says + f"For every text, {one}."
    longest = f"{_amounts(worst)} for the longest text that the policy admits ({worst['words']:,} words)"
    return says + f"For a text of one {column['unit']}, {one}. It grows with the text, up to {longest}."


def _central_bound(worst: Mapping[str, Any], shuffled: Mapping[str, Any]) -> str:
    """State the bound of a shuffled release, whom it trusts, and the bound without that trust."""
    labels = shuffled.get("labels")
    agree = f" and on {labels['column']}, the label" if labels else ""
    return (
        f"Consider two tables that differ in the text of one record, and agree on which texts are null{agree}. "
        "Whatever a reader knows, all other texts included, any published table is at most e^ε times as likely under "
        f"one as under the other, plus δ. For every record, {_amounts(worst)}. The bound holds because at least "
        f"{counted(shuffled['rows'], 'text')} {'of each label ' if labels else ''}are published together. It relies "
        "on you: drafts, key, and ledger stay inside your boundary. To someone "
        f"who sees which text was drawn for which record, ε is {at_most(shuffled['local_epsilon'])} for every text."
    )


def _synthetic_bound(column: Mapping[str, Any]) -> str:
    most = column["statistic"]["per_subject"]
    persons = "one record of each person counts" if most == 1 else f"at most {most} records of a person count"
    return (
        "Consider two tables that differ in the text, the label, or both of one record. Whatever a reader knows, all "
        "other records included, any published statistic and table is at most e^ε times as likely under one as under "
        f"the other, plus δ. For every record, {_amounts(column['worst_case'])}; {persons}. The guarantee is central. "
        "It relies on you: the exact sums, drafts, key, and ledger stay inside your boundary. It does not hold against "
        "someone who sees them."
    )


def _cost(column: Mapping[str, Any]) -> _Section:
    worst, charged = column["worst_case"], column.get("charged")
    whole = _is_synthetic(column) or column.get("unit") == "record"
    longest = "" if whole else f" (a text of {worst['words']:,} words)"
    rows = [("worst case, known before any text was read", f"{_amounts(worst)}{longest}")]
    largest = worst
    if charged:
        largest = {"epsilon": charged["largest_epsilon"], "delta": charged["largest_delta"]}
        rows.insert(0, ("largest charge of a record", _amounts(largest)))
        rows.append(("records charged", f"{charged['records']:,}"))
    says = []
    if largest["epsilon"] != worst["epsilon"]:
        says.append(
            "The worst case is the cost of the longest text that the policy admits. The ledger charges each record for "
            "its text."
        )
    return _section(f"{column['name']}: cost", *says, rows=rows)


def _whole(facts: Mapping[str, Any]) -> _Section:
    """State the sums that matter to a record with several texts, and to a person with several records."""
    columns, amounts, rows = facts["columns"], facts["record"], []
    disclosed = any(column["disclosures"] for column in columns)
    if all("charged" in column for column in columns):
        amounts = statement_facts.record([column["charged"] for column in columns])
        rows.append(("charged to a record at most, over its text columns", _amounts(amounts)))
    rows.append(("worst case of a record, over its text columns", _amounts(facts["record"])))
    says = [
        f"The text columns of a record add up. {meaning_of(amounts['epsilon'], amounts['delta'], disclosed=disclosed)}"
    ]
    capped = [cap for cap in facts["caps"] if cap["limits"]]
    rows += [(f"cap of a {cap['unit']}: {cap['scope']}", _limit(cap["limits"])) for cap in capped]
    if capped:
        says.append("Everything that is released of one person or record under a cap adds up.")
    elif facts["lacks"]:
        says.append("This page was made without the policy, so it does not say whether there is a cap per person.")
    else:
        says.append("There is no cap per person: a person with k records loses k times as much.")
    return _section("Per record and per person", *says, rows=rows)


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


def _cap(cap: Mapping[str, Any], facts: Mapping[str, Any]) -> _Section:
    limits = ", ".join(f"{name} {at_most(amount)}" for name, amount in cap["limits"].items()) or "none"
    rows = [
        ("cap", limits),
        *(("set by", _listed([item for item in event.values() if item])) for event in cap["set"]),
        (f"{cap['unit']}s charged", f"{cap['units']:,}, {cap['at_the_cap']:,} of them at the cap"),
        *((f"most used ({name})", at_most(amount)) for name, amount in cap["most_used"].items()),
        *((f"least left ({name})", at_most(amount)) for name, amount in cap["least_left"].items()),
    ]
    says = (
        f"All releases in this scope add up for each {cap['unit']}. "
        "A run that would exceed the cap leaves rows out or stops."
    )
    more = [f"{table_check.together(facts['together'])}."] if cap["unit"] == "subject" else []
    return _section(f"Cap: {cap['scope']}", says, *more, rows=rows)


def _gates(facts: Mapping[str, Any]) -> _Section:
    return _section(
        "Checks before publication",
        "A table is published only if all of these pass. None of them compares a row with its raw text.",
        rows=((gate["name"], _gate(gate)) for gate in facts["gates"]),
    )


def _gate(gate: Mapping[str, Any]) -> str:
    catches = gate["catches"]
    if gate["idle"]:
        return "not applicable: it is made for other mechanisms, and had nothing to judge here."
    return f"passed. Would have stopped: {catches[0].lower()}{catches[1:]}" if catches else "passed."


_ONE_NAME = (
    "The column of persons names each person once: a person with two spellings or two accounts counts as two, and has "
    "two caps. `dptext plan POLICY` counts spellings."
)


def _assumptions(facts: Mapping[str, Any]) -> _Section:
    names = sorted({name for column in facts["columns"] for name in column["assumptions"]})
    return _section(
        "Assumptions",
        "The promise holds as long as these hold.",
        *((_ONE_NAME,) if any(cap["unit"] == "subject" and "units" in cap for cap in facts["caps"]) else ()),
        rows=((name, ASSUMES.get(name, "see the specification")) for name in names),
    )


def _verify(facts: Mapping[str, Any]) -> _Section:
    made = any(map(_is_synthetic, facts["columns"]))
    return _section(
        "How to verify it",
        "Anyone who has the published files can compute their SHA-256 and compare them with the manifest.",
        "Anyone who has the policy, its key and its ledger can run these; none reads a raw text.",
        commands=(
            f"dptext check POLICY --released {shlex.quote(facts['sink'])}      # gates, files, charges",
            *(() if made else ("dptext audit POLICY                  # the promise itself, computed and attacked",)),
            "dptext ledger verify --ledger URL    # every balance, from the journal",
        ),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
