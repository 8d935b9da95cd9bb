"""Two runs of one policy at once: one release and one charge, anyone who of them goes through."""

import random
import shutil
import time
from collections import Counter

import pytest


@pytest.mark.parametrize("sinks", ["one sink", "a sink each"])
def test_two_runs_at_once(drill, make_job, zygotes, books, sinks):
    pairs = drill.count("pairs", 3)
    first, second = zygotes(), zygotes()
    chance, ended = random.Random(5), Counter()
    lengths = []
    for name in ("undisturbed", "undisturbed too"):
        whole = make_job(name)
        lengths.append(first.finish(whole.policy())["seconds"])
    expected = books(whole)
    for _ in range(pairs):
        job = make_job("contended")
        other = {} if sinks == "one sink" else {"sink": str(job.folder / "other")}
        first.begin(job.policy())
        time.sleep(chance.uniform(0, min(lengths) / 2))
        second.begin(job.policy(**other))
        answers = first.end(), second.end()
        assert 0 in {answer["status"] for answer in answers}
        for answer in answers:
            if answer["status"]:
                assert sinks == "one sink"
                assert "under way" in answer["said"], answer
                ended["refused, since one was under way"] += 1
            else:
                ended["went through"] += 1
        found = books(job)
        assert (found.files, found.used) == (expected.files, expected.used)
        if sinks == "one sink":
            assert found == expected
        else:
            assert (parquet(job.files("other"), "other"), own(found)) == (parquet(found.files), own(expected))
        shutil.rmtree(job.folder)
    told = ", ".join(f"{number} {how}" for how, number in ended.items())
    drill.tell(
        f"at once, {sinks}",
        f"{pairs} times two runs of one policy over one ledger, {sinks}, begun within half a run of each other",
        f"{told}; one release, charged once",
    )


def parquet(files, sink="published"):
    """Data files by their places in a sink and next to it."""
    return {path.removeprefix(sink): data for path, data in files.items() if path.endswith(".parquet")}


def own(books):
    """Charges without planted rows, which every sink has for itself."""
    return [(column, records - canaries, pending) for column, _, records, _, canaries, pending in books.charged]
