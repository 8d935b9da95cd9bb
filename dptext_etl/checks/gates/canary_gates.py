"""Gates over canary rows: made-up rows whose texts show how a run treats real ones (`checks.canaries`).

They report under five names: `canary_text_absent`, `canary_rows_complete`, `canary_words_replaced`,
`canary_texts_replaced`, and `canary_rows_reproducible`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from dptext_etl.checks.canaries import CANARY, FORMS, CanaryRow, Searcher
from dptext_etl.checks.gate import Candidate, Gate, Stage, canary_rows, choice_columns, other_rows, with_id
from dptext_etl.checks.text_counts import (
    FALSE_ALARM,
    ROUNDING,
    Trials,
    drawn_and_released,
    known_words,
    least_suspicious,
    powerless,
    round_up,
    upper_bound,
    word_columns,
)
from dptext_etl.checks.verdict import Verdict
from dptext_etl.errors import PolicyError, counted
from dptext_etl.families.words import Simulated, WordByWord, WordMechanism, by_text, sample_many
from dptext_etl.guarantee import Disclosure
from dptext_etl.keys import canonical_ids, canonical_series
from dptext_etl.mechanism import PAD, Mechanism
from dptext_etl.policy import Policy

SAMPLES = 256
PAD_SAMPLES = 2_048
"""Draws behind an estimated chance: for a word, and for the padding, which is at most positions."""
TRIALS = 2_048
"""Draws behind the simulated survival of a word."""

Texts = dict[int, list[tuple[str, ...]]]
"""The words of canary rows, by shard."""


class CanaryTextAbsent(Gate):
    """Searches every cell and file for pseudo-words.

    A faithful mechanism keeps unknown words unchanged, these included. They prove nothing in that column, so they are
    searched everywhere else only. A mechanism that spells texts from pieces of words, or decodes them, may copy a
    canary's words by chance. Where that chance has no small bound, they prove nothing in canary rows of its column;
    they are searched in all other rows and everywhere else. A rewriter reads released texts, which do not
    hold them: so it writes one only by the chance that its own bound states.
    """

    catches = (
        "Raw text that got past the mechanism: unknown words or failed records passed through, a raw column that was "
        "renamed, copied, concatenated, reversed, split or encoded into another, text in a manifest, a log or a file's "
        "statistics."
    )
    stages = frozenset(Stage)
    order = 30
    problems = ("hits",)

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._tokens = candidate.pseudo_words()
        planted = sum(len(plan.ids("out_of_vocabulary")) for plan in candidate.canaries)
        self._spelled, self._spelled_again, self._in_clear = {}, {}, {}
        self._everything = Searcher(word for words in self._tokens.values() for word in words)
        for item in self.policy.column_policies():
            name, chance = item.column or "", chance_of_foreign_words(item.mechanism)
            others = Searcher(word for other, words in self._tokens.items() if other != name for word in words)
            if Disclosure.OOV in item.mechanism.guarantee.disclosures and item.mechanism.mode != "strict":
                self._in_clear[name] = others
            searched = planted * len(self._tokens.get(name, ()))
            if chance * searched > FALSE_ALARM:
                self._spelled[name] = others
            if (chance + sum(step.foreign_word_chance() for step in item.postprocess)) * searched > FALSE_ALARM:
                self._spelled_again[name] = others
        self.state = {"rows": 0, "hits": Counter(dict.fromkeys(FORMS, 0))}

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height
        self._look(batch, self._spelled)

    def rewritten_rows(self, batch: pl.DataFrame) -> None:
        """Search a batch of rows after post-processing, and the released texts that are kept next to it."""
        self.state["rows"] += batch.height
        kept = {str(item.intermediate): item.name for item in self.policy.columns if item.intermediate in batch.columns}
        self._look(batch.drop(kept), self._spelled_again)
        if kept:
            marks = [name for name in (CANARY,) if name in batch.columns]
            self._look(batch.select(*kept, *marks).rename(kept), self._spelled)

    def _look(self, batch: pl.DataFrame, spelled_by: Mapping[str, Searcher]) -> None:
        clear = [name for name in self._in_clear if name in batch.columns]
        spelled = [name for name in spelled_by if name in batch.columns and CANARY in batch.columns]
        others = [name for name in batch.columns if name not in {*clear, *spelled}]
        hits: Counter[str] = self.state["hits"]
        hits.update(self._everything.find(batch[others]))
        for name in clear:
            hits.update(self._in_clear[name].find(batch[[name]]))
        for name in spelled:
            hits.update(spelled_by[name].find(canary_rows(batch)[[name]]))
            hits.update(self._everything.find(other_rows(batch)[[name]]))

    def verdict(self) -> Verdict:
        """Search the files that leave the run next to the rows, too."""
        hits: Counter[str] = self.state["hits"]
        for text in self.candidate.texts:
            hits.update(self._everything.find(text))
        total, words = hits.total(), sum(map(len, self._tokens.values()))
        counts = {"rows": self.state["rows"], "words": words, "hits": total, **hits}
        message = f"none of {words:,} canary words survived"
        if total:
            message = "canary words survived: "
            message += ", ".join(f"{count:,} {form}" for form, count in hits.items() if count)
        if self._in_clear:
            keeping = counted(len(self._in_clear), "column keeps", "columns keep")
            message += f"; not searched for the unknown words that {keeping} unchanged"
        if self._spelled_again:
            spelled = counted(len(self._spelled_again), "column")
            message += f"; {spelled} may spell them by chance: their canary rows prove nothing"
        return self.outcome(counts, message, passed=not total and words > 0)


def chance_of_foreign_words(mechanism: Mechanism) -> float:
    """Bound the probability that a release holds one given out-of-vocabulary word of 20 letters; 1 means no bound.

    It is 0 if outputs are words of a fixed set, or public texts. A mechanism that spells texts from pieces of words, or
    decodes them, may copy such a word from its input by chance.
    """
    fixed = mechanism.guarantee.unit == "word" or by_text(mechanism) is not None
    return 0.0 if fixed or mechanism.output_words() is not None else 1.0


class CanaryRowsComplete(Gate):
    """Compares the marked rows with those that were planted: all are there, marked, with other columns empty."""

    catches = (
        "A run in which the canaries were lost, so that their silence means nothing; a canary row that would be "
        "published; a kept column that is filled from the text, such as its length or a summary."
    )
    stages = frozenset({Stage.STAGED})
    reads = ("id", CANARY)
    order = 40

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._planned = Counter(canonical for plan in candidate.canaries for canonical in canonical_series(plan.ids()))
        self._ids = pl.Series(list(self._planned), dtype=pl.String).implode()
        self.state = {"marked": Counter[str](), "unmarked": 0, "filled": 0}

    def rows(self, batch: pl.DataFrame) -> None:
        marked, others = canary_rows(batch), other_rows(batch)[self.policy.id].alias("id").drop_nulls()
        self.state["marked"].update(canonical_series(marked[self.policy.id].alias("id").drop_nulls()))
        self.state["unmarked"] += int(canonical_series(others).is_in(self._ids).sum())
        kept = [name for name in self.policy.kept_columns if name in batch.columns]
        self.state["filled"] += sum(marked[name].len() - marked[name].null_count() for name in kept)

    def verdict(self) -> Verdict:
        counts = {
            "planted": self._planned.total(),
            "missing": (self._planned - self.state["marked"]).total(),
            "unplanned": (self.state["marked"] - self._planned).total(),
            "unmarked": self.state["unmarked"],
            "filled_cells": self.state["filled"],
        }
        wrong = {name: count for name, count in counts.items() if count and name != "planted"}
        passed = bool(self._planned) and not wrong
        message = f"all {counts['planted']:,} canary rows came through"
        if not passed:
            problems = ", ".join(f"{count:,} {name}" for name, count in wrong.items()) or "none planted"
            message = f"of {counts['planted']:,} canary rows: {problems}"
        return self.outcome(counts, message, passed=passed)


class _Planted(NamedTuple):
    shard: int
    half: int  # 0 for the first row of its text in the shard, 1 for the second
    row: CanaryRow


class InVocabularyGate(Gate):
    """Takes the releases of in-vocabulary canary rows, each of them once, to compare them with chance."""

    stages = frozenset({Stage.STAGED})
    reads = ("id", CANARY)

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._text_columns = [item.column or "" for item in self.policy.column_policies()]
        self._planted: dict[str, _Planted] = {}  # by canonical id
        for plan in candidate.canaries:
            ids = canonical_ids(plan.ids().to_arrow()).to_pylist()
            for place, (canonical, row) in enumerate(zip(ids, plan.rows, strict=True)):
                if row.kind == "in_vocabulary":
                    self._planted[canonical] = _Planted(plan.shard, 2 * place // len(ids), row)
        self.state: dict[str, Any] = {"released": {}}  # the texts of a row, by canonical id

    def rows(self, batch: pl.DataFrame) -> None:
        marked = with_id(canary_rows(batch), self.policy.id)
        ids = canonical_ids(marked[self.policy.id].to_arrow()).to_pylist()
        present = [name for name in self._text_columns if name in marked.columns]
        for canonical, row in zip(ids, marked.iter_rows(named=True), strict=True):
            if canonical in self._planted:
                self.state["released"].setdefault(canonical, {name: row[name] for name in present})

    def releases(self, column: str) -> Iterator[tuple[_Planted, Any]]:
        """Yield the canary rows that have a release in a column, and the released texts."""
        for canonical, texts in self.state["released"].items():
            if column in texts:
                yield self._planted[canonical], texts[column]


class CanaryWordsReplaced(InVocabularyGate):
    """Counts the vocabulary words of canary rows that came back.

    Under the mechanism, word i survives with known probability p_i, in a Bernoulli trial independent of all others. So
    the count of a column is Poisson-binomial. It is compared once per shard and once over the run. Each column and each
    comparison has its share of `FALSE_ALARM`, so a correct run fails with probability at most 1e-9, whatever the data.
    Only too many survivors are a leak; too few do not concern privacy. Where the mechanism itself copies almost
    everything (large epsilon), no count is suspicious, and the verdict says that the gate had no power.

    Where the length is hidden, released words have no places. Then a released word counts if it is any word of its row,
    and each of the text's positions, padding included, is a trial (`Chances`).
    """

    catches = (
        "Known words that pass through unchanged: the original as fallback after a failure or a lost mask, a mechanism "
        "that was skipped for some rows or shards, noise of a far too large epsilon, one that returns its input."
    )
    order = 50

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._columns = word_columns(self.policy)
        self._shards = len(candidate.canaries)

    def verdict(self) -> Verdict:
        counts: dict[str, int | float] = {"rows": len(self.state["released"])}
        counts |= dict.fromkeys(("words", "survived", "misaligned", "suspicious"), 0)
        without_power = []
        for name, mechanism in self._columns.items():
            texts, survived, vocabulary = Texts(), Counter[int](), known_words(mechanism)
            for (shard, _, row), released in self.releases(name):
                words, outputs = drawn_and_released(mechanism, vocabulary, row.words[name], released)
                if mechanism.length != "disclose":
                    fits, came_back = len(outputs) <= mechanism.n_max, sum(output in words for output in outputs)
                else:
                    fits = len(outputs) == len(words)
                    came_back = sum(output == word for output, word in zip(outputs, words, strict=False))
                if fits:
                    texts.setdefault(shard, []).append(words)
                    survived[shard] += came_back
                counts["misaligned"] += not fits
            chances, alarm = _chances(mechanism, texts, FALSE_ALARM / len(self._columns))
            total: Trials = sum(chances.values(), Counter())
            limit = least_suspicious(total, alarm / 2)
            counts["words"] += total.total()
            counts["survived"] += survived.total()
            counts["suspicious"] += survived.total() >= limit
            counts["suspicious"] += sum(
                survived[shard] >= least_suspicious(trials, alarm / 2 / max(1, self._shards))
                for shard, trials in chances.items()
            )
            counts[f"allowed {name}"] = limit - 1
            if limit > sum(len(text) for drawn in texts.values() for text in drawn):
                without_power.append(name)
        counts["false_alarm"] = FALSE_ALARM
        passed = not (counts["suspicious"] or counts["misaligned"])
        message = f"{counts['survived']:,} of {counts['words']:,} vocabulary words came back as themselves"
        message += ", within chance" if passed else ", beyond chance (or rows of another length than was planted)"
        message += powerless(without_power)
        if not self._columns:
            message = "not applicable: no column replaces words one by one"
        return self.outcome(counts, message, passed=passed, applicable=bool(self._columns))


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

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        columns = choice_columns(self.policy).items()
        self._mechanisms = {name: mechanism for name, mechanism in columns if mechanism.most_positions == 1}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return super().columns(policy) if choice_columns(policy) else None

    def verdict(self) -> Verdict:
        counts = {"texts": 0, "survived": 0, "pairs": 0, "equal": 0, "suspicious": 0}
        without_power = []
        for name, mechanism in self._mechanisms.items():
            planted = {row.texts[name] for _, _, row in self._planted.values()}
            numbers = {text: number for number, text in enumerate(mechanism.opened.texts) if text in planted}
            back, same, survived, equal = Trials(), Trials(), 0, 0
            pairs = defaultdict[tuple[int, int | None], list[tuple[int, Any]]](list)
            for (shard, _, row), text in self.releases(name):
                number = numbers[row.texts[name]]
                back[round_up(mechanism.survival(number))] += 1
                survived += text == row.texts[name]
                pairs[shard, row.pair].append((number, text))
            for (number, text), *other in pairs.values():
                if len(other) == 1:
                    same[round_up(mechanism.collision(number))] += 1
                    equal += text == other[0][1]
            power = False
            for trials, hits, names in (back, survived, ("texts", "survived")), (same, equal, ("pairs", "equal")):
                limit = least_suspicious(trials, FALSE_ALARM / 2 / len(self._mechanisms))
                power |= limit <= trials.total()
                counts[names[0]] += trials.total()
                counts[names[1]] += hits
                counts["suspicious"] += hits >= limit
            if not power:
                without_power.append(name)
        passed = not counts["suspicious"]
        message = f"{counts['survived']:,} of {counts['texts']:,} public texts came back, "
        message += f"{counts['equal']:,} of {counts['pairs']:,} pairs of equal texts agree, "
        message += f"{'within' if passed else 'beyond'} chance{powerless(without_power)}"
        return self.outcome({**counts, "false_alarm": FALSE_ALARM}, message, passed=passed)


class CanaryRowsReproducible(Gate):
    """Compares the releases of canary rows with a second computation, in reverse order and without any other row.

    A release is a function of the key, the record and its text only. So the second one must agree in every row. A
    model may give other scores in another batch. There, no more rows may get the release of another text than agree.
    """

    catches = (
        "Rows that are not computed on their own: releases shifted by one row or sorted back wrongly, one draw that "
        "two rows share, a generator that continues from row to row, padding or a mask that leaks inside a batch."
    )
    stages = frozenset({Stage.STAGED})
    order = 52

    def verdict(self) -> Verdict:
        """Pass if enough rows agree in every column.

        How many agree is not said: where batches change scores, it would depend on the texts of a batch.
        """
        rows = wrong = 0
        for item in self.policy.column_policies():
            again = self.candidate.recomputed.get(item.column or "", {"rows": 0, "equal": 0, "moved": 0})
            rows += again["rows"]
            wrong += again["equal"] < (again["rows"] if item.mechanism.reproducible else again["moved"])
        message = f"{rows:,} canary texts were released again without other rows, "
        message += f"with other results in {counted(wrong, 'column')}" if wrong else "with the same results"
        if not rows:
            message = "not applicable: this run computed no canary row"
        counts = {"rows": rows, "suspicious_columns": wrong}
        return self.outcome(counts, message, passed=not wrong, applicable=bool(rows))


def _chances(mechanism: WordByWord, texts: Texts, alarm: float) -> tuple[Mapping[int, Trials], float]:
    """Return the trials whose successes were counted, by shard, and the remaining probability of false alarms."""
    trials: dict[int, Trials] = {shard: Counter() for shard in texts}
    chances = Chances(mechanism, {word for drawn in texts.values() for text in drawn for word in text})
    estimates = sum(len({*text, PAD}) for drawn in texts.values() for text in drawn)
    share = alarm / 2 / max(1, estimates)
    for shard, drawn in texts.items():
        if mechanism.length == "disclose":
            trials[shard].update(chances.survival(word, share) for text in drawn for word in text)
            continue
        for text in drawn:
            targets = frozenset(text)
            for word, times in Counter(text).items():
                trials[shard][chances.within(word, targets, share)] += times
            trials[shard][chances.within(PAD, targets, share)] += mechanism.n_max - len(text)
    return trials, alarm if chances.exact else alarm / 2


class Chances:
    """Computes upper bounds of the chances of one column's canary words, each of them once."""

    def __init__(self, mechanism: WordByWord, words: Iterable[str]) -> None:
        self._mechanism = mechanism
        self._words = frozenset(words)
        self._survival: dict[str, tuple[float, int | None]] = {}
        self._distributions: dict[str, dict[str, float]] = {}
        self._samples: dict[str, Counter[str]] = {}
        self._contextual = not isinstance(mechanism, WordMechanism) or mechanism.allocation is not None
        self.exact = True  # whether no chance has to be estimated
        if self._words and not self._contextual:
            try:
                self._distribution(min(self._words))
            except PolicyError:
                self.exact = False

    def survival(self, word: str, alarm: float) -> float:
        """Bound the probability that `word` comes back; a simulated bound is wrong with probability `alarm`."""
        if word not in self._survival:
            survivors = None
            if not self.exact and isinstance(self._mechanism, Simulated):
                survivors = self._mechanism.simulated_survivals(word, TRIALS)
            self._survival[word] = round_up(self._mechanism.survival(word)), survivors
        bound, survivors = self._survival[word]
        return bound if survivors is None else min(bound, upper_bound(survivors, TRIALS, alarm))

    def within(self, word: str, targets: frozenset[str], alarm: float) -> float:
        """Bound the probability that one draw for `word`, or for `PAD`, gives one of `targets`.

        Where no fractions express the output distribution, the mechanism draws samples under a key that is thrown away.
        They bound the chance of the other targets, at a confidence of 1 - `alarm`. The chance that `word` itself comes
        back is never estimated from the code that is under suspicion: it has a bound, or a separate simulation.
        """
        if self._contextual:
            return min(1.0, len(targets) * self._mechanism.largest_probability() * ROUNDING)
        if self.exact:
            return min(1.0, sum(self._distribution(word).get(target, 0.0) for target in targets) * ROUNDING)
        if word not in self._samples:
            count = PAD_SAMPLES if word == PAD else SAMPLES
            draws = sample_many(self._mechanism, word, count) if isinstance(self._mechanism, WordMechanism) else ()
            self._samples[word] = Counter(draws)
        samples = self._samples[word]
        hits = sum(samples[target] for target in targets - {word})
        itself = self.survival(word, alarm / 2) if word in targets else 0.0
        return min(1.0, itself + upper_bound(hits, samples.total(), alarm / 2))

    def _distribution(self, word: str) -> dict[str, float]:
        if word not in self._distributions:
            distribution = zip(*self._mechanism.transition(word), strict=True)
            self._distributions[word] = {
                output: round_up(chance) for output, chance in distribution if output in self._words
            }
        return self._distributions[word]
