"""Surrogate replaces every text by a public text that is drawn near it, at an epsilon per text.

Beyond the five papers (docs/spec/surrogate.md#definition). The draw is subset selection (Ye and Barg 2018, "Optimal
schemes for discrete distribution estimation under locally differential privacy"), with a corpus as the alphabet and an
encoder that says which texts are near. What holds here:

* Epsilon is per text, not per word: between any two texts of any lengths, empty ones included, the loss is at most
  epsilon. Neither the length nor anything else of the column is disclosed.
* The guarantee rests only on the draw: encoder and corpus may be bad, and then only usefulness is lost. Both are
  public inputs, named by their hashes, and never chosen by private texts, labels or results on them.
* A released text is someone's public sentence. It keeps a topic, a tone or an intent, never details, names or numbers;
  rare topics vanish among the others.
* A share of the texts is drawn from the whole corpus, whatever was said: learners must expect it (regularize).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from dptext_etl.families.choice import ChoiceMechanism


class Surrogate(ChoiceMechanism):
    """A public text in the place of every private one, drawn near it by subset selection.

    Example:
        >>> mechanism = Surrogate.example()
        >>> texts, probabilities = mechanism.transition("a cheap room in a hotel")
        >>> sum(probabilities) == 1, mechanism.spend(1).epsilon
        (True, 2.0)
    """

    @classmethod
    def preview_parameters(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        return {} if "corpus" in given else {"corpus": "everyday-30k"}

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, corpus="example")
