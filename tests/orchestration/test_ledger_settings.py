"""Settings of a ledger reach every process whole: each door passes every field, also one that is added tomorrow."""

from types import SimpleNamespace

import pytest

from dptext_etl.engines.spark.worker_policy import for_workers
from dptext_etl.ledger.account import AccountTerms
from dptext_etl.policy import LedgerSpec
from tests.later import later

resources = later("dptext_etl.orchestration.resources")
component = later("dptext_etl.orchestration.component")


@pytest.fixture
def spec(tmp_path):
    """A ledger in which no field has its default."""
    made = LedgerSpec(
        url="env:LEDGER_SECRET", id_key="env:IDS_SECRET", anchors=str(tmp_path / "anchors"), require_anchors=True
    )
    assert made.model_fields_set == set(LedgerSpec.model_fields), "give the new field a value here"
    return made


def test_every_door_has_and_passes_every_field(spec, monkeypatch):
    for kind in (resources.LedgerResource, component.LedgerAttributes, AccountTerms):
        assert set(LedgerSpec.model_fields) <= set(kind.model_fields)
    attributes = component.LedgerAttributes(**spec.model_dump())
    resource = resources.LedgerResource(**attributes.model_dump())
    assert {name: getattr(resource, name) for name in LedgerSpec.model_fields} == spec.model_dump()
    monkeypatch.setenv("LEDGER_SECRET", "postgresql://127.0.0.1/dptext")
    assert for_workers(spec) == spec
    carried = AccountTerms(**spec.model_dump(), ledger_id="x", cap=None, on_cap="quarantine", unit="record")
    assert {name: getattr(carried, name) for name in LedgerSpec.model_fields} == spec.model_dump()
    policy = SimpleNamespace(ledger=spec, model_copy=lambda update: SimpleNamespace(**update))
    key = SimpleNamespace(reference="env:KEY_SECRET")
    context = SimpleNamespace(resources=SimpleNamespace(ledger=resource, key=key))
    there = resources.deployed(policy, context, SimpleNamespace(ledger="ledger", key="key"))
    assert there.ledger == spec
