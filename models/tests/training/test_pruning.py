# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Training for DP-BART on a small model that is trained here: pruning, its columns, noise, stopping and continuing."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.numpy import load_file

from dptext_etl.errors import PolicyError
from dptext_etl_models.inference.sequence_model import SequenceModel
from dptext_etl_models.mechanisms.dpbart import FILE, DPBart, read_kept
from dptext_etl_models.training import dpbart
from dptext_etl_models.training import sequence_autoencoder as autoencoder
from dptext_etl_models.training.bart import Base, Channel, loss
from dptext_etl_models.training.corpus import Corpus, batch, held_out, public_texts, random_rows, short_texts
from models.tests.training.stopping import stopped

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTH = 8
WIDTH = 48
WORDS = (
    "the", "a", "cat", "dog", "bird", "house", "tree", "sings", "sleeps", "runs", "sees", "in", "near", "big", "now",
)  # fmt: skip
SETTINGS = autoencoder.Settings(
    vocabulary=420, length=LENGTH, width=WIDTH, layers=1, heads=4, inner=96, random=0.5, rows=32, steps=300,
    rate=3e-3, warmup=20, noise=0.2,
)  # fmt: skip
PRUNING = dpbart.PruneSettings(length=LENGTH, stages=3, steps=30, rows=16, rate=2e-3)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    draw = np.random.default_rng(1)
    return [" ".join(draw.choice(WORDS, size=draw.integers(2, 7))) for _ in range(2000)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, texts) -> Path:
    folder = tmp_path_factory.mktemp("bart")
    tokenizer = autoencoder.tokenizer_in(folder, texts, SETTINGS.vocabulary)
    autoencoder.train(tokenizer, texts, SETTINGS, folder)
    return folder


@pytest.fixture(scope="module")
def pruned(tmp_path_factory, trained, texts) -> tuple[Path, list[list[int]]]:
    folder = tmp_path_factory.mktemp("pr")
    return folder, dpbart.train_pruned(Base.load(str(trained)), texts, PRUNING, folder)


def loss_of(base: Base, texts: list[str], path: Channel) -> float:
    with torch.inference_mode():
        return float(loss(base.model.eval(), base.rows(texts[:200], LENGTH), path))


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def test_the_small_model_rebuilds_texts_through_the_path_of_a_release(trained, texts) -> None:
    base = Base.load(str(trained))
    model = SequenceModel(base.model.eval(), base.tokenizer, length=LENGTH, beams=3)
    given = texts[:64]
    latents = np.clip(model.encode(given), -0.1, 0.1)
    rebuilt = model.decode(latents)
    assert sum(one == two for one, two in zip(given, rebuilt, strict=True)) >= 56
    assert model.decode(np.zeros_like(latents)) != rebuilt


def test_scaled_latents_are_computed_by_the_same_model(trained, texts) -> None:
    base = Base.load(str(trained))
    before = loss_of(base, texts, Channel(0.1))
    autoencoder.scale_latents(base.model, 10.0)
    assert loss_of(base, texts, Channel(1.0)) == pytest.approx(before, rel=1e-4)


def test_columns_of_the_first_stage_are_those_of_an_independent_computation(trained, pruned) -> None:
    _, history = pruned
    weights = weights_of(trained)["model.decoder.layers.0.encoder_attn.k_proj.weight"].astype(np.float64)
    sums = [sum(abs(weights[row, column]) for row in range(WIDTH)) for column in range(WIDTH)]
    ordered = sorted(sums)
    place = 0.25 * (WIDTH - 1)
    low = int(place)
    threshold = ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])
    assert history[0] == [column for column in range(WIDTH) if sums[column] >= threshold]


def test_every_stage_prunes_a_quarter_of_the_rest_and_a_release_uses_the_stage_before_the_last(pruned) -> None:
    folder, history = pruned
    kept = read_kept(folder / FILE)
    assert (list(kept.columns), kept.stage, kept.width, kept.noise) == (history[-2], 2, WIDTH, None)
    assert [len(kept) for kept in history] == [36, 27, 20]
    assert all(set(after) < set(before) for before, after in itertools.pairwise(history))


def test_five_stages_of_the_paper_keep_182_of_768_columns() -> None:
    scores = np.random.default_rng(3).random(768)
    kept = list(range(768))
    for _ in range(5):
        kept = dpbart.prune(kept, scores, 0.25)
    assert len(kept) == 182
    assert min(scores[kept]) > max(np.delete(scores, kept))


def test_a_stopped_training_ends_as_one_that_was_not(trained, pruned, texts, tmp_path) -> None:
    folder, history = pruned
    stopped(dpbart.train_pruned, Base.load(str(trained)), texts, PRUNING, tmp_path, every=15, after=3)
    again = dpbart.train_pruned(Base.load(str(trained)), texts, PRUNING, tmp_path)
    assert again == history
    for name, weight in weights_of(folder).items():
        np.testing.assert_array_equal(weights_of(tmp_path)[name], weight)


def test_noise_of_training_is_that_of_a_release(pruned) -> None:
    folder, history = pruned
    settings = dpbart.NoiseSettings(epsilon=300.0, delta=1e-6, length=LENGTH)
    mechanism = DPBart(variant="pr", model=str(folder), epsilon=300.0, n_rec=1000, delta=1e-6, length=LENGTH)
    columns = len(history[-2])
    assert dpbart.sigma(settings, columns) == pytest.approx(mechanism.scale(LENGTH * columns).sigma, rel=1e-12)
    path = Channel(0.1, kept=history[-2], sigma=dpbart.sigma(settings, columns))
    noisy = path.apply(torch.zeros(2000, LENGTH, WIDTH), torch.Generator().manual_seed(1))
    dropped = sorted(set(range(WIDTH)) - set(history[-2]))
    assert float(noisy[:, :, history[-2]].std()) == pytest.approx(path.sigma, rel=0.01)
    assert not noisy[:, :, dropped].any()


def test_training_under_noise_helps_under_noise(pruned, texts, tmp_path) -> None:
    folder, history = pruned
    settings = replace(dpbart.SMALL_NOISE, epsilon=150.0, length=LENGTH, epochs=1, steps=60, rows=16, warmup=5)
    base = Base.load(str(folder))
    noisy = Channel(0.1, kept=history[-2], sigma=dpbart.sigma(settings, len(history[-2])))
    torch.manual_seed(1)
    before = loss_of(base, texts, noisy)
    dpbart.train_noisy(base, texts, settings, tmp_path)
    torch.manual_seed(1)
    assert loss_of(Base.load(str(tmp_path)), texts, noisy) < 0.8 * before
    kept = read_kept(tmp_path / FILE)
    assert (list(kept.columns), kept.noise["epsilon"]) == (history[-2], 150.0)
    mechanism = DPBart(variant="pr_plus", model=str(tmp_path), epsilon=150.0, n_rec=1000, length=LENGTH)
    assert mechanism.latent_model.size == LENGTH * len(history[-2])


@pytest.mark.parametrize("given", [{"epsilon": 0.0}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": 1.0}])
def test_noise_of_no_budget_is_refused(given) -> None:
    with pytest.raises(PolicyError, match="not a budget"):
        dpbart.sigma(dpbart.NoiseSettings(**given), 10)


def test_texts_come_from_corpora_by_their_shares(tmp_path) -> None:
    for name in ("a", "b"):
        texts = [f"{name} {number}" for number in range(300)]
        pl.DataFrame({"text": texts}).write_parquet(tmp_path / f"{name}.parquet")
    corpora = [Corpus(tmp_path / "a.parquet", 3.0), Corpus(tmp_path / "b.parquet", 1.0)]
    found = public_texts(corpora, 5, 100, 1)
    assert [text[0] for text in found] == ["a"] * 75 + ["b"] * 25
    assert not any(held_out(text) for text in found)


def test_batches_depend_on_seed_and_step_alone() -> None:
    rows = np.arange(60, dtype=np.int32).reshape(20, 3)
    np.testing.assert_array_equal(batch(rows, 5, 1, 7), batch(rows, 5, 1, 7))
    assert (batch(rows, 5, 1, 7) != batch(rows, 5, 1, 8)).any()
    assert (batch(rows, 5, 1, 7) != batch(rows, 5, 2, 7)).any()


def test_random_rows_end_once_and_are_padded_behind() -> None:
    rows = random_rows((500, LENGTH), range(5, 30), (2, 1), np.random.default_rng(1))
    ends = (rows == 2).argmax(axis=1)
    assert ((rows == 2).sum(axis=1).tolist(), set(ends.tolist())) == ([1] * 500, set(range(1, LENGTH)))
    behind = np.arange(LENGTH)[None, :] > ends[:, None]
    assert (rows[behind] == 1).all()
    assert rows[~behind & (rows != 2)].min() >= 5


def test_short_texts_are_parts_of_the_given_ones() -> None:
    given = ["One two three four five six seven. Eight nine!", "Short one"]
    found = short_texts(given, 4, 200, 1)
    assert max(len(text.split()) for text in found) == 4
    joined = " ".join(given).replace(".", "").replace("!", "")
    assert all(text.replace(".", "").replace("!", "") in joined for text in found)
    assert "Eight nine!" in found
    assert "Eight nine" in found
