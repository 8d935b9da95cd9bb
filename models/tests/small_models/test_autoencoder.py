# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The BART model that ships: that it rebuilds short texts through the path of a release."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl import ColumnPolicy
from dptext_etl.column import release
from dptext_etl_models.mechanisms.dpbart import DPBart
from tests.computing import PRECISE, place_name

FOLDER = Path(__file__).resolve().parents[3] / "models" / "dptext_etl_models" / "english-autoencoder"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the small BART model does not lie next to the tests")
FLOOR = 60.0


@pytest.fixture
def mechanism(computing) -> DPBart:
    return DPBart(epsilon=2500.0, n_rec=10_000, model=str(FOLDER), num_beams=1)


def rebuilt(mechanism: DPBart, texts: list[str]) -> list[str]:
    model = mechanism.latent_model
    out: list[str] = []
    for start in range(0, len(texts), model.rows):
        latents = model.encode(texts[start : start + model.rows])
        out += model.decode(np.clip(latents, -mechanism.clip, mechanism.clip))
    return out


@pytest.mark.parametrize("computing", PRECISE, ids=place_name, indirect=True)
def test_it_rebuilds_texts_that_it_never_saw(mechanism, shared_data) -> None:
    metrics = pytest.importorskip("sacrebleu.metrics", reason="sacrebleu is not installed (extra: eval)")
    frame = pl.read_parquet(shared_data / "snips" / "snips.parquet").filter(pl.col("split") == "test")
    texts = frame["text"].to_list()[::4]
    score = metrics.BLEU(lowercase=True).corpus_score(rebuilt(mechanism, texts), [texts]).score
    assert score >= FLOOR


@pytest.mark.parametrize("text", ["play zxqvy by brmlsk", "42 + 17", "wörter — ναι 🙂", "<s> </s> <pad>"])
def test_unknown_words_come_through(mechanism, text) -> None:
    (out,) = rebuilt(mechanism, [text])
    assert out == text


def test_noise_changes_what_is_written(mechanism) -> None:
    texts = pa.array(["add this song to my summer playlist", None, "what is the weather in rome"])
    policy = ColumnPolicy(
        dataset="models", column="text", release="1", mechanism=mechanism, key="env:DPTEXT_SUITE_SECRET"
    )
    released = release(texts, pa.array(["1", "2", "3"]), policy).text.to_pylist()
    assert released[1] is None
    assert released[0] != texts[0].as_py()
    assert release(texts, pa.array(["1", "2", "3"]), policy).text.to_pylist() == released
