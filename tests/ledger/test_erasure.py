"""A forgotten record is neither charged, replayed nor committed in any release of its dataset, until it is readmitted.

Specification: docs/spec/privacy.md#forgotten.
"""

import pyarrow as pa
import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Outcome
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.types import Event

from .conftest import each_store


def strings(*names):
    return pa.array(names, pa.large_string())


def forget(kit, *records, subjects=()):
    return kit.ledger.people.forget("reviews", strings(*records), strings(*subjects))


def test_all_records_that_were_ever_charged_to_a_person_are_forgotten(kit):
    first, second = kit.ref(), kit.ref(release="r2")
    kit.reserve(["a", "b"], ["ann", "bob"], refs=[first])
    kit.ledger.people.accept_units("reviews", {}, "accounts were merged")
    kit.reserve(["a", "c"], ["zoe", "ann"], refs=[second])
    assert kit.ledger.people.of_subjects("reviews", strings("ann"), strings("a", "b", "c")).tolist() == [
        True,
        False,
        True,
    ]
    assert forget(kit, subjects=["ann"]) == 2
    assert kit.ledger.people.forgotten("reviews", strings("a", "b", "c")).tolist() == [True, False, True]
    assert forget(kit, subjects=["nobody"]) == 0
    kit.sound()


@each_store
def test_manifests_of_all_releases_at_a_place_are_retired(kit):
    first, second = kit.ref(), kit.ref(release="r2")
    for ref, digest in ((first, "ab" * 32), (second, "cd" * 32)):
        kit.reserve(["a", "b"], ["ann", "bob"], refs=[ref])
        kit.commit(["a", "b"], ref=ref)
        kit.ledger.releases.record_publication(ref, f"v1-{digest[:12]}", digest, 2, sink="here")
    kit.ledger.releases.record_publication(first, "west/v1", "ef" * 32, 2, sink="here")
    kit.ledger.releases.retire([second], "", "v2", "01" * 32, 1, sink="here")
    assert kit.ledger.releases.retired(first) == {"ab" * 32}
    assert set(kit.ledger.releases.published(first)) == {"west/v1"}
    assert kit.ledger.releases.retired(second) == {"cd" * 32}
    kit.sound()


def test_known_subjects_are_found_in_one_scan_of_the_dataset(kit, monkeypatch):
    kit.reserve(["a", "b"], ["ann", "bob"])
    read, scanned = Journal.read, []
    monkeypatch.setattr(Journal, "read", lambda *given: scanned.append(given[1]) or read(*given))
    people = strings("ann", "bob", "zoe", "eve")
    assert kit.ledger.people.known_subjects("reviews", people).tolist() == [True, True, False, False]
    assert len(scanned) == 1, "one batch"


def test_a_person_who_was_never_charged_is_excluded_of_every_release(kit):
    first, second = kit.ref(), kit.ref(release="r2")
    assert forget(kit, subjects=["ann"]) == 0, "no record of theirs is known"
    assert kit.ledger.people.known_subjects("reviews", strings("ann", "bob")).tolist() == [True, False]
    for ref in (first, second):
        assert kit.reserve(["a", "b"], ["ann", "bob"], refs=[ref]) == [Outcome.FORGOTTEN, Outcome.RESERVED]
    events = kit.ledger.reports.events_hash(Event.FORGET)
    assert forget(kit, subjects=["ann"]) == 0
    assert kit.ledger.reports.events_hash(Event.FORGET) == events, "noted once"
    kit.reopen()
    assert kit.reserve(["a2"], ["ann"], refs=[first]) == [Outcome.FORGOTTEN]
    with pytest.raises(LedgerError, match="1 of 2 records and subjects are not forgotten"):
        kit.ledger.people.readmit("reviews", strings(), "a slip", strings("ann", "bob"))
    assert kit.ledger.people.readmit("reviews", strings(), "came back", strings("ann")) == 0
    assert kit.reserve(["a", "a2"], ["ann", "ann"], refs=[first]) == [Outcome.RESERVED] * 2
    kit.sound()


def test_a_readmitted_record_of_a_forgotten_person_is_released_until_they_are_forgotten_again(kit):
    kit.reserve(["a", "b"], ["ann", "ann"])
    assert forget(kit, subjects=["ann"]) == 2
    assert kit.ledger.people.readmit("reviews", strings("a"), "came back") == 1
    assert kit.reserve(["a", "b", "c"], ["ann"] * 3) == [Outcome.PENDING, Outcome.FORGOTTEN, Outcome.FORGOTTEN]
    assert forget(kit, subjects=["ann"]) == 1
    assert kit.reserve(["a", "c"], ["ann"] * 2) == [Outcome.FORGOTTEN] * 2
    assert kit.ledger.people.readmit("reviews", strings(), "came back", strings("ann")) == 2, (
        "with all that was charged"
    )
    assert kit.reserve(["a", "b", "c"], ["ann"] * 3) == [Outcome.PENDING, Outcome.PENDING, Outcome.RESERVED]
    kit.sound()


@each_store
def test_a_person_in_a_list_is_forgotten_by_the_hash_of_the_unit(kit):
    forget(kit, "c", subjects=["ann"])
    units = kit.ledger.people.unit_hashes(strings("ann", "bob", None))
    assert kit.ledger.people.forgotten("reviews", strings("a", "b", "c"), units).tolist() == [True, False, True]


@pytest.mark.parametrize("alike", [True, False], ids=["equal manifests", "two manifests"])
def test_a_version_is_retired_in_its_own_sink_only(kit, alike):
    here, there = kit.ref(), kit.ref(release="r1" if alike else "r2")
    old = {"here": "ab" * 32, "there": "ab" * 32 if alike else "cd" * 32}
    for sink, ref in (("here", here), ("there", there)):
        kit.reserve(["a", "b"], ["ann", "bob"], refs=[ref])
        kit.commit(["a", "b"], ref=ref)
        for _ in range(2):
            kit.ledger.releases.record_publication(ref, f"v1-{old[sink][:12]}", old[sink], 2, sink=sink)
    kit.ledger.releases.retire([here], "", "v2", "ef" * 32, 1, sink="here")
    assert kit.ledger.releases.retired(here, "here") == {old["here"]}
    assert kit.ledger.releases.retired(here, "a copy elsewhere") == {old["here"]}
    assert not kit.ledger.releases.retired(there, "there")
    assert old["there"] in kit.ledger.releases.published(there, "there").values()
    assert old["there"] in kit.ledger.releases.published(there).values(), "readers of one sink still have it"
    kit.ledger.releases.retire([there], "", "v2", ("ef" if alike else "01") * 32, 1, sink="there")
    assert kit.ledger.releases.retired(there, "there") == kit.ledger.releases.retired(there) == {old["there"]}
    assert "v2" in kit.ledger.releases.published(there, "there")
    kit.sound()
