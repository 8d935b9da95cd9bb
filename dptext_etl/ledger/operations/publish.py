"""Record what left the boundary, and under which name; every published row must be committed."""

from __future__ import annotations

import re
from typing import Any

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.terms import Event, ReleaseRef

_DIGEST = re.compile(r"[0-9a-f]{64}")


def publish(book: Book, refs: list[ReleaseRef], version: str, manifest: str, rows: int) -> None:
    """Record a publication of one or several columns. Call it inside a transaction."""
    if not refs or not _DIGEST.fullmatch(manifest):
        raise LedgerError("a publication needs at least one release and the SHA-256 of its manifest, 64 hex digits")
    new = [ref for ref in refs if not _recorded(book, ref, version, manifest, rows)]
    if not new:
        return
    for ref in new:
        book.releases.require_publishable(ref)
        committed = book.store.row("select committed from tally where release=? and nonce=?", (ref.id, ref.nonce))
        most = committed[0] if committed else 0
        if rows < 0 or (rows > most and not (most and book.releases.is_central(ref))):
            msg = f"{ref} has {most} committed rows, got a publication of {rows}"
            raise LedgerError(msg, "commit before publishing")
    named = [[ref.id, ref.nonce] for ref in new]
    book.journal.append(Event.PUBLISH, releases=named, version=version, manifest=manifest, rows=rows)
    for ref in new:
        book.store.execute("insert into publication values(?,?,?,?,?)", (ref.id, ref.nonce, version, manifest, rows))


def retire(book: Book, refs: list[ReleaseRef], place: str, version: str, manifest: str, rows: int) -> None:  # noqa: PLR0917
    """Record a version that takes rows away, and retire all that its place held before, of any release.

    It is allowed under a revoked name and in a frozen dataset: nothing is released that was not published before. Call
    it inside a transaction.
    """
    if not refs or not _DIGEST.fullmatch(manifest):
        raise LedgerError("a publication needs at least one release and the SHA-256 of its manifest, 64 hex digits")
    if all(_recorded(book, ref, version, manifest, rows) for ref in refs):
        return
    retired: set[str] = set()
    for ref in refs:
        found = book.store.rows(
            "select version, manifest, rows from publication where release=? and nonce=?", (ref.id, ref.nonce)
        )
        there = {digest: count for name, digest, count in found if _at(place, name)}
        if rows > max(there.values(), default=-1):
            msg = f"{ref} has published at most {max(there.values(), default=0)} rows there, got a version of {rows}"
            raise LedgerError(msg, "what is retired is replaced by a part of itself")
        retired |= there.keys()
    named = [[ref.id, ref.nonce] for ref in refs]
    others = _others(book, refs, place)
    said = {"others": others} if others else {}
    book.journal.append(
        Event.RETIRE, releases=named, retired=sorted(retired), version=version, manifest=manifest, rows=rows, **said
    )
    for ref in refs:
        book.store.execute("insert into publication values(?,?,?,?,?)", (ref.id, ref.nonce, version, manifest, rows))


def _others(book: Book, refs: list[ReleaseRef], place: str) -> list[list[Any]]:
    """List what other releases of the dataset published at a place: release, nonce and digests."""
    mine, found = {(ref.id, ref.nonce) for ref in refs}, dict[tuple[int, int], set[str]]()
    asked = (
        "select release.id, nonce, version, manifest from publication join release on release.id = publication.release"
        " where dataset=?"
    )
    for number, nonce, version, digest in book.store.rows(asked, (refs[0].dataset,)):
        if (number, nonce) not in mine and _at(place, version):
            found.setdefault((number, nonce), set()).add(digest)
    return [[*names, sorted(digests)] for names, digests in sorted(found.items())]


def _at(place: str, version: str) -> bool:
    return version.startswith(place) and "/" not in version[len(place) :]


def _recorded(book: Book, ref: ReleaseRef, version: str, manifest: str, rows: int) -> bool:
    found = book.store.row(
        "select manifest, rows from publication where release=? and nonce=? and version=?", (ref.id, ref.nonce, version)
    )
    if found is not None and found != (manifest, rows):
        raise LedgerError(
            f"{ref} has published version {version!r} with another manifest", "a version is published once"
        )
    return found is not None
