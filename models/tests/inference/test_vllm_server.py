"""vLLM behind a release: its schedule changes no draw, and settings that the guarantee needs are set or refused."""

import logging
import os

import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl.errors import PolicyError  # noqa: E402
from dptext_etl_models.inference import language_model, server  # noqa: E402
from dptext_etl_models.mechanisms.dp_paraphrase import DPParaphrase  # noqa: E402
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt  # noqa: E402
from models.tests.inference import vllm_stand_in  # noqa: E402
from models.tests.toy_generator import keys  # noqa: E402
from tests.quick import quick  # noqa: E402

TEXTS = ["good film about a doctor", "", None, "the of", "naïve 😀 café", "</s> <pad> it", "word " * 12]
REQUIRED = ("VLLM_BATCH_INVARIANT", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_USE_V2_MODEL_RUNNER")


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setenv("DPTEXT_DEVICE", "cpu")
    monkeypatch.setenv("DPTEXT_DTYPE", "float32")
    for name in (*REQUIRED, "VLLM_NO_USAGE_STATS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(language_model, "_LOADED", {})  # engines of other tests are other stand-ins


@pytest.fixture
def _vllm(monkeypatch):
    vllm_stand_in.install(monkeypatch)
    monkeypatch.setenv(server.SERVER_SETTING, "vllm")


def mechanism(**options):
    return DPParaphrase.example().model_copy(update={"l_max": 6, **options})


def released(made, generator=None):
    out = made.release_with(generator or made.generator, pa.array(TEXTS), keys(len(TEXTS)))
    return [column.to_pylist() for column in out]


class InBatches:
    """The same scores to the last bit for our own batches: a draw is another one if a score is another one."""

    def __init__(self, server):
        self.server, self.outputs, self.ends = server, server.outputs, server.ends
        self.prompts, self.text, self.stride = server.prompts, server.text, 1

    def bucket(self, length):
        return length

    def rows(self, bucket):
        return 2

    def waiting(self, bucket):
        return 8

    def begin(self, prompts, bucket, rows, longest):
        padded = [*prompts, *[prompts[0]] * (rows - len(prompts))]
        return OneByOne(self.server, [list(prompt) for prompt in padded])


class OneByOne:
    def __init__(self, server, texts):
        self.server, self.texts = server, texts

    def scores(self):
        with torch.inference_mode():
            logits = [self.server._engine.logits(text) for text in self.texts]
        return torch.stack(logits)[:, self.server._columns]

    def append(self, chosen):
        for text, token in zip(self.texts, self.server._columns[chosen].tolist(), strict=True):
            text.append(token)

    def adopt(self, places, other, rows):
        for place, row in zip(places, rows, strict=True):
            self.texts[place] = other.texts[row]


@pytest.mark.usefixtures("_vllm")
@pytest.mark.parametrize("slots", quick([3, 1, 4]))
@pytest.mark.parametrize("options", [{}, {"mode": "faithful"}, {"allow_list": "[5, 9, 11, 40]"}], ids=str)
def test_a_release_with_vllm_draws_what_batches_draw(options, slots, tmp_path, monkeypatch):
    monkeypatch.setattr(vllm_stand_in.Engine, "SLOTS", slots)
    if "allow_list" in options:
        (tmp_path / "allowed.json").write_text(options["allow_list"])
        options = {"allow_list": str(tmp_path / "allowed.json")}
    made = mechanism(**options)
    served = released(made)
    assert served == released(made, InBatches(made.generator))
    assert not any(served[3])
    assert len({text for text in served[0] if text}) > 3


@pytest.mark.usefixtures("_vllm")
def test_the_engine_is_set_up_as_the_guarantee_needs_it_and_loaded_once():
    made = mechanism()
    made.probe()
    engine = made.generator._engine
    assert mechanism(epsilon=3.0).generator._engine is engine
    assert {name: os.environ[name] for name in REQUIRED} == dict(zip(REQUIRED, "100", strict=True))
    wanted = {"enable_prefix_caching": False, "enable_chunked_prefill": False, "async_scheduling": False}
    assert wanted.items() <= engine.options.items()
    assert engine.options["tensor_parallel_size"] == 1
    assert not engine.options["trust_remote_code"]


@pytest.mark.usefixtures("_vllm")
def test_a_step_that_fails_in_vllm_leaves_every_text_with_its_draws(monkeypatch, caplog):
    """What vLLM logs of such a step has the lengths of prompts in it."""

    def fails(step):
        if step == 4:
            logging.getLogger("vllm.logging_utils.dump_input").error("prompt_token_ids_len=%d", 7)
            raise RuntimeError("a secret text")

    expected = released(mechanism())
    monkeypatch.setattr(language_model, "_LOADED", {})
    monkeypatch.setattr(vllm_stand_in.Engine, "fails", staticmethod(fails))
    assert released(mechanism()) == expected
    assert "prompt_token_ids_len" not in caplog.text


@pytest.mark.usefixtures("_vllm")
@pytest.mark.parametrize("name", REQUIRED)
def test_a_setting_of_vllm_that_breaks_the_guarantee_is_refused(monkeypatch, name):
    monkeypatch.setenv(name, {"1": "0", "0": "1"}[dict(zip(REQUIRED, "100", strict=True))[name]])
    with pytest.raises(PolicyError, match=name):
        _ = mechanism().generator


@pytest.mark.usefixtures("_vllm")
def test_an_encoder_decoder_is_refused_by_name():
    with pytest.raises(PolicyError, match="encoder-decoder"):
        _ = DPPrompt.example().generator


@pytest.mark.parametrize(("value", "match"), [
    ("http://127.0.0.1:8000/v1", "needs the scores of all tokens"), ("ollama", "is vllm, or unset"),
    ("vllm", "not installed"),
])  # fmt: skip
def test_other_servers_are_refused_by_name(monkeypatch, value, match):
    monkeypatch.setenv(server.SERVER_SETTING, value)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(PolicyError, match=match):
        _ = mechanism().generator
