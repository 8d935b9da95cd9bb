"""Define the output set of masked mechanisms, and bound the probability of any output.

The output set is public: it holds all tokens of the model's tokenizer that are one whole word in lower case. Faithful
mode draws from all tokens, pieces of words included.
"""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from dptext_etl import sampling
from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import stopwords
from dptext_etl.families.lengths import HideableLength
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import PAD
from dptext_etl_models.families.score.score import ScoreMechanism
from dptext_etl_models.inference.masked.steps import Numbers
from dptext_etl_models.inference.masked.vocabulary import MaskedVocabulary


class MaskedOutputs(ScoreMechanism, HideableLength):
    """A mechanism that draws words among the tokens of a masked language model.

    Attributes:
        model: A masked language model, such as RoBERTa, BERT, ModernBERT or DeBERTa.
        stopwords: Public list ("english" or a path) of words that are kept in clear, which is a disclosure; None draws
            them. In faithful mode, None keeps the English ones.
    """

    contextual: ClassVar[bool] = True
    artifact_fields: ClassVar[frozenset[str]] = ScoreMechanism.artifact_fields | {"stopwords"}
    faithful_disclosures: ClassVar[frozenset[Disclosure]] = frozenset({Disclosure.PUNCT, Disclosure.CASE})

    model: str = "FacebookAI/roberta-base"
    stopwords: str | None = None

    @property
    def _kept_source(self) -> str | None:
        """Return the name or path of the list of words that are kept in clear."""
        return "english" if self.stopwords is None and self.mode == "faithful" else self.stopwords

    @cached_property
    def kept_words(self) -> frozenset[str]:
        """Return the words that are released in clear."""
        return frozenset() if self._kept_source is None else frozenset(stopwords(self._kept_source).words)

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosure of stopwords if they are kept."""
        return frozenset({Disclosure.STOPWORDS}) if self._kept_source is not None else frozenset()

    def artifacts(self) -> dict[str, Artifact]:
        """Return the model's files, and the list of words that are kept, by role."""
        if self._kept_source is None:
            return super().artifacts()
        return {**super().artifacts(), "stopwords": stopwords(self._kept_source).artifact}

    @cached_property
    def vocabulary(self) -> MaskedVocabulary:
        """The model's tokenizer."""
        return MaskedVocabulary.of(self.model_files)

    @cached_property
    def words_and_tokens(self) -> tuple[tuple[str, ...], Numbers]:
        """Return the outputs as texts and as token ids, shape (m,): whole words, or every token of the model."""
        if self.mode == "strict":
            return self.vocabulary.whole_words()
        size = int(json.loads(self.model_files["model/config.json"].path.read_bytes())["vocab_size"])
        texts = [*self.vocabulary.texts()[:size], *[""] * max(0, size - self.vocabulary.size)]
        return tuple(texts), np.arange(size)

    @cached_property
    def output_texts(self) -> tuple[str, ...]:
        """Return the text of each output in the order of the token ids; the padding of hidden lengths comes last."""
        return (*self.words_and_tokens[0], PAD) if self.hides_length else self.words_and_tokens[0]

    @property
    def outputs(self) -> int:
        """Return the size of the output set."""
        return len(self.output_texts)

    def output_words(self) -> frozenset[str] | None:
        """Return the words that a released text can hold; None in faithful mode, which releases more than words."""
        if self.mode == "faithful":
            return None
        return frozenset(self.words_and_tokens[0]) | self.kept_words

    def input_words(self) -> tuple[str, ...]:
        """Return the words that can come back as themselves, in public order; every word takes one draw."""
        return tuple(word for word in self.words_and_tokens[0] if word and word not in self.kept_words)

    def survival(self, word: str) -> Fraction:
        """Return an upper bound of the probability that `word` comes back in its own place, for any text."""
        if word in self.kept_words:
            return Fraction(1)
        return self._most if word in self.words_and_tokens[0] else Fraction(0)

    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word; 1 if some words are kept."""
        if self._kept_source is not None or self.mode == "faithful":
            return 1.0
        return min(1.0, float(self._most) * (1 + 1e-12))

    @cached_property
    def _most(self) -> Fraction:
        """Return the largest probability under the sampler's integers (docs/spec/privacy.md#exponential-mechanism)."""
        top = 2 ** sampling.weight_bits(self.outputs)
        return Fraction(top, top + (self.outputs - 1) * sampling.smallest_weight(self.largest_epsilon, self.outputs))
