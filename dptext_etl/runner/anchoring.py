"""Notice that a ledger was lost or restored: staging remembers the head of the ledger that it last worked with.

A restored copy has forgotten charges, and a new ledger knows none. Both look like a fresh start. The staging folder
lies inside the boundary and apart from the ledger, so what a run left there shows the difference
(docs/spec/privacy.md#lost-ledger).
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import NamedTuple

from dptext_etl.errors import InputError, LedgerError, seam
from dptext_etl.files import flush
from dptext_etl.ledger import Anchor, Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner import durable
from dptext_etl.runner.layout import Layout

FILE = "ledger.json"
_REASON = "this ledger does not hold what an earlier run left in it: it was lost, restored from a copy, or replaced"


class Memory(NamedTuple):
    """What staging remembers of its ledger: the head, and the release names that were used here."""

    anchor: Anchor
    releases: tuple[str, ...]


def require_same_ledger(ledger: Ledger, layout: Layout, policy: Policy) -> None:
    """Freeze the dataset if the ledger does not hold the head that an earlier run saw.

    Args:
        ledger: The ledger of the run.
        layout: The places of the run.
        policy: Its policy.

    Raises:
        LedgerError: The ledger misses that head. Nothing is charged until `Ledger.thaw` has settled the loss.
    """
    seen = _remembered(layout)
    if seen is None or ledger.holds(seen.anchor) or ledger.settled(policy.dataset, seen.anchor):
        return
    ledger.freeze(policy.dataset, _REASON, in_use=seen.releases, missing=seen.anchor)
    msg = f"the dataset {policy.dataset} is frozen: {_REASON}"
    hint = "bring the right ledger back, or settle the loss with `dptext ledger thaw` and take a new release name"
    raise LedgerError(msg, hint)


def remember(ledger: Ledger, layout: Layout, release: str) -> None:
    """Store the head of the ledger and a release name that it will hold, durably.

    Args:
        ledger: The ledger of the run.
        layout: The places of the run.
        release: The release name.
    """
    before = _remembered(layout)
    names = {release, *(before.releases if before else ())}
    text = json.dumps({"anchor": str(ledger.anchor()), "releases": sorted(names)}).encode()
    place = _place(layout)
    durable.private_folder(place.parent)
    draft = place.with_name(f"{FILE}.{secrets.token_hex(8)}")  # partitions run side by side, each with its own
    action = "remembering the ledger's head"
    durable.write(draft, lambda file: file.write(text), action=action)
    with seam(action, InputError):
        draft.replace(place)
    flush(place.parent)


def _remembered(layout: Layout) -> Memory | None:
    try:
        found = json.loads(_place(layout).read_bytes())
        return Memory(Anchor.parse(found["anchor"]), tuple(found["releases"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, LedgerError):
        broken = f"{_place(layout)} cannot be read"
    hint = "this file names the ledger of this sink: restore it, or remove it if you are sure of the ledger"
    raise LedgerError(broken, hint)


def _place(layout: Layout) -> Path:
    """Return the file, one for all releases and partitions: the next partition must miss a lost ledger, too."""
    return layout.root / FILE
