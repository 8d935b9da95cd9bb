"""Keep which datasets are frozen by the journal, and refuse a ledger whose tables differ from it in what they decide.

A pipeline's role of PostgreSQL appends to the journal, and can change none of these tables. Someone who can change
the tables cannot change the journal unnoticed. So a run refuses a ledger in which the two differ
(docs/spec/privacy.md#standing).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dptext_etl.errors import FrozenLedgerError, LedgerError
from dptext_etl.ledger.storage.journal import Head, Journal
from dptext_etl.ledger.storage.segments import limits_of, read_limits
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import ACCEPTED_UNITS, FORGOTTEN, Event, Scope

_KINDS = (Event.FREEZE, Event.THAW, Event.BURN, Event.CAP_SET, Event.UNITS, Event.FORGET, Event.READMIT)
_EVENTS = (
    f"select seq, kind, body from event where seq>? and seq<=? and kind in ({','.join('?' * len(_KINDS))})"  # noqa: S608
    " order by seq"
)
_CAPS = "select id, measure, limits from scope where measure is not null"
Rows = dict[Any, Any]


class Standing:
    def __init__(self, store: Store, journal: Journal) -> None:
        self._store, self._journal = store, journal
        self._restart()

    def _restart(self) -> None:
        self._head = Head(0, b"")
        self._frozen: Rows = {}
        self._revoked: Rows = {}
        self._caps: Rows = {}
        self._signers: dict[str, str] = {}
        self._meta: Rows = {}

    def frozen(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the frozen datasets, each with what its last FREEZE event states. Call it in a transaction."""
        head = self._journal.last()
        if head == self._head:
            return self._frozen
        if not self._journal.has_head(self._head):
            self._restart()
        problem = self._catch_up(head)
        if problem is not None:
            self._restart()
            hint = "`dptext ledger verify` names the rows; find out who changed them, and treat the ledger as lost"
            raise LedgerError(f"{problem}: nothing is charged or published", hint)
        self._head = head
        return self._frozen

    def signer(self, scope: Scope) -> str | None:
        """Return the public key that signs the caps of a group or dataset, in all periods and groups, or None."""
        self.frozen()
        return self._signers.get(scope.name, self._signers.get(Scope(scope.dataset).name))

    def refuse_frozen(self, dataset: str, group: str | None = None) -> None:
        """Refuse a dataset that is frozen, or a group that froze with one: some of its charges may be forgotten."""
        frozen = self.frozen()
        if dataset in frozen:
            hint = "`dptext ledger thaw` revokes its release names and charges what may have been lost"
            raise FrozenLedgerError(f"the dataset {dataset} is frozen: {frozen[dataset]['reason']}", hint)
        for name, facts in sorted(frozen.items()):
            if group is not None and group in facts.get("groups", ()):
                msg = f"the group {group} is frozen with the dataset {name}: {facts['reason']}"
                raise FrozenLedgerError(msg, f"`dptext ledger thaw {name}` settles it for all datasets of the group")

    def _catch_up(self, head: Head) -> str | None:
        rows = self._store.rows
        new = rows(_EVENTS, (self._head.seq, head.seq, *_KINDS))
        if self._head.seq and not new:
            return None  # the tables were compared when this process began
        try:
            for seq, kind, body in new:
                self._take(seq, kind, json.loads(body))
        except (KeyError, TypeError, ValueError):
            return "an event of the journal cannot be read"
        stored: dict[str, tuple[object, object]] = {
            "frozen datasets": (self._frozen.keys(), {name for (name,) in rows("select dataset from frozen")}),
            "revoked names": (
                self._revoked,
                {row[:2]: row[2] for row in rows("select dataset, release, seq from burnt")},
            ),
            "caps": (self._caps, {row[0]: (row[1], read_limits(*row[1:])) for row in rows(_CAPS)}),
            "forgotten people": (self._meta, self._store.metas(FORGOTTEN) | self._store.metas(ACCEPTED_UNITS)),
        }
        differ = [what for what, (derived, held) in stored.items() if derived != held]
        return f"the {' and '.join(differ)} of the ledger differ from its journal" if differ else None

    def _take(self, seq: int, kind: str, facts: dict[str, Any]) -> None:
        dataset = facts["dataset"]
        if kind == Event.FREEZE:
            self._frozen[dataset] = facts
        elif kind == Event.THAW:
            self._frozen.pop(dataset, None)
        elif kind == Event.BURN:
            self._revoked.setdefault((dataset, facts["release"]), seq)
        elif kind == Event.CAP_SET:
            self._caps[facts["scope"]] = facts["measure"], tuple(limits_of(facts))
            if "public_key" in facts:
                self._signers |= dict.fromkeys((facts["name"], Scope(dataset).name), facts["public_key"])
        elif kind == Event.UNITS:
            self._meta[f"{ACCEPTED_UNITS}{dataset}"] = str(seq)
        else:
            name = f"{FORGOTTEN}{dataset}"
            self._meta[name] = f"{self._meta.get(name, '')} {seq}".lstrip()
