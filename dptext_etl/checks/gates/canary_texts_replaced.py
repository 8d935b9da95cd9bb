"""Gate `canary_texts_replaced` requires that planted public texts return, and agree in pairs, only by chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.checks.candidate import choice_columns
from dptext_etl.checks.chance import FALSE_ALARM, InVocabularyGate, Trials, least_suspicious, powerless, round_up
from dptext_etl.checks.gate import Verdict
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.policy import Policy


class CanaryTextsReplaced(InVocabularyGate):
    """Counts planted texts of the corpus that came back, and pairs of planted rows of equal text whose releases agree.

    Both are sums of independent trials of known chances, per canary: a text is drawn for itself with W / Z if it is
    near itself, otherwise with w / Z (docs/spec/surrogate.md#planted-rows). Where a chance is near 1, no count is
    suspicious, and the verdict says so. Texts of several draws are not planted.
    """

    catches = (
        "Texts that pass through unchanged, and draws that records share: the original as fallback, a mechanism that "
        "was skipped for some rows or shards, a key without the record id, one seed for every row."
    )
    order = 51

    def __init__(self, policy: Policy, plans: Iterable[CanaryPlan]) -> None:
        columns = choice_columns(policy).items()
        self._mechanisms = {name: mechanism for name, mechanism in columns if mechanism.most_positions == 1}
        super().__init__(policy, plans, self._mechanisms)

    @classmethod
    def applies(cls, policy: Policy) -> bool:
        return bool(choice_columns(policy))

    def verdict(self) -> Verdict:
        counts = {"texts": 0, "survived": 0, "pairs": 0, "equal": 0, "suspicious": 0}
        without_power = []
        for name, mechanism in self._mechanisms.items():
            power = False
            for trials, hits, names in self._compared(name, mechanism):
                limit = least_suspicious(trials, FALSE_ALARM / 2 / len(self._mechanisms))
                power |= limit <= trials.total()
                counts[names[0]] += trials.total()
                counts[names[1]] += hits
                counts["suspicious"] += hits >= limit
            if not power:
                without_power.append(name)
        passed = not counts["suspicious"]
        message = f"{counts['survived']} of {counts['texts']} public texts came back, "
        message += f"{counts['equal']} of {counts['pairs']} pairs of equal texts agree, "
        message += f"{'within' if passed else 'beyond'} chance{powerless(without_power)}"
        return self.outcome({**counts, "false_alarm": FALSE_ALARM}, message, passed=passed)

    def _compared(self, name: str, mechanism: ChoiceMechanism) -> Iterator[tuple[Trials, int, tuple[str, str]]]:
        """Yield trials, successes, and the names of their counts: of survivors, and of pairs that agree."""
        numbers = {text: number for number, text in enumerate(mechanism.opened.texts)}
        back: Trials = Counter()
        same: Trials = Counter()
        survived = equal = 0
        pairs: dict[tuple[int, int | None], list[tuple[int, Any]]] = {}
        for canonical, texts in self._released.items():
            if name in texts:
                shard, row = self._planted[canonical]
                number, text = numbers[row.texts[name]], texts[name]
                back[round_up(mechanism.survival(number))] += 1
                survived += text == row.texts[name]
                pairs.setdefault((shard, row.pair), []).append((number, text))
        for rows in pairs.values():
            if len(rows) == 2:
                same[round_up(mechanism.collision(rows[0][0]))] += 1
                equal += rows[0][1] == rows[1][1]
        yield back, survived, ("texts", "survived")
        yield same, equal, ("pairs", "equal")
