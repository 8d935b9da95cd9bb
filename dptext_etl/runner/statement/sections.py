"""Say the facts of a statement in sentences and tables, for a person who knows little of differential privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VACUOUS = 30
"""From this epsilon on, the bound says nothing in practice (docs/spec/privacy.md#odds)."""

ASSUMES = {
    "PRF": "the secret key is secret, and HMAC-SHA256 and ChaCha20 look random without it",
    "TRUSTED_IDS": "record ids are given inside your boundary; nobody outside can have a text released under an id",
    "NO_CRASH_CHANNEL": "whether a process crashed tells nothing",
    "UNIQUE_IDS": "no two rows share an id and a text",
    "SCORES_LOCAL": "a model scores every row from its own text alone",
    "IDEAL_LAPLACE": "noise on a fine grid stands for a continuous density",
    "IDEAL_GAUSSIAN": "noise on a fine grid stands for a continuous density",
}


@dataclass(frozen=True)
class Section:
    """A part of a statement.

    Attributes:
        title: Its heading.
        says: Paragraphs.
        rows: A table of names and values; may be empty.
        commands: Lines for a shell; may be empty.
    """

    title: str
    says: tuple[str, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()


def title(found: dict[str, Any]) -> str:
    """Return the title of a statement."""
    part = f", {found['partition']}" if found["partition"] else ""
    return f"Statement: {found['dataset']}, release {found['release']}{part}, version {found['version']}"


def sections(found: dict[str, Any]) -> list[Section]:
    """Return the parts of a statement, in the order in which they are read."""
    caps = [_cap(cap) for cap in found["caps"]]
    return [
        _released(found),
        *(part for column in found["columns"] for part in (_promise(column), _cost(column))),
        *caps,
        _gates(found),
        _assumptions(found),
        _verify(found),
        *([Section("What this page lacks", tuple(found["lacks"]))] if found["lacks"] else []),
    ]


def _released(found: dict[str, Any]) -> Section:
    texts = [column["name"] for column in found["columns"]]
    rewritten = f"The text in {_listed(texts)} was rewritten under differential privacy."
    return Section(
        "What was released",
        (f"{found['rows']:,} rows. {rewritten} {_in_clear(found)}",),
        (
            ("where", found["sink"]),
            ("rewritten", _listed(texts)),
            ("in clear", _listed(found["in_clear"])),
            ("SHA-256 of the manifest, which lists the SHA-256 of every file", found["manifest_sha256"]),
            ("this page was written by", found["written_by"]),
        ),
    )


def _in_clear(found: dict[str, Any]) -> str:
    others = [name for name in found["in_clear"] if name != found["id"]]
    if not others:
        return "The record id passes unchanged: this page promises nothing about it."
    return f"{_listed(others)} and the record id pass unchanged: this page promises nothing about them."


def _promise(column: dict[str, Any]) -> Section:
    told = [f"{name}: {meaning}" for name, meaning in column["disclosures"].items()]
    bound = (
        "A reader of a record's released text, who may know everything else, can shift the odds between any two "
        "texts that it may come from by a bounded factor alone. "
        f"The bound, ε, is {column['epsilon']:g} per {column['unit']}."
    )
    return Section(
        f"{column['name']}: what is promised",
        (bound, f"Beside that, these facts of each text are released exactly: {'; '.join(told)}."),
        (
            ("mechanism", column["mechanism"]),
            ("kind of guarantee", f"{column['class']}: {column['meaning']}"),
            ("compared are", column.get("neighbours", "see the ledger")),
            *((f"ε {_number(part['epsilon'])} pays for", part["pays"]) for part in column.get("budget", ())),
            *(("rewritten again, at no cost", step["name"]) for step in column.get("postprocess", ())),
            ("configuration", column["cfg"]),
            *((f"public input: {name}", digest) for name, digest in column.get("artifact_hashes", {}).items()),
        ),
    )


def _cost(column: dict[str, Any]) -> Section:
    worst, charged = column["worst_case"], column.get("charged")
    says = []
    rows = [
        (
            "worst case, said before any text was read",
            f"ε {_number(worst['epsilon'])}, δ {_number(worst['delta'])} (a text of {worst['words']:,} words)",
        )
    ]
    if charged:
        rows.insert(0, ("largest charge of a record", f"ε {_number(charged['largest_epsilon'])}"))
        rows.append(("records charged", f"{charged['records']:,}, canary rows included"))
        says.append(meaning_of(charged["largest_epsilon"]))
        if charged["largest_epsilon"] != worst["epsilon"]:
            says.append(
                "The worst case is that of the longest text that the policy admits. It is what the published table "
                "alone can promise; the ledger charges what each record really took."
            )
    else:
        says.append(meaning_of(worst["epsilon"]))
    if worst["delta"]:
        says.append(f"With probability {_number(worst['delta'])} the bound may fail (δ).")
    return Section(f"{column['name']}: what it cost", tuple(says), tuple(rows))


def meaning_of(epsilon: float | str) -> str:
    """Say what an epsilon of a whole record means: by how much odds move, and what a guess can become."""
    if isinstance(epsilon, str):
        return "No bound on the odds is known."
    if epsilon >= VACUOUS:
        return (
            f"At ε = {epsilon:g} the odds may move by 10^{epsilon / math.log(10):.1f}: the bound says nothing in "
            "practice. What protects then is what attackers fail at: `dptext evaluate` measures it."
        )
    factor = math.exp(epsilon)
    odds = factor * 0.01 / 0.99
    return (
        f"At ε = {epsilon:g} the odds move by a factor of {factor:,.3g} at most: a guess that was right with a chance "
        f"of 1 % is right with a chance of {100 * odds / (1 + odds):.3g} % at most after the release."
    )


def _cap(cap: dict[str, Any]) -> Section:
    limits = ", ".join(f"{name} {_number(amount)}" for name, amount in cap["limits"].items()) or "none"
    rows = [
        ("cap", limits),
        (f"{cap['unit']}s charged", f"{cap['units']:,}, {cap['at_the_cap']:,} of them at the cap"),
        *((f"most used ({name})", _number(amount)) for name, amount in cap["most_used"].items()),
        *((f"least left ({name})", _number(amount)) for name, amount in cap["least_left"].items()),
    ]
    adds_up = f"All releases in this scope add up for each {cap['unit']}."
    says = f"{adds_up} A run that would exceed the cap leaves rows out or stops."
    return Section(f"Cap: {cap['scope']}", (says,), tuple(rows))


def _gates(found: dict[str, Any]) -> Section:
    rows = tuple((gate["name"], f"passed. {gate['catches']}".strip()) for gate in found["gates"])
    return Section(
        "What was checked before publication",
        ("A table is published only if all of these pass. None of them compares a row with its raw text.",),
        rows,
    )


def _assumptions(found: dict[str, Any]) -> Section:
    names = sorted({name for column in found["columns"] for name in column["assumptions"]})
    return Section(
        "What is assumed",
        ("The promise holds as long as these hold.",),
        tuple((name, ASSUMES.get(name, "see the specification")) for name in names),
    )


def _verify(found: dict[str, Any]) -> Section:
    return Section(
        "How to verify it",
        (
            "Whoever has the published files can compute their SHA-256 and compare them with the manifest.",
            "Whoever has the policy, its key and its ledger can run these; none reads a raw text.",
        ),
        commands=(
            f"dptext check {found['sink']} --policy POLICY      # gates, files, charges",
            "dptext audit POLICY                  # the promise itself, computed and attacked",
            "dptext ledger verify --ledger URL    # every balance, from the journal",
        ),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _number(amount: float | str) -> str:
    return "unbounded" if isinstance(amount, str) else f"{amount:,.6g}"
