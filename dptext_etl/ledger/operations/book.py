"""Put the parts of an open ledger together, once, for every operation."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Self

from dptext_etl.errors import KeyReferenceError
from dptext_etl.ledger import idkey
from dptext_etl.ledger.idkey import IdKey
from dptext_etl.ledger.operations.forms import Forms
from dptext_etl.ledger.operations.freezing import Freezes
from dptext_etl.ledger.operations.releases import Releases
from dptext_etl.ledger.operations.scopes import Scopes
from dptext_etl.ledger.storage.cache import PartCache
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.records import Records
from dptext_etl.ledger.storage.segments import Segments
from dptext_etl.ledger.storage.store import MissingLedgerError, Store


@dataclass(frozen=True)
class Book:
    """The parts of an open ledger.

    Attributes:
        store: The database.
        ledger_id: The random name that the ledger got when it was made.
        id_key: Hashes record and subject ids.
        journal: The chain of events.
        segments: The sealed batches.
        releases: The pinned release names.
        scopes: The scopes and their caps.
        freezes: The frozen datasets.
        forms: The pinned forms of ids.
        records: The record index, states and digests.
        cache: Parts of runs that were read before.
    """

    store: Store
    ledger_id: str
    id_key: IdKey
    journal: Journal
    segments: Segments
    releases: Releases
    scopes: Scopes
    freezes: Freezes
    forms: Forms
    records: Records
    cache: PartCache

    @classmethod
    def of(cls, store: Store, id_key: str | None) -> Self:
        """Open the ledger in a store."""
        found = store.row("select value from meta where name='ledger_id'")
        if found is None:
            raise MissingLedgerError(f"{store.name} is an unfinished ledger", "delete the file: it holds no charge")
        cache = PartCache()
        journal = Journal(store, found[0], secrets.token_hex(4))
        segments = Segments(store)
        releases, scopes = Releases(store, journal), Scopes(store, journal)
        return cls(
            store,
            found[0],
            IdKey(store, id_key, found[0]),
            journal,
            segments,
            releases,
            scopes,
            Freezes(store, journal, releases, scopes),
            Forms(store, journal),
            Records(store, journal, segments, cache),
            cache,
        )

    def forget_dead_runs(self) -> None:
        """Drop cached runs that another process has merged. Call it once per write."""
        self.cache.keep_only({row[0] for row in self.store.rows("select id from run")})


def found(store: Store, id_key: str | None) -> None:
    """Give a new ledger its name and the check value of its id key."""
    if id_key is None:
        if store.key_file is None:
            msg = f"a new ledger at {store.name} needs an id key of its own"
            raise KeyReferenceError(msg, 'run `dptext key new PATH` and give id_key="file:PATH", the same everywhere')
        idkey.ensure(store.key_file)
    secret = idkey.resolve(id_key or f"file:{store.key_file}")
    with store.transaction():
        if store.row("select 1 from meta where name='ledger_id'") is not None:
            return  # another process was faster
        name = secrets.token_hex(16)
        store.execute("insert into meta values('ledger_id',?)", (name,))
        store.execute("insert into meta values('id_check',?)", (idkey.check(secret, name),))
