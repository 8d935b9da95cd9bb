"""Read the corpora of `dptext train` commands for latent models, and print their progress and last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dptext_etl.cli import terminal

if TYPE_CHECKING:
    from dptext_etl_models.training.corpus import Corpus
    from dptext_etl_models.training.resumable import TrainingProgress


def corpora(given: Sequence[str], column: str) -> tuple[list[Corpus], dict[str, Any]]:
    """Return the corpora that were named, and facts about them for the model's provenance."""
    from dptext_etl_models.training.corpus import Corpus

    found = [Corpus.parse(item, column) for item in given]
    return found, {"corpora": [{"name": item.name, "sha256": item.sha256, "share": repr(item.share)} for item in found]}


def tell(progress: TrainingProgress) -> None:
    """Print the progress of a training."""
    terminal.note(str(progress))


def finish(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result of a training."""
    if as_json:
        terminal.emit(facts)
    else:
        terminal.say(f"wrote {facts['out']} after {facts['steps']:,} steps on {facts['texts']:,} texts")
