"""`dptext explain` describes every mechanism."""

import math
from fractions import Fraction

import pytest

from dptext_etl import catalog
from dptext_etl.cli.commands import explain
from dptext_etl.device import Computing
from dptext_etl.mechanisms.custext import CusText
from tests.quick import quick

from ..command_line import dptext, facts, refused, require_models


def test_explain_states_the_exact_law(small_vectors):
    found = facts("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5", "-p", "epsilon=1.5")
    assert tuple(found) == explain.KEYS
    mechanism = CusText(epsilon=1.5, k=5, vectors=small_vectors)
    assert found["cfg"] == mechanism.cfg()
    words, law = mechanism.transition("good")
    assert {item["word"]: Fraction(item["exact"]) for item in found["example"]["outputs"]} == dict(
        zip(words, law, strict=True)
    )
    assert found["law"]["epsilon_table"] == found["law"]["epsilon_worst"] == mechanism.epsilon_table <= 1.5
    telling = found["example"]["most_telling"]
    worst = max(
        (own / other, seen, word)
        for word in words
        for seen, other in zip(*mechanism.transition(word), strict=True)
        for own in [dict(zip(words, law, strict=True))[seen]]
    )
    assert (telling["ratio"], telling["seen"], telling["instead_of"]) == (float(worst[0]), *worst[1:])
    assert telling["ratio"] <= math.exp(mechanism.epsilon_table) * (1 + 1e-12)
    assert found["spend"]["epsilon"] == 150
    assert 0 <= found["spend"]["log10_odds"] - 150 / math.log(10) < 0.001, "rounded up"
    claim = found["guarantee"]
    assert (claim["class"], claim["unit"]) == ("COND_PURE", "word")
    assert "cluster" in claim["disclosures"]
    assert all(item["meaning"] for item in found["parameters"])
    assert {item["name"] for item in found["parameters"]} == set(CusText.model_fields)


def test_explain_is_readable_and_says_where_no_table_computes(small_vectors):
    shown = dptext("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5").stdout
    for words in (
        "epsilon is per",
        "neighbors",
        "the output set of every word",
        "bits per word",
        "10^",
        "probability",
    ):
        assert words in shown
    assert facts("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5")["computing"] is None
    found = facts("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5", "--word", "unheardof")
    assert {item["exact"] for item in found["example"]["outputs"]} == {"1/103"}
    assert found["example"]["most_telling"] is None


def test_explain_states_the_law_of_every_word_mechanism(word_mechanism):
    """From the mechanism itself: exact where it is exact, a bound where it is not, and it says which."""
    law = explain.distribution(word_mechanism)
    assert law["epsilon_worst"] <= law["epsilon_word"] * (1 + 1e-12)
    assert law["epsilon_word"] == pytest.approx(law["times_epsilon"] * word_mechanism.epsilon) or math.isinf(
        law["epsilon_word"]
    )
    if law["is_exact"]:
        assert law["epsilon_worst"] == law["epsilon_table"]
    claim = word_mechanism.metric_claim
    assert (law["metric"] is None) is (claim is None)
    if claim is not None:
        assert law["epsilon_word"] <= float(claim.epsilon) * float(claim.diameter) * (1 + 1e-9)
    example = explain.worked(word_mechanism, "good")
    listed = math.fsum(item["probability"] for item in example["outputs"])
    assert listed + example["others"]["probability"] == pytest.approx(1.0)
    assert 0 <= example["stays"] <= 1
    if example["most_telling"] is not None:
        assert example["most_telling"]["log10_odds"] <= law["log10_odds"] * (1 + 1e-9)


def test_explain_says_what_each_length_gives(word_mechanism):
    told = explain.lengths(word_mechanism)
    assert [item["length"] for item in told] == list(explain.LENGTHS)
    by = {item["length"]: item for item in told}
    if word_mechanism.length != "disclose":
        ideal = any(name.startswith("IDEAL_") for name in word_mechanism.guarantee.assumptions)
        assert by["fixed"]["class"] == by["noisy"]["class"] == ("COND_PURE" if ideal else "PURE_LDP")
        assert by["fixed"]["disclosures"] == ["nullness"]
    assert "length" in by["disclose"]["disclosures"]
    for item in told:
        assert (item["class"] is None) is ("refused" in item)
        assert item.get("refused", "would hide nothing: x").partition(": ")[0].endswith("would hide nothing")


@pytest.mark.parametrize(
    ("given", "said", "instead"),
    [
        (("custext", "length=fixed", "n_max=9"), "its words disclose cluster", 'use length "disclose"'),
        (("custext", "norm=row"), "the published code, not the paper", 'norm "cluster" or mode "faithful"'),
        (("santext", "length=fixed"), "needs n_max", "from 1 to 100000"),
        (("santext", "length=noisy", "n_max=9"), "the price of length", "both or neither"),
        (
            ("santext", "variant=plus", "length=fixed", "n_max=9"),
            "its words disclose sens_class",
            'use length "disclose"',
        ),
        (("diffractor", "mode=faithful", "length=fixed", "n_max=9"), "would hide nothing", 'use length "disclose"'),
        (("diffractor", "variant=geometric", "gamma=9"), "gamma belongs to variant", "tem"),
    ],
)
def test_what_has_no_theorem_is_refused_with_the_reason_and_what_has_one(given, said, instead):
    name, *parameters = given
    stderr = refused("explain", name, *(word for item in parameters for word in ("-p", item)))
    for words in (said, instead, f"Hint: parameters of {name}"):
        assert words in stderr
    assert "Value error" not in stderr


def test_explain_prints_the_lines_that_a_policy_needs():
    assert facts("explain", "custext")["consent"] == ['allow = ["cluster"]']
    plus = ("explain", "santext", "-p", "variant=plus", "-p", "limit=300")
    assert facts(*plus)["consent"] == ['allow = ["sens_class"]', 'accept_unbounded = ["UMLDP"]']
    assert facts(*plus, "-p", "p=1")["consent"] == []
    assert facts("explain", "santext", "-p", "mode=faithful", "-p", "limit=300")["consent"][-1] == "publish = false"


MODELS = ["adept", "dp_paraphrase", "dp_prompt", "dpbart", "dpmlm"]


@pytest.mark.parametrize("name", quick(sorted(MODELS, reverse=True)))
def test_explain_states_what_a_model_can_tell(name):
    """Offline: the usual models are not here, so a small one replaces them, and the output says so."""
    require_models()
    from dptext_etl_models.inference import language_model

    found = facts("explain", name)
    assert tuple(found) == explain.KEYS
    small = catalog.load(name).small_model
    here = language_model.is_here(small)
    assert found["note"] is None or ("models of this machine" if here else "small example") in found["note"]
    assert here is (small in [item["value"] for item in found["parameters"] if item["name"] == "model"])
    assert found["law"] is None
    assert (found["draw"] is None) is (found["guarantee"]["unit"] == "record")
    assert (found["noise"] is None) is (found["guarantee"]["unit"] != "record")
    for item in found["conversions"]:
        assert 0 < item["epsilon"] < math.inf
        assert item["rule"]
    one, _, ten, _ = found["conversions"]
    assert one["epsilon"] < ten["epsilon"] <= 10 * one["epsilon"] * (1 + 1e-9)
    shown = dptext("explain", name).stdout
    assert f"computes here on {Computing(**found['computing'])}" in shown
    assert "at a fixed delta" in shown
    assert ("standard deviation" in shown) is (found["noise"] is not None)


def test_models_and_post_processing_are_explained_with_their_rules():
    require_models()
    one, _, ten, _ = facts("explain", "dpbart", "-p", "epsilon=500")["conversions"]
    assert (one["epsilon"], ten["rule"]) == (pytest.approx(500), "gaussian")
    assert ten["epsilon"] < 10 * one["epsilon"]
    require_models()
    found = facts("explain", "rewrite_again")
    assert (tuple(found), found["spend"]["epsilon"]) == (explain.KEYS, 0)
    assert {"model", "l_max", "training_provenance"} <= {item["name"] for item in found["parameters"]}
    assert all(item["meaning"] for item in found["parameters"])
    assert "sees only released texts" in dptext("explain", "rewrite_again").stdout
    assert "has no parameter 'l_min'" in dptext("explain", "rewrite_again", "-p", "l_min=3").stderr
