"""Generation: answers enumerated, texts that must not matter, failures that must not show, claims and costs.

Specification: docs/spec/privacy.md#e11, docs/spec/privacy.md#ni, docs/spec/privacy.md#ni-err.
"""

import json
import logging
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.exceptions import PanicException

from dptext_etl.column import step_costs
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanism import worst_spend
from dptext_etl.sampling import epsilon_implemented
from dptext_etl_models.mechanisms.dp_paraphrase import DPParaphrase
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from models.tests.toy_generator import CLIP, END, KEY, Recorded, Toy, ToyGenerator, keys, law, sequences, worst
from tests.examples import examples

TEXTS = ["", " ", "a", "b", "a much longer text, of another length", "\x00\u00e9\U0001f600"]


def reader(text, drawn):
    """Scores that depend on the text, on its length and on every token drawn, wildly and beyond the clip range."""
    seed = hash((len(text), sum(text.encode()), drawn)) % 2**32
    return np.random.default_rng(seed).choice([-9.0, 0.0, 0.3, 1.0, 7.0, math.nan, math.inf], 3)


def spiteful(text, drawn):
    """The worst scorer: it separates one text from all others at every step."""
    return [1.0, 0.0, 0.0] if text == "a" else [0.0, 1.0, 1.0]


@pytest.mark.parametrize("score", [reader, spiteful])
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 20.0])
def test_e11_answers_sum_to_one_and_stay_within_their_length_times_epsilon(score, epsilon):
    mechanism, generator = Toy(epsilon=epsilon, l_max=3), ToyGenerator(score, rows=1)
    laws = {text: law(mechanism, generator, text) for text in TEXTS}
    tight = epsilon_implemented(epsilon, 3)
    assert tight <= epsilon
    for one in laws.values():
        assert sum(one.values()) == 1
        assert min(one.values()) > 0  # texts of all lengths have the same possible answers
        assert set(one) == set(sequences(3, END, 3))
        for other in laws.values():
            for sequence, apart in worst(one, other).items():
                assert apart <= len(sequence) * tight + 1e-9 <= 3 * epsilon + 1e-9


def test_e11_the_bound_is_attained():
    mechanism, generator = Toy(epsilon=3.0, l_max=3), ToyGenerator(spiteful, rows=1)
    apart = worst(law(mechanism, generator, "a"), law(mechanism, generator, "b"))
    assert apart[0, 0, 0] == pytest.approx(3 * epsilon_implemented(3.0, 3), abs=1e-9)


def test_a_bound_that_follows_the_text_shows_its_length():
    """The test above can fail: in faithful mode short texts cannot have long answers, and the claim says so."""
    generator = ToyGenerator(reader, rows=1)
    mechanism = Toy(epsilon=1.0, mode="faithful")
    released = mechanism.release_with(generator, pa.array(["a", "a much longer text"] * 20), keys(40))
    assert (set(released.positions.to_pylist()), max(released.steps.to_pylist()[::2])) == ({1, 18}, 1)
    assert max(released.steps.to_pylist()[1::2]) > 1
    assert mechanism.guarantee.guarantee_class is GuaranteeClass.COND_PURE
    assert Disclosure.LENGTH in mechanism.guarantee.disclosures


@examples(150)
@given(st.text(max_size=300), st.text(max_size=300))
def test_ni_under_a_constant_scorer_no_text_reaches_the_answer(one, other):
    generator = ToyGenerator(lambda text, drawn: [0.2, 0.9, 0.4])
    mechanism = Toy(epsilon=4.0, l_max=9)
    released = [mechanism.release_with(generator, pa.array([text]), KEY) for text in (one, other)]
    assert released[0] == released[1]


def test_ni_can_fail():
    """A scorer that reads the text does reach the answer, and another key gives another one."""
    generator, mechanism = ToyGenerator(spiteful), Toy(epsilon=20.0, l_max=9)
    answers = [mechanism.release_with(generator, pa.array([text]), KEY).text[0].as_py() for text in ("a", "b")]
    assert answers[0] != answers[1]
    blind, mechanism = ToyGenerator(lambda text, drawn: [0.2, 0.9, 0.4]), Toy(epsilon=0.5, l_max=9)
    assert len(set(mechanism.release_with(blind, pa.array(["a"] * 50), keys(50)).text.to_pylist())) > 10


FAILING = {
    "an exception that quotes": lambda texts, rows: ValueError(f"cannot score {texts}"),
    "an assertion": lambda texts, rows: AssertionError(),
    "a panic that quotes": lambda texts, rows: PanicException(f"cannot score {texts}"),
    "memory, however few rows": lambda texts, rows: MemoryError(),
}


@pytest.mark.parametrize("failure", FAILING.values(), ids=FAILING)
@pytest.mark.parametrize("at", [0, 2])
def test_ni_err_a_failing_text_is_drawn_uniformly_and_its_mates_never_know(failure, at, caplog):
    texts = [f"text{i:02}" for i in range(11)]
    bad = {"text03", "text07"}

    class Failing(ToyGenerator):
        def begin(self, prompts, bucket, rows, longest):
            batch = super().begin(prompts, bucket, rows, longest)
            whole = batch.scores

            def scores():
                if bad & set(batch.real) and len(batch.drawn[0]) >= at:
                    raise failure(batch.real, rows)
                return whole()

            batch.scores = scores
            return batch

    mechanism = Toy(epsilon=9.0, l_max=6)
    calm = mechanism.release_with(ToyGenerator(reader), pa.array(texts), keys(11))
    sampler = Recorded()
    with caplog.at_level(logging.DEBUG):
        rough = mechanism.release_with(Failing(reader), pa.array(texts), keys(11), sampler=sampler)
    assert "text0" not in caplog.text
    for row, text in enumerate(texts):
        if text not in bad:
            assert (rough.text[row], rough.steps[row]) == (calm.text[row], calm.steps[row])
    assert rough.positions == calm.positions
    assert {record for record, _ in sampler.uniform} == {row for row in (3, 7) if calm.steps[row].as_py() > at}
    assert all(position >= at for _, position in sampler.uniform)


@pytest.mark.parametrize("wrong", [np.zeros((4, 2)), np.zeros(3), np.zeros((1, 3))])
def test_ni_err_scores_of_another_shape_are_a_failure(wrong):
    class Wrong(ToyGenerator):
        def begin(self, *asked):
            batch = super().begin(*asked)
            batch.scores = lambda: wrong
            return batch

    sampler = Recorded()
    released = Toy(epsilon=1.0, l_max=5).release_with(Wrong(reader), pa.array(["secret"]), KEY, sampler=sampler)
    assert (sampler.uniform, released.failed) == (sampler.slots, released.steps)
    with pytest.raises(PolicyError, match="fails on public texts"):
        Toy(epsilon=1.0).with_model(Wrong(reader)).probe()


def test_ni_err_nothing_but_nan_is_uniform():
    generator = ToyGenerator(lambda text, drawn: [math.nan] * 3, ends=())
    released = Toy(epsilon=50.0, l_max=600).release_with(generator, pa.array(["secret"]), KEY)
    counts = [released.text[0].as_py().count(letter) for letter in "abc"]
    assert sum((count - 200) ** 2 / 200 for count in counts) < 27.6  # chi-squared, 2 degrees, p > 1e-6
    assert released.failed.to_pylist() == [600]
    with pytest.raises(PolicyError, match="fails on public texts"):
        Toy(epsilon=1.0).with_model(generator).probe()


def test_a_model_that_fails_on_private_texts_stops_nothing_and_one_that_fails_on_public_texts_does(caplog):
    """What fails on the texts of a release, all of them even, is uniform and counted; only the probe refuses."""
    quoting = lambda texts, rows: RuntimeError(f"inside: {texts}") if "qzx" in texts else None
    private = ToyGenerator(reader, fails=quoting)
    mechanism = Toy(epsilon=1.0, l_max=4)
    with caplog.at_level(logging.DEBUG):
        released = mechanism.release_with(private, pa.array(["qzx", None, "qzx"]), keys(3))
    assert "qzx" not in caplog.text
    assert released.failed == released.steps
    mechanism.with_model(private).probe()
    broken = ToyGenerator(reader, fails=lambda texts, rows: RuntimeError("inside: qzxvjkw"))
    with pytest.raises(PolicyError, match="fails on public texts") as caught:
        mechanism.with_model(broken).probe()
    assert "qzxvjkw" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_probe_looks_at_the_longest_prompt_and_halves_what_memory_does_not_hold():
    at_length = lambda texts, rows: RuntimeError() if any(len(text) > 999 for text in texts) else None
    long = ToyGenerator(reader, fails=at_length)
    with pytest.raises(PolicyError, match="fails on public texts"):
        Toy(epsilon=1.0).with_model(long).probe()
    tight = ToyGenerator(reader, rows=8, fails=lambda texts, rows: MemoryError() if rows > 2 else None)
    Toy(epsilon=1.0).with_model(tight).probe()
    assert [rows for _, rows, _ in tight.begun] == [8, 4, 2, 1]


def test_a_text_without_a_prompt_is_drawn_uniformly():
    class Unread(ToyGenerator):
        def prompts(self, texts):
            return [None if "bad" in text else list(text.encode()) for text in texts]

    texts, mechanism = ["good", "bad", "fine"], Toy(epsilon=9.0, l_max=6)
    sampler = Recorded()
    released = mechanism.release_with(Unread(reader), pa.array(texts), keys(3), sampler=sampler)
    assert {record for record, _ in sampler.uniform} == {1}
    assert [bool(count) for count in released.failed.to_pylist()] == [False, True, False]
    calm = mechanism.release_with(ToyGenerator(reader), pa.array(texts), keys(3))
    assert released.text.to_pylist()[::2] == calm.text.to_pylist()[::2]
    assert released.positions.to_pylist() == [6, 6, 6]


@examples(60)
@given(st.data())
def test_batches_order_and_partitions_never_change_a_draw(data):
    texts = data.draw(st.lists(st.text(max_size=40), min_size=1, max_size=14))
    mechanism = Toy(epsilon=5.0, l_max=7)
    whole = mechanism.release_with(ToyGenerator(reader), pa.array(texts), keys(len(texts)))
    rows = data.draw(st.integers(1, 9))
    order = data.draw(st.permutations(range(len(texts))))
    pace = {"stride": data.draw(st.integers(1, 7)), "held": data.draw(st.integers(0, 3))}
    cut = data.draw(st.integers(0, len(texts)))
    found = {}
    for part in (order[:cut], order[cut:]):
        some = pa.array([texts[i] for i in part], pa.string())
        their_keys = keys(len(texts)).take(pa.array(part, pa.int32()))
        out = mechanism.release_with(ToyGenerator(reader, rows=rows, **pace), some, their_keys)
        found |= {i: (out.text[j], out.steps[j]) for j, i in enumerate(part)}
    assert [found[i] for i in range(len(texts))] == list(zip(whole.text, whole.steps, strict=True))


def test_memory_that_runs_out_halves_the_rows_of_a_bucket_and_changes_nothing():
    texts = [f"text{i}" for i in range(9)] + ["a longer text of another bucket"]
    mechanism = Toy(epsilon=5.0, l_max=7)
    calm = mechanism.release_with(ToyGenerator(reader, rows=8), pa.array(texts), keys(10))
    tight = ToyGenerator(reader, rows=8, fails=lambda texts, rows: MemoryError() if rows > 2 else None)
    sampler = Recorded()
    assert mechanism.release_with(tight, pa.array(texts), keys(10), sampler=sampler) == calm
    assert not sampler.uniform
    assert [rows for bucket, rows, _ in tight.begun if bucket == 8] == [8, 4, 2, 2, 2, 2, 2]
    assert [rows for bucket, rows, _ in tight.begun if bucket == 32] == [8, 4, 2]


def test_texts_that_have_ended_leave_their_rows_to_others():
    texts = pa.array(["long", "ends", "ends", "ends"] * 4)
    generator = ToyGenerator(lambda text, drawn: [text == "long", 0, text == "ends"])
    released = Toy(epsilon=500.0, l_max=12).release_with(generator, texts, keys(16))
    assert released.steps.to_pylist() == [12, 1, 1, 1] * 4
    assert generator.computed == 4 * (4 * generator.stride + 12 - generator.stride)  # not 4 * 4 * 12
    adopted = len(generator.begun)

    def fails(some, rows):
        return MemoryError() if len(tight.begun) == 3 else None  # one batch waits

    tight = ToyGenerator(generator.score, fails=fails)
    assert Toy(epsilon=500.0, l_max=12).release_with(tight, texts, keys(16)) == released
    assert {rows for _, rows, _ in tight.begun} == {4}  # memory that runs out while batches wait changes no shape
    assert len(tight.begun) > adopted


def test_every_batch_has_its_full_rows_and_the_bucket_of_its_own_texts():
    generator = ToyGenerator(reader, rows=4)
    Toy(epsilon=5.0, l_max=3).release_with(generator, pa.array(["x" * n for n in (1, 1, 1, 1, 1, 9, 30)]), keys(7))
    assert generator.begun == [(2, 4, 4), (2, 4, 1), (16, 4, 1), (32, 4, 1)]


def test_the_end_is_a_step_and_what_has_ended_draws_no_more():
    mechanism, sampler = Toy(epsilon=3.0, l_max=12), Recorded()
    texts = pa.array([*(f"t{i}" for i in range(60)), None, "", "   "])
    released = mechanism.release_with(ToyGenerator(reader), texts, keys(63), sampler=sampler)
    assert released.positions.to_pylist() == [12] * 60 + [0, 12, 12]
    assert released.text[60].as_py() is None
    taken = np.bincount([record for record, _ in sampler.slots], minlength=63)
    assert taken.tolist() == released.steps.to_pylist()
    for text, steps in zip(released.text.to_pylist(), released.steps.to_pylist(), strict=True):
        assert steps in ((0,) if text is None else (len(text) + 1,) if len(text) < 12 else (12,))
    assert "" in released.text.to_pylist()
    assert 12 in released.steps.to_pylist()


def test_a_charge_ex_post_is_for_the_draws_that_were_made():
    mechanism = Toy(epsilon=0.3000001, l_max=12)
    assert mechanism.refundable
    steps = np.array([0, 1, 5, 12], np.uint32)
    assert step_costs(mechanism, steps).tolist() == [0, 300_001, 1_500_001, 3_600_002]
    assert (step_costs(mechanism, steps) <= mechanism.spend(12).eps_pure).all()


@pytest.fixture
def flan(tmp_path):
    """A folder that says it is a Flan-T5: what spends need of one."""
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 32_128, "eos_token_id": 1, "n_positions": 512}))
    (tmp_path / "model.safetensors").write_bytes(b"never read here")
    return str(tmp_path)


def test_known_answers_of_the_specification(flan):
    mechanism = DPPrompt.from_temperature(1.5, model=flan, clip=(-95.0, 8.0), l_max=100)
    assert mechanism.epsilon == pytest.approx(137.333333, abs=1e-6)
    assert (mechanism.temperature, mechanism.outputs) == (pytest.approx(1.5), 32_128)
    spend = mechanism.spend(100)
    assert spend.eps_pure / 1e6 == pytest.approx(13_733.33, abs=0.01)
    assert spend.eps_tight / 1e6 == pytest.approx(4_226.22, abs=0.01)
    assert (spend.rho / 1e6, spend.delta) == (pytest.approx(100 * mechanism.epsilon**2 / 8, rel=1e-9), 0)
    assert worst_spend(mechanism) == worst_spend(mechanism, 10_000) == spend
    assert worst_spend(mechanism, 0).eps_pure == 0
    assert DPPrompt.from_temperature(1.0, model=flan, clip=(-95.0, 8.0)).epsilon == 206.0


def test_every_text_costs_the_same_and_nothing_is_disclosed(flan):
    mechanism = DPPrompt(epsilon=10.0, model=flan, clip=(-95.0, 8.0))
    assert mechanism.l_max == 150
    assert mechanism.positions(pa.array(["", " ", "word " * 5_000, None, "x"])).to_pylist() == [150, 150, 150, 0, 150]
    assert mechanism.guarantee.guarantee_class is GuaranteeClass.PURE_LDP
    assert mechanism.guarantee.disclosures == {Disclosure.NULLNESS}


def test_an_allow_list_is_the_output_set(flan, tmp_path):
    listed = tmp_path / "allowed.json"
    listed.write_text("[7, 9, 9, 31000]")
    mechanism = DPPrompt(epsilon=10.0, model=flan, clip=CLIP, allow_list=str(listed))
    assert (mechanism.columns.tolist(), mechanism.outputs) == ([1, 7, 9, 31_000], 4)
    assert mechanism.spend(1).eps_tight / 1e6 == pytest.approx(epsilon_implemented(10.0, 4), abs=1e-6)
    everything = DPPrompt(epsilon=10.0, model=flan, clip=CLIP)
    assert mechanism.cfg() != everything.cfg()
    before = mechanism.cfg()
    listed.write_text("[7, 9, 30999]")
    assert DPPrompt(epsilon=10.0, model=flan, clip=CLIP, allow_list=str(listed)).cfg() != before
    listed.write_text('["a"]')
    with pytest.raises(PolicyError, match="token numbers"):
        _ = DPPrompt(epsilon=10.0, model=flan, clip=CLIP, allow_list=str(listed)).columns


def test_answers_and_prompts_that_do_not_fit_are_refused(flan):
    for changed, said in ({"l_max": 512}, "accepts 512"), ({"l_max": 100, "input_limit": 450}, "412"):
        with pytest.raises(PolicyError, match=said):
            _ = DPParaphrase(epsilon=1.0, model=flan, clip=CLIP, **changed).prompt_limit
    assert DPParaphrase(epsilon=1.0, model=flan, clip=CLIP, l_max=100).prompt_limit == 412
    for template in ("no place", "{text} {text}"):
        with pytest.raises(PolicyError, match="once"):
            DPPrompt(epsilon=1.0, model=flan, template=template)
