"""Refuse post-processing that learned from the protected records: it is no function of the release alone.

Specification: docs/spec/privacy.md#rewrite-again.
"""

from __future__ import annotations

from dptext_etl.errors import PolicyError
from dptext_etl.policy import Policy

_DECLARE = (
    'give a model with a training.json that says "training_provenance": "public", or declare '
    'training_provenance = "public" in the entry, if it is true'
)


def require_provenance(policy: Policy) -> None:
    """Refuse a post-processing that may have learned from the records of the release."""
    for column in policy.column_policies():
        for step in column.postprocess:
            where = f"column {column.column!r}: {step.name}"
            if step.provenance is None:
                raise PolicyError(
                    f"{where} costs nothing only if it learned from public texts; no one declares it", _DECLARE
                )
            if step.provenance != "public":
                msg = f"{where} learned from other private records, and what it reveals about them is charged nowhere"
                raise PolicyError(msg, "take a model that learned from public texts, or from released ones")
