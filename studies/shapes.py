"""Shapes of text that resemble something else, and the kernel's result for each."""

from __future__ import annotations

import json

import pyarrow as pa

KNOWN = (
    *("don't", "well", "known", "the", "price", "is", "mail", "to", "see", "film", "good", "we", "like", "tag", "you"),
    *("cooperate", "a", "mask", "naïve", "école"),
)
"""The vocabulary of the table; all other words are unknown."""

SHAPES: dict[str, str] = {
    "contraction": "Don't",
    "typographic apostrophe": "don\u2019t",
    "hyphens": "well-known",
    "numbers": "the price is 3.14 or 1,000",
    "ordinals, fractions, digits in words": "10th ½ b2b 2nd",
    "other scripts' digits": "١٢٣",
    "currency": "$5.00",
    "e-mail address": "mail john.doe@example.org",
    "URL": "see https://example.org/a?b=1",
    "tags": "#tag @you",
    "underscore": "user_name",
    "abbreviation": "U.S.A. e.g.",
    "capitals": "GOOD Good gOOd",
    "punctuation and blanks": "good ,  “good” …",
    "emoji": "good 😀 👩\u200d👩\u200d👧 🇩🇪",
    "Chinese": "我喜欢电影 good",
    "Japanese": "カタカナ ひらがな",
    "Korean": "영화 good",
    "Thai": "ไทย",
    "Arabic, Hebrew": "فيلم סרט good",
    "direction marks": "\u202egood\u202c film",
    "combining mark": "e\u0301cole (decomposed) école",
    "diaeresis": "naïve NAÏVE",
    "soft hyphen": "co\u00adoperate",
    "zero-width space": "co\u200boperate",
    "super- and subscripts": "x² H₂O",
    "markup": "<mask> </s> &amp;",
    "control characters": "good\x00film\x1b[31m",
    "padding's own name": "<PAD>",
}

DRAWN, UNIFORM = "□", "▣"


def rows() -> list[tuple[str, ...]]:
    """One row per shape: its name, the text, its words, and what strict and faithful modes release."""
    from dptext_etl import _kernel
    from dptext_etl.families.words import FAITHFUL_INPUT, STRICT_INPUT

    uniform = {**STRICT_INPUT, "n_max": 100}
    policies = (uniform, {**uniform, "numbers": "drop", "oov": "drop"}, {**FAITHFUL_INPUT, "n_max": 100})
    return [
        (
            name,
            code(text),
            " ".join(code(word) for word, is_word in _kernel.split(text) if is_word) or "none",
            *(code(released(text, policy)) for policy in policies),
        )
        for name, text in SHAPES.items()
    ]


def released(text: str, policy: dict[str, object]) -> str:
    """Release a text with every draw shown as a box: `□` from the word's own law, `▣` from all words alike."""
    from dptext_etl import _kernel

    vocabulary = _kernel.Vocabulary(list(KNOWN), [], [DRAWN, UNIFORM])
    texts, written = pa.array([text], pa.large_string()), json.dumps(policy)
    words, offsets = (pa.array(part) for part in vocabulary.encode(texts, written))
    boxes = pa.array([int(number == 2**32 - 1) for number in words.to_pylist()], pa.uint32())
    done = pa.array(vocabulary.assemble(texts, offsets, boxes, written))
    return str(done.field("text")[0].as_py())


def code(text: str) -> str:
    """Write a text so that what cannot be seen can be read."""
    seen = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in text)
    return f"`{seen}`" if seen.strip() else "nothing"
