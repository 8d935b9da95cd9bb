"""Scaffold a `defs.yaml` and, if needed, a policy: `dg scaffold defs dptext_etl.orchestration.PolicyComponent NAME`."""

# No `from __future__ import annotations`: Dagster makes command line options of the annotations.
import os
import tomllib
from contextlib import chdir
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from pydantic import BaseModel, Field

from dptext_etl.errors import InputError, seam

_ROOT = "{{ context.project_root }}"


class ScaffoldOptions(BaseModel):
    """Options of the command.

    Attributes:
        source: A table for which to guess a policy.
        policy: An existing policy file, or the path of a new one.
        id: Column of record ids; None guesses.
        subject: Column of the person behind a record; None guesses.
        text: The text column; None guesses.
    """

    source: str | None = Field(default=None, description="A table (Parquet, CSV, NDJSON) to guess a policy for.")
    policy: str | None = Field(default=None, description="An existing policy file, or the path of a new one.")
    id: str | None = Field(default=None, description="Column of record ids; otherwise guessed.")
    subject: str | None = Field(default=None, description="Column of the person of a record; otherwise guessed.")
    text: str | None = Field(default=None, description="The text column; otherwise guessed.")


class PolicyScaffolder(dg.Scaffolder[ScaffoldOptions]):
    """Write `defs.yaml` and, at the root of the project, a policy that people read and correct."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldOptions]:
        """Return the options of the command."""
        return ScaffoldOptions

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldOptions]) -> None:
        """Write the files; an existing policy stays unchanged."""
        root = request.project_root or request.target_path
        policy = Path(request.params.policy or root / f"{request.target_path.stem}.toml").absolute()
        if not policy.exists():
            text = _template(policy.stem) if request.params.source is None else _guessed(request.params, policy)
            with seam(f"writing the policy {policy}", InputError, "the folder must be there and writable by you"):
                policy.write_text(text, encoding="utf-8")
        scaffold_component(request, {"policy": _said(policy, root), **_starts(policy)})


def _starts(policy: Path) -> dict[str, Any]:
    """Return what may start the job: a sensor, and a schedule where nothing has to name a partition; both are off."""
    from dptext_etl.policy import PARTITION

    source = tomllib.loads(policy.read_text(encoding="utf-8")).get("source", "")
    starts: dict[str, Any] = {} if "://" in source else {"watch_source": True}
    return starts if PARTITION in source else {**starts, "schedule": "@daily"}


def _said(policy: Path, root: Path) -> str:
    """Return the path of a policy relative to the project's root, so that the project can be moved."""
    inside = policy.is_relative_to(root.absolute())
    return f"{_ROOT}/{policy.relative_to(root.absolute()).as_posix()}" if inside else str(policy)


def _guessed(given: ScaffoldOptions, policy: Path) -> str:
    from dptext_etl import runner

    source = os.path.relpath(Path(given.source or "").absolute(), policy.parent)
    texts = () if given.text is None else (given.text,)
    with chdir(policy.parent):
        return runner.init(source, dataset=policy.stem, key=_KEY, id=given.id, subject=given.subject, texts=texts)


_KEY = "env:DPTEXT_SECRET"


def _template(name: str) -> str:
    return f"""\
# A policy for dptext. Correct the names; then `dptext plan {name}.toml` says what it would cost.
dataset = "{name}"                        # part of every key: never rename it
release = "1"                             # pins these settings and one text per id
source = "raw/{name}.parquet"             # from this file's folder; may hold {{partition}}
sink = "published/{name}"
id = "id"
subject = "user_id"                       # caps are per subject; or: unit = "record"
keep = []                                 # columns that pass in clear; the others are dropped unread
key = "{_KEY}"                # `dptext key new PATH` makes one
ledger = {{ url = "sqlite:///ledger.db" }}
cap = {{ measure = "pure", epsilon = 1000, period = "all" }}

[[column]]
name = "text"
mechanism = {{ name = "custext", epsilon = 2.0, vectors = "english-20k-synonyms" }}
allow = ["cluster"]                       # consent: CusText shows the output set of every word
"""
