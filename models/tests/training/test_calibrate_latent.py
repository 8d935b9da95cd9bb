# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The choice of C from latents of public text."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl_models.mechanisms.dpbart import write_kept
from dptext_etl_models.training.bart import Base, choose_clip

TEXTS = ["the cat sees the dog", "a bird", "where are the other people now", "it was not good", "time for more"]


@pytest.fixture(scope="module")
def base() -> Base:
    return Base.load("example-bart")


def latents(base: Base, length: int) -> np.ndarray:
    tokens = torch.from_numpy(base.rows(TEXTS, length)).long()
    with torch.inference_mode():
        mask = (tokens != base.tokenizer.pad_token_id).long()
        states = base.model.eval().model.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
    return states.numpy().astype(np.float64)


def test_half_a_deviation_of_all_values_is_the_choice(base) -> None:
    values = latents(base, 8)
    found = choose_clip(base, TEXTS, length=8)
    assert found.values == values.size == len(TEXTS) * 8 * 32
    assert found.mean == pytest.approx(values.mean(), abs=1e-9)
    assert found.deviation == pytest.approx(values.std(ddof=1), rel=1e-9)
    assert found.clip == pytest.approx(abs(values.mean()) + values.std(ddof=1) / 2, rel=1e-9)


def test_other_choices_say_what_they_cost(base) -> None:
    values = latents(base, 8)
    found = choose_clip(base, TEXTS, length=8, deviations=0.7)
    assert [choice.deviations for choice in found.choices] == [0.25, 0.5, 0.7, 1.0, 2.0, 3.0]
    for choice in found.choices:
        assert choice.inside == pytest.approx((np.abs(values) <= choice.clip).mean(), abs=1e-6)
    assert found.choices[2].clip == found.clip
    assert len({round(choice.loss, 6) for choice in found.choices}) == 6


def test_texts_of_all_lengths_count_with_their_padding(base) -> None:
    assert choose_clip(base, ["the"], length=8).values == 8 * 32


def test_pruned_columns_do_not_count(tmp_path, base) -> None:
    base.write(tmp_path, {})
    write_kept(tmp_path, [1, 5, 9], 32, 1)
    found = choose_clip(Base.load(str(tmp_path)), TEXTS, length=8)
    values = latents(base, 8)[:, :, [1, 5, 9]]
    assert (found.values, found.deviation) == (values.size, pytest.approx(values.std(ddof=1), rel=1e-6))


def test_what_was_found_is_plain_data(base) -> None:
    assert json.loads(json.dumps(asdict(choose_clip(base, TEXTS, length=8))))["clip"] > 0
