"""Read and write the list of kept columns of a sequence model, a small file in its folder (paper 003, PR and PR+).

Training on public text finds these columns (`dptext train dpbart-prune`); a release sets all others to exact zeros.
Fewer numbers need less noise: the sensitivity falls with the square root of their share.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dptext_etl.artifacts import canon, sha256_file
from dptext_etl.errors import ArtifactError

FILE = "dptext_kept.json"
KIND = "dptext-kept/1"

_HINT = "`dptext train dpbart-prune` writes it next to the weights that belong to it"


@dataclass(frozen=True)
class KeptColumns:
    """The columns that a model keeps."""

    columns: tuple[int, ...]  # column indices, strictly increasing, below `width`
    width: int  # d of the model
    model: str  # SHA-256 of the model.safetensors that was trained with these columns
    stage: int  # number of pruning stages
    # noise of the latents in training (`{"epsilon": 500.0, "delta": 1e-6, "noise": "gaussian"}`); None for training
    # without noise (PR, not PR+)
    noise: dict[str, Any] | None = None
    # more facts about the training, for people: corpus, steps, figures
    facts: dict[str, Any] = field(default_factory=dict)


def write_kept(folder: Path, columns: Sequence[int], width: int, stage: int, **more: Any) -> Path:
    """Write the file next to the weights that were trained with these columns."""
    written = {
        "format": KIND,
        "kept": [int(column) for column in columns],
        "width": int(width),
        "model": sha256_file(folder / "model.safetensors"),
        "stage": int(stage),
        **more,
    }
    path = folder / FILE
    path.write_bytes(canon(written))
    read_kept(path)
    return path


def read_kept(path: Path, weights: str | None = None) -> KeptColumns:
    """Read the file."""
    try:
        written = json.loads(path.read_bytes())
        columns = tuple(written["kept"])
        kept = KeptColumns(columns, written["width"], written["model"], written["stage"], written.get("noise"), written)
        whole = all(type(item) is int for item in (*columns, kept.width))
        fits = whole and columns == tuple(sorted(set(columns))) and 0 <= min(columns) <= max(columns) < kept.width
        right = written["format"] == KIND and fits
    except (OSError, ValueError, LookupError, TypeError):
        right = False
    if not right:
        raise ArtifactError(f"{path.name} is no list of kept columns, strictly increasing and below the width", _HINT)
    if weights is not None and kept.model != weights:
        raise ArtifactError(f"the columns of {path.name} were found with other weights than this model's", _HINT)
    return kept
