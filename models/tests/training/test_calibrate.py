# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Ranges of scores from public text: the numbers, the file, the command."""

import json
import math
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl import _kernel
from dptext_etl.cli.app import app
from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models.commands.calibrate import KEYS
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.clipping import CLIP_FILE, read_clip
from dptext_etl_models.inference.masked.vocabulary import MaskedVocabulary
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from dptext_etl_models.training import calibration
from dptext_etl_models.training.calibration import Moments
from dptext_etl_models.training.corpus import Corpus
from models.tests.model_makers import example_folder

TEXTS = [
    "The people of the city were there before the war.", "A new film about the old school, and it was good!",
    "Where are the other members of the group now?", "one", "",
    "They said that this was the first time in many years.",
]  # fmt: skip


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "public.parquet"
    pq.write_table(pa.table({"text": [*TEXTS, None], "body": [*TEXTS[::-1], None], "id": range(len(TEXTS) + 1)}), path)
    return path


def files(kind):
    return language_model.model_files(f"example-{kind}")


def invoke(*arguments):
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


batches = st.lists(
    arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats(-1e6, 1e6, allow_subnormal=False)), max_size=8
)


@given(batches)
def test_moments_are_those_of_all_numbers_together(parts):
    moments = Moments()
    for part in parts:
        moments.add(part)
    every = np.concatenate([*parts, np.zeros(0)])
    assert moments.count == len(every)
    if len(every):
        assert moments.mean == pytest.approx(every.mean(), rel=1e-9, abs=1e-6)
        assert moments.sd == pytest.approx(every.std(), rel=1e-6, abs=1e-4)
        assert (moments.low, moments.high) == (every.min(), every.max())


def test_moments_of_numbers_far_from_zero_keep_their_digits():
    moments = Moments()
    for part in range(100):
        moments.add(np.array([1e9 + part, 1e9 - part]))
    assert moments.sd == pytest.approx(np.sqrt(np.mean(np.arange(100.0) ** 2)), rel=1e-9)


def test_what_is_not_finite_is_counted_and_excluded():
    moments = Moments()
    moments.add(np.array([1.0, np.nan, 3.0, -np.inf, np.inf]))
    moments.add(np.array([np.nan]))
    assert (moments.count, moments.left_out, moments.mean, moments.sd) == (2, 4, 2.0, 1.0)
    assert moments.percentiles((0, 50, 100)) == {"0": 1.0, "50": 2.0, "100": 3.0}
    assert Moments().percentiles((50,)) == {}
    assert math.isnan(Moments().sd)


def test_percentiles_of_many_numbers_come_from_an_even_sample():
    moments = Moments()
    rng = np.random.default_rng(3)
    for _ in range(300):
        moments.add(rng.normal(size=20_000).astype(np.float32))
    assert sum(map(len, moments._sample)) <= 2**20 + 5_000
    found = moments.percentiles((1, 50, 99))
    assert (found["50"], found["99"]) == (pytest.approx(0, abs=0.02), pytest.approx(2.326, abs=0.05))


def test_a_masked_models_range_equals_a_straightforward_computation(computing):
    model = language_model.masked_model(files("masked"))
    vocabulary = MaskedVocabulary.of(files("masked"))
    _, whole = vocabulary.whole_words()
    tokenizer = language_model.tokenizer(files("masked"))
    rng = np.random.default_rng(0)
    scores, counted = [], 0
    for text in TEXTS:
        words = [word.lower() for word, is_word in _kernel.split(text) if is_word]
        if len(words) < 2:
            continue
        counted += 1
        pieces = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in words]
        for masked in sorted(rng.choice(len(words), size=min(4, len(words)), replace=False)):
            before, after = [*chain(*pieces[:masked])], [*chain(*pieces[masked + 1 :])]
            first = [0, *chain(*pieces), 2, 2]
            ids = [*first, *before, tokenizer.mask_token_id, *after, 2]
            at = len(first) + len(before)
            with torch.inference_mode():
                scores.append(model(input_ids=torch.tensor([ids])).logits[0, at, whole].double().numpy())
    found = calibration.estimate(files("masked"), TEXTS)
    every = np.concatenate(scores)
    assert (found.kind, found.texts, found.moments.count) == ("masked", counted, every.size)
    assert found.clip[0] == pytest.approx(every.mean(), abs=1e-5)
    assert found.clip[1] == pytest.approx(every.mean() + 4 * every.std(), abs=1e-4)


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_a_generating_models_range_equals_a_straightforward_computation(kind, computing):
    load = language_model.causal_model if kind == "causal" else language_model.sequence_model
    model, tokenizer = load(files(kind)), language_model.tokenizer(files(kind))
    scores = []
    for text in TEXTS:
        answer = tokenizer(text, add_special_tokens=False)["input_ids"]
        if not answer:
            continue
        prompt = tokenizer(calibration.TEMPLATES[kind].format(text=text))["input_ids"]
        with torch.inference_mode():
            if kind == "causal":
                logits = model(input_ids=torch.tensor([prompt + answer])).logits[0]
                scores.append(logits[len(prompt) - 1 :].double().numpy())
            else:
                fed = torch.tensor([[model.config.decoder_start_token_id, *answer]])
                scores.append(model(input_ids=torch.tensor([prompt]), decoder_input_ids=fed).logits[0].double().numpy())
    every = np.concatenate(scores)
    found = calibration.estimate(files(kind), TEXTS)
    assert (found.kind, found.moments.count) == (kind, every.size)
    assert found.clip[0] == pytest.approx(every.mean(), abs=1e-5)
    assert found.clip[1] == pytest.approx(every.mean() + 4 * every.std(), abs=1e-4)


def test_texts_are_spread_over_the_corpus_and_nulls_excluded(corpus):
    assert calibration.spread(Corpus(corpus), 1_000) == TEXTS
    assert calibration.spread(Corpus(corpus), 2) == [TEXTS[0], TEXTS[3]]


def test_a_corpus_without_words_is_refused():
    with pytest.raises(InputError, match="anything to score"):
        calibration.estimate(files("masked"), ["", "!"])


def test_a_model_of_unknown_kind_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(PolicyError, match=r"--kind"):
        calibration.kind_of(language_model.model_files(str(tmp_path)))


def test_the_command_writes_a_file_that_a_mechanism_takes(corpus, tmp_path):
    out = tmp_path / "clip.json"
    done = invoke("--model", "example-masked", "--corpus", corpus, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert tuple(shown) == KEYS
    assert "public" in done.stderr
    written = json.loads(out.read_text())
    assert written["corpus"] == {"public.parquet": Corpus(corpus).sha256}
    assert written["method"] == "mean, mean + 4 standard deviations"
    assert written["model"] == {"model.safetensors": files("masked")["model/model.safetensors"].sha256}
    assert written["scores"] == shown["scores"] > 0
    assert not any(len(text) > 5 and text in out.read_text() for text in TEXTS)
    mechanism = DPMLM(epsilon=10.0, model="example-masked", clip=str(out))
    assert mechanism.clip_range == read_clip(out) == (shown["low"], shown["high"])
    assert mechanism.artifacts()["clip"].path == out
    again = tmp_path / "again.json"
    invoke("--model", "example-masked", "--corpus", corpus, "--out", again)
    assert again.read_bytes() == out.read_bytes()
    invoke("--model", "example-masked", "--corpus", corpus, "--text", "body", "--texts", 2, "--out", again)
    assert again.read_bytes() != out.read_bytes()
    invoke("--model", "example-masked", "--corpus", corpus, "--deviations", 6, "--out", again)
    assert read_clip(again) == (written["mean"], pytest.approx(written["mean"] + 6 * written["sd"]))
    assert json.loads(again.read_text())["method"] == "mean, mean + 6 standard deviations"


def test_the_command_chooses_a_clip_of_latents(corpus, tmp_path):
    chosen = ("--latent", "--model", "example-bart", "--corpus", corpus, "--length", 8, "--out", tmp_path / "clip.json")
    shown = json.loads(invoke(*chosen, "--json").stdout)
    written = json.loads((tmp_path / "clip.json").read_text())
    assert shown == {"out": str(tmp_path / "clip.json"), **written}
    assert written["corpus"] == {"name": "public", "sha256": Corpus(corpus).sha256}
    assert written["clip"] == pytest.approx(0.5 * written["deviation"])
    assert f"clip = {written['clip']:.4g}" in invoke(*chosen).stdout
    invoke(*chosen, "--deviations", 2)
    assert json.loads((tmp_path / "clip.json").read_text())["clip"] == pytest.approx(2 * written["deviation"])


def test_a_folder_keeps_its_own_range(corpus, tmp_path):
    folder = example_folder("seq2seq", tmp_path / "model")
    with pytest.raises(PolicyError, match=r"dptext calibrate"):
        _ = DPPrompt(epsilon=10.0, model=str(folder)).clip_range
    done = invoke("--model", folder, "--corpus", corpus)
    assert done.exit_code == 0, done.output
    assert DPPrompt(epsilon=10.0, model=str(folder)).clip_range == read_clip(folder / CLIP_FILE)


@pytest.mark.parametrize(("arguments", "said"), [
    (["--text", "texts"], "no column 'texts'"), (["--text", "id"], "allowed: strings"),
    (["--model", "example-none"], "is not on this machine"), ([], "name a file with --out"),
])  # fmt: skip
def test_what_cannot_be_calibrated_is_refused_without_quoting_a_text(arguments, said, corpus, tmp_path):
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    out = [] if not arguments else ["--out", tmp_path / "clip.json"]
    named = {"--model": "example-masked", "--corpus": corpus, **given}
    done = invoke(*[part for item in named.items() for part in item], *out)
    assert done.exit_code == 5
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "clip.json").exists()
    assert not any(len(text) > 5 and text in done.output for text in TEXTS)
