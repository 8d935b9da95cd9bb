"""Set up one attempt at a run: its places, its key, its name in the ledger, and the ledger's anchor.

The anchor store shows that a ledger was lost or restored (`dptext_etl.ledger.anchor_files`). A release in the sink or
in staging was charged before, so a ledger of which no anchor is stored is refused (docs/spec/privacy.md#lost-ledger).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

from dptext_etl._kernel import Secret
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import BudgetError, DPTextError, InputError, KeyReferenceError, LedgerError, collect, counted
from dptext_etl.ledger import Ledger, Outcome, ReleaseRef, Scope, anchor_files
from dptext_etl.parallel import require_threads
from dptext_etl.policy import ColumnPolicy, Policy, tables_of
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Profile
from dptext_etl.runner.publish.manifest import LEFT_OUT, register, require_provenance
from dptext_etl.runner.publish.versions import require_sink
from dptext_etl.runner.shard.computing import replays
from dptext_etl.runner.shard.staging import Staging, WholeTable, staging_key
from dptext_etl.runner.source.examine import Examined


def ledger_of_run(policy: Policy, ledger: Ledger | None = None) -> AbstractContextManager[Ledger]:
    """Use the ledger that is open already, or open the policy's ledger for the block."""
    opened = None if ledger is None else nullcontext(ledger)
    return opened or Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False)


def require_same_ledger(
    ledger: Ledger | None, layout: Layout, policy: Policy, manifest: Manifest | None, *, freezing: bool = True
) -> None:
    """Refuse a ledger that does not hold the anchor that an earlier run stored, and freeze the dataset if asked to.

    It also refuses a policy that lacks an audience of the release.

    No ledger means one that a run would create: it holds no anchor at all. `manifest` is the one in the sink.
    """
    shown = manifest is not None and policy.publish and manifest.dataset == policy.dataset

    def released() -> set[str]:
        """Return the release names of the dataset that sink and staging hold: an anchor was stored before each."""
        names = {manifest.release} if manifest is not None and shown else set()
        for folder in layout.memory.subfolders():
            if any(name.startswith("shard-") or name == LEFT_OUT for name in folder.names()):
                names.add(unquote(folder.parent.name))
        return names

    if ledger is None:
        if released():
            anchor_files.refuse_no_ledger(policy.dataset)
        return
    scope, options = Scope.of(policy), policy.storage_options
    anchor_files.require(ledger, scope, policy.ledger, options, released=released, freezing=freezing)
    require_audiences(ledger, policy)


def require_audiences(ledger: Ledger, policy: Policy) -> None:
    """Refuse a policy without an audience whose table is published: no run would renew it, or remove people from it."""
    names, refs = {item.name for item in policy.audiences}, ledger.releases.find_all(policy).values()
    published = (name for ref in refs for name in ledger.releases.published(ref))
    recorded = {name.partition("@")[0].partition(":")[2] for name in published} - {""}
    if policy.audience is None and (gone := ", ".join(sorted(recorded - names))):
        msg = f"the ledger records published tables of this release for audiences that the policy does not name: {gone}"
        hint = "write their entries [[audience]] again; a new release name goes without them"
        raise LedgerError(f"{msg}; nothing was changed", hint)


def remember(ledger: Ledger, policy: Policy) -> None:
    """Store the anchor of the ledger and the release name, durably: after every charge, before a text is scored."""
    anchor_files.record(ledger, Scope.of(policy), policy.release, policy.ledger, policy.storage_options)


Done = TypeVar("Done")
UNDER_WAY = "of this release is under way"
_ALWAYS_COUNTED = frozenset(
    {"read", "already_published", "new", "resumed", "replayed", "quarantined", "released", "null"}
)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run, whatever engine computes it."""

    policy: Policy
    partition: str | None
    layout: Layout  # where the run reads, stages and publishes
    columns: list[ColumnPolicy]  # the policies of the text columns
    secret: Secret = field(repr=False)  # the noise secret, checked against the policy
    accept_lower_cap: bool = False  # whether the pinned cap may be lowered to the policy's cap
    accept_fewer_rows: bool = False  # whether published rows may be excluded that the source still holds
    refusals: list[DPTextError] | None = None  # of a plan, which collects them; None in a run
    job: str = field(default_factory=lambda: uuid.uuid4().hex)  # the name of this attempt in the ledger
    began: float = field(default_factory=time.monotonic)  # when it began, on the monotonic clock
    profile: Profile = field(default_factory=Profile, repr=False)  # time and memory of its stages
    audiences: tuple[Attempt, ...] = ()  # attempts at the tables of audiences, which come after this one
    main: Attempt | None = None  # of an audience: the attempt at the policy's own table

    @classmethod
    def of(cls, policy: Policy, partition: str | None, **accepted: Any) -> Attempt:
        """Refuse a policy that no run can carry out; `accepted` holds fields of the attempt."""
        require_threads()
        _, *others = tables_of(policy)
        require_provenance(policy)
        columns = policy.charged_columns()
        secret = columns[0].secret
        if policy.publish and secret.published:
            msg = "the key is printed in documents, so anyone can undo a release under it"
            raise KeyReferenceError(msg, 'run `dptext key new PATH` and write key = "file:PATH"')
        main = cls(policy, partition, Layout.of(policy, partition), columns, secret, **accepted)
        return replace(
            main, audiences=tuple(replace(cls.of(item, partition, **accepted), main=main) for item in others)
        )

    @property
    def planning(self) -> bool:
        return self.refusals is not None

    def check(self, step: Callable[..., Done], *given: Any, **named: Any) -> Done | None:
        """Carry out a step: a run raises its refusal, and a plan collects it and continues with None."""
        return collect(self.refusals, partial(step, *given, **named))

    @property
    def layouts(self) -> list[Layout]:
        """The places of tables that may hold earlier texts of this release."""
        return [self.layout] if self.main is None else [self.layout, self.main.layout]

    @property
    def refusing(self) -> bool:
        return self.policy.on_cap == "refuse" and self.policy.cap is not None

    @property
    def staging_key(self) -> bytes:
        return staging_key(self.secret, self.policy.dataset, self.layout.staging)

    @contextmanager
    def alone(self) -> Iterator[Staging]:
        """Make the folders of the run and lock them for this process."""
        staging = Staging(self.layout.staging, self.staging_key)
        staging.storage.prepare()
        require_sink(self.layout)
        with staging.storage.lock(UNDER_WAY):
            if replays(self.policy) or self.policy.on_changed == "keep":
                staging.set_aside()
                if self.main is not None:
                    earlier = Staging(self.main.layout.staging, self.main.staging_key)
                    earlier.set_aside()
                    earlier.share(staging)
            yield staging

    def register(self, ledger: Ledger, id_type: str, manifest: Manifest | None) -> dict[str, ReleaseRef]:
        require_same_ledger(ledger, self.layout, self.policy, manifest)
        require_environment(self.policy, self.secret, ledger, recording=True)
        ledger.agree_on_cap(Scope.of(self.policy), self.policy.cap, lowering=self.accept_lower_cap)
        refs = {item.column or "": register(ledger, self.policy, item, id_type) for item in self.columns}
        remember(ledger, self.policy)
        return refs


def require_environment(policy: Policy, secret: Secret, ledger: Ledger | None, *, recording: bool) -> None:
    """Refuse the ledger and the key of another environment, if the policy names its own."""
    if policy.environment is not None:
        owned = {"noise key": secret.derive("seal", b"dptext/environment/v1\0").hex()}
        owned |= {} if ledger is None else {"ledger": ledger.ledger_id}
        options = policy.storage_options
        anchor_files.require_environment(policy.environment, owned, policy.ledger, options, recording=recording)


def refuse_over_cap(over: int) -> None:
    """Stop a run that refuses records over the cap and has some."""
    if over:
        msg = f'{counted(over, "record")} would exceed the cap, and on_cap is "refuse"; nothing was computed or charged'
        hint = '`dptext plan` and `dptext ledger remaining` say more; on_cap = "quarantine" leaves such records out'
        raise BudgetError(msg, hint, {"records": over})


def pin_table(
    attempt: Attempt, ledger: Ledger, refs: Mapping[str, ReleaseRef], table: WholeTable, sums: str = ""
) -> None:
    """Pin a table, with the digest of its exact sums if it is summed, or refuse a table other than the pinned one.

    A release without a pinned table must hold only the records of the table. A record that was read twice counts twice
    here and once in the ledger; records of an earlier attempt count there.
    """
    for ref in refs.values():
        if ledger.releases.pinned_table(ref) is None and ledger.records(ref) != table.records:
            refuse_other_records(ref)
        ledger.releases.pin_table(ref, table.digest, sums)
    remember(ledger, attempt.policy)


def refuse_other_records(ref: ReleaseRef) -> NoReturn:
    """Refuse a table whose records are not just those that its release holds, before it is pinned."""
    msg = f"{ref} does not hold just the records of this table: one record occurs twice, or an earlier attempt"
    hint = "run again when no one writes to the source; a table that changed needs a new release name"
    raise LedgerError(f"{msg}reserved others", hint)


def refuse_no_records(policy: Policy, records: int) -> None:
    """Refuse a synthetic table in which no record would count."""
    if policy.synthetic is not None and not records:
        raise InputError("all records of the source were forgotten or are over the cap", "no budget used")


def refuse_too_few(policy: Policy, texts: int, labels: Mapping[str, int] | None = None) -> None:
    """Refuse a shuffled release of fewer texts than its bound is stated for, as far as counted under any label."""
    if policy.shuffled is None:
        return
    rows, hint = policy.shuffled.rows, "this run drew and charged nothing; state fewer rows, at a larger epsilon, under"
    names = () if policy.labels is None or labels is None else policy.labels.values
    by_label = {name: (labels or {}).get(name, 0) for name in names}
    few = [f"{counted(number, 'text')} of {name!r}" for name, number in by_label.items() if number < rows]
    if few or texts < rows:
        msg = f"[shuffled]: {', '.join(few) or counted(texts, 'text')} would be published, and the bound is "
        more = "; or remove the label from labels.values: its texts are excluded then" * bool(few)
        raise InputError(f"{msg}stated for rows = {rows}", f"{hint} a new release name{more}")


def refuse_other_table(pinned: WholeTable, released: WholeTable) -> None:
    """Refuse to publish other records or texts than those that were pinned: records may be forgotten meanwhile."""
    if released != pinned:
        msg = "the table is not the one that was pinned: the source changed while it was read, or records were "
        raise InputError(f"{msg}forgotten or excluded over the cap meanwhile; nothing was published", "run again")


def refuse_other_rows(wanted: int, read: int) -> None:
    """Refuse a source that changed between its checks and its use."""
    if read != wanted:
        before, then = counted(wanted, "row was", "rows were"), "more" if read > wanted else f"{read:,}"
        msg = f"the source changed while it was read: {before} checked, then there were {then}"
        raise InputError(msg, "run again when no one writes to it; no record is charged twice")


def row_counts(
    policy: Policy, source: Examined[Any], outcomes: Mapping[str, int], released: Mapping[str, int], *, stale: int
) -> dict[str, int]:
    """Count the rows of a run by outcome; `stale` changed ones of an incremental run stay as they are."""
    changed = outcomes.get(Outcome.CHANGED.name, 0)
    counts = {
        "read": source.total,
        "already_published": source.published,
        "over_contribution": source.beyond,
        "without_subject": source.nameless,
        "changed_kept": changed + stale if policy.on_changed == "keep" else 0,
        "changed_excluded": changed if policy.on_changed == "quarantine" else 0,
        "changed_released": outcomes.get(Outcome.AGAIN.name, 0),
        "new": outcomes.get(Outcome.RESERVED.name, 0),
        "resumed": outcomes.get(Outcome.PENDING.name, 0),
        "replayed": outcomes.get(Outcome.COMMITTED.name, 0),
        "quarantined": outcomes.get(Outcome.OVER_CAP.name, 0),
        "forgotten": outcomes.get(Outcome.FORGOTTEN.name, 0),
        **released,
    }
    return {name: count for name, count in counts.items() if count or name in _ALWAYS_COUNTED}
