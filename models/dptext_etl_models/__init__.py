"""Small language models for dptext_etl: folders of weights, tokenizers and cards, and where they are.

The models were trained on public text by commands of dptext_etl (`dptext train`). They are named in a policy by their
names only: `model = "english-small"`.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["names", "path"]

_HERE = Path(__file__).parent
_CONFIG = "config.json"


def names() -> tuple[str, ...]:
    """Return the names of the models, in the order of the alphabet."""
    return tuple(sorted(config.parent.name for config in _HERE.glob(f"*/{_CONFIG}")))


def path(name: str) -> Path:
    """Return the folder of a model.

    Args:
        name: One of `names()`.

    Returns:
        Folder of weights, tokenizer, and card.

    Raises:
        LookupError: No model has this name.
    """
    if name not in names():
        raise LookupError(f"there is no model {name!r} in dptext-etl-models; there are: {', '.join(names()) or 'none'}")
    return _HERE / name
