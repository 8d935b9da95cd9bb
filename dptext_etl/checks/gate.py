"""Define gates, which look at a release and decide whether it may be published, and judge a staged run by all of them.

A gate is one file in `checks/gates/` with one class. The file name is the name of the gate. `every` finds it, and so do
the runner, `dptext check`, Dagster, Great Expectations and the documentation. A `Verdict` is a positive record with
counts, never a value, an id or a quoted error.

Gates decide from released values, configuration, ledger presence and canary rows only. A decision that compares a real
text with its release is a disclosure without bound: it publishes y = t with probability 0 where the text is t, and
above 0 elsewhere (docs/spec/privacy.md#gates). No gate reads a raw text. A gate that uses `chance.FALSE_ALARM` fails a
correct run with at most that probability; the other gates never do. With `policy.copy_gate_false_alarm` two whole-run
counts of copies decide as well, at that false-alarm bound, which is charged as delta.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import polars as pl

from dptext_etl import extensions, html_output
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.candidate import Candidate, Stage, batches
from dptext_etl.device import threads
from dptext_etl.errors import GateError, PolicyError, seam
from dptext_etl.parallel import prefetch, sharing_threads
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.checks.comparison import LedgerComparison, Repeats


@dataclass(frozen=True)
class Verdict:
    """Holds the outcome of one gate.

    Attributes:
        name: The gate.
        passed: Whether publication may go on as far as this gate is concerned.
        counts: Whole numbers and bounds behind the outcome.
        message: One sentence for people; names of the policy's own columns and counts only.
        catches: The kind of defect that this gate finds, in a sentence.
    """

    name: str
    passed: bool
    counts: Mapping[str, int | float]
    message: str
    catches: str = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))

    def __reduce__(self) -> tuple[type[Verdict], tuple[Any, ...]]:
        return type(self), (self.name, self.passed, dict(self.counts), self.message, self.catches)

    def __repr__(self) -> str:
        return f"Verdict({self.name!r}, {'passed' if self.passed else 'FAILED'}: {self.message})"

    def _repr_html_(self) -> str:
        about = {"outcome": self.message, "counts": dict(self.counts), "catches": self.catches}
        return html_output.facts(f"{self.name}: {'passed' if self.passed else 'FAILED'}", about)

    def as_dict(self) -> dict[str, Any]:
        counts = {key: value if math.isfinite(value) else str(value) for key, value in self.counts.items()}
        return {**vars(self), "counts": counts}

    @classmethod
    def from_dict(cls, verdict: Mapping[str, Any]) -> Verdict:
        counts = {key: float(value) if isinstance(value, str) else value for key, value in verdict["counts"].items()}
        return cls(**{**verdict, "counts": counts})


def require(verdicts: Iterable[Verdict]) -> None:
    """Let a publication go on only if there are verdicts and all of them passed.

    A fired gate is a defect (docs/spec/privacy.md#fired-gate): the charge stays, nothing is drawn again, the release
    name is revoked.
    """
    verdicts = tuple(verdicts)
    if not verdicts:
        raise GateError("no gate was evaluated, so nothing can be published")
    failed = [verdict for verdict in verdicts if not verdict.passed]
    if failed:
        messages = "; ".join(f"{verdict.name}: {verdict.message}" for verdict in failed)
        hint = "find the defect, mend it, and release under a new name: what is charged stays charged"
        fields = {"failed": [verdict.name for verdict in failed], "gates": len(verdicts)}
        raise GateError(f"{len(failed)} of {len(verdicts)} gates failed: {messages}", hint, fields)


class Gate(ABC):
    """Judges a release, and never compares a row with its raw text (docs/spec/privacy.md#gates).

    A gate is a fold over the rows. What it has seen is small (`state`), and adds up with what an equal gate has seen of
    other rows (`merge`), in any order of rows, in one process or on many machines. Digests that must be compared with
    those of all other rows stand in `repeats`, and cells that must be compared with the ledger in `lookups`; anyone who
    runs the gate may count both elsewhere.

    Attributes:
        name: The name of its file. Manifests, the ledger and Dagster store it.
        catches: The defects that it finds, in a sentence.
        stages: When it judges: the staged run, the published table, or both.
        order: Place in lists of gates: lower numbers first, equal numbers by name.
        rewritten: Whether it also judges what post-processing made of released texts (`feed_rewritten`). Of a column
            with post-processing every other gate judges only what the mechanism released.
        asks_ledger: Whether `feed` may ask the ledger. Other gates look at a batch side by side, each in one thread at
            a time.
        needs_markers: Whether it reads the id column and the canary marker of a staged part. Where a part lacks one of
            them, such a gate is left out; `raw_column_absent` then stops the run.
        by_record: Whether it needs record ids; it judges no published table of an unlinked release, which has none.
        synthetic: Whether it judges synthetic tables, which hold no released text of a record; other gates never do.
        problems: Names of its counts that must be 0 and that add up over batches of rows. Great Expectations judges a
            gate that names any, without a ledger.
        seen: The attributes that `look_at_columns`, `feed` and `search` change: numbers and `Counter`s, which add up;
            sets, which are united; dictionaries, in which the first entry of a key stays. Their size must not grow with
            the rows of the release, but for canary rows.

    Args:
        policy: The policy of the release.
    """

    name: ClassVar[str]
    catches: ClassVar[str]
    stages: ClassVar[frozenset[Stage]]
    order: ClassVar[int] = 100
    rewritten: ClassVar[bool] = False
    asks_ledger: ClassVar[bool] = False
    needs_markers: ClassVar[bool] = True
    by_record: ClassVar[bool] = False
    synthetic: ClassVar[bool] = False
    problems: ClassVar[tuple[str, ...]] = ()
    seen: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__module__.rpartition(".")[2]

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @classmethod
    def applies(cls, policy: Policy) -> bool:  # noqa: ARG003  (most gates judge every release)
        """Say whether the gate judges releases of this policy."""
        return True

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        """Make the gate for a release: once, unless it judges several things apart, or has nothing to judge."""
        return (cls(candidate.policy),)

    def look_at_columns(self, schema: pl.Schema) -> None:  # noqa: B027  (a gate takes what it needs)
        """Take the columns and types of one part."""

    def feed(self, batch: pl.DataFrame) -> None:  # noqa: B027
        """Take a batch of released rows; a staged batch holds the canary rows and their marker."""

    def all_fed(self) -> None:  # noqa: B027
        """Do what need not wait for the verdict; called for a gate that asks the ledger, when it has all batches."""

    def look_at_rewritten(self, schema: pl.Schema) -> None:  # noqa: B027
        """Take the columns and types of one part as it is to be published, after post-processing."""

    def feed_rewritten(self, batch: pl.DataFrame) -> None:  # noqa: B027
        """Take a batch of rows as they are to be published, after post-processing; it is in no way compared."""

    def search(self, artefact: Path | bytes) -> None:  # noqa: B027
        """Take a file, or its bytes, that leaves the run next to the rows: a manifest, a log."""

    def repeats(self) -> Mapping[str, Repeats]:
        """Return what this gate compares among all rows, by a name of its own; each holds digests that were fed."""
        return {}

    def lookups(self) -> Mapping[str, LedgerComparison]:
        """Return what this gate compares with the ledger, by a name of its own; each holds cells that were fed."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return what this gate has seen but for `repeats` and `lookups`: plain values that pickle."""
        return {name: getattr(self, name) for name in self.seen}

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the `state` of an equal gate that has seen other rows."""
        for name in self.seen:
            setattr(self, name, _added(getattr(self, name), state[name]))

    @abstractmethod
    def verdict(self) -> Verdict:
        """Decide; called once, after everything was looked at."""

    def outcome(self, counts: Mapping[str, int | float], message: str, *, passed: bool) -> Verdict:
        """Return a verdict of this gate.

        Args:
            counts: Whole numbers and bounds behind the decision.
            message: One sentence for people; it holds counts and the policy's own column names, never a cell or an id.
            passed: Whether the release may be published as far as this gate is concerned.
        """
        return Verdict(self.name, passed, counts, message, self.catches)


def _added(mine: Any, other: Any) -> Any:
    if isinstance(mine, Counter):
        return Counter({name: mine[name] + other[name] for name in {**mine, **other}})
    if isinstance(mine, dict):
        return {**other, **mine}
    return mine | other if isinstance(mine, set) else mine + other


def load(name: str) -> type[Gate]:
    try:
        gate = extensions.load("gates", name, Gate)  # type: ignore[type-abstract]
    except PolicyError as exc:
        raise GateError(exc.message, exc.hint) from None
    if not getattr(gate, "catches", "") or not getattr(gate, "stages", ()):
        raise GateError(f"{gate.__module__} does not say what its gate catches, or which stages it judges")
    folds = gate.seen or gate.repeats is not Gate.repeats
    if not folds and any(
        getattr(gate, method) is not getattr(Gate, method) for method in ("look_at_columns", "feed", "search")
    ):
        raise GateError(f"{gate.__module__} does not say in `seen` which attributes its gate changes")
    return gate


def every() -> tuple[type[Gate], ...]:
    """Return all gates, by `Gate.order` and then by name."""
    return tuple(sorted(map(load, extensions.names("gates")), key=lambda gate: (gate.order, gate.name)))


def judges(policy: Policy, stage: Stage) -> tuple[type[Gate], ...]:
    """Return the gates that judge a stage of the policy's releases, in order."""
    if policy.synthetic is not None:
        return tuple(gate for gate in every() if gate.synthetic and stage in gate.stages)
    no_ids = stage is Stage.PUBLISHED and policy.unlinked is not None
    gates = (gate for gate in every() if stage in gate.stages and gate.applies(policy))
    return tuple(gate for gate in gates if not (no_ids and gate.by_record))


def catalogue(policy: Policy, stage: Stage) -> dict[str, str]:
    """Return what each gate of a stage catches, by name; known before anything runs."""
    return {gate.name: gate.catches for gate in judges(policy, stage)}


def evaluate(candidate: Candidate, done: Callable[[int], object] = lambda _: None) -> tuple[Verdict, ...]:
    """Judge a staged run, one bounded batch at a time."""
    with seam("evaluating the gates", GateError, "nothing was published, and no gate has fired"):
        rows = prefetch(batches(*candidate.parts), threads())
        schemas = [pl.Schema(pl.read_parquet_schema(part)) for part in candidate.parts]
        gates = staged_gates(candidate, schemas)
        for schema in schemas:
            for gate in gates:
                gate.look_at_columns(schema)
        feed(gates, rows, done)
        for part in candidate.rewritten:
            feed_rewritten(gates, part)
        search(gates, candidate)
        return _verdicts(gates)


def staged_gates(candidate: Candidate, schemas: Iterable[pl.Schema]) -> list[Gate]:
    """Make all gates of a staged run, in order; equal arguments give equal gates, whose states can be merged."""
    policy = candidate.policy
    marked = policy.synthetic is not None  # a synthetic table has neither ids nor canary rows
    marked |= all(policy.id in schema and schema.get(CANARY) == pl.Boolean for schema in schemas)
    kinds = [kind for kind in judges(policy, Stage.STAGED) if marked or not kind.needs_markers]
    return [gate for kind in kinds for gate in kind.over(candidate)]


def feed(gates: Iterable[Gate], rows: Iterable[pl.DataFrame], done: Callable[[int], object] = lambda _: None) -> None:
    """Give every batch of rows to every gate, in order; gates look at two batches side by side.

    A gate that asks the ledger stays in this thread, to which the ledger's connection belongs.
    """
    gates, width = tuple(gates), threads()
    here = [gate for gate in gates if gate.asks_ledger or width <= 1]
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
                gate.feed(batch)
            if len(waiting) > 1:
                finish()
        for gate in here:
            gate.all_fed()
        while waiting:
            finish()


def _look(gate: Gate, batch: pl.DataFrame, before: Future[None] | None) -> None:
    """Let a gate look at a batch after the one before; that one waits for no thread, as it was asked for earlier."""
    if before is not None:
        before.result()
    with sharing_threads():
        gate.feed(batch)


def _verdicts(gates: Sequence[Gate]) -> tuple[Verdict, ...]:
    """Let every gate decide, side by side; one that asks the ledger does so in this thread."""
    with ThreadPoolExecutor(threads(), thread_name_prefix="dptext-gate") as pool:
        deciding = {gate: pool.submit(gate.verdict) for gate in gates if not gate.asks_ledger}
        here = {gate: gate.verdict() for gate in gates if gate.asks_ledger}
        return tuple(here[gate] if gate in here else deciding[gate].result() for gate in gates)


def feed_rewritten(gates: Iterable[Gate], part: Path) -> None:
    """Give a part as it is to be published, after post-processing, to the gates that judge it."""
    gates = tuple(gate for gate in gates if gate.rewritten)
    for gate in gates:
        gate.look_at_rewritten(pl.Schema(pl.read_parquet_schema(part)))
    for batch in batches(part):
        for gate in gates:
            gate.feed_rewritten(batch)


def search(gates: Iterable[Gate], candidate: Candidate) -> None:
    for gate in gates:
        for artefact in candidate.texts:
            gate.search(artefact)
