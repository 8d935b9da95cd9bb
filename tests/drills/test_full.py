"""The disk is full: a run stops with a sentence, half a file is nowhere, and with room again it continues."""

import os
import random
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

SIZE = 64 << 20
SAYS = {"the ledger": "ledger", "shard": "staging", "stag": "staging", "publi": "publication", "write": "publication"}
"""What in a refusal reveals where there was no room."""


def place_of(said):
    found = [place for words, place in SAYS.items() if words in said.partition("\n")[0]]
    assert found, said
    return found[0]


def test_a_full_disk(drill, make_job, zygotes, books, tmp_path):
    """A separate file system, in memory, filled up to a number of bytes before every run."""
    fills, chance = drill.count("full", 3), random.Random(7)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    mount += (f'mount -t tmpfs -o size={SIZE} none "{disk}" && exec "$0" "$@"',)
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets no one mount a small file system (unshare --user --mount)")
    zygote = zygotes(*mount)
    seen = Path(f"/proc/{zygote.pid}/root{disk}")  # the same file system, from outside

    def new(name):
        job = make_job(name)
        shutil.copytree(job.folder, seen / name)
        return replace(job, folder=disk / name, values={**job.values, "source": str(disk / name / "raw.parquet")})

    def outside(job):
        """A copy, since SQLite does not open files by such a path."""
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return replace(job, folder=shutil.copytree(seen / job.folder.name, tmp_path / "copy"))

    def ledger(job, elsewhere):
        """Half of the ledgers are on another disk, so that other files meet the end of this one."""
        file = (tmp_path / job.folder.name if elsewhere else job.folder) / "ledger.db"
        return {"ledger": {"url": f"sqlite:///{file}"}}

    def taken():
        left = os.statvfs(seen)
        return SIZE - left.f_bavail * left.f_frsize

    expected, lengths = [], []
    for elsewhere in (False, True):
        before, whole = taken(), new(f"undisturbed-{elsewhere}")
        place = ledger(whole, elsewhere)
        zygote.finish(whole.policy(**place))
        expected.append(books(outside(whole), **(place if elsewhere else {})))
        lengths.append(taken() - before)
    full, enough, runs = Counter(), 0, 0
    while sum(full.values()) < fills:
        assert enough <= 2 * fills + 20
        runs += 1
        elsewhere = bool(runs % 2)
        job = new("filled")
        place = ledger(job, elsewhere)
        filler = seen / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, SIZE - taken() - chance.randrange(lengths[elsewhere])))
        answer = zygote.run(job.policy(**place))
        filler.unlink()
        if answer["status"]:
            assert answer["status"] == 3, answer
            full[place_of(answer["said"])] += 1
        else:
            enough += 1
        zygote.finish(job.policy(**place))
        assert books(outside(job), **(place if elsewhere else {})) == expected[elsewhere]
        shutil.rmtree(seen / "filled")
        shutil.rmtree(tmp_path / "filled")
    drill.tell(
        "full",
        f"{runs} runs on a file system filled up to a random remainder, half of them with the ledger on another one",
        f"{sum(full.values())} found it full ({said(full)}), said so and stopped; after the room came back they went "
        f"on: files, charges and balances as undisturbed",
    )


def test_a_limit_on_files(drill, make_job, zygotes, books):
    """A limit that every operating system has: no file grows beyond a size."""
    limits, chance = drill.count("limit", 3), random.Random(8)
    zygote = zygotes()
    whole = make_job("undisturbed")
    zygote.finish(whole.policy())
    expected = books(whole)
    largest = max(path.stat().st_size for path in whole.folder.rglob("*") if path.is_file())
    stopped = Counter()
    for _ in range(limits):
        job = make_job("limited")
        answer = zygote.run(job.policy(), file_limit=chance.randrange(512, largest))
        assert answer["status"] == 3, answer
        stopped[place_of(answer["said"])] += 1
        zygote.finish(job.policy())
        assert books(job) == expected
        shutil.rmtree(job.folder)
    drill.tell(
        "limit",
        f"{limits} runs under a random limit on the size of files",
        f"all stopped ({said(stopped)}) with a sentence; without the limit they went on as undisturbed",
    )


def said(places):
    return ", ".join(f"{place} {times}" for place, times in places.most_common())
