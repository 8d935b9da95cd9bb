"""A clock that jumps, mostly backwards: nothing depends on the order of times."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from dptext_etl.ledger import Anchor
from dptext_etl.ledger.storage import journal

YEARS = 400
CAP = {"measure": "pure", "epsilon": 100_000.0, "period": "2026"}


def test_a_clock_that_is_set_back(drill, make_job, books, monkeypatch):
    runs = drill.count("clock", 3)
    whole = make_job("undisturbed", cap=CAP)
    for i in range(runs):
        whole.run(release=f"r{i}")
    chance, told = random.Random(9), []

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            told.append(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=chance.uniform(-YEARS, YEARS / 8) * 365))
            return told[-1]

    monkeypatch.setattr(journal, "datetime", Clock)
    job, anchors = make_job("jumping", cap=CAP), []
    for i in range(runs):
        assert job.run(release=f"r{i}").rows["new"] == 240
        assert job.run(release=f"r{i}").rows["replayed"] == 240, "a replay is free at any time"
        with job.ledger() as ledger:
            anchors.append(str(ledger.anchor()))
    back = sum(later < earlier for earlier, later in pairwise(told))
    assert back > len(told) / 4, "the clock went back often"
    found, expected = books(job), books(whole)
    assert (found.files, found.charged, found.used) == (expected.files, expected.charged, expected.used)
    with job.ledger() as ledger:
        assert all(ledger.holds(Anchor.parse(anchor)) for anchor in anchors)
    drill.tell(
        "clock",
        f"{2 * runs} runs, half of them replays, under a clock that jumps over {YEARS} years with every event",
        f"{back:,} of {len(told):,} events were earlier than the one before; charges, balances and files as by a good "
        f"clock; the ledger verifies and holds the {len(anchors)} anchors that were taken in between",
    )
