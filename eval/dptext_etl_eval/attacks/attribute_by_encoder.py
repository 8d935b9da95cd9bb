"""Guess a secret of the writer by a fine-tuned encoder, as papers 000 and 001 do with larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl_eval.classifier import Guesses, require_classes, scores
from dptext_etl_eval.encoder import parted, tuned
from dptext_etl_eval.measure import MODEL, Attack, Score
from dptext_etl_eval.pairs import ATTRIBUTE, MODELS, RAW, RELEASED, Pairs


class AttributeByEncoder(Attack):
    """The static and the adaptive attacker with a small pretrained encoder in place of counts of words."""

    title: ClassVar[str] = "Guessing the attribute by a fine-tuned encoder"
    says: ClassVar[str] = (
        f"{MODEL} with a new head, fine-tuned on seven tenths of the rows and tested on the others; with subjects, no "
        "person is in both. It reads order and context, which counts of words do not."
    )
    knows: ClassVar[str] = "other people's texts (raw, or released) with their attributes, and a public language model"
    needs: ClassVar[frozenset[str]] = frozenset({ATTRIBUTE, MODELS})
    order: ClassVar[int] = 15
    weight: ClassVar[float] = 150.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return macro-F1 and accuracy of both attackers, with an attack on raw texts and the most frequent value."""
        assert pairs.attribute is not None  # noqa: S101  (`needs` says so)
        require_classes(pairs.attribute, ATTRIBUTE)
        names, codes = np.unique(pairs.attribute, return_inverse=True)
        learn, test = parted(pairs.subject, len(pairs))
        truth, most = codes[test], np.bincount(codes[learn]).argmax()

        def guesses(guess: object, which: str) -> Guesses:
            assert callable(guess)  # noqa: S101
            made = guess([pairs.texts(which)[row] for row in test])
            return Guesses(names[truth], names[made], np.full(len(truth), names[most]))

        static, adaptive = (
            tuned(MODEL, [pairs.texts(which)[row] for row in learn], codes[learn], len(names))
            for which in (RAW, RELEASED)
        )
        raw = guesses(static, RAW)
        groups = None if pairs.subject is None else pairs.subject[test]
        return [
            score
            for kind, guess in (("adaptive", adaptive), ("static", static))
            for score in scores(guesses(guess, RELEASED), raw, f"{kind} attacker, {{figure}}", groups)
        ]
