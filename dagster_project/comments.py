"""The policy over comments, which a language model rewrites: only where the extra "models" is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dptext_etl.policy import Policy

COMMENTS = Path(__file__).with_name("comments.toml")
STAND_IN = "example-masked"
"""A tiny model of random weights: what it writes is noise, but all steps are those of a real one."""


def comments() -> Policy | None:
    """Return the policy, or None where no model can run here.

    Where dptext-etl-models is not installed, or has no model of that name, a stand-in takes its place: the release is
    then pinned to that, and another model is another release.
    """
    if find_spec("torch") is None or find_spec("transformers") is None:
        return None
    policy = Policy.load(COMMENTS)
    (column,) = policy.columns
    mechanism = column.model_dump()["mechanism"]
    if _ships(mechanism["model"]):
        return policy
    stand_in = column.model_copy(update={"mechanism": {**mechanism, "model": STAND_IN}})
    return policy.model_copy(update={"columns": (stand_in,)})


def _ships(model: str) -> bool:
    try:
        from dptext_etl_models import names
    except ImportError:
        return False
    return model in names()
