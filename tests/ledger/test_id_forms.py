"""The forms of ids are pinned: a budget cannot be had anew by writing ids in another way."""

import pyarrow as pa
import pytest

from dptext_etl.errors import InputError, LedgerError
from dptext_etl.id_forms import IdForm, arranged
from dptext_etl.ledger import IdForms, Outcome, Scope
from dptext_etl.policy import Cap

from .conftest import each_store

STRING, INTEGER = IdForm("string"), IdForm("integer")
SHOP = IdForm("composite", (("shop", STRING), ("number", INTEGER)))
TURNED = IdForm("composite", (("number", INTEGER), ("shop", STRING)))


def test_forms_name_types_and_fields():
    shop = pa.struct([("shop", pa.string()), ("number", pa.int64())])
    assert IdForm.of(shop) == SHOP
    assert str(SHOP) == "composite of 2 fields (string, integer)"
    assert IdForm.of(pa.dictionary(pa.int8(), pa.string())) == STRING
    nested = IdForm.of(pa.struct([("a", shop), ("b", pa.binary())]))
    for form in (STRING, SHOP, nested):
        assert IdForm.parse(form.written()) == form
    assert SHOP.orders(TURNED)
    assert not SHOP.orders(SHOP)
    assert not SHOP.orders(STRING)
    with pytest.raises(InputError, match="one name"):
        IdForm.of(pa.struct([("a", pa.string()), ("a", pa.string())]))


def test_fields_are_brought_into_an_order():
    ids = pa.array([{"number": 1, "shop": "a"}, None, {"number": 2, "shop": "b"}])
    assert arranged(ids, SHOP).to_pylist() == [{"shop": "a", "number": 1}, None, {"shop": "b", "number": 2}]
    assert arranged(ids, SHOP).type.field(0).name == "shop"
    assert arranged(ids, None) is ids
    assert arranged(ids, STRING) is ids
    deep = pa.array([{"x": {"number": 1, "shop": "a"}, "y": 1}]).slice(0)
    wanted = IdForm("composite", (("y", INTEGER), ("x", SHOP)))
    assert list(arranged(deep, wanted).to_pylist()[0]["x"]) == ["shop", "number"]


def test_a_subject_written_in_another_way_has_no_new_budget(kit):
    assert kit.reserve(["a"], ["007"], 5, cap=5, forms=IdForms(STRING, STRING)) == [Outcome.RESERVED]
    with pytest.raises(LedgerError, match=r"the subject ids of dataset:reviews are pinned as string, got integer"):
        kit.reserve(["b"], ["7"], 5, cap=5, forms=IdForms(STRING, INTEGER))
    with pytest.raises(LedgerError, match="states no form"):
        kit.reserve(["b"], ["7"], 5, cap=5)
    assert kit.reserve(["b"], ["007"], 5, cap=5, forms=IdForms(STRING, STRING)) == [Outcome.OVER_CAP]
    later = Scope("reviews", "2027")
    kit.ledger.set_cap(later, Cap(epsilon=5, period="2027"), raising=True)
    with pytest.raises(LedgerError, match="pinned as string"):
        kit.reserve(["b"], ["7"], 5, Cap(epsilon=5, period="2027"), scope=later, forms=IdForms(STRING, INTEGER))
    kit.sound()


def test_the_datasets_of_a_group_name_people_alike(kit):
    for dataset, form, works in (("tickets", STRING, True), ("notes", INTEGER, False), ("notes", STRING, True)):
        scope, refs = Scope(dataset, "2026", "people"), [kit.ref(dataset=dataset)]
        if works:
            kit.reserve(["a"], ["7"], scope=scope, refs=refs, forms=IdForms(STRING, form))
        else:
            with pytest.raises(LedgerError, match="the subject ids of group:people are pinned as string, got integer"):
                kit.reserve(["a"], ["7"], scope=scope, refs=refs, forms=IdForms(STRING, form))
    kit.sound()


def test_records_with_a_budget_of_their_own_keep_their_form_in_every_column(kit):
    scope = Scope("reviews", "2026", unit="record")
    kit.reserve(["1"], None, scope=scope, forms=IdForms(SHOP))
    for form, hint in ((TURNED, "the pinned order"), (INTEGER, "a new budget")):
        with pytest.raises(LedgerError, match="the record ids of dataset:reviews are pinned as composite of") as caught:
            kit.reserve(["2"], None, scope=scope, refs=[kit.ref(column="note")], forms=IdForms(form))
        assert hint in str(caught.value)
    assert kit.ledger.pinned_forms(scope, ["review"]) == {"record": SHOP}
    kit.sound()


def test_a_message_says_that_only_names_of_fields_differ(kit):
    scope = Scope("reviews", "2026", unit="record")
    kit.reserve(["1"], None, scope=scope, forms=IdForms(SHOP))
    other = IdForm("composite", (("zxqvyuu", STRING), ("number", INTEGER)))
    with pytest.raises(LedgerError, match=r"got composite of 2 fields \(string, integer\), its fields under") as caught:
        kit.reserve(["2"], None, scope=scope, forms=IdForms(other))
    assert "zxqvyuu" not in str(caught.value)


def test_columns_of_a_dataset_whose_people_have_the_budget_may_have_other_records(kit):
    kit.reserve(["1"], ["ann"], forms=IdForms(INTEGER, STRING))
    with pytest.raises(LedgerError, match=r"the record ids of reviews.review are pinned as integer, got string"):
        kit.reserve(["01"], ["ann"], forms=IdForms(STRING, STRING))
    kit.reserve(["01"], ["ann"], refs=[kit.ref(column="reply")], forms=IdForms(STRING, STRING))
    assert kit.ledger.pinned_forms(Scope("reviews", "2026"), ["reply"]) == {"record": STRING, "subject": STRING}
    kit.sound()


def test_a_ledger_from_before_pins_what_its_releases_state(kit):
    scope = Scope("reviews", "2026", unit="record")
    kit.reserve(["1"], None, scope=scope, refs=[kit.ref(id_type="integer")])
    with pytest.raises(LedgerError, match="pinned as integer, got string"):
        kit.reserve(["01"], None, scope=scope, refs=[kit.ref(column="note")], forms=IdForms(STRING))
    kit.reserve(["2"], None, scope=scope, refs=[kit.ref(id_type="integer")], forms=IdForms(INTEGER))
    kit.sound()


@each_store
def test_fields_may_be_told_later_but_never_changed(kit):
    scope = Scope("reviews", "2026", unit="record")
    kit.reserve(["1"], None, scope=scope, forms=IdForms(IdForm("composite")))
    kit.reserve(["2"], None, scope=scope, forms=IdForms(SHOP))
    with pytest.raises(LedgerError, match=r"are pinned as composite of .*, got composite\n"):
        kit.reserve(["3"], None, scope=scope, forms=IdForms(IdForm("composite")))
    kit.sound()


def test_an_edited_form_is_found(kit):
    kit.reserve(["a"], ["7"], forms=IdForms(STRING, STRING))
    store = kit.db.store
    with store.transaction():
        store.execute("delete from meta where name like ?", ("form/%subject%",))
    assert any("the journal has it" in problem for problem in kit.ledger.verify().problems)
