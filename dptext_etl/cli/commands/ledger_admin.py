"""Define the commands of `dptext ledger` that change releases, charges, and caps, with a reason."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.commands.ledger_commands import command, in_pinned_form, open_ledger
from dptext_etl.cli.options import Yes, name_values, require_confirmation
from dptext_etl.cli.terminal import amounts_text, plain_all
from dptext_etl.errors import FrozenLedgerError, LedgerError, PolicyError, UsageError, counted
from dptext_etl.guarantee import PURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dptext_etl.ledger import Ledger, Scope

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="Name of the dataset in the policies.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job; `dptext ledger jobs` lists them.")]
Reason = Annotated[str, typer.Option(metavar="WORDS", help="The reason in a few plain words, which the journal keeps.")]
Lost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COMPONENT=AMOUNT",
        help=f"The most that a subject may have been charged and balances lack, such as {PURE}=40; one for each "
        "component of the caps.",
    ),
]


@command('dptext ledger freeze reviews --reason "restored" --ledger ledger.db', ("frozen",))
def freeze(
    dataset: Dataset,
    *,
    reason: Reason,
    in_use: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RELEASE", help="A release name in use that this ledger may not know; it is revoked. Repeatable."
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP", help="A group that was charged but may be missing in this ledger: it freezes, too."
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Freeze only this dataset: no charge was lost (a key leaked, for example).")
    ] = False,
) -> None:
    """Stop all releases of a dataset, and of all datasets that share a cap with it, as after a restore."""
    from dptext_etl.ledger import Scope
    from dptext_etl.ledger.anchor_files import record

    with open_ledger(write=True) as handle:
        handle.losses.freeze(dataset, reason, in_use=in_use or (), groups=group or (), alone=alone)
        with suppress(FrozenLedgerError):  # it froze because an anchor is missing: the stored one stays
            record(handle, Scope(dataset, "all"))
        frozen = handle.losses.frozen()
    terminal.report({"frozen": frozen}, f"frozen: {', '.join(frozen)}")


@command(f"dptext ledger thaw reviews --lost {PURE}=40 --reason restored --ledger ledger.db", ("caps", "thawed"))
def thaw(
    dataset: Dataset,
    *,
    reason: Reason,
    lost: Lost = None,
    yes: Yes = False,
) -> None:
    """Unfreeze a dataset and all datasets that were frozen with it.

    Their release names are revoked, and their caps are lowered by the amounts that may have been lost since the copy
    was made, in all of these datasets.
    """
    from dptext_etl.ledger import Scope
    from dptext_etl.ledger.anchor_files import record

    losses = _losses(lost)
    with open_ledger(write=True) as handle:
        before = handle.losses.frozen()
        if dataset in before:
            question = f"Thaw {dataset} and all datasets that froze with it, revoke release names, and lower caps by "
            require_confirmation(f"{question}{amounts_text(losses) or 0}?", yes=yes)
        caps = plain_all(handle.losses.thaw(dataset, losses, reason=reason))
        record(handle, Scope(dataset, "all"))
        thawed = sorted({*before} - {*handle.losses.frozen()})
    terminal.report(
        {"caps": caps, "thawed": thawed},
        f"thawed {', '.join(thawed)} under new caps ({_caps_text(caps)}); "
        "write them into the policies, and new release names",
    )


@command("dptext ledger jobs --ledger ledger.db", ("jobs",))
def jobs() -> None:
    """List the jobs with open reservations, which are neither committed, expired nor given back."""
    with open_ledger() as handle:
        open_jobs = [job for job in handle.reports.jobs() if job["pending"]]
    if terminal.emitted({"jobs": open_jobs}):
        return
    columns = ("job", "since", "dataset", "releases", "records", "pending")
    terminal.table(columns, [[job[name] for name in columns] for job in open_jobs])
    if not open_jobs:
        terminal.say("nothing is open")


@command(
    'dptext ledger revoke reviews 1 --reason "wrong table" --ledger ledger.db',
    ("revoked", "dataset", "records", "published"),
)
def revoke(
    dataset: Dataset,
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="The release name, in all columns of the dataset.")],
    *,
    reason: Reason,
    yes: Yes = False,
) -> None:
    """Revoke a release name permanently, so that nothing more is released under it. Its charges stay."""
    with open_ledger(write=True) as handle:
        rows = [row for row in handle.reports.show() if (row["dataset"], row["release"]) == (dataset, release)]
        records = sum(row["records"] - row["canaries"] for row in rows)
        versions = sorted({version["version"] for row in rows for version in row["published"]})
        if rows and not all(row["burnt"] for row in rows):
            publications = f", published as {' and '.join(versions)}" if versions else ""
            question = f"Revoke release {release!r} of {dataset} ({records:,} charged records{publications}) for good?"
            require_confirmation(question, yes=yes)
        with _writing(handle, dataset, release):
            handle.releases.revoke_name(dataset, release, reason)
    outcome = f"release {release!r} of {dataset} is revoked; its charges stay"
    outcome += ", and you must remove its published tables yourself" if versions else ""
    terminal.report({"revoked": release, "dataset": dataset, "records": records, "published": versions}, outcome)


@command(
    'dptext ledger readmit reviews --record r17 --reason "came back with consent" --ledger ledger.db',
    ("dataset", "readmitted"),
)
def readmit(
    dataset: Dataset,
    *,
    record: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A forgotten record; repeat as needed.")
    ] = None,
    subject: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A forgotten subject, with their records; repeat as needed.")
    ] = None,
    reason: Reason,
    yes: Yes = False,
) -> None:
    """Let forgotten records and subjects be released again, in all releases of the dataset. Earlier charges count."""
    import pyarrow as pa

    from dptext_etl.ledger import Scope

    records, subjects = sorted({*(record or ())}), sorted({*(subject or ())})
    if not (records or subjects):
        raise UsageError("no one is named who is to be readmitted", "name them: --record ID or --subject ID")
    kinds = ((records, "forgotten record"), (subjects, "forgotten subject"))
    whom = " and ".join(counted(len(ids), what) for ids, what in kinds if ids)
    require_confirmation(f"Let {whom} of {dataset} be released again?", yes=yes)
    with open_ledger(write=True) as handle, _writing(handle, dataset):
        # the last scope that was pinned and counts per subject says how ids of subjects are spelled
        pinned = [cap for cap in handle.reports.caps() if dataset in cap["datasets"] and cap["unit"] == "subject"]
        scope = Scope.of_cap(pinned[-1]) if pinned else Scope(dataset)
        units = in_pinned_form(handle, scope, subjects)
        count = handle.people.readmit(dataset, pa.array(records, pa.large_string()), reason, units)
    more = " and all others of these subjects" if subjects else ""
    outcome = f"{counted(count, 'record')}{more} may be released again"
    terminal.report({"dataset": dataset, "readmitted": count}, outcome)


@command('dptext ledger expire JOB --reason "will not be run again" --ledger ledger.db', ("job", "expired"))
def expire(job: Job, *, reason: Reason, yes: Yes = False) -> None:
    """Turn the open reservations of a job into permanent charges. They can still be committed, but not given back."""
    with open_ledger(write=True) as handle:
        facts = _job(handle, job)
        question = f"Make {facts['pending']:,} open reservations of job {job} ({_job_text(facts)}) charges for good?"
        require_confirmation(question, yes=yes)
        with _writing(handle, facts["dataset"]):
            count = handle.expire(job, reason=reason)
    terminal.report({"job": job, "expired": count}, f"{count:,} reservations expired: their charges stay")


@command('dptext ledger abort JOB --reason "never computed" --ledger ledger.db', ("job", "given_back"))
def abort(job: Job, *, reason: Reason, yes: Yes = False) -> None:
    """Give back the open reservations of a job, if you know that no text of it was ever scored.

    The command refuses a job with committed records, a job on which another job relies, and a job whose shuffled
    release or synthetic table was pinned: draws may have been seen, so `dptext ledger expire JOB` keeps its charges.
    """
    with open_ledger(write=True) as handle:
        facts = _job(handle, job)
        question = f"Do you know that the job {job} ({_job_text(facts)}) has ended, and that it scored no text? "
        question += f"Then {facts['pending']:,} reservations are given back"
        require_confirmation(question, yes=yes)
        with _writing(handle, facts["dataset"]):
            count = handle.abort(job, compute_never_started=True, reason=reason)
    terminal.report({"job": job, "given_back": count}, f"{count:,} reservations given back")


@command(
    'dptext ledger set-cap reviews --epsilon 700 --period 2026 --reason "board of May 4" --ledger ledger.db',
    ("scope", "before", "after", "changed"),
)
def set_cap(
    dataset: Dataset,
    *,
    reason: Reason,
    epsilon: Annotated[float | None, typer.Option(help="The cap in epsilon: pure, or with --delta approx.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta; without --epsilon, a pure cap becomes approx.")] = None,
    rho: Annotated[float | None, typer.Option(help="The cap in rho (zCDP).")] = None,
    period: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The period that the cap covers; charges of other periods do not count in it."
        ),
    ] = "all",
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="The group, if the spends of several datasets add up.")
    ] = None,
    unit: Annotated[
        Literal["subject", "record"], typer.Option(help="Whose budget it is, as the policy says.")
    ] = "subject",
    yes: Yes = False,
) -> None:
    """Pin, raise or lower the cap of a scope, or open a new period. Policies must ask for exactly the pinned cap.

    A first cap counts earlier charges of the same period. It does not count charges of other periods, of "all", or of
    another group: every unit starts at zero, and the command says so before it asks. Once a named period has a cap,
    nothing more is charged in "all".

    A pure cap that becomes approx counts all reservations, and amounts that commits gave back as well: balances are
    upper bounds from then on, and the change cannot be undone.
    """
    from dptext_etl.ledger import Scope
    from dptext_etl.ledger.anchor_files import anchored
    from dptext_etl.policy import Cap

    measure = "zcdp" if rho is not None else "pure" if delta is None else "approx"
    scope = Scope(dataset, period, group, unit)
    with open_ledger(write=True) as handle:
        before = _pinned(handle, scope)
        if measure == "approx" and epsilon is None:
            epsilon = (before or {}).get(PURE)
        limits = {"epsilon": epsilon, "delta": delta, "rho": rho}
        with Cap.checking():
            cap = Cap(measure=measure, **limits, period=period, group=group)
        change = handle.cap_change(scope, cap)
        uncounted = handle.reports.uncounted(scope)
        changed = before is None or change is not None or bool(uncounted)
        if changed:
            now = "it has none now; earlier charges of this scope count"
            if before:
                now = f"it is {amounts_text(before)} now"
            if uncounted:
                now += f"; charges in {' and '.join(uncounted)} do NOT count: every unit starts at zero"
            if change is not None and change.change == "measure":
                now += "; amounts that commits gave back count again"
            wanted = {name: amount for name, amount in limits.items() if amount is not None}
            require_confirmation(f"Set the cap of {scope} to {amounts_text(wanted)} ({now})?", yes=yes)
            with anchored(handle, scope):
                handle.set_cap(scope, cap, raising=True, reason=reason)
        after = _pinned(handle, scope)
    facts = {"scope": str(scope), "before": before, "after": after, "changed": changed}
    then = f"is now {amounts_text(after)}; write it into the policy" if changed else "is that already"
    terminal.report(facts, f"the cap of {scope} {then}")


@command(
    f'dptext ledger accept-units reviews --lost {PURE}=40 --reason "accounts were merged" --ledger ledger.db',
    ("caps", "accepted"),
)
def accept_units(
    dataset: Dataset,
    *,
    reason: Reason,
    lost: Lost = None,
    yes: Yes = False,
) -> None:
    """Let known records arrive under other subjects, another subject column, or another variant of an id.

    The caps of the dataset are lowered by the amounts that people may have been charged under another name: 0 if
    columns were renamed but subjects were not. The next run pins its subjects, columns, and spelling.
    """
    losses = _losses(lost)
    with open_ledger(write=True) as handle:
        lowered = amounts_text(losses) or 0
        question = f"May all known records of {dataset} have other subjects, with caps lowered by {lowered}?"
        require_confirmation(question, yes=yes)
        with _writing(handle, dataset):
            caps = plain_all(handle.people.accept_units(dataset, losses, reason))
    outcome = f"records of {dataset} may have other subjects, under new caps ({_caps_text(caps)})"
    terminal.report({"caps": caps, "accepted": dataset}, f"{outcome}; write these into policies")


def _writing(handle: Ledger, dataset: str, release: str | None = None) -> AbstractContextManager[None]:
    from dptext_etl.ledger import Scope
    from dptext_etl.ledger.anchor_files import anchored

    return anchored(handle, Scope(dataset, "all"), release)


def _job(handle: Ledger, name: str) -> dict[str, Any]:
    for job in handle.reports.jobs():
        if job["job"] == name:
            return job
    raise LedgerError("the ledger has no job of this name", "`dptext ledger jobs` lists jobs with open reservations")


def _job_text(job: dict[str, Any]) -> str:
    return f"{job['dataset']}, release {' and '.join(job['releases'])}, since {job['since']}"


def _losses(texts: list[str] | None) -> dict[str, float]:
    """Read the amounts that may be missing in balances, by component."""
    problem = "a loss is written COMPONENT=AMOUNT, the amount 0 or more"
    hint = f"for example --lost {PURE}=40; one amount for each component, of all losses together"
    try:
        return {name: float(amount) for name, amount in name_values(texts, problem, hint).items()}
    except ValueError:
        raise PolicyError(problem, hint) from None


def _caps_text(caps: Mapping[str, Mapping[str, float]]) -> str:
    lowered = [f"{scope}: {', '.join(f'{name} {left:g}' for name, left in cap.items())}" for scope, cap in caps.items()]
    return "; ".join(lowered) or "no cap was set"


def _pinned(handle: Ledger, scope: Scope) -> Mapping[str, float] | None:
    """Return the pinned cap of a scope in units of epsilon, rho and delta, or None."""
    for cap in handle.reports.caps():
        if f"{cap['scope']}, period {cap['period']}" == str(scope) and cap["measure"] is not None:
            return plain_all(cap["limits"])
    return None
