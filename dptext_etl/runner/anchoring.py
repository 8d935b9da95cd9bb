"""Notice that a ledger was lost or restored: staging remembers the head of the ledger that it last worked with.

The staging folder lies inside the boundary and apart from the ledger, so what a run left there shows the difference
(docs/spec/privacy.md#lost-ledger). Next to it, the place of anchors (`dptext_etl.ledger.anchor_files`) reveals what
others charged: datasets that share a cap, SQL functions, other machines.
"""

from __future__ import annotations

import secrets
from threading import Lock

from dptext_etl import files
from dptext_etl.ledger import Ledger, Scope, anchor_files
from dptext_etl.ledger.anchor_files import AnchorFiles, StoredAnchor, read, write
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.storage import Storage

FILE = "ledger.json"
"""One file for all releases and partitions of a dataset: the next partition must miss a lost ledger, too."""
_FILES = "ledger-*.json"
"""What processes wrote into a store, each under a name of its own."""
_ONE = Lock()


def require_same_ledger(ledger: Ledger | None, layout: Layout, policy: Policy, *, freezing: bool = True) -> None:
    """Refuse a ledger that does not hold the head that an earlier run saw, and freeze the dataset if asked to.

    None stands for a ledger that a run would make: it holds no head at all.
    """
    for seen in _memories(layout.memory):
        if ledger is None or seen.missing(ledger, policy.dataset):
            seen.refuse(ledger, policy.dataset, Scope.of(policy), freezing=freezing)
    if ledger is not None:
        # another ledger at this place is no loss where staging knows of none: its owner may have begun anew
        anchors = AnchorFiles(ledger, policy.ledger.anchors, policy.storage_options)
        anchors.require(Scope.of(policy), replaced=False, freezing=freezing)


def remember(ledger: Ledger, memory: Storage, policy: Policy, job: str = "run") -> None:
    """Store the head of the ledger and the release name, durably: after every charge, before a text is scored."""
    scope, options = Scope.of(policy), policy.storage_options or dict(memory.options)  # a task of Spark has the latter
    files.make_private(memory.folder)
    if memory.remote:
        _remember_apart(ledger, memory, scope, policy.release, job)
    else:
        write(ledger, memory.folder / FILE, scope, policy.release)
    anchor_files.store(ledger, scope, policy.release, policy.ledger.anchors, options)


def take_in(ledger: Ledger, memory: Storage, policy: Policy, job: str) -> None:
    """Put one head in the place of all that the tasks of an attempt wrote into a store; it is newer than theirs."""
    theirs = memory.glob(f"ledger-{job}-*.json")
    remember(ledger, memory, policy)
    memory.delete(*theirs)


def _memories(memory: Storage) -> list[StoredAnchor]:
    """Read what earlier runs left; where it lies in a store, it is fetched to the folder of this process."""
    found: list[StoredAnchor | None] = [None]
    if not memory.remote:
        found = [read(memory.folder / FILE)]
    while memory.remote and None in found:  # others have put one object in the place of several since
        names = memory.glob(_FILES)
        found = [read(memory.local_path(name)) for name in names]
        for path in memory.folder.glob(_FILES):
            if path.name not in names:
                path.unlink(missing_ok=True)
    return [seen for seen in found if seen is not None]


def _remember_apart(ledger: Ledger, memory: Storage, scope: Scope, release: str, job: str) -> None:
    """Write the head into a store, then remove what it takes in: no two processes ever write one object."""
    with _ONE:
        before = sorted(memory.folder.glob(_FILES))
        path = memory.folder / f"ledger-{job}-{secrets.token_hex(8)}.json"
        write(ledger, path, scope, release, before)
        memory.put(path.name, path)
        memory.delete(*(old.name for old in before))
