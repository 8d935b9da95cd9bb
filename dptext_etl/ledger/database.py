"""Put the parts of an open ledger together, once, for every operation."""

from __future__ import annotations

import secrets
from typing import Any

from dptext_etl.errors import KeyReferenceError
from dptext_etl.ledger.caps import Scopes
from dptext_etl.ledger.id_key import IdKey, check_value, ensure_key_file, resolve_id_key
from dptext_etl.ledger.plan import Keys, Plans
from dptext_etl.ledger.releases import Releases
from dptext_etl.ledger.standing import Standing
from dptext_etl.ledger.storage.hashed_ids import HashedIds, Index
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.segments import Holdings, Records, Segments
from dptext_etl.ledger.storage.store import MissingLedgerError, Store
from dptext_etl.ledger.types import ReleaseRef


class Database:
    def __init__(self, store: Store, id_key: str | None) -> None:
        ledger_id = store.meta("ledger_id")
        if ledger_id is None:
            raise MissingLedgerError(f"{store.name} is an unfinished ledger", "delete the file: it holds no charge")
        self.store = store
        self.ledger_id = ledger_id
        self.id_key = IdKey(store, id_key, ledger_id)
        self.derived: dict[str, tuple[str | None, Any]] = {}  # what follows from entries of `meta`, with these entries
        self.journal = Journal(store, ledger_id, secrets.token_hex(4))
        self.segments = Segments(store, self.journal)
        self.records = Records(store, self.journal, self.segments)
        self.standing = Standing(store, self.journal)
        self.releases = Releases(store, self.journal, self.standing)
        self.scopes = Scopes(store, self.journal, self.segments, self.records, self.standing)
        self.keys, self.plans = Keys(), Plans()

    def look_up(self, ref: ReleaseRef, records: HashedIds, order: Index | None = None) -> Holdings:
        """Return what a release holds of records, each of which is given once; `order` is their ascending order."""
        plan, at, _ = self.plans.covering(ref.dataset, records, order)
        plan.catch_up(self)
        return plan.holdings(self, ref, at)


def initialize(store: Store, id_key: str | None) -> None:
    """Give a new ledger its name and the check value of its id key."""
    if id_key is None:
        if store.key_file is None:
            msg = f"a new ledger at {store.name} needs an id key of its own"
            raise KeyReferenceError(msg, 'run `dptext key new PATH` and give id_key="file:PATH", the same everywhere')
        ensure_key_file(store.key_file)
    secret = resolve_id_key(id_key or f"file:{store.key_file}")
    with store.transaction():
        if store.meta("ledger_id") is None:  # no other process was faster
            name = secrets.token_hex(16)
            store.execute("insert into meta values('ledger_id',?)", (name,))
            store.execute("insert into meta values('id_check',?)", (check_value(secret, name),))
