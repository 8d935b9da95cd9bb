"""Say of every cell what share of its use a release keeps, and what share of an attacker's success."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from frontier.data import CUTS
from frontier.tidy import BY, means

USE = ("downstream", "macro-F1, learned from released texts, tested on raw texts")
MEANING = ("cosine", "mean cosine")
SECRET = ("attribute", "adaptive attacker, macro-F1")
AGAIN = ("nearest_neighbour", "own raw text found first")
SHARES = {"share": "use_kept", "share_attack": "attack_kept"}
LEAST = 0.05
"""Where raw texts beat not looking by less than this, no share is defined (docs/spec/privacy.md#relative-gain)."""
BOUND = 30.0
"""Above this epsilon per text a bound says nothing: the odds may move by 10^13."""


@dataclass(frozen=True)
class Axes:
    """What stands for use and for attacks on a data set, in words.

    Attributes:
        use: Measure and figure of use.
        attack: Measure and figure of the attack.
        use_says: The use in words.
        attack_says: The attack in words.
    """

    use: tuple[str, str]
    attack: tuple[str, str]
    use_says: str
    attack_says: str


def axes(data_set: str) -> Axes:
    """Return the criteria of a data set: labels and an attribute where it has them."""
    cut = CUTS[data_set]
    use, attack = (USE if cut.label else MEANING), (SECRET if cut.attribute else AGAIN)
    use_says = "macro-F1 of labels" if cut.label else "nearness of meaning"
    attack_says = f"macro-F1 of the {cut.attribute}" if cut.attribute else "raw text re-identified"
    return Axes(use, attack, use_says, attack_says)


def points(table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per cell, with `use`, `attack` and the shares of both that are kept.

    A share is 0 where a release does no better than someone who does not look, and 1 where it does as well as raw
    texts. A cell without one of the two figures is skipped.
    """
    averages = means(table)
    parts = []
    for name in CUTS:
        chosen = axes(name)
        here = averages.filter(pl.col("dataset") == name)
        use = _share(here, *chosen.use)
        attack = _share(here, *chosen.attack)
        both = use.join(attack, on=list(BY), suffix="_attack", maintain_order="left")
        parts.append(both.rename({"value": "use", "value_attack": "attack", **SHARES}))
    return pl.concat(parts)


def _share(here: pl.DataFrame, measure: str, figure: str) -> pl.DataFrame:
    """Return a figure with its share between not looking and raw texts."""
    chosen = here.filter(pl.col("measure") == measure, pl.col("figure") == figure)
    chosen = chosen.with_columns(pl.col("raw").fill_null(1.0))
    gap = pl.col("raw") - pl.col("blind")
    return chosen.with_columns(share=pl.when(gap >= LEAST).then((pl.col("value") - pl.col("blind")) / gap))


def best(points_: pl.DataFrame) -> pl.DataFrame:
    """Return the cells that no other cell of the data set beats: more use at no more success of the attacker."""
    rows = points_.to_dicts()
    kept = [
        not any(
            other["dataset"] == row["dataset"]
            and other["use_kept"] >= row["use_kept"]
            and other["attack_kept"] <= row["attack_kept"]
            and (other["use_kept"], other["attack_kept"]) != (row["use_kept"], row["attack_kept"])
            for other in rows
        )
        for row in rows
    ]
    return points_.filter(pl.Series(kept, dtype=pl.Boolean))
