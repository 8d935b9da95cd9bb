"""Show releases and caps to people, and select what may be published."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dptext_etl.accounting import log10_odds
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import PURE, millionths
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.scopes import Pinned, components
from dptext_etl.ledger.storage.keyed_ids import Bytes, KeyedIds, keyed_ids
from dptext_etl.ledger.storage.passes import distinct_units
from dptext_etl.ledger.storage.units import read_limits
from dptext_etl.ledger.terms import Event, Mask, ReleaseRef


def releases(book: Book) -> list[dict[str, Any]]:
    """List the releases with counts and the largest spend of a record. Internal: never publish it."""
    shown, posts = [], _posts(book)
    for row in book.store.rows(
        "select release.id, dataset, col, release.release, cfg, id_type, publishable, facts, burnt,"
        " coalesce(nonce, 0), coalesce(records, 0), coalesce(canaries, 0), coalesce(committed, 0),"
        " coalesce(expired, 0), coalesce(aborted, 0), coalesce(diverged, 0)"
        " from release left join tally on tally.release = release.id order by release.id, nonce"
    ):
        facts = json.loads(row[7])
        counts = dict(
            zip(("records", "canaries", "committed", "expired", "aborted", "diverged"), row[10:16], strict=True)
        )
        counts["pending"] = counts["records"] - counts["committed"] - counts["expired"] - counts["aborted"]
        published = book.store.rows(
            "select version, rows from publication where release=? and nonce=? order by length(version), version",
            (row[0], row[9]),
        )
        most = _largest(book, row[0], row[9])
        rewritten = posts.get((row[0], row[9]))
        shown.append(
            {
                "dataset": row[1],
                "column": row[2],
                "release": row[3],
                "nonce": row[9],
                "cfg": row[4],
                "id_type": row[5],
                "publishable": bool(row[6]),
                "burnt": row[8] is not None,
                **{name: facts[name] for name in ("mechanism", "class", "disclosures", "assumptions", "unit")},
                "expost": facts.get("expost", False),
                **counts,
                **{f"max_{name}": "inf" if amount == INFINITE else amount for name, amount in most.items()},
                "log10_odds": "inf" if most[PURE] == INFINITE else round(log10_odds(most[PURE]), 3),
                "published": [{"version": version, "rows": rows} for version, rows in published],
                **({} if rewritten is None else {"postprocess": list(rewritten.values())}),
            }
        )
    return shown


def _largest(book: Book, release: int, nonce: int) -> dict[str, int | float]:
    """Return the largest charges of a record under a release, in millionths; canary rows are no records."""
    names = (PURE, "eps_approx", "delta")
    most = dict.fromkeys(names, 0)
    for (seq,) in book.store.rows("select seq from batch where release=? and nonce=? order by seq", (release, nonce)):
        columns = book.segments.read(seq, book.journal.facts(seq), ["canary", *names])
        own = columns["canary"] == 0
        most = {name: max(amount, int(columns[name][own].max(initial=0))) for name, amount in most.items()}
    return {name: amount if amount == INFINITE else millionths(name, amount) for name, amount in most.items()}


def _posts(book: Book) -> dict[tuple[int, int], dict[str, dict[str, Any]]]:
    """Add up by release and chain what post-processing rewrote; it spends nothing."""
    found: dict[tuple[int, int], dict[str, dict[str, Any]]] = {}
    for entry in book.journal.entries(Event.POST):
        facts = entry.facts
        chains = found.setdefault((facts["release"], facts["nonce"]), {})
        said = {"chain": facts["chain"], "steps": facts["steps"], "spend": 0, "rows": 0}
        chains.setdefault(facts["chain"], said)["rows"] += facts["rows"]
    return found


def jobs(book: Book) -> list[dict[str, Any]]:
    """List the jobs that reserved something, in order: when they began, for what, and how many records are pending."""
    found: dict[str, dict[str, Any]] = {}
    for job, release, seq, rows, pending in book.store.rows(
        "select job, release, min(seq), cast(sum(rows) as bigint), cast(sum(open) as bigint)"
        " from batch group by job, release order by 3"
    ):
        dataset, name = book.store.rows("select dataset, release from release where id=?", (release,))[0]
        if job not in found:
            since = book.journal.facts(seq)["ts"]
            found[job] = {"job": job, "since": since, "dataset": dataset, "releases": [], "records": 0, "pending": 0}
        held = found[job]
        held["releases"] += [] if name in held["releases"] else [name]
        held["records"] += rows
        held["pending"] += pending
    return list(found.values())


def published(book: Book, ref: ReleaseRef) -> dict[str, str]:
    """Return the manifest digests that were recorded of a release and not retired since, by version."""
    asked = "select version, manifest from publication where release=? and nonce=?"
    gone = retired(book, ref)
    return {version: digest for version, digest in book.store.rows(asked, (ref.id, ref.nonce)) if digest not in gone}


def retired(book: Book, ref: ReleaseRef) -> set[str]:
    """Return the manifest digests of a release that were retired."""
    events = (entry.facts for entry in book.journal.entries(Event.RETIRE))
    gone: set[str] = set()
    for facts in events:
        if [ref.id, ref.nonce] in facts["releases"]:
            gone.update(facts["retired"])
        gone.update(*(digests for *names, digests in facts.get("others", ()) if names == [ref.id, ref.nonce]))
    return gone


def known_records(book: Book, dataset: str, records: KeyedIds) -> Mask:
    """Return which records any release of a dataset holds, shape (records,)."""
    known = np.zeros(records.size, np.bool_)
    order = records.order()
    for ref in _releases_of(book, dataset):
        known |= book.records.held(ref, records, order).known
    return known


def publications_of(book: Book, dataset: str, records: Bytes) -> list[dict[str, Any]]:
    """List the releases with publications that hold any of these records (`LedgerReader.publications_of`)."""
    wanted = keyed_ids(np.unique(records, axis=0))
    order, found = wanted.order(), []
    for ref in _releases_of(book, dataset):
        versions = sorted(published(book, ref))
        held = int(book.records.held(ref, wanted, order).known.sum()) if versions and wanted.size else 0
        if held:
            found.append({"release": ref.release, "column": ref.column, "versions": versions, "records": held})
    return found


def _releases_of(book: Book, dataset: str) -> list[ReleaseRef]:
    rows = book.store.rows(
        "select release.id, col, release.release, cfg, tally.nonce from release join tally on tally.release ="
        " release.id where dataset=? order by release.id, tally.nonce",
        (dataset,),
    )
    return [ReleaseRef(number, dataset, column, release, cfg, nonce) for number, column, release, cfg, nonce in rows]


def caps(book: Book) -> list[dict[str, Any]]:
    """List the scopes with their caps, amounts in millionths."""
    shown = []
    for number, name, period, unit, measure, limits in book.store.rows("select * from scope order by id"):
        members = [row[0] for row in book.store.rows("select dataset from member where scope=? order by 1", (number,))]
        pinned = Pinned(number, unit, measure, read_limits(measure, limits))
        cap = {name: millionths(name, limit) for name, limit in zip(components(pinned), pinned.limits, strict=True)}
        shown.append(
            {"scope": name, "period": period, "unit": unit, "datasets": members, "measure": measure, "limits": cap}
        )
    return shown


def export(book: Book) -> dict[str, Any]:
    """Return what may be published: configurations, claims, constants, and the number of subjects of a dataset."""
    datasets: dict[str, dict[str, Any]] = {}
    for dataset, column, release, cfg, revoked, facts in book.store.rows(
        "select dataset, col, release, cfg, burnt, facts from release where publishable=1 order by id"
    ):
        held = datasets.setdefault(dataset, {"subjects": _subjects(book, dataset), "releases": []})
        stated = {"column": column, "release": release, "cfg": cfg, "burnt": revoked is not None}
        held["releases"].append(stated | json.loads(facts))
    return {"format": "dptext-ledger-export/1", "amounts": "millionths", "datasets": datasets}


def _subjects(book: Book, dataset: str) -> dict[str, int]:
    """Count the units of a dataset, by kind of unit."""
    counted = {}
    for unit in ("subject", "record"):
        found = book.store.rows(
            "select seq, rows from batch join release on release.id = batch.release"
            " join scope on scope.id = batch.scope where dataset=? and unit=? order by seq",
            (dataset, unit),
        )
        if found:
            counted[unit] = distinct_units(
                book.segments, book.journal, [row[0] for row in found], sum(r[1] for r in found)
            )
    return counted
