"""A record stays with the unit that it was charged to: another one is refused until someone accepts it by name."""

import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger import IdForms, Outcome, Scope
from dptext_etl.policy import Cap

from .conftest import each_store

NEW, OVER, PENDING, COMMITTED = Outcome.RESERVED, Outcome.OVER_CAP, Outcome.PENDING, Outcome.COMMITTED
YEAR = Scope("reviews", "2026")
FOUR = list("abcd")
STRING = IdForm("string")


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
