"""Say which word each draw of a script stands for, so that a budget can be divided among the draws."""

from __future__ import annotations

from collections.abc import Sequence

from dptext_etl import _kernel
from dptext_etl.allocation import Marked, along
from dptext_etl.mechanism import PAD
from dptext_etl_models.inference.masked.steps import Script


def marked(script: Script, words: Sequence[str], most: int) -> Marked:
    """Mark the words of a text: a draw that adds a word, or pads the text, has none."""
    return Marked(words, [item.word if item.word >= 0 else None for item in script.items if item.drawn], most)


def marked_again(script: Script, drawn: Sequence[str], most: int) -> Marked:
    """Mark what was drawn as a text with the same positions; kept words stay, and padding has no word."""
    outputs, words = iter(drawn), list[str]()
    places: list[int | None] = []
    for item in script.items:
        word = next(outputs) if item.drawn else script.words[item.word]
        if item.drawn:
            places.append(None if word == PAD else len(words))
        if word != PAD:
            words.append(word)
    return Marked(words, places, most)


def marked_along(text: str, steps: int, n_max: int) -> Marked:
    """Mark a text whose answer is drawn step by step: a step stands for the word as far along the text as itself."""
    words = [segment for segment, is_word in _kernel.split(text) if is_word][:n_max]
    return Marked(words, along(len(words), steps), steps)
