"""DP-MLM replaces every word by a draw from the words that a masked language model expects in its place.

Paper: Meisenbacher, Chevli, Vladika and Matthes 2024, "DP-MLM: Differentially Private Text Rewriting Using Masked
Language Models" (algorithms 1 to 3, appendix A). This mechanism differs from the paper (docs/spec/privacy.md#dpmlm,
docs/spec/privacy.md#dpmlm-plusminus, docs/spec/privacy.md#length-options):

* The paper does not mention that the number of words is released, and its code keeps stopwords, punctuation and
capitals
  in clear. Strict mode draws every word and drops the rest; it keeps stopwords only as a disclosure. Padding every text
  to a public or a noisy number of words can hide the length.
* Strict mode draws only whole words in lower case. Faithful mode draws from all tokens, as the paper does. * Algorithm
3 (variant "plusminus") adds and deletes words. The printed algorithm leaves original words at the end of the
  text; here these words are deleted.
* The score of appendix A (similarity of words plus a small multiple of the model's score) is unbounded in the paper;
  with `alpha`, it is clipped to a range of its own. The similarity is that of the model's word embeddings.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from dptext_etl.artifacts import Artifact
from dptext_etl.scoring import Clip
from dptext_etl_models.families.score.antonyms import antonyms_among
from dptext_etl_models.families.score.plusminus import PlusMinusMechanism
from dptext_etl_models.inference.masked.scorer import Adjustment


class DPMLM(PlusMinusMechanism):
    """DP-MLM (Meisenbacher et al. 2024).

    Attributes:
        variant: "plain" replaces every word (algorithms 1 and 2); "plusminus" also deletes and adds words (3).
        alpha: Weight of the model's score next to the similarity of words (appendix A; 0.003 in the paper).
        antonyms: Path of NLTK's wordnet.zip; antonyms of a word get the lowest score in its place; faithful mode only.

    Example:
        >>> mechanism = DPMLM.example()
        >>> mechanism.spend(12).epsilon
        300.0
    """

    artifact_fields: ClassVar[frozenset[str]] = PlusMinusMechanism.artifact_fields | {"antonyms"}
    small_model: ClassVar[str | None] = "english-small"
    model_source: ClassVar[str] = (
        "download the usual one on a machine with a network: `hf download FacebookAI/roberta-base`"
    )

    alpha: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] | None = None
    antonyms: str | None = None

    @model_validator(mode="after")
    def _antonyms_are_faithful(self) -> Self:
        if self.antonyms is not None and self.mode == "strict":
            raise ValueError('the filter of antonyms belongs to mode "faithful"')
        return self

    def artifacts(self) -> dict[str, Artifact]:
        """Return the model's files and the word lists, by role."""
        if self.antonyms is None:
            return super().artifacts()
        wordnet = Artifact.open(self.antonyms, provenance="WordNet", licence="WordNet's own")
        return {**super().artifacts(), "antonyms": wordnet}

    @property
    def score_range(self) -> Clip:
        """Return the range of the scores; with `alpha`, that of the similarity (-1 to 1) plus the weighted score."""
        low, high = self.clip_range
        return (low, high) if self.alpha is None else (-1 + self.alpha * low, 1 + self.alpha * high)

    @property
    def _adjusted_by(self) -> tuple[Any, ...]:
        return self.alpha, self.antonyms

    def adjustment(self) -> Adjustment:
        """Return the adjustment of the model's scores: similarity of words, and the lowest score for antonyms."""
        excluded = None if self.antonyms is None else antonyms_among(self.antonyms, self.words_and_tokens[0])
        return Adjustment(self.alpha, excluded)

    @classmethod
    def example(cls) -> Self:
        """Return the mechanism with epsilon 25 and a tiny random model, which any machine builds; batches of eight."""
        return cls(epsilon=25.0, model="example-masked", decoding="block", block=8)
