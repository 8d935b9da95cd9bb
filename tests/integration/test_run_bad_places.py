"""Places and keys that a run cannot use are refused before anything is charged."""

import os

import pytest

from dptext_etl.errors import InputError, KeyReferenceError
from tests.quick import quick

from .bad_input import child, refused


def test_sources_that_are_not_there(job, reviews, save):
    refused(job, InputError, "no file", source=str(job.folder / "absent.parquet"))
    refused(job, InputError, "no files", source=str(job.folder / "*.absent"))
    (job.folder / "mixed").mkdir()
    save(reviews(), job.folder / "mixed" / "a.parquet")
    save(reviews(), job.folder / "mixed" / "b.csv")
    refused(job, InputError, "csv, parquet", source=str(job.folder / "mixed"))
    (job.folder / "raw.xlsx").touch()
    refused(job, InputError, "known format", source=str(job.folder / "raw.xlsx"))


def test_no_write_access(job):
    (job.folder / "file").touch()
    refused(job, InputError, "staging", staging=str(job.folder / "file" / "below"))
    refused(job, InputError, "writing to", sink=str(job.folder / "file" / "below"), staging=str(job.folder / "staging"))


def test_keys(job):
    from dptext_etl import _kernel

    path = job.folder / "open.key"
    _kernel.Secret().write(str(path))
    path.chmod(0o644)
    refused(job, KeyReferenceError, "open.key", key=f"file:{path}")
    refused(job, KeyReferenceError, key=f"file:{job.folder / 'absent.key'}")
    refused(job, KeyReferenceError, key="env:DPTEXT_NOT_SET_SECRET")
    golden = job.folder / "golden.key"
    golden.write_text(bytes(range(32)).hex())
    golden.chmod(0o600)
    refused(job, KeyReferenceError, "printed in documents", key=f"file:{golden}")
    assert job.run(key=f"file:{golden}", publish=False).rows["released"] == 240


@pytest.mark.parametrize(
    "step", quick(["parts written", "computed", "gated", "registered", "planted", "committed", "recorded"])
)
def test_a_full_disk(make_job, warm, step):
    """Files can grow no further than 500 bytes after a step: whatever is written next fails."""
    job, other = make_job("full"), make_job("other")
    other.run()
    done = child(warm, job, f"run(policy, checkpoint=full({step!r}))")
    kind, code, *_ = done.stdout.split()
    assert (kind, code) in {("InputError", "5"), ("LedgerError", "5"), ("FullLedgerError", "7")}, done.stderr
    assert "Hint: " in done.stdout
    assert "zzqsentinelqzz" not in done.stdout + done.stderr
    assert not (job.folder / "published.manifest.json").exists()
    job.run()
    assert job.files() == other.files()
    assert job.charged() == other.charged()
    with job.ledger() as ledger:
        assert ledger.verify().ok


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_staging_folder_of_another_user_is_refused(job, level):
    folder = job.folder / "published.staging" / "reviews" / "2026-11" / "_"
    folder.mkdir(parents=True)
    os.chown([folder.parent.parent, folder.parent, folder][level], 12345, -1)
    with pytest.raises(InputError, match="belongs to user 12345") as caught:
        job.run()
    assert "nothing was spent" in caught.value.hint
    assert not (job.folder / "ledger.db").exists()
