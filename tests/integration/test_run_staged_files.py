"""Files that one attempt leaves in staging for the next: each is changed between the two, and charges stay right."""

import hashlib
import re
import shutil
from functools import partial

import numpy as np
import polars as pl
import pytest

from dptext_etl.artifacts import canon
from dptext_etl.engines import run, stage
from dptext_etl.errors import DPTextError, FrozenLedgerError, InputError
from dptext_etl.ledger import Scope
from dptext_etl.runner import check
from dptext_etl.runner.publish.forgetting import forget
from tests.quick import quick

from ..review_jobs import STAGED
from ..toy_mechanisms import again, toys  # noqa: F401  (fixtures)

pytestmark = pytest.mark.usefixtures("toys", "again")
CAP = {"measure": "pure", "epsilon": 1000.0, "period": "2026"}
STEPS = {"column": [{"name": "review", "mechanism": {"name": "steps", "epsilon": 2.0}}]}
FICKLE = {"column": [{"name": "review", "mechanism": {"name": "fickle", "epsilon": 2.0}}]}


SHARD = {"draws", "json", "parquet"}


def rewritten(job):
    review, note = job.policy().columns
    return {"column": [{**review.model_dump(mode="json"), "postprocess": [{"name": "again"}]}, note]}


JOBS = {
    "charged ex post": ("make_job", STEPS, "staged", SHARD),
    "committed": ("make_job", {}, "committed", SHARD),
    "over the cap": (
        "make_job",
        {"cap": {**CAP, "epsilon": 100.0}, "min_released": 0.0},
        "gated",
        {*SHARD, "draft.json", "quarantine"},
    ),
    "rewritten": ("make_job", rewritten, "rewriting recorded", {*SHARD, "post"}),
    "kept": ("make_job", FICKLE, None, SHARD),
    "published": ("make_job", {}, None, {"unchanged.json", "left-out.json"}),
    "with hidden ids": ("make_job", {"ids": "keyed", "incremental": True}, None, {"ids"}),
    "shuffled": ("make_shuffled", {}, "committed", SHARD),
    "synthetic": ("make_synthetic", {}, "staged", SHARD),
}


def flipped(content):
    return content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]


WAYS = {"flipped": flipped, "zeroed": lambda content: bytes(len(content)), "emptied": lambda _: b""}


def outcome(job):
    """What readers see, and what every person was charged."""
    with job.ledger() as ledger:
        assert ledger.verify().ok
        people = pl.read_parquet(job.folder / "raw.parquet")["user_id"].unique().sort()
        used = ledger.used(Scope.of(job.policy()), people.to_arrow())
    return job.files(), {name: amounts.tolist() for name, amounts in used.items()}


def staged_kinds(folder):
    """One file of each kind, by its name without numbers."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.setdefault(re.sub(r"[0-9a-f]{16}|\d+", "", path.name), path)
    return found


FIRST = ("charged ex post", "over the cap", "rewritten", "kept", "with hidden ids", "synthetic")
"""Together they leave each kind of file."""


@pytest.mark.parametrize("name", quick(sorted(JOBS, key=lambda name: name not in FIRST), first=len(FIRST)))
@pytest.mark.parametrize("way", quick(WAYS))
def test_a_file_that_changed_between_attempts_never_changes_a_charge(request, monkeypatch, again, name, way):  # noqa: F811
    """The run refuses, or ends like an attempt without the change."""
    monkeypatch.setattr(again, "says", staticmethod(lambda text: f"{text} again"))
    make, changes, step, kinds = JOBS[name]
    job = request.getfixturevalue(make)()
    job.values |= changes(job) if callable(changes) else changes
    anchors = str(job.folder / "anchors")  # put back with the ledger, which would be frozen as an old copy otherwise
    job.values["ledger"] = {"url": f"sqlite:///{job.folder / 'ledger.db'}", "anchors": anchors}
    if step is None:
        job.run()
    else:
        assert job.stop(step)
    staging, aside = job.folder / f"{STAGED}/2026-11/_", job.folder.with_name("aside")
    found = staged_kinds(staging)
    assert all(any(kind in each for each in found) for kind in kinds), found
    shutil.copytree(job.folder, aside)

    def restored():
        shutil.rmtree(job.folder)
        shutil.copytree(aside, job.folder)

    restored()
    before = outcome(job)
    job.forget_that_nothing_changed()
    run(job.policy())
    expected = outcome(job)
    for kind, path in found.items():
        restored()
        if "unchanged" not in kind:
            job.forget_that_nothing_changed()
        path.write_bytes(WAYS[way](path.read_bytes()))
        try:
            run(job.policy())
        except FrozenLedgerError:
            raise
        except DPTextError:
            files, charged = outcome(job)
            assert files == before[0], kind
            assert all(np.all(np.array(now) >= before[1][name]) for name, now in charged.items()), kind
        else:
            assert outcome(job) == expected, kind


def forge_draws(staging):
    """Say that no draw was made, in every staged shard, and put the new hash where the old one is."""
    for draws in staging.rglob("shard-*.draws"):
        before, record = draws.read_bytes(), draws.with_suffix(".json")
        counts = pl.read_ipc(before)
        none = [pl.col(name).struct.with_fields(pl.lit(0, pl.UInt32).alias("steps")) for name in counts.columns]
        counts.with_columns(none).write_ipc(draws)
        old, new = (hashlib.sha256(content).hexdigest() for content in (before, draws.read_bytes()))
        record.write_text(record.read_text().replace(old, new))


def test_draws_that_were_forged_with_their_hashes_charge_nothing_less(make_job):
    job, forged = make_job(**STEPS), make_job("forged", **STEPS)
    job.run()
    assert forged.stop("staged", 2)
    forge_draws(forged.folder / "published.staging")
    forged.run()
    assert outcome(forged)[1] == outcome(job)[1]


@pytest.mark.parametrize("rename", quick([True, False]))
def test_a_list_of_ids_that_was_swapped_is_refused(job, save, rename):
    job.values |= {"ids": "keyed", "incremental": True}
    job.run()
    (path, *_) = sorted((job.folder / "published.staging").rglob("ids-*.ids"))
    ids = pl.read_parquet(path)["id"].reverse()
    pl.DataFrame([ids]).write_parquet(path)
    if rename:
        first, part, _, seal = path.name.split("-")
        path.rename(path.with_name(f"{first}-{part}-{hashlib.sha256(canon(ids.to_list())).hexdigest()[:32]}-{seal}"))
    job.forget_that_nothing_changed()
    before = job.files()
    with pytest.raises(InputError, match=r"a list of the ids|records' own ids of a published part are not in staging"):
        job.run()
    save(pl.read_parquet(job.folder / "raw.parquet").slice(1), job.folder / "raw.parquet")
    with pytest.raises(InputError, match=r"a list of the ids|records' own ids of a published part are not in staging"):
        forget(job.policy(), records=["r00000"])
    assert job.files() == before


@pytest.mark.parametrize("make", quick(["make_job", "make_synthetic"]))
def test_a_file_between_two_steps_of_dagster_is_refused_if_it_changed(request, make):
    steps = pytest.importorskip("dptext_etl.orchestration.steps")
    job = request.getfixturevalue(make)()
    policy = job.policy()
    staged = stage(policy)
    verdicts, load = check(staged), partial(steps.load_run, policy, None)
    steps.save_run(staged)
    steps.save_verdicts(staged, verdicts)
    assert steps.load_verdicts(load()) == verdicts
    for name, read in (("run", load), ("verdicts", lambda: steps.load_verdicts(staged))):
        (path,) = (job.folder / "published.staging").rglob(f"{name}.handover")
        content = path.read_bytes()
        for changed in (content.replace(b"1", b"2"), content.replace(b"true", b"null"), b"{}"):
            if changed != content:
                path.write_bytes(changed)
                with pytest.raises(InputError, match=f"{name}.handover has changed"):
                    read()
        path.write_bytes(content)
