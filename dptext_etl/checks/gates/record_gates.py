"""Gates of records: each id once, every cell charged and committed, and no draws shared by different records.

`rows_ledgered` compares bytes with the first commit. The committed positions also say whether a cell may be null and,
where the length is disclosed, how many words it has. `one_text_per_record` also finds rows that agree with the commit
and are there twice, and rows of another text whose id the ledger never had to look up.

`duplicates_within_chance` looks in two ways, both without a real text: at paired canaries, which are rows of equal
text, and at long common prefixes of any two released texts. Short equal texts of real records prove nothing, since
their originals may be equal.

Draws are functions of the record id and the text (docs/spec/stream.md#record-key), so equal texts of two records are
drawn independently: word i of both releases is the same with probability c_i = sum over y of P(y | word i)^2. A defect
that joins the draws of records shows as more agreement: one seed for all workers, a generator that every shard starts
anew, samples that are kept for equal texts or words, a key without the record id.

Whatever two texts say, k given draws of one agree with k of the other with probability at most p^k; p bounds every
probability of the output distribution (`word_chance`). Take R rows, and k such that R (R - 1) / 2 * p^k is below
the false-alarm bound. Then a single pair of equal prefixes of k words is a defect, and neither the raw texts nor how
often they repeat matter. k follows from the number of rows and the configuration only.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from operator import eq
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.accounting.shuffling import shuffled_of
from dptext_etl.arrays import to_numpy
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.comparison import (
    ANY,
    BYTES,
    CELL,
    ROW,
    Bounds,
    ByteRows,
    LedgerComparison,
    Mismatches,
    Repeats,
    compared_columns,
    long_strings,
    short_digests,
    shortened,
    too_many,
)
from dptext_etl.checks.gate import Candidate, Gate, Stage, with_id
from dptext_etl.checks.gates.canary_gates import InVocabularyGate
from dptext_etl.checks.text_counts import (
    FALSE_ALARM,
    Trials,
    drawn_and_released,
    known_words,
    least_suspicious,
    powerless,
    upper_bound,
    word_chance,
    word_columns,
)
from dptext_etl.checks.verdict import Verdict
from dptext_etl.column import output_digests
from dptext_etl.errors import GateError, PolicyError, counted
from dptext_etl.families.words import Simulated, WordByWord, by_word
from dptext_etl.guarantee import Disclosure
from dptext_etl.keys import canonical_ids, canonical_series
from dptext_etl.mechanism import Mechanism


class OneTextPerRecord(Gate):
    """Counts record ids that are in more than one row: 16 bytes per row for the id and for each text are compared."""

    catches = (
        "Two releases of one record side by side: the files of a retried or speculative task next to files of the "
        "first attempt, a backfill appended to the rows that it replaces, a join that multiplies rows. Two draws of a "
        "text average out its noise."
    )
    stages = frozenset(Stage)
    reads = ("id",)
    order = 90

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._texts, self._digests = [item.name for item in self.policy.columns], candidate.digests
        # digests of the record id and of each text
        self.state = {"records": Repeats(BYTES * (1 + len(self._texts)), candidate.scratch)}

    def rows(self, batch: pl.DataFrame) -> None:
        """Take the digests of a batch; `rows_ledgered` judges rows without an id."""
        if self.policy.id not in batch.columns:
            return
        rows = with_id(batch, self.policy.id)
        if rows.height:
            columns = [short_digests(canonical_series(rows[self.policy.id]))]
            for name in self._texts:
                is_text = rows.schema.get(name) == pl.String  # else the column is missing or holds no strings
                nothing = np.zeros((rows.height, BYTES), np.uint8)
                columns.append(shortened(self._digests.of(rows, name)) if is_text else nothing)
            self.state["records"].add(np.hstack(columns))

    def verdict(self) -> Verdict:
        rows, records, distinct, _ = self.state["records"].counts()
        repeated, conflicting = rows - records, distinct - records
        counts = {"rows": rows, "repeated": repeated, "conflicting": conflicting}
        message = f"all {rows:,} rows are of different records"
        if repeated:
            message = f"of {rows:,} rows {repeated:,} repeat a record id, {conflicting:,} of them with another text"
        return self.outcome(counts, message, passed=not repeated)


class RowsLedgered(Gate):
    """Looks up every row by (release, record id), and compares the digest of its bytes with the committed one."""

    catches = (
        "Text that no one paid for: rows that skipped the ledger, a second draw of a record by a retry or another "
        "machine, bytes edited after the commit, texts moved to other rows, raw text in the released column's place; "
        "cells that are null, empty, cut or longer because of the raw text; kept columns that hold raw texts, found by "
        "the identities of the records; and published rows of people who were forgotten."
    )
    stages = frozenset(Stage)
    order = 80
    problems = ("uncommitted", "different", "misshapen", "unregistered_columns", "copied_columns")
    reads = ("id", CANARY)
    reads_ledger = True

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        if candidate.ledger is None:
            raise GateError("the ledger is not open, so no row can be looked up")
        policy, ledger, refs = candidate.policy, candidate.ledger, candidate.refs
        published = candidate.stage is Stage.PUBLISHED
        self._forgetting = ledger if published and ledger.people.forgets(policy.dataset) else None
        self._columns = [item.name for item in policy.columns]
        self._policies = {item.column or "": item for item in policy.column_policies()}
        # by text column, and by the chain of post-processing that made its cells; None for released texts
        self._comparisons = {
            (name, chain): LedgerComparison(ledger.lookup(refs[name], chain), candidate.scratch)
            for name in self._columns
            for chain in {None, self._policies[name].chain}
            if name in refs
        }
        self._digests = candidate.digests
        self._kept = {
            (kept, text): LedgerComparison(ledger.lookup(refs[text], identities=True), candidate.scratch)
            for kept in ((policy.id, *policy.kept_columns) if not policy.one_table else ())
            for text in self._columns
            if text in refs
        }
        self._unregistered = sum(name not in refs for name in self._columns)
        self.state = {"cells": 0, "uncommitted": 0, "different": 0, "forgotten": 0}
        self.state |= {f"{name}/{chain or ''}": cells for (name, chain), cells in self._comparisons.items()}
        self.state |= {f"{kept} of {text}": cells for (kept, text), cells in self._kept.items()}
        self.state["long"] = Counter[tuple[str, str]]()

    def rows(self, batch: pl.DataFrame) -> None:
        """Take a batch of rows; marked canary rows are looked up as such."""
        self._take(batch, {(name, None): name for name in self._columns})
        self._compare_kept(batch)

    def rewritten_rows(self, batch: pl.DataFrame) -> None:
        """Read a batch of rows after post-processing: rewritten texts, and released ones next to them."""
        columns = {(name, self._policies[name].chain): name for name in self._columns}
        columns |= {(item.name, None): item.intermediate for item in self.policy.columns if item.intermediate}
        self._take(batch, columns)
        if self.candidate.stage is Stage.PUBLISHED:  # these rows come once
            self._compare_kept(batch)

    def _take(self, batch: pl.DataFrame, columns: Mapping[tuple[str, str | None], str]) -> None:
        if self.policy.id not in batch.columns:
            self.state["cells"] += batch.height
            self.state["uncommitted"] += batch.height
            return
        rows, marked = with_id(batch, self.policy.id), CANARY in batch.columns
        if self._forgetting is not None:
            ids = canonical_ids(rows[self.policy.id].to_arrow())
            self.state["forgotten"] += int(self._forgetting.people.forgotten(self.policy.dataset, ids).sum())
        for (text, chain), name in columns.items():
            if (text, chain) not in self._comparisons or name not in batch.columns:
                continue
            self.state["cells"] += batch.height
            self.state["uncommitted"] += batch.height - rows.height
            if rows.schema[name] != pl.String:
                self.state["different"] += rows.height
            elif rows.height:
                ids, column = canonical_ids(rows[self.policy.id].to_arrow()), self._policies[text]
                canary = rows[CANARY].fill_null(value=False).to_numpy() if marked else np.zeros(rows.height, np.bool_)
                bounds = positions_of(None if chain else column.mechanism, rows[name].alias("text"))
                plain = shuffled_of(column.mechanism) is None
                digests = self._digests.of(rows, name) if plain else output_digests(column, ids, rows[name])
                self._comparisons[text, chain].add(ids, digests, canary, bounds)

    def _compare_kept(self, batch: pl.DataFrame) -> None:
        """Compare strings that are published unchanged with the identities of the raw texts of their rows."""
        rows = with_id(batch, self.policy.id) if self.policy.id in batch.columns else batch.clear()
        for kept in compared_columns(self.policy, rows.schema):
            strings = [cells for cells in long_strings(rows[kept]) if cells.height]
            if not strings:
                continue
            cells = pl.concat(strings).unique(maintain_order=True)
            ids = canonical_ids(rows[self.policy.id].alias("id").gather(cells[ROW]).to_arrow())
            bounds = np.full((cells.height, 2), (0, ANY), np.uint32)
            for text in self._columns:
                if (comparison := self._kept.get((kept, text))) is not None:
                    column = self._policies[text]
                    keys = pa.array(_kernel.idem_keys(column.release_key(), ids, cells[CELL].to_arrow(), column.nonce))
                    comparison.add(ids, keys, np.zeros(cells.height, np.bool_), bounds)
                    self.state["long"][kept, text] += cells.height

    def verdict(self) -> Verdict:
        cells, forgotten = self.state["cells"], self.state["forgotten"]
        copied = set[str]()  # kept columns that hold raw texts
        for (kept, text), comparison in self._kept.items():
            long, other = self.state["long"][kept, text], comparison.counts()
            if too_many(long, long - other.uncommitted - other.different):
                copied.add(kept)
        problems = Mismatches(self.state["uncommitted"], self.state["different"])
        for comparison in self._comparisons.values():
            problems = problems.plus(comparison.counts())
        counts = {"cells": cells, **problems._asdict(), "unregistered_columns": self._unregistered}
        counts |= {"forgotten": forgotten} if forgotten else {}
        counts["copied_columns"] = len(copied)
        passed = not (any(problems) or self._unregistered or forgotten or copied)
        message = f"all {cells:,} cells are committed with these bytes"
        if not passed:
            message = f"of {cells:,} cells {problems.uncommitted:,} have no commit, "
            message += f"{problems.different:,} hold other bytes"
        if problems.misshapen:
            message += f", {problems.misshapen:,} are null or of a length that their committed positions rule out"
        if forgotten:
            message += f"; {counted(forgotten, 'row is', 'rows are')} of people or records that were forgotten"
        if copied:
            message += f"; kept columns hold raw texts of their rows: {', '.join(map(repr, sorted(copied)))}"
        if self._unregistered:
            message += f"; {counted(self._unregistered, 'column has', 'columns have')} no registered release"
        return self.outcome(counts, message, passed=passed)


def positions_of(mechanism: Mechanism | None, texts: pl.Series) -> Bounds:
    """Return the least and the largest number of positions that released texts may have, shape (texts, 2).

    A null has none, and every other text has some, unless it is empty (docs/spec/privacy.md#input-policy). Where word i
    is released for word i and the length is disclosed, positions are words; words that are kept unchanged have none.
    """
    words = np.zeros(len(texts), np.uint32)
    bounds = np.full((len(texts), 2), (0, ANY), np.uint32)
    if mechanism is not None and mechanism.mode == "strict":
        words = to_numpy(pa.array(_kernel.spaced_words(texts)))
        bounds[:, 0] = words > 0
    words_of = None if mechanism is None else by_word(mechanism)
    if words_of is not None and words_of.mode == "strict":  # faithful mode keeps more
        keeps = words_of.word_disclosures & {Disclosure.STOPWORDS, Disclosure.SENS_CLASS}
        if words_of.length != "disclose":
            bounds[:, 0] = words
        else:
            bounds[:, 0], bounds[:, 1] = 0 if keeps else words, words
    if texts.null_count():
        bounds[texts.is_null().to_numpy()] = 0
    return bounds


PAIRS = 1_024
"""Pairs of draws behind the simulated agreement of one text."""

Words = tuple[str, ...]
Chances = dict[int, tuple[float, ...]]
Trial = tuple[float, bool]
"""The chance that two words agree, and whether they do."""


class DuplicatesWithinChance(InVocabularyGate):
    """Counts agreements that independent draws do not make."""

    catches = (
        "Draws that records share: one seed for every row, shard or worker, a generator copied into forked processes, "
        "samples kept for equal texts or equal words, duplicates dropped before the mechanism and joined back after, a "
        "key without the record id."
    )
    order = 60

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._columns = word_columns(self.policy)
        self._alarm = FALSE_ALARM / 2 / max(1, len(self._columns))
        # words per prefix; None where no number is enough
        self._words = {
            name: prefix_words(mechanism, candidate.rows, self._alarm) for name, mechanism in self._columns.items()
        }
        self.state |= {f"prefixes of {name}": Repeats(folder=candidate.scratch) for name in self._columns}

    def rows(self, batch: pl.DataFrame) -> None:
        super().rows(batch)
        for name, words in self._words.items():
            if words is not None and batch.schema.get(name) == pl.String:
                self.state[f"prefixes of {name}"].add(prefix_digests(batch[name], words))

    def verdict(self) -> Verdict:
        """Pass if no comparison of canary rows is suspicious and no long prefix is shared."""
        counts: dict[str, int | float] = {"rows": len(self.state["released"]), "compared": 0, "equal": 0, "prefixes": 0}
        counts |= {"equal_prefixes": 0, "suspicious": 0}
        without_power = []
        for name, mechanism in self._columns.items():
            pairs, power = PairedCanaries(mechanism), False
            for (shard, half, row), text in self.releases(name):
                pairs.feed((row.pair or 0, shard, half), row.words[name], text)
            for comparison in pairs.comparisons(self._alarm):
                counts["compared"] += comparison.compared
                counts["equal"] += comparison.equal
                counts["suspicious"] += comparison.beyond_chance
                power |= comparison.limit <= comparison.compared
            prefixes = self.state[f"prefixes of {name}"].counts()
            counts["prefixes"] += prefixes.rows
            counts["equal_prefixes"] += prefixes.shared
            counts["suspicious"] += prefixes.shared > 0
            if (words := self._words[name]) is not None:
                counts[f"prefix words {name}"] = words
            if not (power or prefixes.rows > 1):
                without_power.append(name)
        counts["false_alarm"] = FALSE_ALARM
        passed = not counts["suspicious"]
        message = f"{counts['equal']:,} of {counts['compared']:,} pairs agree among canary rows of equal text, "
        message += f"{counts['equal_prefixes']:,} of {counts['prefixes']:,} long beginnings are shared, "
        message += f"{'within' if passed else 'beyond'} chance{powerless(without_power)}"
        if not self._columns:
            message = "not applicable: no column replaces words one by one"
        return self.outcome(counts, message, passed=passed, applicable=bool(self._columns))


def prefix_digests(texts: pl.Series, words: int) -> ByteRows:
    """Return the digests of the first words of the texts that have this number of words, shape (texts, 16)."""
    return shortened(_kernel.prefix_digests(texts, words))


def prefix_words(mechanism: WordByWord, rows: int, alarm: float) -> int | None:
    """Return how many words two prefixes need so that chance does not make them equal."""
    largest = word_chance(mechanism)
    if largest >= 1:
        return None
    pairs = max(1, math.comb(rows, 2))
    words = max(1, math.ceil((math.log(alarm) - math.log(pairs)) / math.log(largest) * (1 + 1e-12)))
    return words if words <= mechanism.n_max else None


class PairComparison(NamedTuple):
    """Holds the outcome of one way to compare paired canaries."""

    name: str  # of the comparison
    compared: int  # pairs of words, or of rows
    equal: int  # how many of them agree
    limit: int  # the least number that a correct run reaches with probability at most its share of the false alarms

    @property
    def beyond_chance(self) -> bool:
        return self.equal >= self.limit


class PairedCanaries:
    """Compares the paired canaries of one column; a column that hides the length of its texts has none."""

    def __init__(self, mechanism: WordByWord) -> None:
        self._mechanism = mechanism
        self._vocabulary = known_words(mechanism)
        self._texts: dict[int, Words] = {}
        self._rows: dict[int, dict[tuple[int, int], Words]] = defaultdict(dict)  # by text, then by shard and half

    def feed(self, place: tuple[int, int, int], words: Words, text: Any) -> None:
        """Take the release of a canary row: number of its text, shard, and 0 or 1 for the first or second row."""
        if self._mechanism.length != "disclose":
            return
        pair, shard, half = place
        words, outputs = drawn_and_released(self._mechanism, self._vocabulary, words, text)
        if words and len(outputs) == len(words):
            self._texts[pair] = words
            self._rows[pair][shard, half] = outputs

    def comparisons(self, alarm: float) -> list[PairComparison]:
        """Compare in four ways: inside a shard, across shards, inside a row, and whole rows."""
        if not self._texts:
            return []
        chances, repeated, left = self._chances(alarm)
        within, across, twice = list[Trial](), list[Trial](), list[Trial]()
        pairs = equal = 0
        expected = 0.0
        for pair, rows in self._rows.items():
            front = [rows[place] for place in sorted(rows) if place[1] == 0]
            both = [(rows[shard, 0], rows[shard, 1]) for shard, half in rows if half == 0 and (shard, 1) in rows]
            for first, other in both:
                within += zip(chances[pair], map(eq, first, other), strict=True)
            for first, other in zip(front[::2], front[1::2], strict=False):  # a row is in one pair at most
                across += zip(chances[pair], map(eq, first, other), strict=True)
            for outputs in rows.values():  # "same word, same replacement" inside a record
                same = (outputs[place] == outputs[other] for place, other in _repeats(self._texts[pair]))
                twice += zip(repeated[pair], same, strict=True)
            count = math.comb(len(rows), 2)
            pairs += count
            expected += count * math.prod(chances[pair]) * (1 + 1e-9)
            equal += sum(math.comb(times, 2) for times in Counter(rows.values()).values())
        share = left / 4
        return [
            _compared("pairs of a shard", within, share),
            _compared("pairs of two shards", across, share),
            _compared("a word twice in a row", twice, share),
            # rows that agree in every word, wherever they are; Markov: P[X >= t] <= E[X] / t
            PairComparison("rows of one text", pairs, equal, max(1, math.ceil(expected / share))),
        ]

    def _chances(self, alarm: float) -> tuple[Chances, Chances, float]:
        """Bound the chance that words agree.

        Where no fractions express the output distribution, half of `alarm` goes to simulations: of every text as a
        whole, and of the words that it has twice, which may agree oftener than the others. The mean of the words
        that were simulated together stands for each of them: among Bernoulli trials of one mean, equal chances have the
        heaviest tail (Hoeffding 1956) and the largest product.
        """
        repeats = {pair: tuple(text[place] for place, _ in _repeats(text)) for pair, text in self._texts.items()}
        exact, left = dict[str, float](), alarm
        try:
            words = {word for text in self._texts.values() for word in text}
            exact = {word: self._mechanism.collision(word) for word in words}
        except PolicyError:
            left = alarm / 2

        def chances(text: Words) -> tuple[float, ...]:
            if exact or not text:
                return tuple(exact[word] for word in text)
            pairs, mean = -(-PAIRS // len(text)) * len(text), 1.0
            if isinstance(self._mechanism, Simulated):
                hits = self._mechanism.simulated_collisions(text, pairs)
                mean = upper_bound(hits, pairs, alarm / 4 / len(self._texts))
            return (mean,) * len(text)

        whole, twice = ({pair: chances(text) for pair, text in texts.items()} for texts in (self._texts, repeats))
        return whole, twice, left


def _repeats(words: Words) -> list[tuple[int, int]]:
    """Places of equal words, in pairs; every place is in one pair at most."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[word].append(place)
    return [pair for of_word in places.values() for pair in zip(of_word[::2], of_word[1::2], strict=False)]


def _compared(name: str, pairs: list[Trial], alarm: float) -> PairComparison:
    trials: Trials = Counter(chance for chance, _ in pairs)
    equal = sum(agree for _, agree in pairs)
    mean = sum(chance * times for chance, times in trials.items())
    return PairComparison(name, trials.total(), equal, max(least_suspicious(trials, alarm), math.ceil(mean) + 1))
