"""Every printed bound equals the charge of the ledger, for every mechanism; where no bound holds, none is printed."""

import re

import pyarrow as pa
import pytest

from dptext_etl import ColumnPolicy, load
from dptext_etl.cli import options
from dptext_etl.column import INFINITE, worst_case
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import FINE, MICRO
from dptext_etl.runner.publish.manifest import _claim, guarantee_of
from dptext_etl.runner.statement import _column, record, sections
from tests import chosen

BETA = 3 * 10**5
"""The copy gate may add this to delta, in steps of 10^-15."""


def charged(mechanism, words, delta):
    """The ledger's reservation for a text of `draws` draws: epsilon and delta, or None."""
    _, found = worst_case(mechanism, pa.array([words], pa.uint32()), pa.array(["word"]))
    if found["eps_approx"][0] == INFINITE:
        return None
    return found["eps_approx"][0] / MICRO, (found["delta"][0] + delta) / FINE


def stated(policy, delta):
    """The claim of a policy, and the paragraphs of its statement."""
    claim = _claim(policy, guarantee_of(policy.mechanism, delta), delta)
    found = {"columns": [_column(claim)], "record": record([claim]), "caps": [], "gates": [], "lacks": []}
    found |= {"excluded": None, "ids": "keep", "coarse": {}, "traceable": {}}
    names = ("dataset", "release", "id", "sink", "manifest_sha256", "written_by")
    found |= {"partition": None, "version": 1, "rows": 1, "in_clear": ["id"], **dict.fromkeys(names, "id")}
    found["public"] = True
    return claim, [paragraph for _, paragraphs, _ in sections(found) for paragraph in paragraphs if paragraph]


@pytest.fixture(params=[0, BETA])
def delta(request):
    return request.param


EVERY = [(name, variant) for name in chosen.names() for variant in options.variants(load(name)) or [None]]


@pytest.fixture(params=EVERY, ids=str)
def every(request, key):
    """Every variant of every mechanism, and a policy for it."""
    name, variant = request.param
    if load(name).accelerated:
        pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    mechanism = load(name).example().model_copy(update={"variant": variant} if variant else {})
    allow = mechanism.guarantee.disclosures
    try:
        mechanism.cfg()
    except PolicyError:
        pytest.skip("this variant takes a pruned model, which the example lacks; its charges are those of the others")
    names = {"dataset": "demo", "column": "text", "release": "r1", "key": key, "accept_unbounded": {"UMLDP"}}
    return name, variant, ColumnPolicy(mechanism=mechanism, allow=allow, **names)


def test_a_claim_is_what_the_ledger_charges(every, delta):
    mechanism = every[2].mechanism
    claim, _ = stated(every[2], delta)
    none = {name: ("inf", claim[f"{name}_delta"]) for name in ("unit", "largest")}
    for name, words in (("unit", 1), ("largest", mechanism.most_positions)):
        said = claim[f"{name}_epsilon"], claim[f"{name}_delta"]
        assert said == (charged(mechanism, words, delta) or none[name])
    assert claim["parameter"] == mechanism.epsilon


def test_a_page_has_no_other_bound(every, delta):
    """Every epsilon in its sentences is one that is charged; the parameter is in a table, under its name."""
    claim, said = stated(every[2], delta)
    known = {claim[name] for name in ("unit_epsilon", "largest_epsilon")}
    numbers = {float(number.replace(",", "")) for text in said for number in re.findall(r"ε (?:= )?([\d.,]*\d)", text)}
    assert all(any(number == pytest.approx(each, rel=1e-5) for each in known if each != "inf") for number in numbers)
    assert bool(numbers) == (claim["largest_epsilon"] != "inf")
    if claim["largest_epsilon"] == "inf":
        assert any("No bound" in text for text in said)
        assert not any("at most" in text for text in said)
    else:
        assert ("δ" in " ".join(said)) == (claim["largest_delta"] > 0)


def test_the_parameter_is_not_the_bound(every):
    """Known answers where the two differ: by 2 for plusminus, by gamma, by places, and no bound for SanText+."""
    name, variant, policy = every
    claim, _ = stated(policy, 0)
    times = claim["unit_epsilon"] if claim["unit_epsilon"] == "inf" else claim["unit_epsilon"] / claim["parameter"]
    mechanism = policy.mechanism
    known = {
        ("dpmlm", "plusminus"): 2, ("diffractor", "tem"): getattr(mechanism, "gamma", 0),
        ("diffractor", "geometric"): float(getattr(mechanism, "loss_range", 0)), ("santext", "plus"): "inf",
    }  # fmt: skip
    if (name, variant) in known:
        assert times == known[name, variant]
        assert claim["largest_epsilon"] != claim["parameter"]
