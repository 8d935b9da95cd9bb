"""Where staging is: next to the policy file, where the policy says, or next to a sink of version 0.2."""

import shutil

import pytest

from dptext_etl import Policy, run
from dptext_etl.errors import PolicyError
from dptext_etl.runner import plan
from dptext_etl.runner.layout import Layout


def test_by_default_it_is_next_to_the_policy_file_and_moves_with_it(job):
    policy = job.write_policy(sink="published", source="raw.parquet", staging=None)
    summary = run(policy)
    (folder,) = job.folder.glob(".dptext/reviews/*/2026-11/_")
    assert summary.staging == str(folder)
    assert not any("staging" in note for note in [*summary.notes, *plan(policy).notes])
    assert not list(job.folder.glob("*.staging"))
    moved = shutil.move(job.folder, job.folder.with_name("moved"))
    found = Layout.of(Policy.load(moved / "privacy.toml")).staging
    assert found.url == str(moved / folder.relative_to(job.folder))
    other = Policy.load(moved / "privacy.toml").model_copy(update={"sink": str(moved / "other")})
    assert Layout.of(other).staging.url != found.url, "every sink has a place of its own"


def test_a_policy_without_a_file_must_name_it(job):
    for way in (plan, run):
        with pytest.raises(PolicyError, match="was not read from a file") as caught:
            way(job.policy(staging=None))
        assert 'write: staging = "staging"' in caught.value.hint
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.parametrize("by_file", [True, False])
def test_a_folder_of_version_0_2_stays_in_use_and_is_named(job, by_file):
    (job.folder / "published.staging").mkdir()
    policy = job.write_policy(staging=None) if by_file else job.policy(staging=None)
    assert "published.staging, where version 0.2 put it" in plan(policy).notes[-1]
    summary = run(policy)
    assert summary.staging == str(job.folder / "published.staging" / "2026-11" / "_")
    assert "published.staging, where version 0.2 put it" in summary.notes[-1]
    assert not (job.folder / ".dptext").exists()
