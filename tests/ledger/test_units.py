"""A record stays with the unit that it was charged to, and forms of ids are pinned: other ids give no new budget."""

import pyarrow as pa
import pytest

from dptext_etl.errors import InputError, LedgerError
from dptext_etl.keys import IdForm, arranged
from dptext_etl.ledger import IdForms, Outcome, Scope
from dptext_etl.policy import Cap

from .conftest import each_store

NEW, OVER, PENDING, COMMITTED = Outcome.RESERVED, Outcome.OVER_CAP, Outcome.PENDING, Outcome.COMMITTED
YEAR = Scope("reviews", "2026")
FOUR = list("abcd")
STRING, INTEGER = IdForm("string"), IdForm("integer")


def journalled(kit):
    return [entry.kind for entry in kit.db.journal.entries()]


@pytest.mark.parametrize("committed", [False, True])
def test_a_replay_asks_whose_record_it_is(kit, committed):
    """Else the text would be replayed for nothing, the new person's cap would not count it, and its equality shows."""
    kit.reserve(FOUR, ["ann"] * 4, 4, cap=16)
    if committed:
        kit.commit(FOUR)
    before = journalled(kit)
    for texts in ("text", "another text"):
        with pytest.raises(LedgerError, match="4 of 4 records were charged to another subject before") as caught:
            kit.reserve(FOUR, ["zoe"] * 4, 4, cap=16, texts=texts)
    assert "accept-units reviews" in str(caught.value)
    with pytest.raises(LedgerError, match="1 of 2 records"):
        kit.reserve(["a", "new"], ["zoe", "zoe"], 4, cap=16)
    assert kit.used("ann", "zoe") == [16, 0]
    assert journalled(kit) == before
    assert kit.reserve(FOUR, ["ann"] * 4, 4, cap=16) == [COMMITTED if committed else PENDING] * 4
    kit.sound()


def test_records_as_units_and_people_do_not_mix(kit):
    kit.reserve(FOUR, ["ann"] * 4, 4)
    everyone = Scope("reviews", "2027", unit="record")
    with pytest.raises(LedgerError, match="4 of 4 records were charged before, to a subject"):
        kit.reserve(FOUR, None, 4, scope=everyone, refs=[kit.ref(release="r2")])
    kit.sound()


@each_store
def test_a_change_of_units_is_accepted_by_name_and_charged_to_everybody(kit):
    kit.reserve(FOUR, ["ann"] * 4, 4, cap=16)
    kit.commit(FOUR)
    with pytest.raises(LedgerError, match="a cap of reviews counts eps_pure: state how much"):
        kit.ledger.people.accept_units("reviews", {}, "merged accounts")
    with pytest.raises(LedgerError, match="short and plain"):
        kit.ledger.people.accept_units("reviews", {"eps_pure": 4}, "'quoted'")
    with pytest.raises(LedgerError, match="no record of the dataset notes"):
        kit.ledger.people.accept_units("notes", {"eps_pure": 4}, "merged accounts")
    caps = kit.ledger.people.accept_units("reviews", {"eps_pure": 4}, "merged accounts")
    assert caps == {str(YEAR): {"eps_pure": 12_000_000}}
    assert kit.reserve(["a"], ["zoe"], 4, cap=12) == [COMMITTED], "a text that is released already costs nothing"
    again = [kit.ref(release="r2")]
    assert kit.reserve(FOUR, ["zoe"] * 4, 4, cap=12, refs=again) == [NEW, NEW, NEW, OVER]
    with pytest.raises(LedgerError, match="1 of 1 record was charged to another subject"):
        kit.reserve(["a"], ["ann"], 4, cap=12, refs=[kit.ref(release="r3")])
    assert kit.used("ann", "zoe") == [16, 12]
    assert journalled(kit).count("UNITS") == 1
    kit.sound()
    kit.ledger.losses.freeze("reviews", "by hand")
    with pytest.raises(LedgerError, match="frozen"):
        kit.ledger.people.accept_units("reviews", {"eps_pure": 0}, "merged accounts")


def named(record, subject, form=STRING):
    return IdForms(STRING, form, columns={"record": record, "subject": subject})


def test_the_columns_of_ids_are_pinned_per_scope(kit):
    assert kit.reserve(["a"], ["u1"], 5, cap=5, forms=named("id", "user_id")) == [NEW]
    for forms, said in (
        (named("id", "email"), "subject ids of reviews are pinned as column 'user_id', got column 'email'"),
        (named("email", "user_id"), "record ids of reviews are pinned as column 'id', got column 'email'"),
    ):
        for release in ("r1", "r2"):
            with pytest.raises(LedgerError, match=said):
                kit.reserve(["new"], ["u1@x"], 5, cap=5, forms=forms, refs=[kit.ref(release=release)])
    assert kit.used("u1@x") == [0]
    assert kit.reserve(["b"], ["u1"], 5, cap=5, forms=IdForms(STRING, STRING)) == [OVER], "who knows no name gives none"
    kit.ledger.people.accept_units("reviews", {"eps_pure": 5}, "renamed")
    kit.ledger.set_cap(YEAR, Cap(epsilon=5, period="2026"), raising=True)
    assert kit.reserve(["b"], ["u1@x"], 5, cap=5, forms=named("id", "email")) == [NEW]
    with pytest.raises(LedgerError, match="pinned as column 'email', got column 'user_id'"):
        kit.reserve(["c"], ["u1"], 5, cap=5, forms=named("id", "user_id"))
    kit.sound()


def test_a_ledger_without_pinned_columns_takes_the_first(kit):
    kit.reserve(["a"], ["u1"], 1, cap=5, forms=IdForms(STRING, STRING))
    assert kit.reserve(["b"], ["u1"], 1, cap=5, forms=named("id", "user_id")) == [NEW]
    with pytest.raises(LedgerError, match="pinned as column 'user_id'"):
        kit.reserve(["c"], ["u1"], 1, cap=5, forms=named("id", "email"))
    kit.sound()


def test_the_spelling_of_subjects_is_pinned_per_scope(kit):
    folded = IdForm("string", normalize=("nfc", "casefold"))
    assert IdForm.parse(folded.written()) == folded
    assert not folded.orders(STRING)
    assert not STRING.orders(folded)
    assert kit.reserve(["a"], ["u1"], 5, cap=5, forms=IdForms(STRING, folded)) == [NEW]
    for other in (STRING, IdForm("string", normalize=("strip",))):
        with pytest.raises(LedgerError, match=r"pinned as string \(normalized: nfc, casefold\), got string"):
            kit.reserve(["b"], ["u1"], 5, cap=5, forms=IdForms(STRING, other))
    kit.reopen()
    assert kit.reserve(["b"], ["u1"], 5, cap=5, forms=IdForms(STRING, folded)) == [OVER]
    kit.sound()


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
def test_a_composite_keeps_its_fields(kit):
    scope = Scope("reviews", "2026", unit="record")
    kit.reserve(["2"], None, scope=scope, forms=IdForms(SHOP))
    with pytest.raises(LedgerError, match=r"are pinned as composite of .*, got composite\n"):
        kit.reserve(["3"], None, scope=scope, forms=IdForms(IdForm("composite")))
    kit.sound()
