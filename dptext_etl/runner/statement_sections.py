"""Write the facts of a statement as sentences and tables for readers who know little about differential privacy."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dptext_etl.guarantee import PURE
from dptext_etl.runner.amounts import VACUOUS, at_most

ASSUMES = {
    "PRF": "the secret key is secret, and HMAC-SHA256 and ChaCha20 look random without it",
    "TRUSTED_CURATOR": "you keep the exact sums of a synthetic table inside your boundary, and release only noisy ones",
    "TRUSTED_IDS": "record ids are given inside your boundary; no one outside can have a text released under an id",
    "NO_CRASH_CHANNEL": "whether a process crashed reveals nothing",
    "OWN_PERSONS": "rows that name no person are each of another person; k rows of one have k times the loss",
    "UNIQUE_IDS": "no two rows share an id and a text",
    "SCORES_LOCAL": "a model scores every row from its own text alone",
    "IDEAL_LAPLACE": "noise on a fine grid stands for a continuous density",
    "IDEAL_GAUSSIAN": "noise on a fine grid stands for a continuous density",
}


class Section(NamedTuple):
    """A part of a statement: heading, paragraphs, a table of names and values, and lines for a shell."""

    title: str
    paragraphs: tuple[str, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()


def title(found: dict[str, Any]) -> str:
    part = f", {found['partition']}" if found["partition"] else ""
    return f"Statement: {found['dataset']}, release {found['release']}{part}, version {found['version']}"


def sections(found: dict[str, Any]) -> list[Section]:
    return [
        _released(found),
        *_left_out(found),
        *(part for column in found["columns"] for part in (_promise(column), _cost(column))),
        _whole(found),
        *map(_cap, found["caps"]),
        _gates(found),
        _assumptions(found),
        _verify(found),
        *([Section("What this page lacks", tuple(found["lacks"]))] if found["lacks"] else []),
    ]


def _released(found: dict[str, Any]) -> Section:
    where = (
        ("where", found["sink"]),
        ("SHA-256 of the manifest, which lists the SHA-256 of every file", found["manifest_sha256"]),
        ("this page was written by", found["written_by"]),
    )
    if any(map(_is_synthetic, found["columns"])):
        return Section("What was released", (_released_synthetic(found),), where)
    texts = _listed([column["name"] for column in found["columns"]])
    rewritten = f"The text in {texts} was rewritten under differential privacy."
    rows = (
        "different texts with their counts"
        if found["id"] is None and found["ids"] != "drop" and "count" in found["in_clear"]
        else "rows"
    )
    table = (("rewritten", texts), ("in clear", _listed(found["in_clear"])), *where)
    return Section("What was released", (f"{found['rows']:,} {rows}. {rewritten} {_in_clear(found)}",), table)


def _is_synthetic(column: Mapping[str, Any]) -> bool:
    return "synthetic" in column


def _released_synthetic(found: dict[str, Any]) -> str:
    (column,) = found["columns"]
    labels = f" with labels in {column['synthetic']['label']}" if "label" in column["synthetic"] else ""
    return (
        f"{found['rows']:,} rows of public texts{labels}. They follow one noisy statistic of {column['name']}, "
        "which is in the manifest. No text of a record was released, and no row belongs to a record."
    )


_REASONS = {
    "quarantined": ("over the cap", "records", "people with many records, or with long texts where cost grows by word"),
    "over_contribution": ("beyond per_subject", "records", "people with many records"),
    "without_subject": ("without a person", "rows", "people whom the source does not name, such as guests"),
    "changed_left_out": ("with a changed text", "records", "cases that were corrected or are still open"),
    "forgotten": ("forgotten on request", "records", "people who asked to be erased"),
}


def _left_out(found: Mapping[str, Any]) -> list[Section]:
    """Say which rows of the source the table lacks, and whom that biases it against."""
    counts = found["left_out"]
    if counts is None:
        return []
    reasons = [(*_REASONS[name], counts[name]) for name in _REASONS if name in counts]
    rows = [(why, _counted(count, what)) for why, what, _, count in reasons]
    if kept := counts.get("changed_kept"):
        rows.append(("published as before their text changed", _counted(kept, "records")))
    says = f"The source had {_counted(counts['read'], 'rows')}. "
    if not reasons:
        says += "None of them was left out."
    else:
        whom = dict.fromkeys(f"{people} ({why})" for why, _, people, _ in reasons)
        says += f"Leaving rows out biases the table: it says less of {', and of '.join(whom)} than the source does."
    return [Section("What was left out", (says,), tuple(rows))]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what if count != 1 else what.removesuffix('s')}"


_IDS = {
    "keep": "",
    "keyed": "The record id is a keyed hash, the same within this release: without the key it does not show the id.",
    "drop": "The record id is left out.",
}


def _in_clear(found: dict[str, Any]) -> str:
    if found["id"] is None and found["ids"] != "drop":
        return "The texts are published without ids, in alphabetical order, and without other columns of their rows."
    others = [name for name in found["in_clear"] if name != found["id"]]
    own = "the record id" if others else "The record id"
    names = [*others, own] if found["ids"] == "keep" else others
    if not names:
        return _IDS[found["ids"]]
    *first, last = names
    both, verb, them = (f"{', '.join(first)} and {last}", "pass", "them") if first else (last, "passes", "it")
    said = f"{both} {verb} unchanged: this page promises nothing about {them}."
    return f"{_IDS[found['ids']]} {said}".lstrip()


def _promise(column: dict[str, Any]) -> Section:
    exact = [f"{name}: {meaning}" for name, meaning in column["disclosures"].items()]
    facts = f"These facts of each text are released exactly: {'; '.join(exact)}." if exact else ""
    return Section(
        f"{column['name']}: what is promised",
        tuple(filter(None, (_bound(column), facts))),
        (
            ("mechanism", column["mechanism"]),
            ("its parameter ε", at_most(column["parameter"])),
            ("kind of guarantee", f"{column['class']}: {column['meaning']}"),
            ("compared are", column.get("neighbours", "see the ledger")),
            *((f"ε {at_most(part['epsilon'])} pays for", part["pays"]) for part in column.get("budget", ())),
            *(("rewritten again, at no cost", step["name"]) for step in column.get("postprocess", ())),
            ("configuration", column["cfg"]),
            *((f"public input: {name}", digest) for name, digest in column.get("artifact_hashes", {}).items()),
        ),
    )


def _bound(column: dict[str, Any]) -> str:
    worst = column["worst_case"]
    if isinstance(worst["epsilon"], str):
        return (
            "No bound holds: a reader may tell two texts apart with certainty, whatever the mechanism's parameter is."
        )
    agree = " that agree on the facts below" if column["disclosures"] else ""
    if unlinked := column.get("unlinked"):
        return _central_bound(worst, unlinked)
    if _is_synthetic(column):
        return _synthetic_bound(column)
    plus = ", plus δ" if worst["delta"] else ""
    says = (
        f"Take any two texts{agree}. Whatever a reader knows, any released text is at most e^ε times as likely under "
        f"one as under the other{plus}. "
    )
    one = _amounts({"epsilon": column["unit_epsilon"], "delta": column["unit_delta"]})
    if column["unit"] == "record":
        return says + f"For every text, {one}."
    longest = f"{_amounts(worst)} for the longest text that the policy admits ({worst['words']:,} words)"
    return says + f"For a text of one {column['unit']}, {one}. It grows with the text, up to {longest}."


def _central_bound(worst: Mapping[str, Any], unlinked: Mapping[str, Any]) -> str:
    """State the bound of an unlinked release, whom it trusts, and what holds without that trust."""
    return (
        "Take two tables that differ in the text of one record, and agree on which texts are null. Whatever a reader "
        "knows, all other texts included, any published table is at most e^ε times as likely under one as under the "
        f"other, plus δ. For every record, {_amounts(worst)}. The bound holds because at least {unlinked['rows']:,} "
        "texts are published together. It relies on you: drafts, key, and ledger stay inside your boundary. To someone "
        f"who sees which text was drawn for which record, ε is {at_most(unlinked['local_epsilon'])} for every text."
    )


def _synthetic_bound(column: Mapping[str, Any]) -> str:
    most = column["statistic"]["per_subject"]
    persons = "one record of each person counts" if most == 1 else f"at most {most} records of a person count"
    return (
        "Take two tables that differ in the text, the label, or both of one record. Whatever a reader knows, all other "
        "records included, any published statistic and table is at most e^ε times as likely under one as under the "
        f"other, plus δ. For every record, {_amounts(column['worst_case'])}; {persons}. The guarantee is central. It "
        "relies on you: the exact sums, drafts, key, and ledger stay inside your boundary. It does not hold against "
        "someone who sees them."
    )


def _cost(column: dict[str, Any]) -> Section:
    worst, charged = column["worst_case"], column.get("charged")
    whole = _is_synthetic(column) or column.get("unit") == "record"
    longest = "" if whole else f" (a text of {worst['words']:,} words)"
    rows = [("worst case, known before any text was read", f"{_amounts(worst)}{longest}")]
    largest = worst
    if charged:
        largest = {"epsilon": charged["largest_epsilon"], "delta": charged["largest_delta"]}
        rows.insert(0, ("largest charge of a record", _amounts(largest)))
        rows.append(("records charged", f"{charged['records']:,}"))
    says = [meaning_of(largest["epsilon"], largest["delta"], disclosed=bool(column["disclosures"]))]
    if largest["epsilon"] != worst["epsilon"]:
        says.append(
            "The worst case is that of the longest text that the policy admits. It is what the published table alone "
            "can promise; the ledger charges what each record took."
        )
    return Section(f"{column['name']}: what it cost", tuple(says), tuple(rows))


def _whole(found: dict[str, Any]) -> Section:
    """State the sums that matter to a record with several texts, and to a person with several records."""
    columns, amounts, rows = found["columns"], found["record"], []
    disclosed = any(column["disclosures"] for column in columns)
    if all("charged" in column for column in columns):
        charges = [column["charged"] for column in columns]
        amounts = {name: _sum([charge[f"largest_{name}"] for charge in charges]) for name in ("epsilon", "delta")}
        rows.append(("charged to a record at most, over its text columns", _amounts(amounts)))
    rows.append(("worst case of a record, over its text columns", _amounts(found["record"])))
    says = [
        f"The text columns of a record add up. {meaning_of(amounts['epsilon'], amounts['delta'], disclosed=disclosed)}"
    ]
    for cap in found["caps"]:
        epsilon = cap["limits"].get(PURE, cap["limits"].get("eps_approx"))
        if epsilon is not None:
            limit = {"epsilon": epsilon, "delta": cap["limits"].get("delta", 0)}
            rows.append((f"cap of a {cap['unit']}: {cap['scope']}", _amounts(limit)))
            bound = meaning_of(epsilon, limit["delta"], disclosed=disclosed)
            says.append(f"Everything that is released of one {cap['unit']} under the cap adds up. {bound}")
    if not found["caps"]:
        says.append("This page states no cap per person. Without one, a person with k records loses k times as much.")
    return Section("Per record and per person", tuple(says), tuple(rows))


def meaning_of(epsilon: float | str, delta: float | str = 0, *, disclosed: bool = False) -> str:
    """Say what an epsilon means: by how much odds move, and what a guess can become."""
    if isinstance(epsilon, str):
        return "No bound on the odds holds."
    if epsilon >= VACUOUS:
        return (
            f"At ε = {at_most(epsilon)} the odds may move by 10^{at_most(epsilon / math.log(10), 3)}: the bound says "
            "nothing in practice. What protects then is what attackers fail at: `dptext evaluate` measures it."
        )
    factor = math.exp(epsilon)
    at, times = at_most(epsilon), at_most(factor, 3)
    agree = " that agree on what is released exactly" if disclosed else ""
    if delta:
        return (
            f"At ε = {at} and δ = {at_most(delta)}, of two texts{agree}, any outcome is at most {times} times as "
            "likely under one as under the other, plus δ. δ is not the chance that the odds move further: that chance "
            "can be larger."
        )
    odds = factor * 0.01 / 0.99
    guess = at_most(100 * odds / (1 + odds), 3)
    among = f"Among texts{agree}, a guess" if disclosed else "A guess"
    becomes = f"is right with a chance of {guess} % at most after the release"
    if guess == "100":
        becomes = "may be near certain after the release: the bound hides guesses alone that are far less likely"
    besides = " What is released exactly may rule out the other texts with certainty." if disclosed else ""
    return (
        f"At ε = {at} the odds between two texts{agree} move by a factor of {times} at most. {among} that was right "
        f"with a chance of 1 % {becomes}.{besides}"
    )


def _amounts(amounts: Mapping[str, float | str]) -> str:
    """Write an epsilon, and its delta if there is one; no finite epsilon where there is none."""
    if isinstance(amounts["epsilon"], str):
        return "no finite ε"
    delta = amounts["delta"]
    return f"ε {at_most(amounts['epsilon'])}" + (f", δ {at_most(delta)}" if delta else "")


def _sum(amounts: Sequence[float | str]) -> float | str:
    return "inf" if "inf" in amounts else math.fsum(float(amount) for amount in amounts)


def _cap(cap: dict[str, Any]) -> Section:
    limits = ", ".join(f"{name} {at_most(amount)}" for name, amount in cap["limits"].items()) or "none"
    rows = [
        ("cap", limits),
        (f"{cap['unit']}s charged", f"{cap['units']:,}, {cap['at_the_cap']:,} of them at the cap"),
        *((f"most used ({name})", at_most(amount)) for name, amount in cap["most_used"].items()),
        *((f"least left ({name})", at_most(amount)) for name, amount in cap["least_left"].items()),
    ]
    says = (
        f"All releases in this scope add up for each {cap['unit']}. "
        "A run that would exceed the cap leaves rows out or stops."
    )
    return Section(f"Cap: {cap['scope']}", (says,), tuple(rows))


def _gates(found: dict[str, Any]) -> Section:
    return Section(
        "What was checked before publication",
        ("A table is published only if all of these pass. None of them compares a row with its raw text.",),
        tuple((gate["name"], _gate(gate)) for gate in found["gates"]),
    )


def _gate(gate: Mapping[str, Any]) -> str:
    catches = gate["catches"]
    if gate["idle"]:
        return "not applicable: it is made for other mechanisms, and had nothing to judge here."
    return f"passed. Would have stopped: {catches[0].lower()}{catches[1:]}" if catches else "passed."


def _assumptions(found: dict[str, Any]) -> Section:
    names = sorted({name for column in found["columns"] for name in column["assumptions"]})
    return Section(
        "What is assumed",
        ("The promise holds as long as these hold.",),
        tuple((name, ASSUMES.get(name, "see the specification")) for name in names),
    )


def _verify(found: dict[str, Any]) -> Section:
    made = any(map(_is_synthetic, found["columns"]))
    return Section(
        "How to verify it",
        (
            "Anyone who has the published files can compute their SHA-256 and compare them with the manifest.",
            "Anyone who has the policy, its key and its ledger can run these; none reads a raw text.",
        ),
        commands=(
            f"dptext check POLICY --released {shlex.quote(found['sink'])}      # gates, files, charges",
            *(() if made else ("dptext audit POLICY                  # the promise itself, computed and attacked",)),
            "dptext ledger verify --ledger URL    # every balance, from the journal",
        ),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
