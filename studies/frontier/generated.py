"""Write small invented tables, for a run without the papers' data: their figures only show that a command runs."""

from __future__ import annotations

import numpy as np
import polars as pl

NOTE = "No data folder was given, so these texts are generated: the figures only show that the command runs."
GOOD, BAD = ("good", "great", "happy", "best"), ("bad", "poor", "sad", "worst")
THEMES = (("film", "actor", "story"), ("car", "road", "engine"), ("food", "table", "house"))
FILLER = ("the", "is", "very", "and", "she", "with", "this", "day", "people", "time", "we", "new")
ROWS = 160


def table(name: str, *, paired: bool, numbers: bool) -> pl.DataFrame:
    """Return 160 rows with columns text, text2, label, attribute, and split; three of four are for training."""
    draws = np.random.default_rng(sum(map(ord, name)))
    rows = []
    for at in range(ROWS):
        mood, theme = int(draws.integers(2)), int(draws.integers(3))
        text = _text(draws, mood, theme)
        same = bool(draws.integers(2))
        second = text if same else _text(draws, 1 - mood, (theme + 1) % 3)
        label: object = (5.0 if same else 1.5) if numbers else str(int(same)) if paired else str(mood)
        split = "test" if at % 4 == 0 else "train"
        rows.append({"text": text, "text2": second, "label": label, "attribute": f"group {theme}", "split": split})
    return pl.DataFrame(rows)


def texts(count: int) -> list[str]:
    """Return invented public texts."""
    draws = np.random.default_rng(7)
    return [_text(draws, int(draws.integers(2)), int(draws.integers(3))) for _ in range(count)]


def _text(draws: np.random.Generator, mood: int, theme: int) -> str:
    words = [*draws.choice((GOOD, BAD)[mood], 2), *draws.choice(THEMES[theme], 2), *draws.choice(FILLER, 6)]
    return " ".join(draws.permutation(words).tolist()) + "."
