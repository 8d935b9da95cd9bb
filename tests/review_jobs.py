"""A small table of reviews, and policies over it: what integration tests run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dptext_etl import Ledger, Policy, _kernel
from dptext_etl.engines import run
from dptext_etl.runner import RunSummary, scan_published
from dptext_etl.runner.unchanged import FILE as UNCHANGED
from tests.policy_files import write_policy

SENTINEL = "zzqsentinelqzz"
"""Stands in every raw text, and in nothing that leaves a run."""
STAGED = Path("published.staging", "reviews", hashlib.sha256(b"../published").hexdigest()[:16])
"""Staging of the jobs, without release and partition: it is named by the place of the sink, from there."""
SURROGATE = {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}
SHUFFLED = {"rows": 200, "delta": 1e-9, "per_subject": 6}


def make_reviews(rows: int = 240, first: int = 0) -> pl.DataFrame:
    """Rows of two text columns with words in and out of the vocabulary, empty and null texts."""
    numbers = range(first, first + rows)
    words = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100)]
    return pl.DataFrame(
        {
            "id": [f"r{i:05d}" for i in numbers],
            "user_id": [f"u{i % 40:03d}" for i in numbers],
            "stars": [i % 5 + 1 for i in numbers],
            "review": [
                f"{SENTINEL} " + " ".join(words[(i * 7 + j * j) % 100] for j in range(5 + i % 11)) for i in numbers
            ],
            "note": [None if i % 9 == 0 else "" if i % 9 == 1 else f"{words[i % 100]}, {SENTINEL}!" for i in numbers],
            "secret": [f"{SENTINEL} {i}" for i in numbers],
        }
    )


def save_table(frame: pl.DataFrame, path: Path) -> Path:
    """Write a table in the format of the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    {".parquet": frame.write_parquet, ".csv": frame.write_csv, ".ndjson": frame.write_ndjson}[path.suffix](path)
    return path


@dataclass
class Job:
    """A folder with a table, a key and a ledger, and policies over them."""

    folder: Path
    vectors: str
    values: dict[str, Any] = field(default_factory=dict)

    def policy(self, **changes: Any) -> Policy:
        """The policy, with some entries changed (None removes one)."""
        mechanism = {"name": "custext", "epsilon": 2.0, "k": 5, "vectors": self.vectors}
        values = {
            "dataset": "reviews",
            "release": "2026-11",
            "source": str(self.folder / "raw.parquet"),
            "sink": str(self.folder / "published"),
            "id": "id",
            "subject": "user_id",
            "keep": ["stars"],
            "keep_unique": "accepted",  # few rows; test_table_check.py tests the refusal
            "key": f"file:{self.folder / 'noise.key'}",
            "ledger": {"url": f"sqlite:///{self.folder / 'ledger.db'}"},
            "cap": {"measure": "pure", "epsilon": 1000.0, "period": "2026"},
            "shard_rows": 120,
            "column": [{"name": name, "mechanism": mechanism, "allow": ["cluster"]} for name in ("review", "note")],
            **self.values,
            **changes,
        }
        if "://" not in values["sink"]:
            values.setdefault("staging", values["sink"].replace("{partition}", "_") + ".staging")
        return Policy.parse({name: value for name, value in values.items() if value is not None})

    def run(self, **changes: Any) -> RunSummary:
        """Run the policy."""
        return run(self.policy(**changes))

    def write_policy(self, **changes: Any) -> Path:
        """Write the policy as a file in the folder, tables in one line each."""
        values = self.policy(**changes).model_dump(mode="json", by_alias=True, exclude_none=True)
        return write_policy(self.folder / "privacy.toml", values)

    def stop(self, step: str, times: int = 1) -> bool:
        """Run the policy until it reaches a step for the nth time, and stop there; tell whether it stopped."""

        seen: list[str] = []

        def stopping(name: str) -> None:
            seen.append(name)
            if name == step and seen.count(step) == times:
                raise StopError

        try:
            run(self.policy(), checkpoint=stopping)
        except StopError:
            return True
        return False

    def forget_that_nothing_changed(self) -> None:
        """Let the next run go through all its steps, as after any change."""
        for note in (self.folder / "published.staging").rglob(UNCHANGED):
            note.unlink()

    def ledger(self) -> Ledger:
        """The ledger, to look at."""
        return Ledger.open(str(self.folder / "ledger.db"), read_only=True, create=False)

    def published(self) -> pl.DataFrame:
        """The rows that readers see."""
        return scan_published(str(self.folder / "published")).collect()

    def part(self, number: int) -> Path:
        """The published file at a place."""
        (path,) = (self.folder / "published").glob(f"part-{number:05d}-*")
        return path

    def files(self, below: str = "published") -> dict[str, bytes]:
        """Every file of a folder, and every file that a publication puts next to it, by its path.

        Not what staging keeps of the run before, which only `run` writes.
        """
        root = self.folder / below
        beside = [root.with_name(f"{root.name}{suffix}") for suffix in (".versions", ".manifest.json")]
        found = [*root.rglob("*"), *beside[0].rglob("*"), beside[1]]
        found = (path for path in sorted(found) if path.is_file() and path.name != UNCHANGED)
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def charged(self) -> dict[str, tuple[int, int]]:
        """Reserved and committed records per column, canaries included."""
        with self.ledger() as ledger:
            return {row["column"]: (row["records"], row["committed"]) for row in ledger.reports.show()}


@pytest.fixture
def sentinel():
    return SENTINEL


@pytest.fixture
def reviews():
    """Make rows: reviews(rows, first)."""
    return make_reviews


@pytest.fixture
def save():
    """Write a table: save(frame, path)."""
    return save_table


ONE_SHARD = {
    "test_kept_copies", "test_private_inputs", "test_read_tables", "test_run_audiences", "test_run_caps",
    "test_run_csv", "test_run_data_types", "test_run_export", "test_run_fewer_rows", "test_run_forgotten",
    "test_run_ids", "test_run_kept_types", "test_run_literal_names", "test_run_lost_ledger", "test_run_new_format",
    "test_run_other_key", "test_run_preflight", "test_run_statement", "test_run_table_formats",
    "test_run_tables_in_stores", "test_run_telemetry", "test_run_units", "test_table_check", "test_umask",
}  # fmt: skip
"""Files of tests whose jobs have one shard: nothing there depends on the number."""


def jobs_in(place: Path, vectors: str, module: Any = None) -> Callable[..., Job]:
    name = getattr(module, "__name__", "").rpartition(".")[2]
    secret, terms = _kernel.Secret(), {"shard_rows": 240} if name in ONE_SHARD else {}

    def make(name: str = "job", frame: pl.DataFrame | None = None, suffix: str = ".parquet", **values: Any) -> Job:
        folder = place / name
        folder.mkdir()
        secret.write(str(folder / "noise.key"))
        save_table(make_reviews() if frame is None else frame, folder / f"raw{suffix}")
        return Job(folder, vectors, {"source": str(folder / f"raw{suffix}"), **terms, **values})

    return make


@pytest.fixture
def make_job(request, tmp_path, small_vectors):
    """Make folders with the reviews and a key; every job of a test has the same key."""
    return jobs_in(tmp_path, small_vectors, request.module)


@pytest.fixture(scope="module")
def make_shared(request, tmp_path_factory, small_vectors):
    """Make jobs that run once for a file: its tests read the published rows, and change nothing."""
    return jobs_in(tmp_path_factory.mktemp("shared"), small_vectors, request.module)


@pytest.fixture
def job(make_job):
    return make_job()


class StopError(Exception):
    """Stands for a process that dies."""


def stopping_at(step: str) -> Callable[[str], None]:
    """A checkpoint that stops at a step."""

    def checkpoint(name: str) -> None:
        if name == step:
            raise StopError

    return checkpoint


def copied_with_links(folder: Path, other: Path) -> None:
    """Copy a folder whose versions share files with the publication."""
    subprocess.run(["cp", "-a", str(folder), str(other)], check=True)


@pytest.fixture(scope="module")
def released_with():
    """More entries of the policy of `released`, as a function of its folder; files replace it."""
    return lambda folder: {}


@pytest.fixture(scope="module")
def released_once(make_shared, released_with):
    """A job that has run, and a copy of its folder, with the ledger's heads: it is put back for every test."""
    job = make_shared("released-once")
    job.values |= released_with(job.folder)
    ledger = {"url": f"sqlite:///{job.folder / 'ledger.db'}", "anchors": str(job.folder / "anchors")}
    job.values["ledger"] = ledger
    job.run()
    aside = job.folder.with_name("aside")
    copied_with_links(job.folder, aside)
    yield job, aside
    for folder in (job.folder, aside):  # `released_with` may have other entries for the next tests of the file
        shutil.rmtree(folder)


@pytest.fixture
def released(released_once, monkeypatch):
    """A job whose folder is as a run left it; commands that name only its ledger use its heads, too."""
    job, aside = released_once
    monkeypatch.setenv("DPTEXT_ANCHORS", str(job.folder / "anchors"))
    shutil.rmtree(job.folder)
    copied_with_links(aside, job.folder)
    return replace(job, values=dict(job.values))


@pytest.fixture
def make_synthetic(make_job, reviews):
    """Make a job whose policy publishes a synthetic table."""
    from .synthetic_runs import CAP, SYNTHETIC, labeled

    def made(name="job", frame=None, **changes):
        job = make_job(name, labeled(reviews()) if frame is None else frame)
        job.values |= {"column": None, "keep": None, "synthetic": SYNTHETIC, "cap": CAP, **changes}
        return job

    return made


@pytest.fixture
def make_shuffled(make_job):
    """Make a job whose policy publishes its reviews shuffled."""

    def made(name="job", **changes):
        job = make_job(name)
        cap = {"measure": "approx", "epsilon": 1000.0, "delta": 1e-5, "period": "2026"}
        job.values |= {"column": [{"name": "review", "mechanism": SURROGATE}], "keep": [], "cap": cap}
        job.values |= {"shuffled": SHUFFLED, **changes}
        return job

    return made


@pytest.fixture
def store(monkeypatch):
    """A small S3 on the loopback interface."""
    from .object_store import serving

    monkeypatch.setenv("DPTEXT_TEST_SECRET", "not-to-be-printed")
    with serving() as handler:
        yield handler


@pytest.fixture(scope="module")
def policy_of_job(make_shared):
    """The path of a policy file of a shared job that has run."""
    job = make_shared("of policy")
    job.values["column"] = list(job.policy().columns[:1])
    job.run()
    return job.write_policy()
