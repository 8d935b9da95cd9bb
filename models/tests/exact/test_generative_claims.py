"""What generative mechanisms claim, cost, and refuse, with the shape of a known model."""

import json

import pyarrow as pa
import pytest

from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanism import worst_spend
from dptext_etl.sampling import epsilon_implemented
from dptext_etl_models.mechanisms.dp_paraphrase import DPParaphrase
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from models.tests.toy_generator import CLIP


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
