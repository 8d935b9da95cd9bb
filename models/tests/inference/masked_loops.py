"""Models, texts and plain loops that tests of masked scoring compare with."""

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.masked.layout import Layout
from models.tests.toy_scorer import Recorded, keys

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

TEXTS = [
    "good film about a doctor", "the plot was thin but the music is great and I would see it again",
    "zxqvyuu <mask> </s> [MASK] [SEP] 42", "", "film", "naïve café 😀 don\u2019t " * 3, None,
    "good good good good good good good good good good good good",
]  # fmt: skip


def written_out(made, words, block, chosen):
    """Algorithms 1 and 2 for one text: scores of every position, given the draws before its block."""
    tokenizer = language_model.tokenizer(made.model_files)
    model = language_model.masked_model(made.model_files, made.computing.device, made.computing.dtype)
    tokens = made.words_and_tokens[1]
    private, scores = list(words), []
    for first in range(0, len(words), block):
        places = range(first, min(first + block, len(words)))
        first_ids = [token for word in words for token in made.vocabulary.encode([word])[0]]
        second_ids, masks = [], []
        for place, word in enumerate(private):
            if place in places:
                masks.append(len(second_ids))
                second_ids.append(tokenizer.mask_token_id)
            else:
                second_ids.extend(made.vocabulary.encode([word])[0])
        frame = made.vocabulary.frame(128)
        ids = [*frame.before, *first_ids, *frame.between, *second_ids, *frame.after]
        lengths = (len(frame.before), len(first_ids), len(frame.between), len(second_ids), len(frame.after))
        types = [kind for kind, length in zip(frame.types, lengths, strict=True) for _ in range(length)]
        given = {"input_ids": torch.tensor([ids], device=model.device)}
        if getattr(model.config, "type_vocab_size", 0) > 1:
            given["token_type_ids"] = torch.tensor([types], device=model.device)
        with torch.inference_mode():
            logits = model(**given).logits[0].float().cpu()
        start = sum(lengths[:3])
        scores.extend(logits[start + mask][tokens].numpy() for mask in masks)
        for place in places:
            private[place] = made.output_texts[chosen[place]]
    return scores


def recorded(made, texts=TEXTS, count=None):
    sampler, column = Recorded(), pa.array(texts, pa.large_string())
    out = made.release_with(made.scorer(), sampler, column, keys(count or len(texts)))
    return out, sampler


DECODINGS = {1: {}, 4: {"decoding": "block", "block": 4}, 1000: {"decoding": "parallel"}}


def check_against_the_plain_loop(made, block, tolerance):
    out, sampler = recorded(made)
    assert not sampler.uniform
    seen = 0
    numbers = {word: number for number, word in enumerate(made.output_texts)}
    for record, text in enumerate(TEXTS):
        if not text:
            continue
        words = made._read(text, made.positions(pa.array([text])).to_pylist()[0]).words
        chosen = [numbers[word] for word in out.text[record].as_py().split(" ")]
        for place, expected in enumerate(written_out(made, words, block, chosen)):
            found = sampler.scores[(keys(len(TEXTS))[record].as_py(), place)]
            assert np.abs(found - expected).max() < tolerance
            seen += 1
    assert seen == len(sampler.scores)


class Whole:
    """A model of whole numbers: its scores depend on every real token of a row and on where the mask is."""

    device = torch.device("cpu")
    parameters = 1
    window = 64

    def __init__(self, outputs):
        self.outputs = outputs
        self.failing = None

    def forward(self, tokens, totals, types, columns):
        if self.failing is not None and (tokens == self.failing).any():
            raise RuntimeError("inside")
        real = np.arange(tokens.shape[1]) < totals[:, None]
        places = (np.arange(tokens.shape[1]) * 7 + 3) % 31
        sums = (tokens * places * real).sum(axis=1)
        seeds = sums[:, None] * 5 + columns * 11
        return torch.tensor((seeds[..., None] + np.arange(self.outputs) * 17) % 23 - 8, dtype=torch.float32)


SHORT = ["good film about a doctor", "zxq <mask> 42", "", "film", "the plot was thin but the music is great", None]

LONG = [
    f"{'good film about a doctor zxq ' * (i % 5)}{'the music is great ' * (i % 3)}{'again ' * (i % 7)}"
    for i in range(40)
]


def rows_of(made, scripts, blocks, window):
    frame = made.vocabulary.frame(window)
    layout = Layout(scripts, made.vocabulary.encode, frame, 1)
    asked = layout.asked(blocks, 1000)
    rows = layout.rows(asked)
    length = int(rows.totals.max()) + 1
    tokens, totals, _ = layout.fill(rows, len(blocks), length)
    columns, real = layout.columns(rows, asked, int((asked.last - asked.first).max()))
    return layout, tokens, totals, columns, real
