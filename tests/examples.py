"""How many examples hypothesis tries: what a test states, times what its profile takes of a hundred (`conftest.py`)."""

import hypothesis

USUAL = 100
"""What a test states that states no number; `make test` takes fewer of them, and `make test-thorough` more."""


def examples(count, **more):
    """Settings for a property that states a number of examples."""
    return hypothesis.settings(max_examples=max(1, count * hypothesis.settings.default.max_examples // USUAL), **more)
