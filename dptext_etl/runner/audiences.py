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

Facts = dict[str, Any]


def traced_together(
    attempt: Attempt,
    opened: Callable[[Policy, Layout], Any],
    examine: Callable[[Any, Policy, Layout, None], Examined[Any]],
    trace: Callable[[Examined[Any], Policy], Facts],
    *,
    check: Callable[[Callable[[], object]], object],
) -> Facts:
    """Refuse tables of audiences that could not be published, and kept columns that all tables show together.

    Args:
        attempt: The attempt at the policy's own table.
        opened: Opens the source by a policy, and refuses columns that it lacks or that have another type.
        examine: Examines the opened source.
        trace: Counts the rows that kept columns single out.
        check: Calls a function that may refuse, or collects its refusal.

    Returns:
        The facts of `table_check.of_source` about the columns of all tables together.
    """
    for other in attempt.audiences:
        check(partial(opened, other.policy, other.layout))
        check(partial(require_places, other))
        check(partial(other.layout.staging.require_unlocked, UNDER_WAY))
    tables = (attempt, *attempt.audiences)
    policy = together(item.policy for item in tables)
    source = examine(opened(policy, attempt.layout), policy, attempt.layout, None)
    check(partial(refuse_copies, policy, source.copied))
    facts = trace(source, policy)
    if any(map(_is_new, tables)):
        check(partial(refuse_traceable, facts))
    return facts


def _is_new(attempt: Attempt) -> bool:
    """Return whether a table is not published, or not with the columns that its policy keeps now."""
    manifest = Manifest.of_release(attempt.policy, attempt.layout)
    return manifest is None or shows_more(attempt.policy, manifest)
