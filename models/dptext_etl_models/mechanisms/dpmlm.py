"""DP-MLM replaces every word by a draw from the words that a masked language model expects in its place.

Paper: Meisenbacher, Chevli, Vladika and Matthes 2024, "DP-MLM: Differentially Private Text Rewriting Using Masked
Language Models" (algorithms 1 to 3, appendix A). This mechanism differs from the paper (docs/spec/privacy.md#dpmlm,
docs/spec/privacy.md#dpmlm-plusminus, docs/spec/privacy.md#length-options):

* The paper does not mention that the number of words is released, and its code keeps stopwords, punctuation and
  capitals unchanged. Strict mode draws every word and drops the rest; it keeps stopwords only as a disclosure. Padding
  every text to a public or a noisy number of words can hide the length.
* Strict mode draws only whole words in lower case. Faithful mode draws from all tokens, as the paper does.
* Algorithm 3 (variant "plusminus") adds and deletes words. A plan is drawn first, independently of the text; remaining
  and added words have one draw each, so the worst case is two draws per word, and a cap can be charged for the draws
  that were made. The printed algorithm counts deletions but never makes them, and leaves original words at the end of
  the text; here these words are deleted.
* The score of appendix A (similarity of words plus a small multiple of the model's score) is unbounded in the paper;
  with `alpha`, it is clipped to its own range. The similarity compares the model's word embeddings.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from dptext_etl.accounting import Approximate, Event
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import ArtifactError, seam
from dptext_etl.guarantee import Guarantee, GuaranteeClass, exact
from dptext_etl.parameters import PositiveInt
from dptext_etl.sampling import Clip
from dptext_etl_models.families.masked import MaskedMechanism
from dptext_etl_models.inference.masked.scorer import Adjustment
from dptext_etl_models.inference.masked.script import Numbers, Scripts, draw_plans, likely_draws, planned

Probability = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class DPMLM(MaskedMechanism):
    """DP-MLM (Meisenbacher et al. 2024).

    Attributes:
        variant: "plain" replaces every word (algorithms 1 and 2); "plusminus" also deletes and adds words (3).
        addition: Probability that another word follows a word, for "plusminus".
        deletion: Probability that a word is deleted, for "plusminus".
        delta: For "plusminus": also state (epsilon, delta) for the number of draws exceeded with probability delta.
        n_rec: Public bound on the records of the table, never its size; strict mode needs it for a delta.
        alpha: Weight of the model's score next to the similarity of words (appendix A; the paper has 0.003).
        antonyms: Path of NLTK's wordnet.zip: antonyms of a word get the lowest score; faithful mode only.

    Example:
        >>> mechanism = DPMLM.example()
        >>> mechanism.spend(12).epsilon
        300.0
    """

    artifact_fields: ClassVar[frozenset[str]] = MaskedMechanism.artifact_fields | {"antonyms"}
    small_model: ClassVar[str | None] = "english-small"
    model_source: ClassVar[str] = (
        "download the usual one on a machine with a network: `hf download FacebookAI/roberta-base`"
    )

    variant: Literal["plain", "plusminus"] = "plain"
    addition: Probability = 0.1
    deletion: Probability = 0.05
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    n_rec: PositiveInt | None = None
    alpha: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] | None = None
    antonyms: str | None = None

    @model_validator(mode="after")
    def _antonyms_are_faithful(self) -> Self:
        if self.antonyms is not None and self.mode == "strict":
            raise ValueError('the filter of antonyms belongs to mode "faithful"')
        return self

    @model_validator(mode="after")
    def _plans_are_of_plusminus(self) -> Self:
        fields = type(self).model_fields
        changed = any(getattr(self, name) != fields[name].default for name in ("addition", "deletion", "delta"))
        if self.delta is not None and self.allocation is not None:
            raise ValueError("delta bounds how many draws are likely, but an allocation costs the same for any number")
        if self.variant == "plain" and changed:
            raise ValueError('addition, deletion and delta are for variant "plusminus"')
        if self.delta is None and self.n_rec is not None:
            raise ValueError("n_rec bounds the records that a delta is stated for: leave it out, or give delta")
        return self

    @property
    def used_delta(self) -> float:
        """The delta of the draws that are likely, where one is given."""
        return self.delta or 0.0

    @property
    def _length_is_shown_by(self) -> str | None:
        reason = 'variant "plusminus" releases another number of words' if self.variant == "plusminus" else None
        return super()._length_is_shown_by or reason

    @property
    def _in_place(self) -> bool:
        """Return True unless words are added and deleted, or more than words is released."""
        return super()._in_place and self.variant == "plain"

    @property
    def refundable(self) -> bool:
        """Return True for "plusminus": the plan decides the number of draws, independently of the text."""
        return self.variant == "plusminus" and self.allocation is None

    @property
    def draws_per_position(self) -> int:
        """Return 2 for "plusminus", for a remaining word and an added one; otherwise 1."""
        return 2 if self.variant == "plusminus" else 1

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors, with two draws per word for "plusminus"."""
        twice: dict[str, float | Fraction] = {"2": 2} if self.refundable else {}
        return {**twice, **super().cost_factors(positions)}

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of masked mechanisms, with a delta if one is stated."""
        stated = super().guarantee
        return stated if self.delta is None else replace(stated, guarantee_class=GuaranteeClass.COND_APPROX)

    def event(self, positions: int) -> Event:
        """Return the worst case; with `delta`, also the cost of the draws that are likely."""
        worst = super().event(positions)
        if self.delta is None or not positions:
            return worst
        likely = likely_draws(positions, self.deletion, self.addition, self.delta)
        return Approximate(worst, likely * exact(self.epsilon), self.delta)

    def _scripts(self, texts: pa.Array, counts: Numbers, keys: pa.Array) -> Scripts:
        """Return the script of each text; for "plusminus" it follows a plan from its own stream."""
        if self.variant == "plain":
            return super()._scripts(texts, counts, keys)
        drawn = draw_plans(keys, counts, self.deletion, self.addition)
        reads = map(self._read, texts.to_pylist(), counts.tolist())
        return Scripts.of([planned(read.words, read.kept, plan) for read, plan in zip(reads, drawn, strict=True)])

    def artifacts(self) -> dict[str, Artifact]:
        """Return the model's files and the word lists, by role."""
        lists = self._wordnet
        return super().artifacts() if lists is None else {**super().artifacts(), "antonyms": lists}

    @cached_property
    def _wordnet(self) -> Artifact | None:
        if self.antonyms is None:
            return None
        return Artifact.open(self.antonyms, provenance="WordNet", license="WordNet's own")

    @property
    def score_range(self) -> Clip:
        """Return the range of the scores; with `alpha`, of the similarity (-1 to 1) plus the weighted score."""
        low, high = self.clip_range
        return (low, high) if self.alpha is None else (-1 + self.alpha * low, 1 + self.alpha * high)

    @property
    def _adjusted_by(self) -> tuple[Any, ...]:
        return self.alpha, self._wordnet and self._wordnet.sha256

    def _adjustment(self) -> Adjustment:
        """Return the adjustment of the model's scores: similarity of words, and the lowest score for antonyms."""
        lists = self._wordnet
        if lists is None:
            return Adjustment(self.alpha)
        return Adjustment(self.alpha, antonyms_among(io.BytesIO(lists.read_bytes()), self.words_and_tokens[0]))

    @classmethod
    def example(cls) -> Self:
        """Return the mechanism with epsilon 25 and a tiny random model, which any machine builds; batches of eight."""
        return cls(epsilon=25.0, model="example-masked", decoding="block", block=8)


_PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
_OPPOSITE = "!"

Place = tuple[str, str]
"""Part of speech and offset of a synset."""


def antonyms_among(file: Path | IO[bytes], outputs: Sequence[str]) -> Callable[[str], Sequence[int]]:
    """Return a function that finds the antonyms of a word among outputs."""
    with seam("reading WordNet", ArtifactError, "give the path of NLTK's wordnet.zip"):
        opposites = _opposites(file)
    numbers: dict[str, list[int]] = {}
    for number, text in enumerate(outputs):
        numbers.setdefault(text.lower(), []).append(number)
    pairs = {
        word: sorted(number for name in names for number in numbers.get(name, ())) for word, names in opposites.items()
    }
    return lambda word: pairs.get(word.lower(), ())


def _opposites(file: Path | IO[bytes]) -> dict[str, set[str]]:
    """Return the antonyms of every word that has antonyms."""
    words: dict[Place, list[str]] = {}
    pointers: list[tuple[Place, int, Place, int]] = []
    with zipfile.ZipFile(file) as archive:
        for letter, part in _PARTS.items():
            with archive.open(f"wordnet/data.{part}") as lines:
                for line in lines:
                    if not line.startswith(b" "):  # lines of the license begin with a blank
                        place = (letter, line[:8].decode())
                        words[place], antonym_pairs = _synset(line.decode("utf-8").split(" | ")[0].split())
                        pointers.extend((place, *pointer) for pointer in antonym_pairs)
    opposites: dict[str, set[str]] = {}
    for place, word, other, its in pointers:
        opposites.setdefault(words[place][word - 1], set()).add(words[other][its - 1])
    return opposites


def _synset(fields: Sequence[str]) -> tuple[list[str], Iterator[tuple[int, Place, int]]]:
    """Read a line of WordNet's database (wndb(5)): its words, and the pairs of antonyms."""
    count = int(fields[3], 16)
    words = [field.partition("(")[0].lower() for field in fields[4 : 4 + 2 * count : 2]]
    first = 5 + 2 * count
    last = first + 4 * int(fields[first - 1])
    quads = (fields[at : at + 4] for at in range(first, last, 4))
    pointers = (
        (int(between[0:2], 16), (letter.replace("s", "a"), offset), int(between[2:4], 16))  # s marks adjectives as well
        for symbol, offset, letter, between in quads
        if symbol == _OPPOSITE
    )
    return words, pointers
