"""Gates of texts: copies, words outside the output set, and public texts outside the corpus or drawn too often.

They judge only where the policy sets `copy_gate_false_alarm` and pays for it (docs/spec/privacy.md#copy-gate).

`texts_in_corpus` requires that a released text consists of public texts of its mechanism's corpus, and
`repeats_within_chance` that no public text is drawn more often than independent draws allow.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl import _kernel
from dptext_etl.accounting.shuffling import COUNT
from dptext_etl.checks.gate import Candidate, Gate, Stage, choice_columns
from dptext_etl.checks.text_counts import (
    CATCHES,
    COPIES,
    FALSE_ALARM,
    NGRAMS,
    copy_reports,
    least_suspicious,
    powerless,
    round_up,
)
from dptext_etl.checks.verdict import Verdict
from dptext_etl.errors import InputError
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.families.choice import ChoiceMechanism


class _CopyGate(Gate):
    """Compares counts of the whole run with their bounds, one verdict per text column."""

    stages = frozenset({Stage.STAGED})

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.copy_gate_false_alarm is None else super().columns(policy)


class CopiesWithinChance(_CopyGate):
    """Judges how many texts of a column equal their originals."""

    catches = CATCHES[COPIES]
    order = 110

    def verdict(self) -> tuple[Verdict, ...]:
        reports = copy_reports(self.policy, self.candidate.copies)
        unbounded = {item.name for item in self.policy.columns} - {item.column for item in reports}
        if unbounded:
            msg = f"copy_gate_false_alarm is set, but {len(unbounded)} columns have no copy count or no bound"
            hint = "count while staging (`count_copies`), or leave copy_gate_false_alarm out"
            raise InputError(msg, hint)
        return tuple(report.gate() for report in reports)


class NgramsWithinChance(_CopyGate):
    """Judges how many texts of a column share an n-gram with their originals."""

    catches = CATCHES[NGRAMS]
    order = 120

    def verdict(self) -> tuple[Verdict, ...]:
        return tuple(report.gate() for report in copy_reports(self.policy, self.candidate.copies, ngrams=True))


class WordsInOutputSet(Gate):
    """Compares every word of every released text with the mechanism's public output words.

    A single U+0020 separates words. An empty text has none. A doubled or leading blank makes an empty word, which is
    outside. A mechanism that draws words but has no fixed output words passes only if it is faithful; a faithful one is
    never published. A mechanism that spells or decodes texts can write any word, so nothing is compared.
    """

    catches = (
        "Words that no draw could have made: unchanged unknown words and numbers, copied case or punctuation, an "
        "original after a failure, markers such as a mask or padding, a second column's text appended."
    )
    stages = frozenset(Stage)
    order = 70
    problems = ("outside", "without_set")

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._sets: dict[str, _kernel.WordSet] = {}  # the output words of columns that have fixed ones
        self._unknown: list[str] = []  # publishable columns of drawn words that have none
        self._open: list[str] = []  # the other columns, to which the gate does not apply
        for item in self.policy.column_policies():
            name, known = item.column or "", candidate.outputs
            words = item.mechanism.output_words() if known is None else known[name]
            if words is not None:
                self._sets[name] = _kernel.WordSet(list(words))
            elif item.mechanism.mode == "strict" and item.mechanism.guarantee.unit == "word":
                self._unknown.append(name)
            else:
                self._open.append(name)
        self.state = {"rows": 0, "words": 0, "outside": 0}

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height
        for name, allowed in self._sets.items():
            if name in batch.columns:
                cells = batch[name].alias("text")
                words = outside = cells.len() - cells.null_count()  # each cell without a string is a word outside
                if cells.dtype == pl.String:
                    words, outside = allowed.outside(cells)
                self.state["words"] += words
                self.state["outside"] += outside

    def verdict(self) -> Verdict:
        counts = {**self.state, "columns": len(self._sets), "without_set": len(self._unknown)}
        words, outside = self.state["words"], self.state["outside"]
        message = f"all {words:,} words are in the output set" if words else "no words to check"
        if outside:
            message = f"{outside:,} of {words:,} words are outside the output set"
        if self._unknown:
            message += f"; not known to be fixed for the publishable columns {', '.join(map(repr, self._unknown))}"
        if self._open:
            message += f"; not applicable, as no words are fixed: {', '.join(map(repr, self._open))}"
        applicable = bool(self._sets or self._unknown)
        return self.outcome(counts, message, passed=not (outside or self._unknown), applicable=applicable)


class TextsInCorpus(Gate):
    """Compares every released text with the texts of the corpus, of as many draws as the mechanism makes.

    For mechanisms that draw whole texts it replaces `words_in_output_set`: a list of words would let
    pass any text that is made of the corpus' words.
    """

    catches = (
        "Texts that no draw could have made: an original after a failure, a text of another corpus, a part that was "
        "excluded or cut, anything appended to a public text."
    )
    stages = frozenset(Stage)
    problems = ("outside",)
    order = 71

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._public, self._corpora = pl.Series(dtype=pl.String), dict[str, CorpusTexts]()
        if self.policy.synthetic is not None:
            self._public = pl.Series(self.policy.pool.texts)
        else:
            self._corpora = {name: CorpusTexts(mechanism) for name, mechanism in choice_columns(self.policy).items()}
        self.state = {"rows": 0, "texts": 0, "outside": 0}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return () if policy.synthetic is not None or choice_columns(policy) else None

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height
        if self.policy.synthetic is not None:
            self.state["texts"] += batch.height
            name = self.policy.synthetic.column
            texts = batch[name].alias("text") if name in batch.columns else pl.Series(dtype=pl.Null)
            public = int(texts.is_in(self._public.implode()).sum()) if texts.dtype == pl.String else 0
            self.state["outside"] += batch.height - public
        for name, corpus in self._corpora.items():
            if name in batch.columns:
                self.state["texts"] += batch.height
                self.state["outside"] += corpus.find(batch[name].alias("text"))[1]

    def verdict(self) -> Verdict:
        texts, outside = self.state["texts"], self.state["outside"]
        message = f"all {texts:,} texts are made of public texts"
        if outside:
            message = f"{outside:,} of {texts:,} texts are not made of public texts of the corpus"
        return self.outcome({**self.state, "columns": len(self._corpora) or 1}, message, passed=not outside)


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
    order = 61

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._mechanisms = choice_columns(self.policy)
        self._corpora = {name: CorpusTexts(mechanism) for name, mechanism in self._mechanisms.items()}
        self.state = {"drawn": Counter[tuple[str, int]](), "draws": Counter[str]()}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return () if choice_columns(policy) else None

    def rows(self, batch: pl.DataFrame) -> None:
        drawn, draws = self.state["drawn"], self.state["draws"]
        for name, corpus in self._corpora.items():
            shuffled = self.policy.shuffled
            in_counts = shuffled is not None and shuffled.form == "counts" and batch.schema.get(COUNT) == pl.Int64
            if name in batch.columns and in_counts:
                for number, often in corpus.counted(batch[name].alias("text"), batch[COUNT]).items():
                    drawn[name, number] += often
                draws[name] += int(batch[COUNT].sum())
            elif name in batch.columns:
                draws[name] += batch.height * self._mechanisms[name].most_positions
                drawn.update(
                    {(name, number): count for number, count in corpus.find(batch[name].alias("text"))[0].items()}
                )

    def verdict(self) -> Verdict:
        counts: dict[str, int | float] = {"draws": self.state["draws"].total(), "most": 0, "suspicious": 0}
        without_power = []
        for name, mechanism in self._mechanisms.items():
            draws = self.state["draws"][name]
            chance = round_up(mechanism.largest_probability())
            alarm = FALSE_ALARM / len(self._mechanisms) / mechanism.size
            limit = least_suspicious(Counter({chance: draws}), alarm) if draws else 1
            most = max((count for (column, _), count in self.state["drawn"].items() if column == name), default=0)
            counts["most"] = max(counts["most"], most)
            counts["suspicious"] += most >= limit
            counts[f"allowed {name}"] = limit - 1
            if limit > draws:
                without_power.append(name)
        counts["false_alarm"] = FALSE_ALARM
        message = f"no public text was drawn more than {counts['most']:,} times in {counts['draws']:,} draws, "
        message += f"{'beyond' if counts['suspicious'] else 'within'} chance{powerless(without_power)}"
        return self.outcome(counts, message, passed=not counts["suspicious"])


class CorpusTexts:
    """Finds the texts of a corpus in released texts: one each, or several draws joined by single spaces."""

    def __init__(self, mechanism: ChoiceMechanism) -> None:
        self._draws = mechanism.most_positions
        self._nulls = mechanism.null_as_empty
        texts = pl.Series("cell", mechanism.opened.texts, dtype=pl.String)
        self._numbers = texts.to_frame().with_row_index("number")
        self._number_of = {text: number for number, text in enumerate(texts)} if self._draws > 1 else {}
        self._longest = max(map(len, self._number_of), default=0)

    def find(self, texts: pl.Series) -> tuple[Counter[int], int]:
        """Return how often each text of the corpus was drawn, by number, and how many texts no draws could have made.

        Released texts with two readings count for no draw. In a column that holds no strings every cell is outside.
        """
        outside = texts.null_count() if self._nulls else 0
        texts = texts.drop_nulls()
        if texts.dtype != pl.String:
            return Counter(), outside + len(texts)
        if self._draws == 1:
            numbers = texts.to_frame("cell").join(self._numbers, on="cell", how="left")["number"]
            drawn = Counter({row["number"]: row["count"] for row in numbers.drop_nulls().value_counts().to_dicts()})
            return drawn, outside + numbers.null_count()
        drawn = Counter()
        for text in texts:
            ways = self._ways(text)
            outside += not ways
            if len(ways) == 1:
                drawn.update(ways[0])
        return drawn, outside

    def counted(self, texts: pl.Series, counts: pl.Series) -> Counter[int]:
        """Return how often each text of the corpus was drawn, by number, where a count follows each text."""
        matches = pl.DataFrame({"cell": texts, "often": counts}).join(self._numbers, on="cell")
        return Counter(dict(matches.group_by("number").agg(pl.col("often").sum()).iter_rows()))

    def _ways(self, text: str) -> list[tuple[int, ...]]:
        """Return up to two ways in which a text is made of as many texts of the corpus as it has draws."""
        ends: dict[int, list[tuple[int, ...]]] = {0: [()]}
        for _ in range(self._draws):
            longer: dict[int, list[tuple[int, ...]]] = {}
            for start, ways in ends.items():
                end = start
                while end < len(text) and end - start <= self._longest:
                    end = text.find(" ", end + 1)
                    end = len(text) if end < 0 else end
                    if (number := self._number_of.get(text[start:end])) is not None:
                        longer_ways = longer.setdefault(end + 1, [])  # the next text begins behind the space
                        longer_ways += [(*way, number) for way in ways][: 2 - len(longer_ways)]
            ends = longer
        return ends.get(len(text) + 1, [])
