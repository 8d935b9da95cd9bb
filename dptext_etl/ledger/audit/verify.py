"""Derive everything in a ledger again from its journal, and compare (docs/spec/privacy.md#verify)."""

from __future__ import annotations

from typing import Any

from dptext_etl.artifacts import canon
from dptext_etl.ledger.audit.derive import derive
from dptext_etl.ledger.audit.derived import Derived
from dptext_etl.ledger.audit.recount import recount_balances, recount_index
from dptext_etl.ledger.operations import forms
from dptext_etl.ledger.operations.attribution import ACCEPTED
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.erasure import FORGOTTEN
from dptext_etl.ledger.operations.releases import NAMES
from dptext_etl.ledger.storage.records import POSTS
from dptext_etl.ledger.storage.units import read_limits
from dptext_etl.ledger.terms import State, VerifyReport


def verify(book: Book) -> VerifyReport:
    """Check chain, roots, states, counts, uniqueness, the record index, balances and caps.

    The report names the batch of every row that was edited, removed, reordered or inserted. If someone rewrites the
    whole ledger consistently, only an anchor that was kept elsewhere shows it.
    """
    book = Book.of(book.store, None)  # use nothing that was read before
    derived = derive(book)
    problems = derived.problems
    _same(problems, "release", _releases(derived), _stored_releases(book))
    _same(problems, "frozen dataset", derived.frozen, dict(book.store.rows("select dataset, seq from frozen")))
    revoked = {row[:2]: row[2] for row in book.store.rows("select dataset, release, seq from burnt")}
    _same(problems, "revoked name", derived.revoked, revoked)
    pinned = book.store.rows("select name, value from meta where name like ?", (f"{forms.PREFIX}%",))
    _same(problems, "pinned", derived.forms, dict(pinned))
    accepted = book.store.rows("select name, value from meta where name like ?", (f"{ACCEPTED}%",))
    _same(problems, "accepted", derived.accepted, dict(accepted))
    noted = book.store.rows("select name, value from meta where name like ?", (f"{FORGOTTEN}%",))
    _same(
        problems, "forgotten", {name: " ".join(map(str, seqs)) for name, seqs in derived.forgotten.items()}, dict(noted)
    )
    _same(problems, "publication", _publications(derived), _stored_publications(book))
    _same(problems, "counts of release", _tallies(derived), _stored_tallies(book))
    _same(problems, "batch", _batches(derived), _stored_batches(book))
    _same(problems, "digests of batch", dict.fromkeys(derived.commit_parts, True), _stored_parts(book))
    _same(problems, "blobs of batch", derived.sealed, _stored_blobs(book))
    noted = book.store.rows("select name, value from meta where name like ?", (f"{POSTS}%",))
    rewritten = {f"{POSTS}{batch}": " ".join(map(str, seqs)) for batch, seqs in derived.posts.items()}
    _same(problems, "post-processing of batch", rewritten, dict(noted))
    _scopes(book, derived)
    for release, nonce in sorted({(batch.release, batch.nonce) for batch in derived.batches.values()}):
        recount_index(book, derived, release, nonce)
    recount_balances(book, derived)
    return VerifyReport(problems, _counts(derived))


def _same(problems: list[str], what: str, derived: dict[Any, Any], stored: dict[Any, Any]) -> None:
    for key in sorted({*derived, *stored}, key=str):
        shown = " ".join(str(part) for part in key) if isinstance(key, tuple) else key
        if key not in stored:
            problems.append(f"{what} {shown}: the journal has it, but the table of the ledger does not")
        elif key not in derived:
            problems.append(f"{what} {shown}: the table of the ledger has it, but the journal does not")
        elif derived[key] != stored[key]:
            problems.append(f"{what} {shown}: it differs from the journal")


def _releases(derived: Derived) -> dict[int, Any]:
    return {
        number: (
            *(facts[name] for name in NAMES if name != "mechanism"),
            facts["publishable"],
            canon(facts["facts"]).decode(),
            derived.revoked.get((facts["dataset"], facts["release"])),
        )
        for number, facts in derived.releases.items()
    }


def _stored_releases(book: Book) -> dict[int, Any]:
    found = book.store.rows("select id, dataset, col, release, cfg, id_type, publishable, facts, burnt from release")
    return {row[0]: (*row[1:6], bool(row[6]), *row[7:]) for row in found}


def _publications(derived: Derived) -> dict[Any, Any]:
    return dict(derived.publications)


def _stored_publications(book: Book) -> dict[Any, Any]:
    return {
        row[:3]: row[3:] for row in book.store.rows("select release, nonce, version, manifest, rows from publication")
    }


_TALLIED = ("records", "canaries", "committed", "expired", "aborted", "diverged")


def _tallies(derived: Derived) -> dict[Any, Any]:
    return {
        key: (*(tally[name] for name in _TALLIED), None if tally["endless"] else tally["max_pure"])
        for key, tally in derived.tallies.items()
    }


def _stored_tallies(book: Book) -> dict[Any, Any]:
    found = book.store.rows(f"select release, nonce, {', '.join(_TALLIED)}, max_pure from tally")  # noqa: S608
    return {row[:2]: row[2:] for row in found}


def _batches(derived: Derived) -> dict[int, Any]:
    found = {}
    for seq, item in derived.batches.items():
        names = (item.release, item.nonce, item.scope, item.job, len(item.states))
        found[seq] = (*names, int((item.states == State.RESERVED).sum()), item.attached, item.states.tobytes())
    return found


def _stored_batches(book: Book) -> dict[int, Any]:
    found = book.store.rows("select seq, release, nonce, scope, job, rows, open, attached, state from batch")
    return {row[0]: (*row[1:7], bool(row[7]), row[8]) for row in found}


def _stored_parts(book: Book) -> dict[Any, Any]:
    return dict.fromkeys(book.store.rows("select batch, seq from commit_part"), True)


def _stored_blobs(book: Book) -> dict[int, set[str]]:
    blobs: dict[int, set[str]] = {}
    for seq, name in book.store.rows("select seq, name from segment"):
        blobs.setdefault(seq, set()).add(name)
    return blobs | {row[0]: blobs.get(row[0], set()) for row in book.store.rows(_SEALED)}


_SEALED = (
    "select seq from event where kind in"
    " ('RESERVE','COMMIT','DIVERGED','SETTLE','EXPIRE','ABORT','POST','FORGET','READMIT')"
)


def _scopes(book: Book, derived: Derived) -> None:
    stored = {row[0]: row[1:] for row in book.store.rows("select id, name, period, unit, measure, limits from scope")}
    for number, (*names, measure, limits) in stored.items():
        history = derived.caps.get(number)
        last = (None, []) if history is None else (history[-1][1], list(history[-1][2]))
        named = derived.scopes.get(number, tuple(names))
        if tuple(names) != named or (measure, list(read_limits(measure, limits))) != last:
            derived.problems.append(f"scope {number}: its cap or unit differs from the journal")
    members = set(book.store.rows("select scope, dataset from member"))
    for number, dataset in derived.members:
        if number not in stored or (number, dataset) not in members:
            derived.problems.append(f"scope {number}: the journal has it, but the table of the ledger does not")


def _counts(derived: Derived) -> dict[str, int]:
    tallies = derived.tallies.values()
    counts = {name: sum(tally[name] for tally in tallies) for name in _TALLIED}
    pending = counts["records"] - counts["committed"] - counts["expired"] - counts["aborted"]
    rewritten = sum(len(rows) for held in derived.rewritten.values() for rows in held)
    found = {"events": sum(derived.events.values()), "batches": len(derived.sealed), **counts, "pending": pending}
    return {**found, **({"rewritten": rewritten} if rewritten else {})}
