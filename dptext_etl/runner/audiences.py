"""Check the tables of audiences before a run charges anything, and count the rows that all tables together single out.

A run stages and judges all tables before it publishes any of them: a gate that fires revokes the release for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dptext_etl.policy import Policy
from dptext_etl.policy.audience import together
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.preflight import require_places
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.shard.attempt import UNDER_WAY, Attempt
from dptext_etl.runner.source.copies import refuse_copies
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.table_check import refuse_traceable, shows_more


def traced_together(
    attempt: Attempt,
    opened: Callable[[Policy, Layout], Any],
    examine: Callable[[Any, Policy, Layout, None], Examined[Any]],
    trace: Callable[[Examined[Any], Policy], dict[str, Any]],
    *,
    check: Callable[[Callable[[], object]], object],
) -> dict[str, Any]:
    """Return the facts of `table_check.of_source` about the columns of all tables together.

    `check` refuses, or collects the refusals of, places and columns of the audiences, and columns that single out many
    rows together if one of the tables is new, or newly shows one of them.
    """
    tables = (attempt, *attempt.audiences)
    for other in attempt.audiences:
        check(partial(opened, other.policy, other.layout))
        check(partial(require_places, other))
        check(partial(other.layout.staging.require_unlocked, UNDER_WAY))
    policy = together(item.policy for item in tables)
    source = examine(opened(policy, attempt.layout), policy, attempt.layout, None)
    check(partial(refuse_copies, policy, source.copied))
    facts, manifests = trace(source, policy), [Manifest.of_release(item.policy, item.layout) for item in tables]
    shown = zip(tables, manifests, strict=True)
    if any(manifest is None or shows_more(item.policy, manifest) for item, manifest in shown):
        check(partial(refuse_traceable, facts))
    return facts
