"""The views of a ledger: balances, releases, and an export that no text can move."""

import json

import numpy as np
import pyarrow as pa

from dptext_etl.ledger import Scope
from dptext_etl.policy import Cap

from .conftest import each_store

SCOPE = Scope("reviews", "2026")


def costs_of(facts, positions):
    assert facts["mechanism"] == "toy"
    return {"eps_approx": positions * 1_000_000, "delta": np.full(len(positions), 10)}


@each_store
def test_further_releases_are_judged_by_each_component(kit):
    """Ann has used 6 and asks for 6, Bob has used 2 and asks for 1; records that were given back do not count."""
    cap = Cap(measure="approx", epsilon=20, delta=55e-15, period="2026")

    def reserve(ids, people, epsilons, release, **options):
        amounts = np.array(epsilons)
        spends = {"eps_approx": amounts * 1_000_000, "delta": np.full(len(ids), 10)}
        charge = kit.charge(kit.ref(release=release), ids, amounts, **spends)
        kit.ledger.reserve("job", SCOPE, cap, pa.array(ids), pa.array(people, pa.string()), [charge], **options)

    reserve(["z"], ["bob"], [1], "r1")
    reserve(["lost"], ["ann"], [9], "r2")
    kit.ledger.abort("job", compute_never_started=True)
    reserve(["z"], ["bob"], [1], "r1")
    reserve(["a", "b", "c", "x"], ["ann", "ann", "bob", None], [1, 5, 1, 9], "r2", canary=np.arange(4) == 3)
    assert kit.ledger.further(SCOPE, cap, {"review": costs_of}, None)["units"] == {1: 1, 3: 1}, "delta for Ann, too"
    assert kit.ledger.further(SCOPE, cap, {"review": costs_of}, 1)["units"] == {2: 1, 3: 1}, "5 at most"
    wide = cap.model_copy(update={"delta": 1e-6})
    assert kit.ledger.further(SCOPE, wide, {"review": costs_of}, None)["units"] == {2: 1, 18: 1}
    other = {"title": lambda facts, n: {"eps_approx": np.full(len(n), 6_000_000 + (facts is not None)), "delta": 0 * n}}
    assert kit.ledger.further(SCOPE, wide, other, None)["units"] == {1: 1, 3: 1}, "as many records as in another column"


def test_remaining_of_an_unused_scope(kit):
    left = kit.ledger.remaining(Scope("other"), pa.array(["ann"]))
    assert (left.units, left.measure, left.used, left.left) == (0, None, {"eps_pure": {}}, {})
    assert left.asked == [{"eps_pure": {"used": 0}}]
    records = kit.ledger.remaining(Scope("other", unit="record"), pa.array(["r"]))
    assert records.unit == "record"


@each_store
def test_show_counts_and_says_what_is_claimed(kit):
    kit.reserve(["a", "b", "c"], epsilons=[1, 2, 7], cap=9)
    kit.reserve(["planted"], [None], 1, cap=9, canary=np.array([True]))
    kit.commit(["a"])
    kit.ref(nonce=1)
    kit.ref("title")
    review, title = kit.ledger.reports.show()
    assert json.loads(json.dumps(review)) == review
    picked = {name: review[name] for name in ("records", "canaries", "committed", "pending", "max_eps_pure", "class")}
    assert picked == {
        "records": 4, "canaries": 1, "committed": 1, "pending": 3, "max_eps_pure": 7_000_000, "class": "COND_PURE"
    }  # fmt: skip
    assert review["log10_odds"] == 3.041
    assert title["records"] == 0


def test_no_number_of_the_export_depends_on_a_text(kit, new_kit, new_place):
    """Two histories with the same public facts and other lengths, outputs, changes and failures."""
    other = new_kit(new_place("other"))
    for which, each in enumerate((kit, other)):
        each.reserve(["a", "b", "c"], ["ann", "ann", "bob"], [1 + which, 2, 3 * which], cap=50, texts=f"text {which}")
        each.commit(["a", "b", "c"][: 3 - which], texts=f"text {which}", outputs=f"output {which}")
        each.reserve(["a"], ["ann"], 9, cap=50, texts="text 0")
    first, second = kit.ledger.reports.export(), other.ledger.reports.export()
    assert first == second
    assert json.loads(json.dumps(first))["datasets"]["reviews"]["subjects"] == {"subject": 2}
    assert "worst_case" in first["datasets"]["reviews"]["releases"][0]


def test_the_export_leaves_benchmarks_out(kit):
    kit.ref(publishable=False, release="bench")
    assert kit.ledger.reports.export()["datasets"] == {}
