"""No whole number of a policy is without bounds: floats, 64-bit integers, and the kernel hold each of them."""

import pytest

from dptext_etl import Policy, catalog, extensions
from dptext_etl.errors import PolicyError
from dptext_etl.policy.terms import Kept

BOUNDS = ({"maximum", "exclusiveMaximum"}, {"minimum", "exclusiveMinimum"})


def unbounded(node, path=()):
    """Yield the path of every whole number of a JSON schema that lacks a least or a largest value."""
    if isinstance(node, dict) and node.get("type") == "integer" and not {"enum", "const"} & set(node):
        yield from (".".join(path) for bound in BOUNDS if not bound & set(node))
    for name, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from unbounded(child, (*path, str(name)))


def test_every_whole_number_of_a_policy_is_bounded():
    assert list(unbounded({"type": "integer", "minimum": 1})) == [""], "the search finds one"
    assert list(unbounded(Policy.model_json_schema())) == []


@pytest.mark.parametrize(("group", "load"), [("mechanisms", catalog.load), ("postprocesses", catalog.load_postprocess)])
def test_every_whole_number_of_a_parameter_is_bounded(group, load):
    schemas = {name: load(name).model_json_schema() for name in extensions.names(group)}
    assert len(schemas) > 0
    assert {name: paths for name, schema in schemas.items() if (paths := list(unbounded(schema)))} == {}


def test_the_charge_of_the_most_records_per_person_fits_into_the_ledger():
    given = {"dataset": "d", "release": "1", "source": "a.parquet", "sink": "out", "id": "id", "subject": "person"}
    given |= {"key": "file:key", "ledger": {"url": "sqlite:///l.db"}}
    mechanism = {"name": "maxent", "corpus": "example", "epsilon": 1.0, "delta": 1e-6}
    table = {"column": "text", "rows": 10, "mechanism": mechanism, "per_subject": 10**9}
    synthetic = Policy.parse({**given, "synthetic": table}).synthetic
    charge = synthetic.aggregate({}).spend(1)
    assert max(charge.eps_approx, charge.rho) < 2**63
    with pytest.raises(PolicyError, match="per_subject: must be at most 1e"):
        Policy.parse({**given, "synthetic": {**table, "per_subject": 10**400}})


def test_whole_bounds_of_bins_stay_exact_and_are_refused_beyond_64_bits():
    exact = [1_700_000_000_000_000_001, 2**64 - 1]
    assert Kept(column="a", bins=exact).bins == tuple(exact)
    with pytest.raises(ValueError, match="must have at most 64 bits"):
        Kept(column="a", bins=[0, 2**64])
