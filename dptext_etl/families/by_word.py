"""Say what gates and reports know of a mechanism that releases word i for word i.

Word mechanisms know the output distribution of every word. A masked language model has another distribution in every
text. Known of it is the largest probability that any draw can have (pmax: docs/spec/privacy.md#exponential-mechanism).
This bounds the chance that a word comes back, that two releases agree, and that a text is copied, given everything
drawn before.
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
    """Whether the distribution of a draw depends on more than its own word, so that only bounds of it are known."""

    @property
    def in_place(self) -> bool:
        """Whether word i of a release is drawn for word i: not where words are inserted or deleted on purpose."""
        return True

    @property
    def unknown(self) -> Literal["uniform", "drop"]:
        """What strict mode does with words outside `input_words`: they are drawn like others, or vanish uncounted."""
        return "uniform"

    @property
    def hides_length(self) -> bool:
        """Whether the number of words is kept from the reader."""
        return False

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """What the release of a word discloses beside its draw, in strict mode."""
        return frozenset()

    @abstractmethod
    def input_words(self) -> tuple[str, ...]:
        """Return the words that the mechanism knows, in public order."""

    @abstractmethod
    def largest_probability(self) -> float:
        """Return an upper bound of the probability with which a draw gives any one word; 1 where none is known."""

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:  # noqa: ARG002
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1.

        Raises:
            PolicyError: `word` is no single word, or has no distribution of its own that fractions can express.
        """
        raise PolicyError(f"{self.name} draws a word by its whole text, so a word alone has no distribution")

    def survival(self, word: str) -> Fraction:  # noqa: ARG002
        """Return (an upper bound of) the probability that `word` comes back as itself.

        Raises:
            PolicyError: As `transition`, where the distribution is the word's own.
        """
        return Fraction(self.largest_probability())

    def collision(self, word: str) -> float:  # noqa: ARG002
        """Return an upper bound of the probability that two independent draws for `word` agree.

        Raises:
            PolicyError: As `survival`.
        """
        return self.largest_probability()

    def simulated_survivals(self, word: str, trials: int) -> int | None:  # noqa: ARG002
        """Return in how many of `trials` the word comes back, simulated apart from the code that releases.

        For distributions that `transition` cannot write down and `survival` bounds widely; None elsewhere.

        Args:
            word: One word.
            trials: How many draws are simulated, 1 or more.
        """
        return None

    def simulated_collisions(self, words: Sequence[str], pairs: int) -> int | None:  # noqa: ARG002
        """Return how many of `pairs` of independent draws agree, simulated apart from the code that releases.

        The pairs go round the words in turn. For distributions that `transition` cannot write down; None elsewhere.

        Args:
            words: The words that are drawn for.
            pairs: How many pairs are simulated, 1 or more.
        """
        return None


def by_word(mechanism: Mechanism) -> WordByWord | None:
    """Return the mechanism if it releases word i for word i, else None."""
    return mechanism if isinstance(mechanism, WordByWord) and mechanism.in_place else None
