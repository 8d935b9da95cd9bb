"""What every mechanism keeps: the same bytes for the same inputs, honest spends, no way around the draw."""

import contextlib
import itertools
import json
import math
import pickle
import traceback

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import catalog, load, privatize
from dptext_etl.accounting import range_bounded
from dptext_etl.artifacts import Artifact, placed
from dptext_etl.cli import options
from dptext_etl.column import release, spends, step_costs, worst_case
from dptext_etl.errors import DPTextError, InputError, PolicyError
from dptext_etl.families.words import WordMechanism, by_word
from dptext_etl.guarantee import ADDITIVE, MICRO, UNIQUE_IDS, Disclosure, GuaranteeClass, Spend
from dptext_etl.mechanism import worst_spend
from tests import chosen
from tests.computing import PLACES, place_name
from tests.quick import quick

FOREIGN = "qzxvjkwpqzxvjkwp"
DIVIDED_MODELS_LATER = {
    "test_every_string_layout_gives_the_same",
    "test_it_reads_its_artifacts_where_they_are_put_and_builds_none",
    "test_keys_records_releases_columns_and_texts_draw_apart",
}
"""Tests of code that a division of the budget does not change: with models, `make test-thorough` runs them."""


def test_it_is_plain_frozen_data_with_a_canonical_configuration_that_hides_paths(mechanism):
    again = pickle.loads(pickle.dumps(mechanism))
    assert (again, again.cfg()) == (mechanism, mechanism.cfg())
    assert catalog.build({"name": mechanism.name, **mechanism.model_dump()}) == mechanism
    with pytest.raises(Exception, match="frozen"):
        mechanism.epsilon = 3.0
    configuration = mechanism.configuration()
    assert json.loads(json.dumps(configuration)) == configuration
    assert {"mechanism", "mechanism_version", "segmentation", "epsilon"} <= set(configuration)
    assert not any("/" in str(value) for value in configuration.values())
    assert float(configuration["epsilon"]) == mechanism.epsilon
    assert mechanism.model_copy(update={"epsilon": mechanism.epsilon * 2}).cfg() != mechanism.cfg()
    dearer = mechanism.model_copy(update={"epsilon": mechanism.epsilon * 2})
    assert dearer.spend(3).eps_approx >= mechanism.spend(3).eps_approx
    assert mechanism.hub_fields <= mechanism.artifact_fields <= type(mechanism).model_fields.keys()


def test_its_guarantee_is_complete_and_says_what_nobody_checks_without_a_ledger(mechanism):
    guarantee = mechanism.guarantee
    assert guarantee.neighbors
    assert guarantee.unit
    assert "PRF" in guarantee.assumptions
    if guarantee.guarantee_class in (GuaranteeClass.PURE_LDP, GuaranteeClass.APPROX_LDP):
        assert Disclosure.LENGTH not in guarantee.disclosures
    claim = mechanism.guarantee
    assert UNIQUE_IDS not in claim.assumptions
    assert claim.without_ledger().assumptions == claim.assumptions | {UNIQUE_IDS}
    assert claim.without_ledger().guarantee_class is claim.guarantee_class
    for one in options.examples(type(mechanism)).values():
        assert ("SCORES_LOCAL" in one.guarantee.assumptions) is (one.computing is not None)


def test_noise_that_stands_for_a_density_is_never_called_pure(mechanism):
    """An idealization is not an exact draw (docs/spec/privacy.md#grid-laplace), with the length hidden or not."""
    made = [*options.examples(type(mechanism)).values()]
    if "length" in type(mechanism).model_fields:
        for hidden in ({"length": "fixed"}, {"length": "noisy", "epsilon_length": 2.0}):
            with contextlib.suppress(ValueError, DPTextError):
                made.append(type(mechanism)(**{**mechanism.model_dump(exclude_unset=True), "n_max": 6, **hidden}))
    for one in made:
        ideal = any(name.startswith("IDEAL_") for name in one.guarantee.assumptions)
        assert not (ideal and one.guarantee.guarantee_class is GuaranteeClass.PURE_LDP)
        assert one.spend(1).guarantee_class is one.guarantee.guarantee_class


def test_spends_grow_with_positions_and_compose(mechanism):
    costs = [mechanism.spend(n) for n in (0, 1, 2, 10, 100)]
    for less, more in itertools.pairwise(costs):
        assert all(getattr(less, name) <= getattr(more, name) for name in ADDITIVE)
    for cost in costs:
        assert cost.eps_tight <= cost.eps_pure
        assert cost.disclosures == mechanism.guarantee.disclosures
    thrice = mechanism.spend(1) + mechanism.spend(1) + mechanism.spend(1)
    assert thrice.eps_pure >= mechanism.spend(3).eps_pure
    assert isinstance(worst_spend(mechanism), Spend)
    assert worst_spend(mechanism) == worst_spend(mechanism, mechanism.most_positions)
    assert worst_spend(mechanism, 7).eps_pure <= worst_spend(mechanism).eps_pure
    for positions in (0, 1, 7):
        assert worst_spend(mechanism, positions) == mechanism.spend(min(positions, mechanism.most_positions))
    for variant in options.examples(type(mechanism)).values():
        worst = variant.spend(3).eps_approx if variant.guarantee.unit != "record" else variant.spend(1).eps_approx
        product = math.prod(float(factor) for factor in variant.cost_factors(3).values())
        assert product * MICRO == pytest.approx(worst, rel=1e-12, abs=1)  # rounded up to a millionth


MODELS = [name for name in chosen.names() if load(name).accelerated]


@pytest.mark.parametrize("mechanism", MODELS, indirect=True)
@pytest.mark.parametrize("computing", quick(PLACES), ids=place_name, indirect=True)
def test_a_model_gives_the_same_bytes_in_any_batch_wherever_it_computes(policy, texts, ids, computing):
    assert {policy.mechanism.computing.dtype} <= {computing.dtype, "float32"}
    check_batches(policy, texts, ids)


@pytest.mark.parametrize("mechanism", sorted(set(chosen.names()) - set(MODELS)), indirect=True)
def test_the_same_inputs_give_the_same_bytes_in_any_batch(policy, texts, ids):
    check_batches(policy, texts, ids)


def check_batches(policy, texts, ids):
    whole = privatize(texts, ids, policy).to_pylist()
    order = np.random.default_rng(0).permutation(len(texts))
    mixed, their_ids = (pa.chunked_array([one[:5], one[5:]]) for one in (texts.take(order), ids.take(order)))
    assert privatize(mixed, their_ids, policy).to_pylist() == [whole[i] for i in order]
    places = range(0, len(texts), 2 if policy.mechanism.accelerated else 1)
    for at in places:
        assert privatize(texts.slice(at, 1), ids.slice(at, 1), policy)[0].as_py() == whole[at]


def test_range_bounded_draws_are_all_that_is_charged(mechanism):
    """Composed losses may stand for a record only where no other draws are charged (rho = epsilon^2 / 8 each)."""
    for positions in (0, 1, 7):
        draws, cost = range_bounded(mechanism.event(positions)), mechanism.spend(positions)
        if draws is None:
            continue
        assert cost.eps_pure == pytest.approx(sum(one.count * one.epsilon for one in draws) * 1e6, abs=1)
        assert cost.rho == pytest.approx(sum(one.count * one.epsilon**2 for one in draws) / 8 * 1e6, abs=1)


def test_every_string_layout_gives_the_same(policy, texts, ids, released):
    """Texts are large strings elsewhere; models see a few short ones: layouts are read before."""
    few = 6 if policy.mechanism.accelerated else len(texts)
    for kind in (pa.string(), pa.string_view()):
        found = privatize(texts.slice(0, few).cast(kind), ids.slice(0, few), policy)
        assert found.to_pylist() == released.text.to_pylist()[:few]


def test_keys_records_releases_columns_and_texts_draw_apart(policy):
    """Four records each: a small model may answer two of them alike by chance."""
    words = 4 if policy.mechanism.accelerated else 40  # a model needs time for each
    text, here = " ".join(["good film about a doctor"] * words), ["a", "b", "c", "d"]
    long = pa.array([text] * 4)
    first = privatize(long, pa.array(here), policy).to_pylist()
    others = [
        privatize(long, pa.array(["e", "f", "g", "h"]), policy),
        privatize(long, pa.array(here), policy.model_copy(update={"release": "r2"})),
        privatize(long, pa.array(here), policy.model_copy(update={"column": "other"})),
        privatize(long, pa.array(here), policy.model_copy(update={"dataset": "other"})),
        privatize(long, pa.array(here), policy.model_copy(update={"nonce": 1})),
        privatize(pa.array([f"{text} again"] * 4), pa.array(here), policy),
    ]
    for other in others:
        assert other.to_pylist() != first
    assert len(set(first)) > 1  # equal texts of different records


def test_rows_positions_spends_and_words_are_those_of_the_texts(policy, texts, ids, released):
    """Nulls stay null, positions are known before anything is drawn, and a spend is a function of positions."""
    mechanism, positions, words = policy.mechanism, policy.mechanism.positions(texts), policy.mechanism.output_words()
    assert [text is None for text in released.text.to_pylist()] == [text is None for text in texts.to_pylist()]
    assert positions.to_pylist() == released.positions.to_pylist()
    few, charged = 3 if mechanism.accelerated else len(texts), spends(mechanism, positions)["eps_approx"]
    rows = privatize(texts.slice(0, few), ids.slice(0, few), policy, spend=True).to_pylist()
    for row, text, epsilon in zip(rows, released.text.to_pylist(), charged, strict=False):
        assert (list(row), row["text"]) == (["text", "positions", "epsilon", "delta"], text)
        assert row["epsilon"] in (math.inf, epsilon / 1e6)
    for text in released.text.to_pylist() if words is not None else ():
        assert set((text or "").split(" ")) - {""} <= words


def test_what_is_reserved_is_never_less_than_what_is_spent(policy, texts, released):
    mechanism = policy.mechanism
    positions = mechanism.positions(texts)
    draws, reserved = worst_case(mechanism, positions, texts)
    spent = spends(mechanism, positions)
    assert (positions.to_numpy() <= draws).all()
    for name in ADDITIVE:
        assert (spent[name] <= reserved[name]).all()
    nulls = texts.is_null().to_numpy(zero_copy_only=False)
    assert not any(reserved[name][nulls].any() for name in ADDITIVE)
    if Disclosure.LENGTH not in mechanism.guarantee.disclosures:
        assert len(set(draws[~nulls].tolist())) == 1, "what is reserved would tell the length"
    if not mechanism.refundable:
        assert released.steps is None
        return
    used = step_costs(mechanism, released.steps.to_numpy())
    assert (used <= worst_case(mechanism, released.positions, texts)[1]["eps_pure"]).all()
    assert (used >= 0).all()


ALIKE = [
    (
        "the film was good", f"the {FOREIGN} was good", "THE, film... was; GOOD!", "4711 7 good 1999",
        "good good good good",
    ),
    ("film", FOREIGN, "4711", "<Good>"),
    ("", "  ", "...", "?!"),
]  # fmt: skip
"""Texts in groups; texts of one group differ only in words, marks, case and numbers."""
SETS = {Disclosure.CLUSTER, Disclosure.STOPWORDS, Disclosure.SENS_CLASS}
HIDDEN = ({}, {"length": "fixed", "n_max": 6}, {"length": "noisy", "n_max": 6, "epsilon_length": 2.0})


def variants(mechanism):
    """The strict examples of a mechanism, and each with its length hidden, where it may be."""
    for one in options.examples(type(mechanism)).values():
        hides = HIDDEN if "length" in type(one).model_fields and not one.accelerated else HIDDEN[:1]
        for hidden in hides if one.mode == "strict" else ():
            with contextlib.suppress(ValueError, DPTextError):
                made = type(one)(**{**one.model_dump(exclude_unset=True), **hidden})
                made.artifacts()  # some variants need their own model
                yield made


def test_texts_that_agree_on_what_is_disclosed_have_releases_of_equal_support(mechanism, policy):
    """Number of draws, worst case and spend are theirs in common, as is each word's set of possible outputs.

    Output sets and kept words are revealed by name, where a mechanism discloses them
    (docs/spec/privacy.md#disclosures).
    """
    for one in variants(mechanism):
        disclosed = one.guarantee.disclosures
        groups = ALIKE if Disclosure.LENGTH in disclosed else [tuple(itertools.chain(*ALIKE))]
        for group in groups:
            texts, ids = pa.array(group), pa.array([str(number) for number in range(len(group))])
            given = policy.model_copy(update={"mechanism": one, "allow": disclosed, "accept_unbounded": {"UMLDP"}})
            released = release(texts, ids, given)
            positions = one.positions(texts)
            assert not released.text.null_count
            if Disclosure.STOPWORDS in disclosed:
                continue  # which words are drawn is disclosed, as is their number
            assert all(len(set(column.tolist())) == 1 for column in worst_case(one, positions, texts)[1].values())
            if not (getattr(one, "length", None) == "noisy" or one.refundable):
                assert (len(set(positions.to_pylist())), len(set(released.positions.to_pylist()))) == (1, 1)
            if by_word(one) is not None and one.length == "disclose":
                assert [len(text.split()) for text in released.text.to_pylist()] == released.positions.to_pylist()
        if isinstance(one, WordMechanism) and not disclosed & SETS:
            with contextlib.suppress(PolicyError):  # an integral over a cell has no exact fractions
                assert len({frozenset(one.transition(word)[0]) for word in ("good", "film", FOREIGN, "4711")}) == 1


def test_foreign_words_never_survive_a_strict_release(policy, mechanism):
    if mechanism.mode != "strict":
        pytest.skip("faithful mode reproduces papers, which keep unknown words")
    shapes = [
        FOREIGN, FOREIGN.upper(), f"the {FOREIGN}, and", f"{FOREIGN}@example.org", f"{FOREIGN}1 {FOREIGN}\u2019s",
        f"<{FOREIGN}>",
    ]  # fmt: skip
    released = privatize(pa.array(shapes), pa.array([str(i) for i in range(len(shapes))]), policy).to_pylist()
    assert not any(FOREIGN in str(text).lower() for text in released)


@pytest.mark.parametrize(
    ("texts", "ids", "said"),
    [
        (pa.array([1, 2]), pa.array(["a", "b"]), "strings"),
        (pa.array(["x", "y"]), pa.array(["a"]), "one id per text"),
        (pa.array(["x", "y"]), pa.array(["a", None]), "null"),
        (pa.array(["x", "y"]), pa.array([0.5, 1.5]), "double"),
        (pa.array(["x", "y"]), pa.array([True, False]), "bool"),
    ],
)
def test_bad_columns_get_a_sentence(policy, texts, ids, said):
    with pytest.raises(InputError, match=said):
        privatize(texts, ids, policy)


def test_a_failure_never_quotes_or_passes_a_text(policy, monkeypatch):
    def broken(self, texts, keys):
        raise ValueError("inside: " + str(texts.to_pylist()))

    monkeypatch.setattr(type(policy.mechanism), "release", broken)
    with pytest.raises(InputError, match="releasing the column failed") as caught:
        privatize(pa.array([FOREIGN]), pa.array(["a"]), policy)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert FOREIGN not in "".join(traceback.format_exception_only(caught.value))


def test_it_reads_its_artifacts_where_they_are_put_and_builds_none(
    policy, mechanism, texts, ids, released, tmp_path, monkeypatch
):
    few = 6 if mechanism.accelerated else len(texts)
    texts, ids, expected = texts.slice(0, few), ids.slice(0, few), released.text.to_pylist()[:few]
    arrived = {}
    for role, artifact in mechanism.artifacts().items():
        path = tmp_path / role / f"arrived{artifact.path.suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(artifact.path.read_bytes())
        arrived[role] = Artifact.open(path, artifact.sha256)
    cfg, worker = mechanism.cfg(), tmp_path / "cache of a worker"
    monkeypatch.setenv("DPTEXT_CACHE", str(worker))
    moved = placed(catalog.build({"name": mechanism.name, **mechanism.model_dump(mode="json")}), arrived)
    assert moved.cfg() == cfg
    assert privatize(texts, ids, policy.model_copy(update={"mechanism": moved})).to_pylist() == expected
    assert not worker.exists() or not any(worker.iterdir())
