"""Gates of tables: the columns, files, rows, and labels that the policy and the manifest state, and public texts.

Gates of copies judge only where the policy sets `copy_gate_false_alarm` and pays for it
(docs/spec/privacy.md#copy-gate). The others compare texts with public words and texts, and with chance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from dptext_etl import _kernel
from dptext_etl.accounting.shuffling import COUNT, OTHER
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.gate import Candidate, Gate, Stage, choice_columns, declared_lineage
from dptext_etl.checks.published import changed, published_types
from dptext_etl.checks.sink_files import Part, place_of
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
from dptext_etl.data_types import carries
from dptext_etl.errors import GateError, InputError, counted
from dptext_etl.files import sha256
from dptext_etl.policy import PARTITION, Policy

if TYPE_CHECKING:
    from dptext_etl.families.choice import ChoiceMechanism


class RawColumnAbsent(Gate):
    """Compares names and types with the policy.

    Names that the policy does not know are counted, not quoted: a pivot can turn raw text into column names.
    """

    catches = (
        "A raw text column, or one derived from it, that travels along under its own or another name, as a forgotten "
        "`drop` or a `select *` after a join leaves it."
    )
    stages = frozenset(Stage)
    order = 20
    problems = ("missing", "unknown", "mistyped")

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        policy, marked = self.policy, candidate.stage is Stage.STAGED
        self._texts = [name for item in policy.columns for name in (item.name, item.intermediate) if name is not None]
        self._later = any(item.postprocess for item in policy.columns)
        self._expected = {*(edge.output for edge in declared_lineage(policy)), *([CANARY] if marked else [])}
        if policy.shuffled is not None and not marked:
            self._expected = {*policy.shuffled.columns(policy.columns[0].name)}
        if policy.synthetic is not None:
            self._texts, self._expected = [*policy.synthetic.columns], {*policy.synthetic.published_columns}
        self._types = None if marked else published_types(policy, candidate.manifest)
        self.state: dict[str, Any] = {"schemas": {}}  # the columns and types of parts, each once, in order

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:  # noqa: ARG003  (synthetic tables, too)
        return ()

    def rows(self, batch: pl.DataFrame) -> None:
        """Take the columns of a batch, unless post-processing makes others of them."""
        if not self._later:
            self.rewritten_rows(batch)

    def rewritten_rows(self, batch: pl.DataFrame) -> None:
        self.state["schemas"].setdefault(tuple(batch.schema.items()))

    def verdict(self) -> Verdict:
        schemas = [dict(items) for items in self.state["schemas"]]
        missing = {name for schema in schemas for name in self._expected - set(schema)}
        unknown = {name for schema in schemas for name in set(schema) - self._expected}
        mistyped = set[str]()  # no strings where they should be, or of another type than in the first part
        for schema in schemas:
            mistyped |= {name for name in self._texts if schema.get(name, pl.String()) != pl.String}
            if schema.get(CANARY, pl.Boolean()) != pl.Boolean:
                mistyped.add(CANARY)
            if self.policy.shuffled is not None and not schema.get(COUNT, pl.Int64()).is_integer():
                mistyped.add(COUNT)
            if self._types is not None:
                mistyped |= changed(schema, self.policy, self._types)
            both = self._expected & set(schema) & set(schemas[0])
            mistyped |= {name for name in both if schema[name] != schemas[0][name]}
        wrong = {"missing": len(missing), "unknown": len(unknown), "mistyped": len(mistyped)}
        counts = {"columns": len(self._expected), **wrong}
        problems = []
        if missing:
            problems.append(f"missing: {', '.join(map(repr, sorted(missing)))}")
        if unknown:
            unknown_columns = counted(len(unknown), "column")
            problems.append(f"{unknown_columns} that the policy does not publish (names not repeated here)")
        if mistyped:
            problems.append(f"of another type than expected: {', '.join(map(repr, sorted(mistyped)))}")
        if not schemas:
            problems.append("there are no parts")
        message = "; ".join(problems) or f"{counted(counts['columns'], 'column')}, as the policy says"
        return self.outcome(counts, message, passed=not problems)


_NAME = re.compile(r"(?:(?P<partition>.+)/)?v(?P<number>\d+)-[0-9a-f]+")
"""How publications are named in the ledger (`runner.publish.publication`)."""


class PublishedFiles(Gate):
    """Compares the files of a folder with its manifest, and the manifest with the policy and the ledger."""

    catches = (
        "Published files that were edited, cut, swapped or added after their gates, or that belong to another release; "
        "a manifest that was written again to fit them, or to claim less; a shuffled release of people who were "
        "forgotten."
    )
    stages = frozenset({Stage.PUBLISHED})
    order = 10

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:  # noqa: ARG003  (synthetic tables, too)
        return ()

    def verdict(self) -> Verdict | tuple[Verdict, ...]:
        """Judge folders only: a single file or a table has no manifest."""
        manifest, folder, ledger = self.candidate.manifest, self.candidate.sink, self.candidate.ledger
        if manifest is None or folder is None:
            return ()
        if ledger is None:
            raise GateError("the ledger is not open, so the manifest cannot be looked up")
        parts, policy = manifest.parts, self.policy
        refs, digest = self.candidate.refs.values(), manifest.digest
        sink = place_of(policy.sink.replace(PARTITION, manifest.partition or ""))
        as_written = self.candidate.texts == (manifest.text().encode(),)  # else it says the same in other bytes
        recorded = bool(refs) and all(digest in ledger.releases.published(ref, sink).values() for ref in refs)
        paths = [folder.of_part(part) for part in parts]
        listing = folder.listing(manifest)
        names = list(zip(paths, listing or paths, strict=True))  # each file, and what readers of the folder see of it
        listed = {path for pair in names for path in pair if path is not None}
        folders = {path.parent for path in listed}
        configured = {item.column: (item.mechanism.cfg(), item.chain) for item in policy.charged_columns()}
        stated = {column.get("name"): (column.get("cfg"), column.get("chain")) for column in manifest.columns}
        counts = {
            "files": len(paths),
            "missing": sum(not all(path and path.is_file() for path in pair) for pair in names),
            "changed": _changed(names, parts),
            "shown_otherwise": 0 if folder.listed is None else len(folder.listed ^ {part.path for part in parts}),
            "changed_classifier": int(not manifest.holds_classifier(folder)),
            "unlisted": sum(item not in listed for path in folders if path.is_dir() for item in path.iterdir()),
            "other_release": int((manifest.dataset, manifest.release) != (policy.dataset, policy.release)),
            "other_configuration": len(set(configured.items()) ^ set(stated.items())),
            "unrecorded_manifest": int(not (recorded and as_written)),
            "retired_manifest": int(any(digest in ledger.releases.retired(ref, sink) for ref in refs)),
            "types_with_names_or_categories": sum(map(carries, manifest.schema.values())),
        }
        if policy.shuffled is not None and manifest.rows:  # it holds no ids, and is one table
            counts["forgotten"] = max((ledger.people.count_forgotten(ref) for ref in refs), default=0)
        wrong = {name: count for name, count in counts.items() if count and name != "files"}
        message = f"all {len(paths):,} files are in the manifest, which the ledger recorded"
        # recorded versions of this partition with a higher number: an older one put back shows here
        versions = {version for ref in refs for version in ledger.releases.published(ref)}
        newer = 0
        for name in filter(None, map(_NAME.fullmatch, versions)):
            newer += name["partition"] == manifest.partition and int(name["number"]) > manifest.version
        counts["newer_recorded"] = newer
        if newer:
            message += f"; it knows {newer:,} newer versions, of this sink or another"
        if wrong:
            message = "; ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in wrong.items())
        return self.outcome(counts, message, passed=bool(paths) and not wrong)


def _changed(names: Sequence[tuple[Path | None, Path | None]], parts: Sequence[Part]) -> int:
    """Count files that hold other bytes under one of their names; two names of one file are read once."""
    changed = 0
    for pair, part in zip(names, parts, strict=True):
        there = [path for path in pair if path is not None and path.is_file()]
        once = there[:1] if len(there) == 2 and there[0].samefile(there[1]) else there
        changed += any(sha256(path) != part.sha256 for path in once)
    return changed


class RowCount(Gate):
    """Counts rows of synthetic tables: their number is public, and never the number of private records."""

    catches = "Rows that were added to a synthetic table, excluded, or drawn as often as there are private records."
    stages = frozenset(Stage)
    order = 15

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self.state = {"rows": 0}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.synthetic is None else ()

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height

    def verdict(self) -> Verdict:
        rows, wanted = self.state["rows"], self.policy.table_rows
        message = f"{counted(rows, 'row')}, of {wanted:,} that the policy says"
        return self.outcome({"rows": rows, "wanted": wanted}, message, passed=rows == wanted)


class LabelsInList(Gate):
    """Compares every label of a synthetic table or a shuffled release with the public list."""

    catches = "Labels of private records that the public list does not name, and rows without a label."
    stages = frozenset(Stage)
    order = 72
    problems = ("outside",)

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self.state = {"rows": 0, "outside": 0}
        self._names: tuple[str, ...] = ()
        self._listed: set[tuple[str | None, ...]] = set()
        if self.policy.synthetic is not None and self.policy.synthetic.labels is not None:
            self._names = self.policy.synthetic.labels.all_columns
            self._listed = {*self.policy.synthetic.labels.cells.values()}
        if self.policy.labels is not None:
            self._names = (self.policy.labels.column,)
            unpublished = (OTHER, None) if candidate.stage is Stage.STAGED else ()
            self._listed = {(value,) for value in (*self.policy.labels.values, *unpublished)}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.synthetic is None and policy.labels is None else ()

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height
        if any(batch.schema.get(name) != pl.String for name in self._names):
            self.state["outside"] += batch.height
        elif self._names:
            for *cell, often in batch.group_by(self._names).len().iter_rows():
                self.state["outside"] += often * (tuple(cell) not in self._listed)

    def verdict(self) -> Verdict:
        rows, outside = self.state["rows"], self.state["outside"]
        message = f"all {rows:,} rows have a listed label, or need none"
        if outside:
            message = f"{outside:,} of {rows:,} rows have a label that the policy does not list"
        return self.outcome(self.state, message, passed=not outside)


class CopiesWithinChance(Gate):
    """Judges how many texts of a column in the whole run equal their originals, one verdict per text column."""

    catches = CATCHES[COPIES]
    stages = frozenset({Stage.STAGED})
    order = 110
    ngrams = False

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.copy_gate_false_alarm is None else super().columns(policy)

    def verdict(self) -> tuple[Verdict, ...]:
        reports = copy_reports(self.policy, self.candidate.copies, ngrams=self.ngrams)
        unbounded = {item.name for item in self.policy.columns} - {item.column for item in reports}
        if unbounded and not self.ngrams:  # no n-gram may be long enough
            msg = f"copy_gate_false_alarm is set, but {len(unbounded)} columns have no copy count or no bound"
            hint = "count while staging (`count_copies`), or leave copy_gate_false_alarm out"
            raise InputError(msg, hint)
        return tuple(report.gate() for report in reports)


class NgramsWithinChance(CopiesWithinChance):
    """Judges how many texts of a column share an n-gram with their originals."""

    catches = CATCHES[NGRAMS]
    order = 120
    ngrams = True


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
                numbers, _ = corpus.find(batch[name].alias("text"))
                drawn.update({(name, number): count for number, count in numbers.items()})

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
