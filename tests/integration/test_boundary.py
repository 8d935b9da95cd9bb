"""What leaves the boundary is a function of drawn text and declared disclosures (docs/spec/boundary.md#boundary).

Two tables have the same ids, people, kept columns and null texts, and texts as different as can be: two letters against
80,000 bytes, known against unknown words, texts that a model fails on. A mechanism whose draws ignore the text releases
the same from both. Then every byte outside must be equal; with a real mechanism, everything but the drawn texts.
"""

import json
import re
import stat
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from dptext_etl import run
from dptext_etl.guarantee import FINE, fine
from dptext_etl.runner import statement
from dptext_etl.spark import run_frame
from tests.command_line import dptext
from tests.quick import THOROUGH, quick

from ..toy_mechanisms import toys  # noqa: F401  (a fixture)
from .spark_runs import frame_of

ROWS = 150
FEW = ROWS if THOROUGH else 60
"""Rows where a shard of nearly every row does not matter to a test."""
WORDS = ("the", "of", "and", "house", "water")


def short(i):
    return WORDS[i % len(WORDS)]


def long(i):
    """Unknown words and digits, from 400 to 80,000 bytes."""
    return "zqxv7" * (16_000 if i % 50 == 3 else 80 * (1 + i % 9))


def table(text, rows=ROWS):
    return pl.DataFrame(
        {
            "id": [f"r{i:05d}" for i in range(rows)],
            "user_id": [f"u{i % 7}" for i in range(rows)],
            "stars": [i % 5 for i in range(rows)],
            "review": [None if i % 13 == 5 else text(i) for i in range(rows)],
        }
    )


BLIND = {"name": "blind", "epsilon": 2.0}
TIGHT = {"measure": "pure", "epsilon": 97.0, "period": "2026"}
"""Admits some records of a person only because earlier ones gave draws back."""
TIMED = {"seconds", "draws_per_second", "profile"}
INSIDE = {"reports", "staging"}
"""Reports of copies compare raw with released texts: they stay inside (docs/spec/boundary.md#boundary)."""

POLICY = """
dataset = "reviews"
release = "2026-11"
source = "raw.parquet"
sink = "published"
id = "id"
subject = "user_id"
keep = ["stars"]
key = "file:noise.key"
ledger = { url = "sqlite:///ledger.db" }
shard_rows = 40
shard_bytes = 6_000

[[column]]
name = "review"
mechanism = { name = "blind", epsilon = 2.0 }
"""


@pytest.fixture
def pair(make_job):
    """Make two jobs over tables that differ only in their texts, under one key."""

    def make(first=short, second=long, rows=ROWS, **values):
        values = {"cap": None, "shard_rows": 40, "shard_bytes": 6_000, **values}
        column = [{"name": "review", "mechanism": values.pop("mechanism", BLIND)}]
        return [
            make_job(name, table(text, rows), column=column, **values)
            for name, text in (("first", first), ("second", second))
        ]

    return make


def names_and_modes(job):
    """Every published file with its mode, and the folders above it."""
    roots = [path for path in job.folder.iterdir() if path.name.startswith("published") and "staging" not in path.name]
    found = [*roots, *(path for root in roots if root.is_dir() for path in root.rglob("*"))]
    return {without_hash(path.relative_to(job.folder)): stat.filemode(path.lstat().st_mode) for path in found}


def without_hash(path):
    """The name of a part by its place: its hash is the hash of published bytes."""
    return re.sub(r"-[0-9a-f]{16}(?=\.)", "", str(path))


def parts(job):
    """The structure of published parts, by their footers."""
    found = {}
    for path in sorted(job.folder.glob("published/*.parquet")):
        footer = pq.read_metadata(path)
        groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
        found[without_hash(path.name)] = (
            footer.num_rows,
            [group.num_rows for group in groups],
            footer.metadata,
            footer.schema,
        )
    return found


def said(job, summary, policy):
    """All that is said of a run outside the boundary, and in counts inside it; times and places excluded."""
    with job.ledger() as ledger:
        shown = [{**row, "published": len(row["published"])} for row in ledger.reports.show()]
        exported = ledger.reports.export()
    whole = {name: value for name, value in summary.as_dict().items() if name not in TIMED | INSIDE}
    found = {
        "summary": whole,
        "ledger": shown,
        "export": exported,
        "public": statement.facts(policy=policy, public=True),
    }
    return json.loads(json.dumps(found).replace(str(job.folder), "FOLDER"))


def outcome(job, **changes):
    """Run, and collect everything that is outside."""
    policy = job.policy(**changes)
    summary = run(policy)
    return job.files(Path(policy.sink).name), names_and_modes(job), said(job, summary, policy)


@pytest.mark.parametrize("suffix", quick(["", ".csv", ".ndjson"]))
def test_equal_draws_leave_equal_bytes(pair, toys, suffix):  # noqa: F811
    """The second table has a shard for nearly every row: parts end by published rows, not by raw texts of a shard."""
    one, other = pair()
    first, second = (outcome(job, sink=f"{job.folder}/published{suffix}") for job in (one, other))
    assert first == second
    assert len(first[0]) > 4
    if not suffix:
        assert parts(one) == parts(other)
        assert [rows for rows, *_ in parts(one).values()] == [40, 40, 40, 30]


@pytest.mark.parametrize("delta", quick([3.3e-10, 1e-12, 1e-9], first=2))
def test_deltas_add_up_alike(pair, toys, delta):  # noqa: F811
    """Where shards end follows from raw texts, and sums of floats depend on it in their last digits."""
    jobs = pair(mechanism={"name": "failing", "epsilon": 2.0, "delta": delta, "n_rec": 1_000})
    first, second = (outcome(job) for job in jobs)
    assert first == second
    spent, released = first[2]["summary"]["spend"], first[2]["summary"]["rows"]["released"]
    drawn = released - first[2]["summary"]["rows"]["null"]
    assert spent["sum_over_records"]["delta"] == drawn * fine(delta) / FINE
    assert spent["largest_record"]["delta"] == fine(delta) / FINE


def test_what_a_cap_admits_does_not_depend_on_lengths(pair, toys):  # noqa: F811
    """Draws that are given back make room; where shards end decides when."""
    first, second = (outcome(job, cap=TIGHT) for job in pair())
    assert first == second
    assert 0 < first[2]["summary"]["rows"]["quarantined"] < ROWS


def test_rows_that_are_added_later(pair, toys):  # noqa: F811
    jobs = pair(rows=FEW)
    for job, text in zip(jobs, (short, long), strict=True):
        outcome(job, incremental=True)
        table(text, FEW + 30).write_parquet(job.folder / "raw.parquet")
    first, second = (outcome(job, incremental=True) for job in jobs)
    assert (first, first[2]["summary"]["published_rows"]) == (second, FEW + 30)


def test_the_command_line_says_and_ends_alike(pair, toys):  # noqa: F811
    """But for the reports, which say that they stay inside."""
    said = []
    for job in pair(rows=FEW):
        path = job.folder / "privacy.toml"
        path.write_text(POLICY)
        done = dptext("run", path)
        output = done.output.replace(str(job.folder), "FOLDER")
        output = re.sub(r"Reports \(inside the boundary.*?\n\n", "", output, flags=re.DOTALL)
        said.append((done.exit_code, re.sub(r"[\d.,]+ (s\b|a second)", "TIME", output)))
    assert (said[0], said[0][0]) == (said[1], 0)


@pytest.mark.thorough
def test_dagster_keeps_equal_metadata(pair, toys):  # noqa: F811
    pytest.importorskip("dagster", reason="dagster is not installed")
    from dptext_etl.orchestration import materialize

    found = []
    for job in pair(rows=FEW):
        done = materialize(job.policy(), home=job.folder / "home")
        assert done.success
        (one,) = done.as_dict()["runs"]
        timed = [facts.pop(name, None) for facts in one["assets"].values() for name in ("seconds", "draws per second")]
        assert any(timed)
        kept = json.dumps([one["assets"], done.as_dict()["checks"]])
        found.append(json.loads(kept.replace(str(job.folder), "FOLDER")))
    assert found[0] == found[1]


def known(i):
    """Two known words, and one that is unknown in every other text."""
    return f"wordaa wordab {'zqxv' if i % 2 else 'wordac'}"


def unknown(i):
    """One known word of three; every other text has two more."""
    return f"wordaa zqxv 7{' wordab wordac' if i % 2 else ''}"


def reading_of(job):
    """The report on the texts of a run."""
    (path,) = (job.folder / "published.staging").rglob("texts.txt")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path.read_text().splitlines()[2:]


@pytest.mark.parametrize("more", quick([{"length": "fixed", "n_max": 3}, {}]))
def test_a_real_mechanism_changes_drawn_texts_alone(pair, small_vectors, more, caplog):
    """Texts agree on their length where it is disclosed. Only the report in staging describes them."""
    caplog.set_level("DEBUG")
    texts = (known, unknown) if more else (short, long)
    jobs, said = pair(*texts, mechanism={"name": "santext", "epsilon": 1.0, "vectors": small_vectors, **more}), []
    for job in jobs:
        caplog.clear()
        found = outcome(job)
        messages = "\n".join(f"{record.levelname} {record.getMessage()}" for record in caplog.records)
        logged = re.sub(r"[\d,]+ per second, \d+ s left", "TIME", messages.replace(str(job.folder), "FOLDER"))
        said.append([*found[1:], *([sorted(logged.splitlines())] if more else [])])  # long texts make more shards
    one, other = said
    if more:
        head = ["column 'review'", "texts with words: 138"]
        few = "texts of which fewer than half of the words are known: {}; their draws are nearly random"
        cut = "texts that are cut: {}; they lose {} words"
        assert reading_of(jobs[0]) == [*head, few.format("0 (0.0%)"), cut.format("0 (0.0%)", 0)]
        assert reading_of(jobs[1]) == [*head, few.format("138 (100.0%)"), cut.format("69 (50.0%)", 138)]
    for found in (one[1], other[1]):
        for place in (found["summary"], found["public"]):
            for name in ("manifest", "manifest_sha256", "gates"):
                place.pop(name, None)
    assert one == other
    assert parts(jobs[0]) == parts(jobs[1])


@pytest.mark.thorough
def test_parts_of_spark_follow_from_ids(pair, spark, small_vectors):
    jobs = pair(mechanism={"name": "santext", "epsilon": 1.0, "vectors": small_vectors})
    for job in jobs:
        run_frame(frame_of(spark, job), job.policy())
    assert parts(jobs[0]) == parts(jobs[1])
    assert names_and_modes(jobs[0]) == names_and_modes(jobs[1])
