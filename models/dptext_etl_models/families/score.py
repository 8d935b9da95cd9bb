"""Draw outputs by a language model's clipped scores, with exact draws.

All score mechanisms share the model as an artifact, the public range that scores are clipped to, and the cost of n
draws. The guarantee holds for any scores (docs/spec/privacy.md#arbitrary-scores). Only the clip and the draw must be
exact, and `dptext_etl.sampling` does both. The model's scores differ in their last digits between machines; draws use
the same integers of the record's stream everywhere, and a run's first commit is the release.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import model_validator

from dptext_etl import sampling
from dptext_etl.accounting import Event, PureDraws, computed
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import PolicyError
from dptext_etl.sampling import Clip
from dptext_etl_models.families.model import ModelMechanism
from dptext_etl_models.inference.example_model import CLIPS, PREFIX


class ScoreMechanism(ModelMechanism):
    """A mechanism that draws outputs by a language model's clipped scores.

    Attributes:
        clip: Public range of the scores, (low, high), or a file of `dptext calibrate`; None uses the file in the
            model's folder, or the papers' range.
    """

    preview_epsilons: ClassVar[tuple[float, ...]] = (10.0, 50.0, 250.0)
    artifact_fields: ClassVar[frozenset[str]] = ModelMechanism.artifact_fields | {"clip"}
    cannot_divide: ClassVar[None] = None

    clip: Clip | str | None = None

    @model_validator(mode="after")
    def _clip_is_a_range(self) -> Self:
        if isinstance(self.clip, tuple):
            low, high = self.clip
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError("clip is a finite range: low < high")
        return self

    @cached_property
    def clip_range(self) -> Clip:
        """Return the public range that scores are clipped to."""
        if isinstance(self.clip, tuple):
            return self.clip
        if self.clip is None and self.model.startswith(PREFIX):
            return CLIPS[self.model.removeprefix(PREFIX)]
        from dptext_etl_models.inference import clipping

        if self.clip is not None:
            return clipping.read_clip(self.clip)
        default = clipping.default_clip(self.model, self.model_files)
        if default is not None:
            return default
        raise PolicyError(
            "no public range of scores is known for this model: clip is missing",
            f"run `dptext calibrate --model {self.model} --corpus PUBLIC` on public text, or give clip = [low, high]",
        )

    def artifacts(self) -> dict[str, Artifact]:
        """Return the model's files and, if one is given, the file of its clip range, by role."""
        files = super().artifacts()
        if isinstance(self.clip, str):
            files["clip"] = Artifact.open(self.clip)
        return files

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of mechanisms, with the range that is used."""
        return {**super().configuration(), "clip_range": [repr(bound) for bound in self.score_range]}

    @property
    def largest_epsilon(self) -> float:
        """Return the largest epsilon of one draw of the release."""
        return self.epsilon if self.allocation is None else self.allocation.largest

    @property
    def score_range(self) -> Clip:
        """Return the range of the sampler's scores, which is the range of the clipped scores."""
        return self.clip_range

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Return the size of the output set."""

    @cached_property
    def epsilon_tight(self) -> float:
        """Return the exact pure parameter of one draw, from the sampler's integers.

        Specification: docs/spec/privacy.md#epsilon-implemented.
        """
        return sampling.epsilon_implemented(self.largest_epsilon, self.outputs)

    def described(self) -> dict[str, dict[str, Any]]:
        """Return facts about one draw: its output set, its range of scores, and its largest probability."""
        low, high = self.score_range
        most = sampling.largest_range_bounded(self.largest_epsilon, self.outputs)
        facts = {"outputs": self.outputs, "scores are clipped to": f"{low:.6g} to {high:.6g}"}
        if self.allocation is not None:
            shared = {"epsilon, at most": self.largest_epsilon}
            return {"draw": shared | facts | {"most probable output, at most": most}}
        of_draw = {"epsilon": self.epsilon, "epsilon, tight": self.epsilon_tight}
        after = {"temperature": 2 * (high - low) / self.epsilon, "most probable output, at most": most}
        return {"draw": of_draw | facts | after}

    def _draws(self, count: int) -> Event:
        """Return a number of adaptive draws."""
        if self.allocation is not None:
            return self.allocation.event(count, self.outputs)
        return PureDraws(self.epsilon, count, computed(Fraction(self.epsilon_tight)) if count else None)
