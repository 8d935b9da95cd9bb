"""Releases: pins of a name, its revocation, the needs of a publication."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from dptext_etl import _kernel
from dptext_etl.accounting.conversion import Bound
from dptext_etl.errors import KeyReferenceError, LedgerError
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend
from dptext_etl.ledger.releases import commitment
from dptext_etl.ledger.types import Event
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.policy import ColumnPolicy

from .conftest import each_store

MANIFEST = "ab" * 32


@each_store
def test_a_name_pins_one_configuration_and_one_claim(kit):
    first = kit.ref()
    assert kit.ref() == first
    with pytest.raises(LedgerError, match=r"release 'r1' of reviews\.review is pinned to another configuration"):
        kit.ref(cfg="c2")
    with pytest.raises(LedgerError, match="pinned as publishable"):
        kit.ref(publishable=False)
    assert kit.ref(release="r2", cfg="c2").id != first.id
    assert kit.ref(column="title", cfg="c2").id != first.id
    assert kit.sound()["events"] == 3


WORST = Spend(eps_pure=10_000_000, eps_approx=10_000_000)


@pytest.mark.parametrize(
    "said",
    [
        {"guarantee": Guarantee(GuaranteeClass.COND_PURE, frozenset(), "the same in better words", "word")},
        {"guarantee": Guarantee(GuaranteeClass.PURE_LDP, frozenset(), "any two texts", "word", frozenset({"PRF"}))},
        {"worst_case": replace(WORST, eps_pure=9_000_000, eps_tight=9_000_000, rho=5)},
    ],
)
def test_a_claim_may_change_its_words_and_become_stronger(kit, said):
    first = kit.ref()
    assert kit.ref(**said) == first
    assert kit.sound()["events"] == 1, "what was pinned stays"


def test_a_rule_of_accounting_may_have_another_name(kit, monkeypatch):
    first = kit.ref()
    other = Bound(10_000_000, 0, "composition, as it is called now")
    monkeypatch.setattr("dptext_etl.ledger.releases.least", lambda _: other)
    assert kit.ref() == first


@pytest.mark.parametrize(
    ("said", "less"),
    [
        ({"worst_case": replace(WORST, eps_pure=10_000_001)}, "a larger eps_pure"),
        ({"worst_case": Spend(eps_pure=1)}, "a larger eps_approx"),
        ({"worst_case": replace(WORST, delta=1)}, "a larger delta"),
        ({"guarantee": Guarantee(GuaranteeClass.METRIC, frozenset(), "x", "word")}, "the class: METRIC for COND_PURE"),
        (
            {"guarantee": Guarantee(GuaranteeClass.COND_PURE, frozenset({Disclosure.LENGTH}), "x", "word")},
            "more disclosures: length",
        ),
        (
            {"guarantee": Guarantee(GuaranteeClass.COND_PURE, frozenset(), "x", "word", frozenset({"PRF", "HOPE"}))},
            "more assumptions: HOPE",
        ),
        ({"guarantee": Guarantee(GuaranteeClass.COND_PURE, frozenset(), "x", "record")}, "unit"),
        ({"refundable": True}, "what commits are charged"),
        ({"configuration": {"epsilon": "2.0"}}, "configuration"),
        ({"artifact_hashes": {"table": "ab"}}, "artifact_hashes"),
        ({"mechanism": "another"}, "mechanism"),
    ],
)
def test_a_claim_never_becomes_weaker(kit, said, less):
    kit.ref()
    with pytest.raises(LedgerError, match=f"was pinned with a stronger claim; today's has {less}"):
        kit.ref(**said)
    kit.ref()


def test_the_type_of_ids_is_pinned_per_column(kit):
    kit.ref()
    with pytest.raises(LedgerError, match="pinned to type string, got integer"):
        kit.ref(release="r2", id_type="integer")
    kit.ref(column="title", id_type="integer")


def test_a_revoked_name_is_revoked_in_every_column(kit):
    review, title = kit.ref(), kit.ref("title")
    kit.reserve(["a", "b"], cap=9, refs=[review, title])
    kit.commit(["a"], ref=title)
    kit.ledger.releases.record_publication(title, "v1", MANIFEST, 1, sink="here")
    kit.ledger.releases.revoke(review, "canary rows, in-vocabulary")
    kit.ledger.releases.revoke(title, "again")
    for action in (
        kit.ref,
        lambda: kit.ref("title"),
        lambda: kit.ref("a third column"),
        lambda: kit.reserve(["c"], cap=9, refs=[title]),
        lambda: kit.commit(["b"], ref=title),
        lambda: kit.ledger.releases.record_publication(title, "v2", MANIFEST, 1, sink="here"),
    ):
        with pytest.raises(LedgerError, match="release 'r1' of reviews is revoked"):
            action()
    kit.ledger.releases.record_publication(title, "v1", MANIFEST, 1, sink="here")
    assert kit.used("of-a") == [2], "the charge stays"
    assert kit.ref(release="r2").id
    kit.sound()
    assert [row["burnt"] for row in kit.ledger.reports.show()] == [True, True, False]


def test_the_reason_of_a_revocation_is_no_text(kit):
    with pytest.raises(LedgerError, match="short and plain"):
        kit.ledger.releases.revoke(kit.ref(), "row says: ‘my secret’")


@each_store
def test_a_publication_needs_commits_and_a_theorem(kit):
    ref = kit.ref()
    kit.reserve(["a", "b"], cap=9)
    kit.commit(["a"])
    with pytest.raises(LedgerError, match="has 1 committed rows, got a publication of 2"):
        kit.ledger.releases.record_publication(ref, "v1", MANIFEST, 2, sink="here")
    with pytest.raises(LedgerError, match="SHA-256 of its manifest"):
        kit.ledger.releases.record_publication(ref, "v1", "no digest", 1, sink="here")
    kit.ledger.releases.record_publication([ref], "v1", MANIFEST, 1, sink="here")
    kit.ledger.releases.record_publication(ref, "v1", MANIFEST, 1, sink="here")
    with pytest.raises(LedgerError, match="has published version 'v1' with another manifest"):
        kit.ledger.releases.record_publication(ref, "v1", "cd" * 32, 1, sink="here")
    assert kit.ledger.reports.show()[0]["published"] == [{"version": "v1", "rows": 1}]
    for release, claim, publishable in (
        ("bench", GuaranteeClass.COND_PURE, False),
        ("none", GuaranteeClass.NONE, True),
    ):
        stated = Guarantee(claim, frozenset(), "any", "word")
        weak = kit.ref(release=release, guarantee=stated, publishable=publishable)
        with pytest.raises(LedgerError, match="is not publishable"):
            kit.ledger.releases.record_publication(weak, "v1", MANIFEST, 0, sink="here")
    assert kit.sound()["committed"] == 1


def test_a_column_policy_registers_itself(kit, monkeypatch):
    monkeypatch.setenv("DPTEXT_SECRET", "5e" * 31 + "00")
    policy = ColumnPolicy(
        dataset="reviews",
        column="review",
        release="2026-11",
        mechanism=CusText.example(),
        key="env:DPTEXT_SECRET",
        allow={"cluster"},
    )
    ref = kit.ledger.releases.register(policy, "string")
    assert ref == kit.ledger.releases.register(policy, "string")
    assert ref.cfg == policy.mechanism.cfg()
    shown = kit.ledger.reports.export()["datasets"]["reviews"]["releases"][0]
    assert shown["mechanism"] == "custext"
    assert shown["configuration"] == policy.mechanism.configuration()
    assert shown["disclosures"] == sorted(item.value for item in policy.mechanism.guarantee.disclosures)
    with pytest.raises(LedgerError, match="names no column"):
        kit.ledger.releases.register(policy.model_copy(update={"column": None}), "string")


def test_a_commitment_is_the_one_of_the_specification():
    secret = _kernel.Secret.from_bytes(bytes(range(32)))
    assert commitment(secret, "demo", "text", "2025-01") == (
        "545f4ffaefa9a2446631787914167309b4476081418c12ef037ceda823b75884"
    )


def test_a_release_takes_one_key(kit):
    keys = [_kernel.Secret(), _kernel.Secret()]
    ref = kit.ref(release="keyed", key=keys[0])
    assert kit.ref(release="keyed", key=keys[0]) == ref
    for block in (nullcontext, kit.ledger.rehearsal):
        with pytest.raises(KeyReferenceError, match="was made under another noise key") as caught, block():
            kit.ref(release="keyed", key=keys[1])
        assert caught.value.hint == "restore the key from your backup; a new key needs a new release name"
    assert kit.ledger.verify().ok


@each_store
def test_a_release_without_a_commitment_to_a_key_is_refused(kit):
    ref = kit.ref()
    kit.reserve(["a"], cap=9)
    store = kit.db.store
    with store.transaction():  # as no version of the library writes it
        facts = kit.db.journal.facts(1)
        del facts["commitment"], facts["seq"], facts["event"], facts["ts"], facts["writer"]
        kit.db.journal.append(Event.RELEASE, **facts | {"release": "r2", "release_id": ref.id + 1})
    with pytest.raises(LedgerError, match="its release is not committed to a noise key: nothing is charged"):
        kit.reserve(["b"], cap=9)
