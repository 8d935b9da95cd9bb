"""Describe a noisy statistic as a mechanism: every record is charged for it, and no text of a record is released."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, InstanceOf, PositiveInt

from dptext_etl.arrays import to_arrow
from dptext_etl.artifacts import Artifact
from dptext_etl.corpora import Corpus
from dptext_etl.errors import PolicyError
from dptext_etl.families.aggregate.statistic import Statistic
from dptext_etl.guarantee import Guarantee, Spend
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import Mechanism


class Aggregate(Mechanism):
    """The statistic of a whole column, as what the ledger pins of it and charges for each record.

    Attributes:
        label: The name of the mechanism in policies, manifests, and the ledger.
        statistic: What is summed, and how much noise is added.
        claim: Class, neighbors, and assumptions.
        n_rec: The number of records for which delta is stated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    reproducible: ClassVar[bool] = True

    label: str
    statistic: InstanceOf[Statistic] = Field(repr=False)
    claim: InstanceOf[Guarantee] = Field(repr=False)
    n_rec: PositiveInt

    @property
    def name(self) -> str:
        return self.label

    @property
    def opened(self) -> Corpus:
        """Return the corpus, as mechanisms that draw its texts do."""
        return self.statistic.corpus

    @property
    def guarantee(self) -> Guarantee:
        return self.claim

    @property
    def most_positions(self) -> int:
        return 1

    def configuration(self) -> dict[str, Any]:
        return {**self.statistic.configuration(), "n_rec": self.n_rec}

    def cfg(self) -> str:
        return self.statistic.cfg()

    def artifacts(self) -> dict[str, Artifact]:
        return {"corpus": self.opened.artifact}

    def spend(self, positions: int) -> Spend:  # noqa: ARG002
        """Return what a record is charged: the same for all (docs/spec/synthetic.md#cost)."""
        return self.statistic.charge(self.claim)

    def positions(self, texts: pa.Array) -> pa.Array:
        """Return zeros, uint32: no record has a draw of its own."""
        return to_arrow(np.zeros(len(texts), np.uint32))

    def release(self, texts: pa.Array, keys: RecordKeys) -> NoReturn:  # noqa: ARG002
        """Refuse to release texts.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError("a statistic of a whole column releases no text of a record", "publish a synthetic table")

    @classmethod
    def example(cls) -> NoReturn:
        """Refuse: `describe` makes a statistic from a corpus.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError("a statistic has no example of its own", "describe one over the corpus `example`")
