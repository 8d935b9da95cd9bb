"""Define the commands on a published table: `dptext check|gx-suite|clean|forget|statement|export|verify-export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl import files
from dptext_etl.cli import terminal
from dptext_etl.cli.commands.run import show_gates
from dptext_etl.cli.options import (
    Audience,
    Partition,
    PolicyFile,
    Yes,
    command,
    load_policy,
    refuse_settings,
    require_confirmation,
)
from dptext_etl.errors import UNCHANGED, InputError, PolicyError, UsageError, counted, seam
from dptext_etl.extensions import pip_install

if TYPE_CHECKING:
    from dptext_etl.runner.publish.forgetting import ErasedTable, Erasure, ForgetSummary


app = typer.Typer()
CHECK_KEYS = ("passed", "gates", "audiences")
FORGET_KEYS = ("version", "removed", "rows", "versions", "staged", "noted", "audiences")
CLEAN_KEYS = ("versions", "stopped", "staged", "quarantined", "kept", "drafts", "busy", "removed")
STATEMENT_KEYS = (
    "format", "dataset", "release", "partition", "version", "rows", "files", "id", "in_clear", "coarse", "traceable",
    "manifest_sha256", "sink", "published_at", "reidentified", "gates", "columns", "record", "excluded", "caps",
    "lacks", "public", "written_by",
)  # fmt: skip


@command(app, "dptext check privacy.toml", CHECK_KEYS)
def check(
    policy: PolicyFile,
    *,
    partition: Partition = None,
    released: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASED", help="The published folder or object-store URL; by default the policy's sink."
        ),
    ] = None,
) -> None:
    """Evaluate all gates for a published table: files, columns, output words, committed spends, absence of canaries.

    Exits with 4 if a gate fails.
    """
    from dptext_etl.checks import Verdict, require
    from dptext_etl.checks.published import check_published
    from dptext_etl.policy import tables_of
    from dptext_etl.runner.layout import Layout
    from dptext_etl.runner.publish.parts import id_finder

    tables, judged = tables_of(load_policy(policy)), list[Verdict]()
    gates = dict[str, list[dict[str, Any]]]()
    for table in tables if released is None else tables[:1]:
        layout = Layout.of(table, partition)
        verdicts = check_published(released or layout.sink, table, own_ids=id_finder(layout.staging, table.ledger))
        judged += verdicts
        gates[table.audience or ""] = [verdict.as_dict() for verdict in verdicts]
    passed, own = all(verdict.passed for verdict in judged), gates.pop("")
    if not terminal.emitted({"passed": passed, "gates": own, "audiences": gates}):
        show_gates(own)
        for name, listed in gates.items():
            terminal.heading(f"Audience {name}")
            show_gates(listed)
    require(judged)


@command(app, "dptext gx-suite privacy.toml", ("suite", "file"))
def gx_suite(
    policy: PolicyFile,
    *,
    output: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="PATH", help="Folder of the suites of a file context, or a .json file."),
    ] = Path("gx/expectations"),
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Write the suite of tables that are made from the release.")
    ] = False,
    public: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of such a table that holds other text; repeat as needed."),
    ] = None,
) -> None:
    """Write the suite of a policy as a file of Great Expectations, for your own checkpoint.

    It names the policy file as you gave it, and reads it at each evaluation: from the working folder, or from the
    folder that the environment variable DPTEXT_POLICIES names.
    """
    refuse_settings("the suite names the file, which each evaluation reads again")
    try:
        from dptext_etl.checks.great_expectations.expectations import write_suite
    except ModuleNotFoundError as missing:
        raise PolicyError(f"{missing.name} is not installed", pip_install("gx")) from None
    name, path = write_suite(policy, output, downstream=downstream or bool(public), public=public or ())
    if terminal.emitted({"suite": name, "file": str(path)}):
        return
    terminal.say(f"wrote {path}")
    terminal.say(f"in a checkpoint: context.suites.get({name!r})")


@command(app, "dptext clean privacy.toml --dry-run", CLEAN_KEYS)
def clean(
    policy: PolicyFile,
    *,
    partition: Partition = None,
    drafts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="Another folder whose drafts of killed exports and backups go; repeat as needed.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files, and remove nothing.")] = False,
) -> None:
    """Remove the staging of runs that a gate stopped, and files that the policy's `retention` no longer keeps.

    Drafts of killed exports and backups go, too. Readers and runs lose nothing: the current version, the ledger, and
    the files of a running run stay.
    """
    from dptext_etl.runner.publish import versions

    files = versions.clean(load_policy(policy), partition=partition, dry_run=dry_run, drafts=drafts or ())
    lists = {name: [str(path) for path in getattr(files, name)] for name in CLEAN_KEYS[:-1]}
    if terminal.emitted({**lists, "removed": not dry_run}):
        return
    outcome = "would be removed" if dry_run else "removed"
    for name, paths in lists.items():
        if paths:
            name = "lists of excluded records" if name == "quarantined" else name  # noqa: PLW2901
            terminal.say(f"{name}{'' if name == 'busy' else f', {outcome}'}: {', '.join(paths)}")
    if not files.removed:
        terminal.say("nothing to remove")


@command(app, "dptext forget privacy.toml --subject u17", FORGET_KEYS)
def forget(
    policy: Annotated[
        Path, typer.Argument(metavar="POLICY", help="The policy file; with --everywhere, or a folder of policy files.")
    ],
    *,
    subject: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A subject whose records are all removed; repeat as needed.")
    ] = None,
    record: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A record to remove; repeat as needed.")
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Remove every published record that the source no longer holds.")
    ] = False,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="In all partitions and releases, of all policies in the folder.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="With --everywhere: write a report to this file, as Markdown.")
    ] = None,
    partition: Partition = None,
    yes: Yes = False,
) -> None:
    """Publish a version without some people, retire the older versions in the ledger, and delete their files.

    Remove their rows from the source first. Charges stay in the ledger, as HMACs. These people and records are excluded
    of all later releases until `dptext ledger readmit` names them. If no row was removed, or if the ledger, lists in
    staging, and the source do not know someone, the command says so and exits with 8; in the latter case, it changes
    nothing. It cannot reach copies that readers made, or copies in an object store's versioning.

    With --everywhere, the command first shows its plan. A person whom nothing there knows is an error.
    """
    from dptext_etl.runner.publish import forgetting

    if everywhere:
        refuse_settings("--everywhere reads all files of a folder")
        if missing or partition is not None:
            raise PolicyError("--everywhere names people, in all partitions", "leave out --missing and --partition")
        _everywhere(policy, subject or [], record or [], dry_run=dry_run, out=out, yes=yes)
        return
    if out is not None:
        raise PolicyError("--out belongs to --everywhere", "add --everywhere")
    loaded = load_policy(policy)
    question = f"Rewrite the published table of {loaded.dataset}, and delete the files of all its older versions?"
    if not dry_run:
        require_confirmation(question, yes=yes)
    named: dict[str, Any] = {"subjects": subject or (), "records": record or (), "missing": missing}
    done = forgetting.forget(loaded, partition=partition, **named, dry_run=dry_run)
    if not terminal.emitted(asdict(done)):
        if dry_run:
            terminal.say("this would happen; nothing was changed:")
        _show_forgotten(done)
        for name, table in done.audiences.items():
            terminal.heading(f"Audience {name}")
            _show_forgotten(table)
    if not any(table.removed for table in (done, *done.audiences.values())):
        raise typer.Exit(UNCHANGED)


def _show_forgotten(done: ForgetSummary) -> None:
    if done.withdrawn:
        terminal.say(f"the shuffled release was withdrawn: version {done.version} is an empty table")
        terminal.say("publish the records that stay under a new release name; they are charged again")
    elif done.stays:
        stays = "the statistic of the synthetic table stays, because it was charged"
        terminal.say(f"{stays}: version {done.version} is current")
        terminal.say("publish a table without these people under a new release name; all others are charged again")
    elif done.removed:
        removed = counted(done.removed, "record was", "records were")
        terminal.say(f"{removed} removed; version {done.version} holds {counted(done.rows, 'row')}")
    else:
        terminal.say(f"no row of these people is published; version {done.version} holds {counted(done.rows, 'row')}")
    terminal.say(f"records that the ledger newly notes as forgotten: {done.noted:,}")
    deleted = ", ".join(done.versions) or "none"
    terminal.say(f"deleted versions: {deleted}; files changed in staging: {done.staged:,}")


def _everywhere(
    where: Path, subjects: list[str], records: list[str], *, dry_run: bool, out: Path | None, yes: bool
) -> None:
    from dptext_etl.runner.publish.forgetting import erase

    plan = erase(where, subjects=subjects, records=records, dry_run=True)
    done = plan
    if not dry_run:
        if not terminal.as_json():
            _show_plan(plan)
        require_confirmation("Do this? Files of older versions are deleted, too.", yes=yes)

        def note_place(place: ErasedTable) -> None:
            names = filter(None, (place.dataset, place.release, place.audience, place.partition))
            terminal.note(" ".join(("done:", *names)))

        done = erase(where, subjects=subjects, records=records, progress=None if terminal.as_json() else note_place)
    if out is not None:
        _write_report(out, done)
    if not terminal.emitted(asdict(done)):
        if dry_run:
            _show_plan(done)
        else:
            terminal.say(f"records that the ledgers newly note as forgotten: {done.noted:,}")
            if out is not None:
                terminal.say(f"report: {out}")
    if not any(place.records for place in done.places):
        raise typer.Exit(UNCHANGED)


def _show_plan(plan: Erasure) -> None:
    terminal.table(("dataset", "release", "partition", "records", "outcome"), [_row(place) for place in plan.places])
    for line in _other_publications(plan):
        terminal.say(line)


def _row(place: ErasedTable) -> tuple[str, ...]:
    release = ", ".join(filter(None, (place.release, place.audience)))
    return place.dataset, release, place.partition or "", f"{place.records:,}", place.outcome


def _other_publications(erasure: Erasure) -> list[str]:
    return [
        f"the ledger also records {entry['dataset']}, release {entry['release']}, with {entry['records']:,} of these"
        f" records (versions {', '.join(entry['versions'])}). No policy here has this release: delete copies of it"
        for entry in erasure.elsewhere
    ]


def _write_report(path: Path, erasure: Erasure) -> None:
    """Write a report of the changes, with place and time; it names no person."""
    from datetime import UTC, datetime

    table = [
        "| dataset | release | partition | records | outcome | version | deleted versions | changed in staging |",
        "|---|---|---|---:|---|---|---|---:|",
    ]
    for place in erasure.places:
        cells = (*_row(place), str(place.version or ""), ", ".join(place.deleted), str(place.staged))
        table.append(f"| {' | '.join(cells)} |")
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    parts = (
        "# Plan of an erasure: nothing was changed" if erasure.dry_run else "# Erasure",
        f"{when}. People and records named: {erasure.people:,}. Records newly noted as forgotten: {erasure.noted:,}.",
        "\n".join(table),
        *_other_publications(erasure),
        "Charges stay in the ledgers, under keyed hashes, because the texts were released.",
        "Copies that readers made, and copies in the versioning of an object store, are out of reach.",
    )
    with seam(f"writing {path}", hint="name a file that you can write"):
        files.write(path, ("\n\n".join(parts) + "\n").encode())


@command(app, "dptext statement privacy.toml --out statement", STATEMENT_KEYS)
def statement(
    target: Annotated[
        str,
        typer.Argument(
            metavar="POLICY|RELEASED", help="A policy file (.toml), or the published folder or object-store URL."
        ),
    ],
    *,
    released: Annotated[
        str | None,
        typer.Option(metavar="RELEASED", help="The published folder or object-store URL, if not the policy's sink."),
    ] = None,
    partition: Partition = None,
    public: Annotated[
        bool, typer.Option("--public", help="Omit facts that depend on texts, for readers outside.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where statement.md and statement.html go.")] = Path(
        "statement"
    ),
    evidence: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The report of `dptext evaluate`; never used with --public.")
    ] = Path("evidence"),
) -> None:
    """Write a sign-off page: the contents, guarantee, and cost of a release, and how to verify it.

    It reads the manifest, the ledger, and figures of an evaluation of this version; never a raw text, a released text
    or a key. Facts that depend on raw texts are in sections at the top, which --public omits. With --json, the command
    prints the facts and writes no file.
    """
    from dptext_etl.runner import statement as statements

    is_policy = target.endswith(".toml")
    if released is not None and not is_policy:
        raise UsageError("--released goes with a policy", "write dptext statement POLICY --released RELEASED")
    if not is_policy:
        refuse_settings("this is a published folder")
    loaded = load_policy(target) if is_policy else None
    facts = statements.facts(released if is_policy else target, loaded, partition, public=public, evidence=evidence)
    if terminal.emitted(facts):
        return
    for path in statements.write(facts, out):
        terminal.say(f"wrote {path}")


LABEL_KEYS = ("out", "rows", "labels")


@command(app, "dptext label published tickets.parquet --out labeled.parquet", LABEL_KEYS)
def label(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="A published folder, an export, or a classifier.")],
    texts: Annotated[Path, typer.Argument(metavar="TABLE", help="Your own texts: a .parquet file.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A new .parquet file.")],
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The column of texts.")] = "text",
    name: Annotated[str, typer.Option("--label", metavar="COLUMN", help="The new column of labels.")] = "label",
    corpus: Annotated[str | None, typer.Option(metavar="NAME|FOLDER", help="Corpus of the classifier.")] = None,
) -> None:
    """Label your own texts by the classifier that was published with a synthetic table.

    It costs nothing, and it is not a release: labels of private texts are private. The corpus of the classifier
    encodes the texts; name its folder if it is not installed.
    """
    import polars as pl

    from dptext_etl.polars import label as labeled
    from dptext_etl.runner import open_classifier

    classifier = open_classifier(release)
    with seam("reading the table", InputError, "name a .parquet file"):
        rows = pl.read_parquet(files.literal(texts))
    if rows.schema.get(text) != pl.String or name in rows.columns or out.exists():
        msg = "the table needs a column of strings with texts, no column of that label, and a new file for the result"
        raise InputError(msg, "see --text, --label, and --out")
    rows = rows.with_columns(labeled(text, classifier, corpus).alias(name))
    files.write(out, rows.write_parquet, action="writing the labeled table")  # only its owner can read it
    facts = {"out": str(out), "rows": rows.height, "labels": len(classifier.labels)}
    if not terminal.emitted(facts):
        terminal.say(f"wrote {out}: {rows.height:,} rows, labels in column {name!r}")


EXPORT_KEYS = (
    "export", "dataset", "release", "partition", "version", "rows", "files", "classes", "manifest_sha256",
    "sums_sha256",
)  # fmt: skip


@command(app, "dptext export privacy.toml --to reviews", EXPORT_KEYS)
def export(
    policy: PolicyFile,
    *,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder.")],
    rehearsal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The output of `dptext rehearse --json`: adds its verdict and figures."),
    ] = None,
    partition: Partition = None,
    audience: Audience = None,
) -> None:
    """Write the published version for readers elsewhere: data, manifest, public statement, data contract, checksums.

    It first runs the gates of `dptext check`, and exits with 4 if one fails. The same version under the same
    caps gives the same bytes. Figures of `dptext evaluate` are functions of raw texts, and are never exported.
    """
    from dptext_etl.policy import table_of
    from dptext_etl.runner.publish import export as exports

    _show_export(exports.export(table_of(load_policy(policy), audience), to, partition, rehearsal), "wrote")


@command(app, "dptext verify-export reviews", EXPORT_KEYS)
def verify_export(
    place: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that `dptext export` wrote.")],
) -> None:
    """Check an export without its policy, key, or ledger: files, checksums, manifest, contract, types, rows, classes.

    Exits with 4 if anything differs. Compare the SHA-256 of SHA256SUMS, which covers every file, with the one that the
    sender names: without it, the export may be the work of anyone.
    """
    from dptext_etl.runner.publish import export as exports

    _show_export(exports.verify(place), "verified")


def _show_export(facts: dict[str, Any], done: str) -> None:
    if terminal.emitted(facts):
        return
    terminal.say(f"{done} {facts['export']}")
    terminal.pairs({name: facts[name] for name in EXPORT_KEYS[1:] if facts[name] is not None and name != "classes"})
    terminal.say(f"guarantee: {', '.join(facts['classes'])}")
