"""PostgreSQL goes away in the middle of runs, politely or abruptly: a failed run continues, nothing is lost."""

import random
import shutil
import time
from collections import Counter

from dptext_etl import _kernel

GONE = ("was shut down by its server", "lost its connection", "cannot be reached")


def test_the_server_is_restarted_within_a_run(drill, make_job, zygotes, books, postgres, tmp_path):
    restarts = drill.count("restart", 2)
    zygote, chance = zygotes(), random.Random(3)
    _kernel.Secret().write(str(tmp_path / "ids.key"))
    runs, ended, said = 0, Counter(), Counter()

    def on(server):
        return {"ledger": {"url": server.url(), "id_key": f"file:{tmp_path / 'ids.key'}"}}

    lengths = []
    for name in ("undisturbed", "undisturbed too"):
        whole, place = make_job(name, shard_rows=20), on(postgres)
        lengths.append(zygote.finish(whole.policy(**place))["seconds"])
    expected = books(whole, **place)
    while sum(ended.values()) < restarts:
        runs += 1
        job, place = make_job("disturbed", shard_rows=20), on(postgres)
        zygote.begin(job.policy(**place))
        time.sleep(chance.uniform(0, min(lengths)))
        postgres.stop(chance.choice(["fast", "immediate"]))
        postgres.start()
        answer = zygote.end()
        if answer["status"]:
            assert answer["status"] == 3, answer
            said.update(words for words in GONE if words in answer["said"])
        ended["refused and resumed" if answer["status"] else "went through"] += 1
        zygote.finish(job.policy(**place))
        assert books(job, **place) == expected
        shutil.rmtree(job.folder)
    assert sum(said.values()) == ended["refused and resumed"], "an error that does not say that the server had gone"
    heard = f" ({', '.join(f'{words}: {times}' for words, times in said.items())})" if said else ""
    drill.tell(
        "restart",
        f"PostgreSQL stopped (half of the times as by a power cut) and started within {runs} runs",
        f"{ended['refused and resumed']} runs said so{heard} and went on when run again, "
        f"{ended['went through']} were between two of their calls; files, charges and balances as undisturbed",
    )
