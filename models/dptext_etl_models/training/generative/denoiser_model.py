"""Make the models that `generative.denoiser` trains: their settings, and weights that save most of the training.

A transformer with random weights needs thousands of steps until it copies at all. Here embeddings start as word
vectors, and the encoder-decoder's attention starts at the word to copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from dptext_etl_models.inference.generative.prompts import FIELD
from dptext_etl_models.training.calibration import TEMPLATES
from dptext_etl_models.training.copying_bart import Sizes, copying_bart
from dptext_etl_models.training.generative.causal_start import WORD, causal
from dptext_etl_models.training.generative.corruption import Recipe
from dptext_etl_models.training.masked.start import write_vectors

Kind = Literal["seq2seq", "causal"]


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a training; the models that ship were made with the defaults."""

    kind: Kind = "seq2seq"  # "seq2seq" for DP-Prompt and rewriting again, "causal" for DP-Paraphrase
    vocabulary: int = 6_000  # number of entries of the tokenizer; most of them are whole words
    pieces: int = 800  # number of these entries that are pieces of words
    words: int = 30  # largest number of words of a text
    places: int = 256  # largest number of tokens that the model reads
    # width of an encoder-decoder; that of a causal model follows from how it starts (`training.causal_start`)
    width: int = 128
    layers: int = 2  # layers; of the encoder, and of the decoder
    heads: int = 4  # attention heads per layer
    inner: int = 384  # width of the feed-forward layers
    recipe: Recipe = field(default_factory=Recipe)  # how texts are spoilt
    rows: int = 64  # pairs per batch
    steps: int = 1_600  # largest number of steps
    rate: float = 2.5e-3  # learning rate at its peak
    warmup: int = 100  # steps until the peak
    minutes: float | None = None  # time limit in minutes
    seed: int = 17  # seed of weights and pairs

    @property
    def template(self) -> str:
        """Return the prompt of the mechanism that the model is for."""
        return TEMPLATES[self.kind]


def new_model(tokenizer: Any, settings: Settings) -> Any:
    """Return an untrained model, whose embeddings are word vectors; the state of torch's generators does not change."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(settings.seed)
        before = tokenizer(settings.template.partition(FIELD)[0], add_special_tokens=False)["input_ids"]
        if settings.kind == "causal":
            model = causal(len(tokenizer), settings)
            weight = model.get_input_embeddings().weight[:, :WORD]
        else:
            model = _encoder_decoder(len(tokenizer), settings, len(before))
            weight = model.get_input_embeddings().weight
        write_vectors(weight, tokenizer.backend_tokenizer, float(weight.norm(dim=1).median()))
    return model


def _encoder_decoder(entries: int, settings: Settings, before: int) -> Any:
    """Return a BART whose decoder attends near the word to copy, which lies `before` tokens further on, and passes it.

    The output matrix of that attention undoes the one of its values.
    """
    sizes = Sizes(settings.width, settings.layers, settings.heads, settings.inner, settings.places)
    model = copying_bart(entries, sizes, before)
    attention = model.model.decoder.layers[0].encoder_attn
    torch.nn.init.orthogonal_(attention.v_proj.weight)
    attention.out_proj.weight.copy_(attention.v_proj.weight.T)
    return model
