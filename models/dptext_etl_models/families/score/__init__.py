"""Draw by a model's clipped scores over a fixed output set."""

from dptext_etl_models.families.score.score import ScoreMechanism as ScoreMechanism
