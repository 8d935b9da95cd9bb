"""kill -9 at random instants of a run, and resume: nothing is lost, released twice or excluded from the ledger."""

import random
import shutil
from collections import Counter

RUNS_KILLED_AGAIN = 3
"""A run and what resumes it are killed up to this number of times before one is let through."""
SHARD = 20
"""Rows; small, so that a run is mostly shards being reserved, computed, staged and committed."""


def test_kill_at_random_instants(drill, make_job, zygotes, books):
    kills = drill.count("kill", 8)
    zygote, chance = zygotes(), random.Random(20)
    lengths = []
    for name in ("undisturbed", "undisturbed too", "undisturbed again"):
        whole = make_job(name, shard_rows=SHARD)
        lengths.append(zygote.finish(whole.policy())["seconds"])
    expected, length = books(whole), min(lengths)
    fell, runs, came_late = Counter(), 0, 0
    while sum(fell.values()) < kills:
        assert came_late <= 2 * kills + 20, "instants fall into the run"
        job = make_job("killed", shard_rows=SHARD)
        left = chance.randint(1, RUNS_KILLED_AGAIN)
        while left:
            answer = zygote.run(job.policy(), kill_after=chance.uniform(0, length))
            if answer["status"] != -9:
                assert answer["status"] == 0, answer
                came_late += 1  # a run that only has to resume is shorter
                break
            fell[(answer["steps"] or ["the beginning"])[-1]] += 1
            left -= 1
        zygote.finish(job.policy())
        assert books(job) == expected
        assert not list((job.folder / "published.staging").rglob("shard-*"))
        runs += 1
        shutil.rmtree(job.folder)
    where = ", ".join(f"{step} {times}" for step, times in fell.most_common())
    drill.tell(
        "kill",
        f"{sum(fell.values())} kills of {runs} runs of 240 rows in twelve shards and of what resumed them",
        f"after resuming, files, charges and balances are those of an undisturbed run every time, and the ledger "
        f"verifies. Killed after: {where}",
    )
