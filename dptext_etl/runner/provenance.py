"""Refuse post-processing that is none: what learnt from the protected records is no function of what is released alone.

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
    """Refuse a post-processing that may have learnt from the records of the release.

    Args:
        policy: The policy of the run.

    Raises:
        PolicyError: A model does not say what it learnt from, or it learnt from private records.
    """
    for column in policy.column_policies():
        for step in column.postprocess:
            where = f"column {column.column!r}: {step.name}"
            if step.provenance is None:
                raise PolicyError(
                    f"{where} costs nothing only if it learnt from public texts; nobody declares it", _DECLARE
                )
            if step.provenance != "public":
                msg = f"{where} learnt from other private records, and what it tells of them is charged nowhere"
                raise PolicyError(msg, "take a model that learnt from public texts, or from released ones")
