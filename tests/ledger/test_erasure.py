"""A forgotten record is neither charged, replayed nor committed in any release of its dataset, until it is readmitted.

Specification: docs/spec/privacy.md#forgotten.
"""

import pyarrow as pa
import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Outcome


def strings(*names):
    return pa.array(names, pa.large_string())


def forget(kit, *records, subjects=()):
    return kit.ledger.forget("reviews", strings(*records), strings(*subjects))


def test_a_forgotten_record_is_left_out_of_every_release(kit):
    first, second = kit.ref(), kit.ref(release="r2")
    kit.reserve(["a", "b"], ["ann", "bob"], refs=[first])
    kit.commit(["a", "b"], ref=first)
    used = kit.used("ann", "bob")
    assert forget(kit, "a", "never seen") == 2
    assert forget(kit, "a") == 0, "noted once"
    for ref in (first, second):
        assert kit.reserve(["a"], ["ann"], refs=[ref]) == [Outcome.FORGOTTEN]
        assert kit.reserve(["a"], ["ann"], refs=[ref], texts="another") == [Outcome.FORGOTTEN]
    assert kit.reserve(["never seen", "b"], ["cid", "bob"], refs=[first]) == [Outcome.FORGOTTEN, Outcome.COMMITTED]
    assert kit.used("ann", "bob") == used
    assert kit.ledger.forgotten("reviews", strings("a", "b")).tolist() == [True, False]
    assert not kit.ledger.forgotten("others", strings("a")).any()
    kit.sound()
    kit.reopen()
    assert kit.reserve(["a"], ["ann"], refs=[first]) == [Outcome.FORGOTTEN]
    with pytest.raises(LedgerError, match="1 of 2 records are not forgotten"):
        kit.ledger.readmit("reviews", strings("a", "b"), "a slip")
    assert kit.ledger.readmit("reviews", strings("a"), "came back") == 1
    assert kit.reserve(["a"], ["ann"], refs=[first]) == [Outcome.COMMITTED]
    assert forget(kit, "a") == 1
    assert kit.reserve(["a"], ["ann"], refs=[first]) == [Outcome.FORGOTTEN]
    kit.sound()


def test_what_was_reserved_before_is_not_committed(kit):
    kit.reserve(["a", "b"], ["ann", "bob"])
    forget(kit, "a")
    with pytest.raises(LedgerError, match="1 of 2 records were forgotten"):
        kit.commit(["a", "b"])
    kit.commit(["b"])
    kit.sound()


def test_all_records_that_were_ever_charged_to_a_person_are_forgotten(kit):
    first, second = kit.ref(), kit.ref(release="r2")
    kit.reserve(["a", "b"], ["ann", "bob"], refs=[first])
    kit.ledger.accept_units("reviews", {}, "accounts were merged")
    kit.reserve(["a", "c"], ["zoe", "ann"], refs=[second])
    assert kit.ledger.of_subjects("reviews", strings("ann"), strings("a", "b", "c")).tolist() == [True, False, True]
    assert forget(kit, subjects=["ann"]) == 2
    assert kit.ledger.forgotten("reviews", strings("a", "b", "c")).tolist() == [True, False, True]
    assert forget(kit, subjects=["nobody"]) == 0
    kit.sound()


def test_an_edited_list_of_forgotten_records_is_found(kit):
    kit.reserve(["a"], ["ann"])
    forget(kit, "a")
    store = kit.db.store
    with store.transaction():
        store.execute("delete from meta where name='forgotten/reviews'")
    assert any("forgotten/reviews" in problem for problem in kit.ledger.verify().problems)


def test_manifests_of_all_releases_at_a_place_are_retired(kit):
    first, second = kit.ref(), kit.ref(release="r2")
    for ref, digest in ((first, "ab" * 32), (second, "cd" * 32)):
        kit.reserve(["a", "b"], ["ann", "bob"], refs=[ref])
        kit.commit(["a", "b"], ref=ref)
        kit.ledger.record_publication(ref, f"v1-{digest[:12]}", digest, 2)
    kit.ledger.record_publication(first, "west/v1", "ef" * 32, 2)
    kit.ledger.retire([second], "", "v2", "01" * 32, 1)
    assert kit.ledger.retired(first) == {"ab" * 32}
    assert set(kit.ledger.published(first)) == {"west/v1"}
    assert kit.ledger.retired(second) == {"cd" * 32}
    kit.sound()
