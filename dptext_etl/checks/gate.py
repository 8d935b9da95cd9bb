"""Describe a staged release, define the gates that judge it, and judge it by all of them.

Staged shards hold released rows, and canary rows with a mark, in one Parquet file per shard.

A gate is a class in a file of `checks/gates/`, or of another package. `every` finds it, as do the runner, `dptext
check`, Dagster, Great Expectations and the documentation. A `Verdict` is a positive record with counts, never a value,
an id or a quoted error.

Gates decide from released values, configuration, ledger presence and canary rows only. A decision that compares a real
text with its release is a disclosure without bound: it publishes y = t with probability 0 where the text is t, and
above 0 elsewhere (docs/spec/privacy.md#gates). No gate reads a raw text. A gate that uses `FALSE_ALARM` of
`text_counts` fails a correct run with at most that probability; the other gates never do. With
`policy.copy_gate_false_alarm` two whole-run counts of copies decide as well, at that false-alarm bound, which is
charged as delta.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import polars as pl
import pyarrow.parquet as pq

from dptext_etl import extensions
from dptext_etl.checks.canaries import CANARY, CanaryPlan, policy_tokens
from dptext_etl.checks.comparison import LedgerComparison, Repeats, TextDigests
from dptext_etl.checks.sink_files import LocalSink, Manifest
from dptext_etl.checks.text_counts import CopyCount
from dptext_etl.checks.verdict import Verdict, catches
from dptext_etl.data_types import by_name
from dptext_etl.device import threads
from dptext_etl.errors import GateError, PolicyError, seam
from dptext_etl.families.words import by_text
from dptext_etl.files import literal
from dptext_etl.parallel import prefetch, sharing_threads
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.families.choice import ChoiceMechanism
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.types import ReleaseRef


class Stage(StrEnum):
    """When a release is judged."""

    STAGED = "staged"
    """Before publication: the rows are in the staging folder, canary rows among them."""
    PUBLISHED = "published"
    """After publication: no canary rows, no staging, no raw data."""


@dataclass(frozen=True)
class Candidate:
    """A release, as gates see it.

    Attributes:
        policy: Its policy.
        parts: Staged Parquet files, with their marked canary rows; none where a published table is judged.
        canaries: The canary rows that were planted, one plan per shard; none after publication.
        ledger: The ledger, open; None where nothing is looked up.
        refs: Registered release of each text column.
        texts: Other files to search for canaries: the manifest or its draft, logs.
        copies: Copy counts of the whole run by text column; they decide only where the policy sets
            `copy_gate_false_alarm`.
        recomputed: Canary rows of the whole run that were computed twice, and those that agree, by text column.
        stage: When it is judged.
        manifest: The manifest of a published folder; None for anything else.
        sink: The places of its files.
        scratch: Folder where gates may keep digests that do not fit into memory; None for the system's folder of
            temporary files.
        rewritten: Files of what post-processing made of the parts, as it is to be published, canary rows included.
        counted: Rows of all parts, where someone has counted them; None counts them in the files.
        digests: What gates that need the digests of the same texts share.
        outputs: Output words of each text column, where another machine has looked them up.
    """

    policy: Policy
    parts: tuple[Path, ...]
    canaries: tuple[CanaryPlan, ...]
    ledger: Ledger | None
    refs: Mapping[str, ReleaseRef]
    texts: tuple[Path | bytes, ...] = ()
    copies: Mapping[str, CopyCount] = field(default_factory=dict)
    recomputed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    stage: Stage = Stage.STAGED
    manifest: Manifest | None = None
    sink: LocalSink | None = None
    scratch: Path | None = None
    counted: int | None = None
    rewritten: tuple[Path, ...] = ()
    digests: TextDigests = field(default_factory=TextDigests, repr=False, compare=False)
    outputs: Mapping[str, frozenset[str] | None] | None = field(default=None, repr=False)

    @property
    def rows(self) -> int:
        """Rows of all parts, canary rows included."""
        return sum(map(count, self.parts)) if self.counted is None else self.counted

    def pseudo_words(self) -> dict[str, frozenset[str]]:
        """Return the words of out-of-vocabulary canaries, by text column.

        Those that were planted, for a staged run. After publication, all that follow from the policy's key.
        """
        if self.stage is Stage.PUBLISHED:
            tokens = policy_tokens(self.policy, self.policy.column_policies()[0].secret)
            return {name: frozenset(words) for name, words in tokens.items()}
        planted = [row.words for plan in self.canaries for row in plan.rows if row.kind == "out_of_vocabulary"]
        names = (item.name for item in self.policy.columns)
        return {name: frozenset(word for words in planted for word in words[name]) for name in names}


def choice_columns(policy: Policy) -> dict[str, ChoiceMechanism]:
    """Return the mechanisms of the text columns that are released as whole public texts; a synthetic table has none."""
    columns = ((item.column or "", by_text(item.mechanism)) for item in policy.charged_columns())
    return {name: mechanism for name, mechanism in columns if mechanism is not None}


class Edge(NamedTuple):
    """Says where one output column comes from."""

    source: str  # column of the raw table
    output: str  # column of the published table
    way: Literal["id", "kept", "released"]  # "id", "kept" (both unchanged) or "released" (through a mechanism)


def declared_lineage(policy: Policy) -> tuple[Edge, ...]:
    """Return where every output column of a run comes from, in order; no column reaches a synthetic table."""
    if policy.synthetic is not None:
        return ()
    return (
        Edge(policy.id, policy.id, "id"),
        *(Edge(name, name, "kept") for name in policy.kept_columns),
        *(Edge(item.name, item.name, "released") for item in policy.columns),
        *(Edge(item.name, item.intermediate, "released") for item in policy.columns if item.intermediate is not None),
    )


BATCH_ROWS = 20_000
"""Rows that are held in memory at a time."""


def canary_rows(batch: pl.DataFrame) -> pl.DataFrame:
    """Return the marked rows of a batch."""
    return batch.filter(batch[CANARY])


def other_rows(batch: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a batch that are not marked, also where a mark is missing."""
    return batch.filter(~batch[CANARY].fill_null(value=False))


def with_id(batch: pl.DataFrame, name: str) -> pl.DataFrame:
    return batch.filter(by_name(name).is_not_null()) if batch[name].null_count() else batch


def count(part: Path) -> int:
    """Count the rows of a shard, canary rows included."""
    return int(pq.read_metadata(part).num_rows)


def batches(*parts: Path) -> Iterator[pl.DataFrame]:
    """Read shards in order, in batches of at most `BATCH_ROWS` rows; one without rows gives its columns."""
    for part in parts:
        if count(part) <= BATCH_ROWS:
            yield pl.read_parquet(literal(part))
        else:
            yield from pl.scan_parquet(literal(part)).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)


Value = TypeVar("Value")


class Gate(ABC):
    """Judges a release, and never compares a row with its raw text (docs/spec/privacy.md#gates).

    A gate is a fold over the rows, in any order of rows, in one process or on many machines: `rows` adds its findings
    to `state`, and states of equal gates that saw other rows add up (`merge`). Rows come in one thread at a time, which
    is the thread of the ledger's connection if the state holds a `LedgerComparison`.

    Attributes:
        name: The name of the class with underscores. Manifests, the ledger and Dagster store it.
        catches: The defects that it finds, in a sentence.
        stages: When it judges: the staged run, the published table, or both.
        order: Place in lists of gates: lower numbers first, equal numbers by name.
        problems: Names of its counts that must be 0 and that add up over batches of rows. Great Expectations judges a
            gate that names any.
        reads: The columns that it needs in a table of rows: "id" for the record id, `CANARY`, or none.
        reads_ledger: Whether it looks rows up in the ledger.
        candidate: The release.
        policy: The policy of the release.
        state: All that `rows` changes, by name. Numbers and `Counter`s add up, sets are united, and of dictionaries the
            first entry of a key stays; their size must not grow with the rows of the release, except with canary rows.
            `Repeats` hold digests to compare among all rows, which others may count, and a `LedgerComparison` cells to
            look up.

    Args:
        candidate: The release.
    """

    name: ClassVar[str]
    catches: ClassVar[str]
    stages: ClassVar[frozenset[Stage]]
    order: ClassVar[int] = 100
    problems: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    reads_ledger: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = re.sub(r"\B[A-Z]", r"_\g<0>", cls.__name__).lower()

    def __init__(self, candidate: Candidate) -> None:
        self.candidate, self.policy = candidate, candidate.policy
        self.state: dict[str, Any] = {}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        """Return the columns without which the gate cannot judge: the record id, the marker of canary rows, or none.

        None: it does not judge releases of this policy, such as synthetic tables. If a staged part lacks a column, the
        gate is excluded, and `raw_column_absent` stops the run. A gate that needs ids judges no published table of an
        shuffled release.
        """
        names = tuple(policy.id if name == "id" else name for name in cls.reads)
        return names if policy.synthetic is None else None

    def rows(self, batch: pl.DataFrame) -> None:  # noqa: B027  (a few gates judge no rows)
        """Take a batch of rows as mechanisms released them; a staged batch holds the canary rows and their marker."""

    def rewritten_rows(self, batch: pl.DataFrame) -> None:
        """Read a batch of rows as it is published after post-processing; most gates judge only released rows.

        Released rows are those that a policy keeps next to post-processed texts.
        """
        columns = self.policy.columns
        rewritten = [item.name for item in columns if item.postprocess and item.name in batch.columns]
        released = {str(item.intermediate): item.name for item in columns if item.intermediate in batch.columns}
        self.rows(batch.drop(rewritten).rename(released))

    @abstractmethod
    def verdict(self) -> Verdict | tuple[Verdict, ...]:
        """Decide; called once, after all rows. A gate may judge several things separately, or have nothing to judge."""

    def outcome(
        self, counts: Mapping[str, int | float], message: str, *, passed: bool, applicable: bool = True
    ) -> Verdict:
        """Return a verdict of this gate.

        Args:
            counts: Whole numbers and bounds behind the decision.
            message: One sentence for people; it holds counts and the policy's own column names, never a cell or an id.
            passed: Whether the release may be published as far as this gate is concerned.
            applicable: Whether the gate has anything to judge in a release of this policy.
        """
        return Verdict(self.name, passed, counts, message, self.catches, applicable or not passed)


def values_of(gate: Gate, kind: type[Value]) -> dict[str, Value]:
    """Return the values of a gate's state that are of a kind, by name."""
    return {name: value for name, value in gate.state.items() if isinstance(value, kind)}


def portable_state(gate: Gate) -> dict[str, Any]:
    """Return the state of a gate that can be pickled: cells are compared with the ledger, `Repeats` are excluded."""
    return {
        name: part.counts() if isinstance(part, LedgerComparison) else part
        for name, part in gate.state.items()
        if not isinstance(part, Repeats)
    }


def merge(gate: Gate, state: Mapping[str, Any]) -> None:
    """Add the `portable_state` of an equal gate that has seen other rows."""
    for name, part in state.items():
        own = gate.state[name]
        if isinstance(own, LedgerComparison):
            own.add_counted(part)
        elif isinstance(own, Counter):
            own.update(part)
        else:
            gate.state[name] = part | own if isinstance(own, dict | set) else own + part


def every() -> tuple[type[Gate], ...]:
    """Return all gates, by `Gate.order` and then by name."""
    gates: dict[str, type[Gate]] = {}
    for module in extensions.names("gates"):
        try:
            classes = extensions.classes("gates", module, Gate)  # type: ignore[type-abstract]
        except PolicyError as exc:
            raise GateError(exc.message, exc.hint) from None
        for gate in classes:
            if not getattr(gate, "catches", "") or not getattr(gate, "stages", ()):
                msg = f"{gate.__module__} does not declare `catches` or `stages` of the gate {gate.name}"
                raise GateError(msg)
            if gates.setdefault(gate.name, gate) is not gate:
                raise GateError(f"{gates[gate.name].__module__} and {gate.__module__} both have a gate {gate.name}")
    return tuple(sorted(gates.values(), key=lambda gate: (gate.order, gate.name)))


def load(name: str) -> type[Gate]:
    gates = {gate.name: gate for gate in every()}
    if name not in gates:
        msg = f"there is no gate of that name; available: {', '.join(sorted(gates))}"
        raise GateError(msg, "if another package brings it, install that package here too")
    return gates[name]


def judges(policy: Policy, stage: Stage) -> tuple[type[Gate], ...]:
    """Return the gates that judge a stage of the policy's releases, in order."""
    columns = ((gate, gate.columns(policy)) for gate in every() if stage in gate.stages)
    no_ids = stage is Stage.PUBLISHED and policy.shuffled is not None
    return tuple(gate for gate, reads in columns if reads is not None and not (no_ids and policy.id in reads))


def gate_descriptions(policy: Policy, stage: Stage) -> dict[str, str]:
    """Return the defects that each gate of a stage catches, by name; known before anything runs."""
    return {gate.name: catches(gate.catches) for gate in judges(policy, stage)}


def evaluate(candidate: Candidate, done: Callable[[int], object] = lambda _: None) -> tuple[Verdict, ...]:
    """Judge a staged run, one bounded batch at a time."""
    with seam("evaluating the gates", GateError, "nothing was published, and no gate has fired"):
        width = threads() if candidate.rows > BATCH_ROWS else 1  # for few rows, threads cost more than they save
        batched = prefetch(batches(*candidate.parts), width)
        gates = staged_gates(candidate, (pl.Schema(pl.read_parquet_schema(literal(part))) for part in candidate.parts))
        feed(gates, batched, done, width)
        for part in candidate.rewritten:
            feed_rewritten(gates, part)
        with ThreadPoolExecutor(width, thread_name_prefix="dptext-gate") as pool:  # gates decide side by side
            aside = () if width <= 1 else [gate for gate in gates if not values_of(gate, LedgerComparison)]
            deciding = {gate: pool.submit(verdicts_of, gate) for gate in aside}
            here = {gate: verdicts_of(gate) for gate in gates if gate not in deciding}  # the ledger's thread
            return tuple(
                verdict for gate in gates for verdict in (here[gate] if gate in here else deciding[gate].result())
            )


def staged_gates(candidate: Candidate, schemas: Iterable[pl.Schema]) -> list[Gate]:
    """Make all gates of a staged run, in order; equal arguments give equal gates, whose states can be merged."""
    policy = candidate.policy
    lacking: set[str] = set()
    for schema in schemas:
        lacking |= {policy.id, CANARY} - set(schema) | ({CANARY} if schema.get(CANARY) != pl.Boolean else set())
    kinds = [kind for kind in judges(policy, Stage.STAGED) if lacking.isdisjoint(kind.columns(policy) or ())]
    return [make(kind, candidate) for kind in kinds]


def make(kind: type[Gate], candidate: Candidate) -> Gate:
    """Make a gate; one that reads rows and has no state would lose its findings on other machines."""
    gate = kind(candidate)
    if kind.rows is not Gate.rows and not gate.state:
        raise GateError(f"{kind.__module__} keeps the findings of its gate {kind.name} outside `state`")
    return gate


def verdicts_of(gate: Gate) -> tuple[Verdict, ...]:
    verdict = gate.verdict()
    return (verdict,) if isinstance(verdict, Verdict) else verdict


def feed(
    gates: Iterable[Gate],
    rows: Iterable[pl.DataFrame],
    done: Callable[[int], object] = lambda _: None,
    width: int | None = None,
) -> None:
    """Give every batch of rows to every gate, in order; gates look at two batches side by side.

    A gate that asks the ledger stays in this thread, to which the ledger's connection belongs.
    """
    gates, width = tuple(gates), width or threads()
    here = [gate for gate in gates if width <= 1 or values_of(gate, LedgerComparison)]
    elsewhere = [gate for gate in gates if gate not in here]
    with ThreadPoolExecutor(width, thread_name_prefix="dptext-gate") as pool:
        before: Sequence[Future[None] | None] = [None] * len(elsewhere)
        waiting: deque[tuple[Sequence[Future[None]], int]] = deque()

        def finish() -> None:
            """Wait until all gates have looked at the oldest batch, and report how many rows it had."""
            looks, height = waiting.popleft()
            for look in looks:
                look.result()
            done(height)

        for batch in rows:
            looks = [pool.submit(_look, gate, batch, last) for gate, last in zip(elsewhere, before, strict=True)]
            waiting.append((looks, batch.height))
            before = looks
            for gate in here:
                gate.rows(batch)
            if len(waiting) > 1:
                finish()
        while waiting:
            finish()


def _look(gate: Gate, batch: pl.DataFrame, before: Future[None] | None) -> None:
    """Let a gate look at a batch after the one before; that one waits for no thread, as it was asked for earlier."""
    if before is not None:
        before.result()
    with sharing_threads():
        gate.rows(batch)


def feed_rewritten(gates: Iterable[Gate], part: Path) -> None:
    """Give a part as it is to be published, after post-processing, to the gates that judge it."""
    gates = [gate for gate in gates if type(gate).rewritten_rows is not Gate.rewritten_rows]
    for batch in batches(part):
        for gate in gates:
            gate.rewritten_rows(batch)
