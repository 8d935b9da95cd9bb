"""Share the helpers of steps in Dagster: failures, progress, files between steps, and the facts of a run.

Dagster keeps the text of an exception, its causes, its context and its stack (source lines, no values) in the event
store for ever. The message of a library may quote a cell, so it must not leave a step. The files (a staged run and its
verdicts, as JSON) are next to the staged rows, in a folder that only its owner can read.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from pydantic import BaseModel

from dptext_etl import keys
from dptext_etl.checks import Verdict
from dptext_etl.checks.gate import declared_lineage
from dptext_etl.data_types import kind_of, plain_type
from dptext_etl.errors import DPTextError, GateError, InputError, PolicyError, seam
from dptext_etl.families.aggregate.statistic import VERSION
from dptext_etl.guarantee import MICRO
from dptext_etl.markup import markdown
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner import Manifest, RunSummary, StagedRun
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Progress, throttled
from dptext_etl.runner.report import shown_rows
from dptext_etl.runner.shard.staging import Staging, from_json, opened, sealed, staging_key, to_json
from dptext_etl.runner.source.roles import shown_columns
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from types import TracebackType


UNKNOWN = "an error that dptext_etl did not foresee; its message is not shown, because it may quote a row"


class as_failure:  # noqa: N801  (reads as a statement: `with as_failure("staging"):`)
    """Turn every exception that leaves the block into a `dagster.Failure` with our words and without its causes.

    The failure forbids retries where a policy, a table, a cap or a gate refuses: they refuse again for the same reason,
    and a fired gate has revoked the release. A failure of the machine (`DPTextError.transient`: a store, the lease of a
    run that was killed, a full disk, a machine) may be tried again where the code location asks for it: the next
    attempt continues after the committed records.
    """

    def __init__(self, action: str, partition: str | None = None) -> None:
        self._action, self._partition = action, partition

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None or not issubclass(kind, Exception) or issubclass(kind, dg.Failure):
            return
        if isinstance(exc, DPTextError):
            sentence, code = str(exc), exc.exit_code
        else:
            sentence, code = f"{self._action} failed ({type(exc).__name__}): {UNKNOWN}", DPTextError.exit_code
        if self._partition is not None:
            sentence = f"partition {self._partition}: {sentence}"
        again = getattr(exc, "transient", True)
        failure = dg.Failure(sentence, metadata={"exit_code": code, "error": type(exc).__name__}, allow_retries=again)
        try:
            raise failure
        except dg.Failure:
            failure.__context__ = failure.__cause__ = None
            raise


def progress_logger(log: logging.Logger, partition: str | None) -> Listener:
    """Return a listener that logs a line now and then, and one at the end of every phase."""
    where = f"{partition}: " if partition else ""

    def write(progress: Progress) -> None:
        took = f" in {progress.seconds:.1f} s" if progress.ended else ""
        log.info(f"{where}{progress.phase}: {progress}{took}")

    return throttled(write)


_RUN = "run.handover"
_VERDICTS = "verdicts.handover"
_AGAIN = "materialize the staged asset again"
NOTHING_STAGED = ("no staged rows can be checked or published", "materialize the staged asset first")


def save_run(staged: StagedRun) -> None:
    """Store a staged run for the gates; verdicts over an earlier one no longer count."""
    staged.layout.staging.delete(_VERDICTS)
    _write(staged.policy, staged.layout.staging, _RUN, {"policy": _hash(staged.policy), "run": to_json(staged)})


def save_empty(policy: Policy, partition: str | None) -> None:
    """Note that a partition has no rows: then nothing of it is judged or published."""
    storage = Layout.of(policy, partition).staging
    storage.delete(_VERDICTS)
    _write(policy, storage, _RUN, {"policy": _hash(policy), "run": None})


def is_empty(policy: Policy, partition: str | None) -> bool:
    """Return whether the last staging of a partition found no rows."""
    content = _read(policy, Layout.of(policy, partition).staging, _RUN)
    return content is not None and content["run"] is None


def is_staged(policy: Policy, partition: str | None) -> bool:
    return bool(Layout.of(policy, partition).staging.glob(_RUN))


def load_run(policy: Policy, partition: str | None) -> StagedRun:
    content = _read(policy, Layout.of(policy, partition).staging, _RUN)
    if content is None:
        raise InputError(*NOTHING_STAGED)
    if content["policy"] != _hash(policy):
        raise PolicyError("the policy changed since its rows were staged", _AGAIN)
    with seam("reading the files of the previous step", InputError, _AGAIN):
        return from_json(content["run"], policy)


def save_verdicts(staged: StagedRun, verdicts: tuple[Verdict, ...]) -> None:
    """Store the verdicts over a staged run for its publication; they count only for exactly these files."""
    facts = {"judged": _digests(staged), "verdicts": [verdict.as_dict() for verdict in verdicts]}
    _write(staged.policy, staged.layout.staging, _VERDICTS, facts)


def load_verdicts(staged: StagedRun) -> tuple[Verdict, ...]:
    content = _read(staged.policy, staged.layout.staging, _VERDICTS)
    if content is None or content["judged"] != _digests(staged):
        msg = "the staged rows were not judged, so nothing is published"
        raise GateError(msg, "run the gates on the staged asset first")
    with seam("reading the files of the previous step", InputError, _AGAIN):
        return tuple(Verdict.from_dict(facts) for facts in content["verdicts"])


def remove_files(staged: StagedRun) -> None:
    staged.layout.staging.delete(_RUN, _VERDICTS)


def _hash(policy: Policy) -> str:
    columns = policy.charged_columns()
    configurations = [item.mechanism.cfg() for item in columns] + [item.chain for item in columns if item.chain]
    return hashlib.sha256("\0".join([as_json(policy), *configurations]).encode()).hexdigest()


def _digests(staged: StagedRun) -> list[str]:
    return [digest for shard in staged.shards for digest in (shard.sha256, str(shard.post.get("sha256", "")))]


def _write(policy: Policy, storage: Storage, name: str, facts: dict[str, Any]) -> None:
    storage.write(name, sealed(_key(policy, storage), name, facts), action="storing facts for the next step")


def _read(policy: Policy, storage: Storage, name: str) -> dict[str, Any] | None:
    content = storage.read(name)
    facts = opened(_key(policy, storage), name, content)
    if content is not None and facts is None:
        msg = f"the staged file {name} has changed since the step before wrote it, or the noise key has"
        raise InputError(msg, _AGAIN)
    return facts


def _key(policy: Policy, storage: Storage) -> bytes:
    return staging_key(keys.resolve(policy.key), policy.dataset, storage)


def as_json(model: BaseModel) -> str:
    """Write a model as JSON; sets are sorted, because their order differs between processes."""

    def plain(value: Any) -> Any:
        return sorted(value) if isinstance(value, (set, frozenset)) else str(value)

    return json.dumps(model.model_dump(), sort_keys=True, default=plain)


Metadata = dict[str, Any]


def claims(policy: Policy) -> Metadata:
    rows = ["| column | mechanism | its parameter epsilon | class | disclosed | then |", "|---|---|---|---|---|---|"]
    for column in policy.charged_columns():
        mechanism, guarantee = column.mechanism, column.mechanism.guarantee
        disclosed = ", ".join(sorted(guarantee.disclosures)) or "nothing"
        cells = [mechanism.name, f"{mechanism.epsilon:g}", guarantee.guarantee_class.value, disclosed]
        rows.append(f"| {markdown(str(column.column))} | {' | '.join(cells)} | {_steps(column) or '-'} |")
    return {"release": policy.release, "guarantee": dg.MetadataValue.md("\n".join(rows))}


def code_version(policy: Policy) -> str:
    """Return a version made of the parameters of all text columns; Dagster marks assets of another version as outdated.

    The configuration hash needs the mechanisms' tables, which a code location must not build when it is loaded.
    """
    if policy.synthetic is not None:
        parts = [f"{VERSION} {as_json(policy.synthetic)}"]
    else:
        columns = policy.column_policies()
        items: list[Any] = [column.mechanism for column in columns]
        items += [step for column in columns for step in column.postprocess]
        parts = [f"{item.name} {item.version} {as_json(item)}" for item in items]
    return hashlib.sha256("\0".join([policy.release, *parts]).encode()).hexdigest()[:12]


def of_staged(staged: StagedRun, raw: dg.AssetKey) -> Metadata:
    draws = sum(shard.counts["words"] for shard in staged.shards)
    schema = Staging(staged.layout.staging).schema(staged.shards[0]) if staged.shards else {}
    return {
        "dagster/row_count": sum(shard.counts["rows"] for shard in staged.shards),
        **row_counts(staged.rows),
        "draws": draws,
        "seconds": round(staged.seconds, 3),
        "draws per second": round(draws / staged.seconds) if staged.seconds else 0,
        "columns dropped unread": ", ".join(staged.dropped) or "none",
        "staging": dg.MetadataValue.path(staged.layout.staging.url),
        **_columns(
            staged.policy, {name: kind_of(plain_type(dtype, rename=True)) for name, dtype in schema.items()}, raw
        ),
    }


def of_published(staged: StagedRun, summary: RunSummary, raw: dg.AssetKey) -> Metadata:
    """Return the facts of a published run: its contents, its cost, and the remaining budget."""
    manifest = Manifest.read(staged.layout)
    largest = summary.spend["largest_record"]
    facts: Metadata = {
        "dagster/row_count": summary.published_rows,
        "version": summary.version or 0,
        "notes": "; ".join(summary.notes),
        **budget(summary.remaining),  # the loss of a person before the one of a text
        "largest epsilon of a record": _number(largest["eps_approx"]),
        "log10 odds of that record": _number(largest["log10_odds"]),
        **row_counts(summary.rows),
        "gates passed": ", ".join(gate["name"] for gate in summary.gates if gate["applicable"]),
        "gates not applicable": ", ".join(gate["name"] for gate in summary.gates if not gate["applicable"]),
    }
    if staged.policy.synthetic is not None:
        of_table = staged.policy.synthetic.mechanism
        facts |= {"epsilon of the whole table for one record": of_table.epsilon, "delta": of_table.delta}
    if summary.published and manifest:
        facts |= {
            "dagster/uri": summary.published,
            "manifest": dg.MetadataValue.path(staged.layout.manifest),
            "manifest sha256": summary.manifest or "",
            **_columns(staged.policy, manifest.schema, raw),
        }
    return facts


def budget(remaining: Mapping[str, Any]) -> Metadata:
    """Return the remaining budget of units as numbers, which Dagster plots over the materializations of an asset."""
    facts: Metadata = {
        f"{component} used, most": round(int(used["max"]) / MICRO, 6)
        for component, used in remaining["used"].items()
        if used and used["max"] != "inf"
    }
    for component, left in remaining["left"].items():
        for quantile, amount in left.items():
            if quantile in _PLOTTED:
                facts[f"{component} left, {_PLOTTED[quantile]}"] = round(int(amount) / MICRO, 6)
    if facts:
        facts[f"{remaining['unit']}s at their cap"] = int(remaining["exhausted"])
    return facts


_PLOTTED = {"min": "least", "p50": "median"}
_ALWAYS = ("read", "new", "replayed", "quarantined", "released")


def row_counts(rows: Mapping[str, int]) -> Metadata:
    """Return the row counts, the rarer kinds only if they are not 0."""
    counted = {name: count for name, count in rows.items() if count or name in _ALWAYS}
    return {f"rows {name}": count for name, count in shown_rows(counted).items()}


def _steps(column: ColumnPolicy) -> str:
    return ", ".join(step.name for step in column.postprocess)


def _number(amount: float | str) -> float | str:
    return amount if isinstance(amount, str) else round(float(amount), 3)


def _columns(policy: Policy, schema: Mapping[str, str], raw: dg.AssetKey) -> Metadata:
    """Return the columns and the origin of each; also of a column that the policy keeps next to its rewritten texts.

    All columns of a synthetic table follow the one statistic of texts and labels.
    """
    if policy.synthetic is not None:
        maxent, names = policy.synthetic.mechanism, policy.synthetic.columns
        by = f"{maxent.name}, epsilon {maxent.epsilon:g} for the whole table"
        text = f"public, drawn to follow one noisy statistic: {by}"
        tags = {"mechanism": maxent.name, "epsilon": f"{maxent.epsilon:g}"}
        shown = {**dict.fromkeys(policy.synthetic.published_columns, "List(Float32)"), **dict.fromkeys(names, "String")}
        columns = [dg.TableColumn(name, kind, description=text, tags=tags) for name, kind in shown.items()]
        above = [dg.TableColumnDep(asset_key=raw, column_name=name) for name in names]
        return _schema(columns, dict.fromkeys(shown, above))
    published = set(shown_columns(policy))
    edges = [edge for edge in declared_lineage(policy) if edge.output in published]
    spent = {column.column: column for column in policy.column_policies()}
    columns = []
    for edge in edges:
        keyed = edge.way == "id" and policy.ids == "keyed"
        text = "published as a keyed hash of the id" if keyed else "passes unchanged"
        tags = {"way": str(edge.way)}
        if edge.way == "released":
            column = spent[edge.source]
            mechanism = column.mechanism
            text = f"released by {mechanism.name} with the parameter epsilon {mechanism.epsilon:g}"
            tags = {"mechanism": mechanism.name, "epsilon": f"{mechanism.epsilon:g}"}
            if column.postprocess and edge.output == edge.source:
                text += f", then rewritten at no cost: {_steps(column)}"
                tags["postprocess"] = _steps(column)
        columns.append(dg.TableColumn(edge.output, schema.get(edge.output, "unknown"), description=text, tags=tags))
    deps = {edge.output: [dg.TableColumnDep(asset_key=raw, column_name=edge.source)] for edge in edges}
    return _schema(columns, deps)


def _schema(columns: list[dg.TableColumn], deps: Mapping[str, list[dg.TableColumnDep]]) -> Metadata:
    return {
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/column_lineage": dg.TableColumnLineage(deps_by_column=deps),
    }
