"""Make public texts for tests of corpora: a few thousand short sentences of three topics."""

from __future__ import annotations

from itertools import product

TEMPLATES = {
    "hotel": ("Please {} a {} room in {} for two {}", "We want to {} the {} hotel near {} for some {}"),
    "music": ("Please {} the {} song of {} for two {}", "We want to {} the {} album about {} for some {}"),
    "bank": ("Please {} the {} account with {} for two {}", "We want to {} the {} money from {} for some {}"),
}
VERBS = ("find", "keep", "open", "change", "share", "see", "move", "choose")
KINDS = ("old", "new", "small", "large", "good", "bad", "quiet", "famous")
PLACES = ("London", "Paris", "the city", "the river", "my friends", "the school", "the village")
TIMES = ("days", "weeks", "nights")


def labeled() -> list[tuple[str, str]]:
    """Return 8,064 distinct sentences and their topics."""
    words = list(product(VERBS, KINDS, PLACES, TIMES))
    return [(form.format(*of), topic) for topic, forms in TEMPLATES.items() for form in forms for of in words]


def texts() -> list[str]:
    """Return only the sentences."""
    return [text for text, _ in labeled()]
