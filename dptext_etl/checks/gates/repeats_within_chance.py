"""Gate `repeats_within_chance` requires that no public text is drawn more often than independent draws allow."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import polars as pl

from dptext_etl.checks.candidate import Stage, choice_columns
from dptext_etl.checks.chance import FALSE_ALARM, least_suspicious, powerless, round_up
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.checks.gates.texts_in_corpus import CorpusTexts
from dptext_etl.families.unlinked import COUNT
from dptext_etl.policy import Policy


class RepeatsWithinChance(Gate):
    """Compares the largest count of any text of the corpus with what chance allows, whatever the private texts say.

    In one draw, no text of the corpus has a larger probability than W / Z. So its count among n draws lies above t with
    at most the probability of a binomial count of n trials; t is the least number for which this probability, times the
    number of texts, is at most the alarm (docs/spec/surrogate.md#duplicates). A finer bound would depend on private
    texts.
    """

    catches = (
        "Draws that records share or that are hardly random: one seed for every row, shard or worker, the first "
        "candidate in the place of a draw, an epsilon far larger than the policy's."
    )
    stages = frozenset(Stage)
    seen: ClassVar[tuple[str, ...]] = ("_drawn", "_draws")
    order = 61

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._mechanisms = choice_columns(policy)
        self._corpora = {name: CorpusTexts(mechanism) for name, mechanism in self._mechanisms.items()}
        self._drawn: Counter[tuple[str, int]] = Counter()
        self._draws: Counter[str] = Counter()

    @classmethod
    def applies(cls, policy: Policy) -> bool:
        return bool(choice_columns(policy))

    def feed(self, batch: pl.DataFrame) -> None:
        for name, corpus in self._corpora.items():
            if name in batch.columns and _counts(self.policy, batch):
                for number, often in corpus.counted(batch[name], batch[COUNT]).items():
                    self._drawn[name, number] += often
                self._draws[name] += int(batch[COUNT].sum())
            elif name in batch.columns:
                self._draws[name] += batch.height * self._mechanisms[name].most_positions
                self._drawn.update({(name, number): count for number, count in corpus.find(batch[name])[0].items()})

    def verdict(self) -> Verdict:
        counts: dict[str, int | float] = {"draws": self._draws.total(), "most": 0, "suspicious": 0}
        without_power = []
        for name, mechanism in self._mechanisms.items():
            draws = self._draws[name]
            chance = round_up(mechanism.largest_probability())
            alarm = FALSE_ALARM / len(self._mechanisms) / mechanism.size
            limit = least_suspicious(Counter({chance: draws}), alarm) if draws else 1
            most = max((count for (column, _), count in self._drawn.items() if column == name), default=0)
            counts["most"] = max(counts["most"], most)
            counts["suspicious"] += most >= limit
            counts[f"allowed {name}"] = limit - 1
            if limit > draws:
                without_power.append(name)
        counts["false_alarm"] = FALSE_ALARM
        message = f"no public text was drawn more than {counts['most']} times in {counts['draws']} draws, "
        message += f"{'beyond' if counts['suspicious'] else 'within'} chance{powerless(without_power)}"
        return self.outcome(counts, message, passed=not counts["suspicious"])


def _counts(policy: Policy, batch: pl.DataFrame) -> bool:
    unlinked = policy.unlinked
    return unlinked is not None and unlinked.form == "counts" and batch.schema.get(COUNT) == pl.Int64
