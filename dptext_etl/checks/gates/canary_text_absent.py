"""Gate `canary_text_absent` requires that no word of an out-of-vocabulary canary is in the release, in any writing.

The stored name says "foreign" for out-of-vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.checks.canaries.search import FORMS, Searcher
from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.staged_rows import canary_rows, other_rows
from dptext_etl.checks.verdict import Verdict
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import Policy

FALSE_ALARM = 1e-9
"""Bound of the probability that a correct run fails this gate."""


class CanaryTextAbsent(Gate):
    """Searches every cell and file for pseudo-words.

    A faithful mechanism keeps unknown words in clear, these included. In its own column they prove nothing, so they are
    searched everywhere else only. A mechanism that spells texts from pieces of words, or decodes them, may copy a
    canary's words by chance. Where that chance has no small bound, they prove nothing in canary rows of its column;
    they are searched in all other rows and everywhere else. A rewriter reads what was released, where they do not
    stand: so it writes one only by the chance that its own bound states.
    """

    catches = (
        "Raw text that got past the mechanism: unknown words or failed records passed through, a raw column that was "
        "renamed, copied, concatenated, reversed, split or encoded into another, text in a manifest, a log or a file's "
        "statistics."
    )
    stages = frozenset(Stage)
    seen = ("_hits", "_rows")
    order = 30
    needs_markers = False
    rewritten = True

    def __init__(self, policy: Policy, tokens: Mapping[str, Iterable[str]], planted: int = 0) -> None:
        super().__init__(policy)
        self._tokens = {column: frozenset(words) for column, words in tokens.items()}
        self._spelled, self._spelled_again = {}, {}
        for item in policy.column_policies():
            name, chance = item.column or "", _chance_of_foreign_words(item.mechanism)
            searched = planted * len(self._tokens.get(name, ()))
            if chance * searched > FALSE_ALARM:
                self._spelled[name] = self._all_but(name)
            if (chance + sum(step.foreign_word_chance() for step in item.postprocess)) * searched > FALSE_ALARM:
                self._spelled_again[name] = self._all_but(name)
        self._everything = Searcher(word for words in self._tokens.values() for word in words)
        self._in_clear = {
            item.column: self._all_but(item.column)
            for item in policy.column_policies()
            if item.column
            and Disclosure.OOV in item.mechanism.guarantee.disclosures
            and item.mechanism.mode != "strict"
        }
        self._hits = Counter(dict.fromkeys(FORMS, 0))
        self._rows = 0

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        """Search for the words that were planted, or that follow from the key of a published table."""
        planted = sum(len(plan.ids("out_of_vocabulary")) for plan in candidate.canaries)
        return (cls(candidate.policy, candidate.pseudo_words(), planted),)

    def _all_but(self, column: str) -> Searcher:
        return Searcher(word for other, words in self._tokens.items() if other != column for word in words)

    def feed(self, batch: pl.DataFrame) -> None:
        """Search a batch of rows."""
        self._rows += batch.height
        self._look(batch, self._spelled)

    def feed_rewritten(self, batch: pl.DataFrame) -> None:
        """Search a batch of rows after post-processing, and what is kept next to it as what it is: released."""
        self._rows += batch.height
        kept = {str(item.intermediate): item.name for item in self.policy.columns if item.intermediate in batch.columns}
        self._look(batch.drop(kept), self._spelled_again)
        if kept:
            marks = [name for name in (CANARY,) if name in batch.columns]
            self._look(batch.select(*kept, *marks).rename(kept), self._spelled)

    def _look(self, batch: pl.DataFrame, spelled_by: Mapping[str, Searcher]) -> None:
        clear = [name for name in self._in_clear if name in batch.columns]
        spelled = [name for name in spelled_by if name in batch.columns and CANARY in batch.columns]
        self._count(self._everything, batch[[name for name in batch.columns if name not in {*clear, *spelled}]])
        for name in clear:
            self._count(self._in_clear[name], batch[[name]])
        for name in spelled:
            self._count(spelled_by[name], canary_rows(batch)[[name]])
            self._count(self._everything, other_rows(batch)[[name]])

    def search(self, artefact: Path | bytes) -> None:
        """Search a file or a folder."""
        self._count(self._everything, artefact)

    def _count(self, searcher: Searcher, anything: Path | bytes | pl.DataFrame) -> None:
        for form, count in searcher.find(anything).items():
            self._hits[form] += count

    def verdict(self) -> Verdict:
        """Pass if there were words to search for, and none was found."""
        total = sum(self._hits.values())
        counts = {"rows": self._rows, "words": sum(map(len, self._tokens.values())), "hits": total, **self._hits}
        if total:
            said = "canary words survived: " + ", ".join(
                f"{count} {form}" for form, count in self._hits.items() if count
            )
        else:
            said = f"none of {counts['words']} canary words survived"
        if self._in_clear:
            said += f"; {len(self._in_clear)} columns keep unknown words in clear and were not searched for their own"
        if self._spelled_again:
            said += f"; {len(self._spelled_again)} columns may spell them by chance: their canary rows prove nothing"
        return self.outcome(counts, said, passed=not total and counts["words"] > 0)


def _chance_of_foreign_words(mechanism: Mechanism) -> float:
    """Bound the probability that a release holds one given out-of-vocabulary word of 20 letters; 1 means no bound.

    It is 0 if outputs are words of a fixed set, or public texts. A mechanism that spells texts from pieces of words, or
    decodes them, may copy such a word from its input by chance.
    """
    fixed = mechanism.guarantee.unit == "word" or isinstance(mechanism, ChoiceMechanism)
    return 0.0 if fixed or mechanism.output_words() is not None else 1.0
