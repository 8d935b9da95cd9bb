"""Notice that a ledger was lost or restored: staging remembers the head of the ledger that it last worked with.

The staging folder lies inside the boundary and apart from the ledger, so what a run left there shows the difference
(docs/spec/privacy.md#lost-ledger). Beside it, the folder of heads (`dptext_etl.ledger.heads`) tells what others
charged: datasets that share a cap, SQL functions, other machines.
"""

from __future__ import annotations

import logging
from pathlib import Path

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.heads import Heads, folder_of, is_named, keep, read
from dptext_etl.policy import Policy
from dptext_etl.runner import durable
from dptext_etl.runner.layout import Layout

log = logging.getLogger("dptext_etl.runner")
FILE = "ledger.json"
"""One file for all releases and partitions of a dataset: the next partition must miss a lost ledger, too."""


def require_same_ledger(ledger: Ledger, layout: Layout, policy: Policy) -> None:
    """Freeze the dataset if the ledger does not hold the head that an earlier run saw.

    Args:
        ledger: The ledger of the run.
        layout: The places of the run.
        policy: Its policy.

    Raises:
        LedgerError: The ledger misses that head, or one of a dataset that shares a cap with this one. Nothing is
            charged until `Ledger.thaw` has settled the loss.
    """
    seen = read(layout.root / FILE)
    if seen is not None and seen.missing(ledger, policy.dataset):
        seen.refuse(ledger, policy.dataset, Scope.of(policy))
    # another ledger at this place is no loss where staging knows of none: its owner may have begun anew
    Heads(ledger, folder_of(policy.ledger.anchors)).require(Scope.of(policy), replaced=False)


def remember(ledger: Ledger, root: Path, policy: Policy) -> None:
    """Store the head of the ledger and the release name, durably: after every charge, before a text is scored.

    Args:
        ledger: The ledger of the run.
        root: The folder that all releases and partitions share (`Layout.root`).
        policy: Its policy.

    Raises:
        LedgerError: There is no room or no access.
    """
    scope, named = Scope.of(policy), policy.ledger.anchors
    durable.private_folder(root)
    keep(ledger, root / FILE, scope, policy.release)
    try:
        Heads(ledger, folder_of(named)).remember(scope, policy.release)
    except LedgerError as error:
        if is_named(named):
            raise
        log.debug("staging alone remembers the ledger's head: %s", error)
