"""Define mechanisms that release word i for word i, and the probabilities that gates and reports use.

Word mechanisms know the output distribution of every word. A masked language model has another distribution in every
text, but the largest probability of any draw is known (pmax: docs/spec/privacy.md#exponential-mechanism). This bounds
the probability that a word comes back, that two releases agree, and that a text is copied, given all earlier draws.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Literal

from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import Mechanism


class WordByWord(Mechanism):
    """A mechanism whose released words are drawn one by one, each in the place of one word of the text.

    Chances are upper bounds that hold for every text, word and history of draws.
    """

    contextual: ClassVar[bool] = False
    """True if the distribution of a draw depends on more than its own word, so that only bounds are known."""

    @property
    def in_place(self) -> bool:
        """Return True if word i of a release is drawn for word i; False if words are inserted or deleted."""
        return True

    @property
    def unknown(self) -> Literal["uniform", "first", "drop"]:
        """Return how words outside `input_words` are drawn in strict mode: uniformly, as the first word, or never."""
        return "uniform"

    @property
    def hides_length(self) -> bool:
        """Return True if a release hides the number of words."""
        return False

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosures of a released word next to its draw, in strict mode."""
        return frozenset()

    @abstractmethod
    def input_words(self) -> tuple[str, ...]:
        """Return the words that the mechanism knows, in public order."""

    @abstractmethod
    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word; 1 if no bound is known."""

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:  # noqa: ARG002
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""
        raise PolicyError(f"{self.name} draws a word by its whole text, so a word alone has no distribution")

    def survival(self, word: str) -> Fraction:  # noqa: ARG002
        """Return (an upper bound of) the probability that `word` comes back as itself."""
        return Fraction(self.largest_probability())

    def collision(self, word: str) -> float:  # noqa: ARG002
        """Return an upper bound of the probability that two independent draws for `word` agree."""
        return self.largest_probability()

    def simulated_survivals(self, word: str, trials: int) -> int | None:  # noqa: ARG002
        """Simulate `trials` draws without the code that releases, and return how often the word comes back.

        This is for distributions without exact fractions, which `survival` bounds only loosely; None for all others.
        """
        return None

    def simulated_collisions(self, words: Sequence[str], pairs: int) -> int | None:  # noqa: ARG002
        """Simulate pairs of independent draws without the code that releases, and return how many pairs agree.

        The pairs take the words in turn. This is for distributions without exact fractions; None for all others.
        """
        return None


def by_word(mechanism: Mechanism) -> WordByWord | None:
    """Return the mechanism if it releases word i for word i, otherwise None."""
    return mechanism if isinstance(mechanism, WordByWord) and mechanism.in_place else None
