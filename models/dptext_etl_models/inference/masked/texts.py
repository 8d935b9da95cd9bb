"""Write drawn outputs as texts.

Strict mode writes words with one blank between them (docs/spec/privacy.md#output-text). Faithful mode writes outputs
into the places of words, as the paper's code does.
"""

from __future__ import annotations

from collections.abc import Sequence

from dptext_etl import _kernel
from dptext_etl.mechanism import PAD
from dptext_etl.scoring import Choices
from dptext_etl_models.inference.masked.steps import INSERTED, Script


def write_strict(script: Script, chosen: Choices, outputs: Sequence[str]) -> str:
    """Join drawn outputs and kept words by single blanks; the padding of a hidden length gives nothing."""
    drawn = iter(chosen.tolist())
    written = (outputs[next(drawn)] if item.drawn else script.words[item.word] for item in script.items)
    return " ".join(word for word in written if word != PAD)


def write_faithful(text: str, n_max: int, script: Script, chosen: Choices, outputs: Sequence[str]) -> str:
    """Put drawn outputs in the places of words, capitalized if the word was (as the paper's code does)."""
    drawn, places, last = iter(chosen.tolist()), dict[int, list[str]](), 0
    for item in script.items:
        if not item.drawn:
            last = item.word
            places[last] = [script.words[last]]
            continue
        word = outputs[next(drawn)].lower()
        if item.word == INSERTED:
            last = item.tail - 1
        else:
            last = item.word
            word = word.capitalize() if script.words[last][:1].isupper() else word
        places.setdefault(last, []).append(word)
    written, number, seen = [], 0, 0
    for segment, is_word in _kernel.split(text):
        seen += is_word
        if seen > n_max:
            break
        if segment.strip():
            written.append(" ".join(places.get(number, [])))
            number += 1
        else:
            written.append(segment)
    return "".join(written)
