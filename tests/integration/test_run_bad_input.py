"""Bad input, places, and keys: a sentence with a hint and an exit code, no text quoted, nothing spent or lost."""

import errno
import json
import os
import sqlite3

import polars as pl
import pytest

from dptext_etl import Ledger
from dptext_etl.errors import ArtifactError, DPTextError, InputError, KeyReferenceError, LedgerError
from tests.quick import quick

from ..command_line import dptext
from ..review_jobs import SENTINEL, STAGED
from .bad_input import child, refused, spent

ENTRIES = [
    ({"id": "absent"}, ["no column 'absent'", "others"]),
    ({"subject": "absent"}, ["no column 'absent'", "others"]),
    ({"keep": ["absent"]}, ["no column 'absent'", "others"]),
    ({"sink": "/dev/null/published"}, []),
]


@pytest.mark.parametrize(("entries", "said"), ENTRIES, ids=str)
def test_entries(job, entries, said):
    refused(job, InputError, *said, **entries)


def test_a_file_without_a_header(make_job, reviews):
    job = make_job(suffix=".csv")
    reviews().write_csv(job.folder / "raw.csv", include_header=False)
    refused(job, InputError, "header line")


def test_unlisted_columns(job):
    refused(job, InputError, "user_id, secret", subject=None, unit="record", strict_columns=True)
    assert job.run().notes[2] == "columns that the policy does not name were dropped unread: column 6"


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson"])
def test_files_that_cannot_be_read(job, suffix):
    path = job.folder / f"broken{suffix}"
    path.write_bytes(b'zzqsentinelqzz\x00\xff,"zzqsentinelqzz\n' * 3)
    refused(job, InputError, source=str(path))


def test_a_locked_ledger(job, monkeypatch):
    Ledger.open(str(job.folder / "ledger.db")).close()
    monkeypatch.setitem(Ledger.open.__func__.__kwdefaults__, "timeout", 0.2)
    other = sqlite3.connect(job.folder / "ledger.db", isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(LedgerError, match="locked") as caught:
        job.run()
    assert caught.value.exit_code == 6
    other.execute("rollback")
    other.close()
    assert job.run().rows["new"] == 240


def test_a_ledger_locked_half_way(make_job, monkeypatch):
    job, other = make_job(), make_job("other")
    other.run()
    monkeypatch.setitem(Ledger.open.__func__.__kwdefaults__, "timeout", 0.2)
    held = []

    def checkpoint(name):
        if name == "staged" and not held:
            held.append(sqlite3.connect(job.folder / "ledger.db", isolation_level=None))
            held[0].execute("begin immediate")

    from dptext_etl import run

    with pytest.raises(LedgerError, match="locked"):
        run(job.policy(), checkpoint=checkpoint)
    held[0].execute("rollback")
    held[0].close()
    job.run()
    assert (job.files(), job.charged()) == (other.files(), other.charged())


def test_a_ledger_of_a_newer_schema(job):
    Ledger.open(str(job.folder / "ledger.db")).close()
    with sqlite3.connect(job.folder / "ledger.db") as file:
        file.execute("pragma user_version=999")
    with pytest.raises(LedgerError, match="999") as caught:
        job.run()
    assert "upgrade" in caught.value.hint


def test_a_table_whose_hash_differs(job, warm):
    policy = job.policy()
    path = policy.column_policies()[0].mechanism.table.path
    whole = path.read_bytes()
    try:
        path.chmod(0o600)
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        done = child(warm, job, "run(policy)")
        assert done.stdout.startswith("ArtifactError 5")
        assert "Hint" in done.stdout
    finally:
        path.write_bytes(whole)
    assert ArtifactError.exit_code == 5
    assert spent(job) == 0


CHANGES = [(".ndjson", 230, "changed while it was read"), (".parquet", 300, "not being written")]
CHANGES += [(".ndjson", 300, "changed while it was read")]


@pytest.mark.parametrize(("suffix", "rows", "said"), quick(CHANGES, first=2))
def test_a_source_that_changes_meanwhile(make_job, reviews, save, suffix, rows, said, monkeypatch):
    from dptext_etl import run
    from dptext_etl.runner.shard import charging as cutting

    monkeypatch.setattr(cutting, "KEPT_BYTES", 0)  # rows of a small source are kept in memory
    job = make_job(suffix=suffix)

    def checkpoint(name):
        if name == "checked":
            save(reviews(rows), job.folder / f"raw{suffix}")

    with pytest.raises(InputError, match=said):
        run(job.policy(), checkpoint=checkpoint)
    assert job.run().rows["released"] == rows


def test_a_mechanism_that_fails_passes_nothing_on(job, monkeypatch, caplog):
    from dptext_etl.families.stored_distributions import TableMechanism

    def failing(self, texts, keys):
        raise ValueError(texts[0].as_py())

    monkeypatch.setattr(TableMechanism, "release", failing)
    with pytest.raises(DPTextError) as caught:
        job.run()
    assert "zzqsentinelqzz" not in str(caught.value) + caplog.text
    assert caught.value.__context__ is None
    assert not (job.folder / "published.manifest.json").exists()
    monkeypatch.undo()
    assert job.run().rows["released"] == 240


def test_library_errors_are_not_quoted(job, monkeypatch):
    def quoting(*_, **__):
        msg = "zzqsentinelqzz could not be converted"
        raise pl.exceptions.ComputeError(msg)

    monkeypatch.setattr(pl.LazyFrame, "collect", quoting)
    refused(job, InputError, "ComputeError")


def said(job, *words, code=5):
    """The refusal of a command: a sentence and a hint, without text and key."""
    done = dptext(*words)
    assert done.exit_code == code, done.output
    assert "Error: " in done.stderr
    assert "\nHint: " in done.stderr
    for hidden in (SENTINEL, (job.folder / "noise.key").read_text().strip(), "Traceback", "unexpected"):
        assert hidden not in done.output
    assert spent(job) == 0
    assert not (job.folder / "published.manifest.json").exists()
    return done


def test_commands_refuse_in_a_sentence(job, monkeypatch):
    monkeypatch.chdir(job.folder)
    key, policy = (job.folder / "noise.key").read_text().strip(), job.write_policy()
    plain = policy.read_text()
    for command in ("plan", "run", "check"):
        assert "dptext init" in said(job, command, "absent.toml").stderr
    for command in ("show", "remaining", "verify", "export"):
        assert "no ledger" in said(job, "ledger", command, "--ledger", "absent.db").stderr
    assert not (job.folder / "absent.db").exists()
    for text, words in (("", "is missing"), ("dataset = ", "not valid TOML"), ('datset = "a"', "datset")):
        policy.write_text(text)
        for command in ("plan", "run"):
            done = dptext(command, policy)
            assert (done.exit_code, words in done.stderr) == (5, True), done.output
    policy.write_text(plain.replace(f"file:{job.folder}/noise.key", key))
    said(job, "run", policy)
    done = said(
        job, "run", job.write_policy(cap={"measure": "pure", "epsilon": 10.0}, on_cap="refuse"), "--json", code=3
    )
    failed = json.loads(done.stdout)["error"]
    assert failed["exit_code"] == 3
    assert done.stderr.endswith(f"Error: {failed['message']}\nHint: {failed['hint']}\n")
    Ledger.open("ledger.db").close()
    said(job, "check", job.write_policy(), "--released", "nowhere")


def test_a_disk_that_is_full_while_staging(job, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, f"No space left on device: {SENTINEL}")

    policy = job.write_policy(shard_rows=1000)
    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, "write_parquet", full)
        done = dptext("run", policy)
    assert (done.exit_code, done.stdout) == (7, "")
    assert "Hint:" in done.stderr
    assert SENTINEL not in done.output
    reserved = spent(job)
    assert dptext("run", policy).exit_code == 0, "it continues, and charges nothing again"
    assert spent(job) == reserved


def test_a_plan_or_run_over_an_edited_journal_stops(job):
    policy, ledger = job.write_policy(), job.folder / "ledger.db"
    assert dptext("run", policy).exit_code == 0
    with sqlite3.connect(ledger) as file:
        file.execute("update event set body=replace(body, '\"scope\":1', '\"scope\":2') where kind='RESERVE'")
    done = dptext("ledger", "verify", "--ledger", ledger)
    assert (done.exit_code, "does NOT agree" in done.stdout) == (4, True)
    before = sorted(job.folder.rglob("*.parquet"))
    for command in ("plan", "run"):
        done = dptext(command, job.write_policy(release="later"))
        assert (done.exit_code, "the chain is broken here: nothing is charged" in done.output) == (5, True), command
    assert sorted(job.folder.rglob("*.parquet")) == before


def test_sources_that_are_not_there(job, reviews, save):
    refused(job, InputError, "no file", source=str(job.folder / "absent.parquet"))
    refused(job, InputError, "no files", source=str(job.folder / "*.absent"))
    (job.folder / "mixed").mkdir()
    save(reviews(), job.folder / "mixed" / "a.parquet")
    save(reviews(), job.folder / "mixed" / "b.csv")
    refused(job, InputError, "csv, parquet", source=str(job.folder / "mixed"))
    (job.folder / "raw.xlsx").touch()
    refused(job, InputError, "known format", source=str(job.folder / "raw.xlsx"))


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
    assert (job.files(), job.charged()) == (other.files(), other.charged())
    with job.ledger() as ledger:
        assert ledger.verify().ok


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_staging_folder_of_another_user_is_refused(job, level):
    folder = job.folder / STAGED / "2026-11" / "_"
    folder.mkdir(parents=True)
    os.chown([folder.parent.parent, folder.parent, folder][level], 12345, -1)
    with pytest.raises(InputError, match="belongs to user 12345") as caught:
        job.run()
    assert "no budget used" in caught.value.hint
    assert not (job.folder / "ledger.db").exists()
