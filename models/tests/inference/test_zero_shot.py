"""A model chooses the label under whose name it finds a text most probable, as read in one piece."""

import random

import numpy as np
import pytest
import torch

from dptext_etl_models import zero_shot
from dptext_etl_models.writing import prompt

transformers = pytest.importorskip("transformers")
TEXTS = ("Where is my card?", "What is the rate for euros, today or tomorrow?", "", "a")
TOPICS = {"card_arrival": "card arrival", "exchange_rate": "exchange rate"}


class Letters:
    pad_token_id = None  # as tokenizers of many causal models have it

    def __call__(self, text, return_tensors=None, add_special_tokens=True):
        ids = [ord(sign) % 128 for sign in text]
        return {"input_ids": torch.tensor([ids]) if return_tensors else ids}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(5)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=128, max_position_embeddings=2_048, **shape)
    made = transformers.LlamaForCausalLM(config).eval()
    for part in made.parameters():
        part.data *= 8  # so that scores differ
    return made


def test_the_label_of_the_largest_probability_is_chosen(model, monkeypatch):
    monkeypatch.setattr(zero_shot, "opened", lambda _: (model, Letters()))
    asked = []

    def noted(about, topic, _):
        asked.append((about, topic))
        return prompt(about, topic, random.Random(0))

    monkeypatch.setattr(zero_shot, "prompt", noted)
    monkeypatch.setattr(zero_shot, "_BATCH", 3)
    calls, lines, forward = [], [], model.forward

    def counted(ids, **given):
        calls.append(tuple(ids.shape))
        return forward(ids, **given)

    monkeypatch.setattr(model, "forward", counted)
    found = zero_shot.choose("toy", "messages to a bank", TOPICS, TEXTS * 5, lines.append)
    shared = len(prompt("messages to a bank", "", random.Random(0))) - len("\nText:")
    assert calls[0] == (1, shared), "the examples are read once for all labels"
    assert [rows for rows, _ in calls[1:]] == [1, 3, 1] * 2, "each text is read once for each label, in batches"
    assert lines[0].startswith("zero-shot labels: 1 of 4 batches; about ")
    assert lines[-1] == "zero-shot labels: 4 of 4 batches; about 0 s are left"
    assert asked == [("messages to a bank", topic) for topic in TOPICS.values()]
    wanted = []
    for text in TEXTS:
        logs = []
        for topic in TOPICS.values():
            before = Letters()(prompt("messages to a bank", topic, random.Random(0)))["input_ids"]
            after = Letters()(f" {text}\n")["input_ids"][: zero_shot.LONGEST]
            with torch.inference_mode():
                scores = model(torch.tensor([before + after])).logits[0].log_softmax(-1)
            logs.append(sum(float(scores[len(before) + at - 1, token]) for at, token in enumerate(after)))
        wanted.append(list(TOPICS)[int(np.argmax(logs))])
    assert (found, len(set(wanted))) == (wanted * 5, 2)
