"""Load the language models that measures use: a folder, a name on a hub, or a model of dptext-etl-models.

Each is opened with `from_pretrained`; code in its folder is never run, and pickled weights are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.device import device
from dptext_etl.errors import DPTextError, InputError

SMALL = "english-small"
"""The masked language model of dptext-etl-models, which measures use if no other is named."""
LONGEST = 256
"""Tokens of a text that an encoder and a causal model read."""
_ROWS = 32
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Evaluators:
    """The language models of measures, each a folder or a name; None for a default, or to leave the measure out.

    Attributes:
        classifier: Model that is fine-tuned on labels and on attributes.
        encoder: Sentence encoder; a text's vector is the mean of its tokens' vectors, of length 1.
        masked_model: Masked language model that infers words.
        perplexity_model: Causal language model whose perplexity is measured.
        epochs: Passes over the texts in fine-tuning; None uses the epochs of the model's recipe.
        rate: Largest learning rate of fine-tuning; None uses the rate of the model's recipe.
    """

    classifier: str | None = None
    encoder: str | None = None
    masked_model: str | None = None
    perplexity_model: str | None = None
    epochs: int | None = None
    rate: float | None = None

    def named(self) -> dict[str, str]:
        """Return the models that are given, by name."""
        return {name: value for name, value in vars(self).items() if name in _KINDS and value is not None}

    def require(self) -> None:
        """Load every model that is given, before anything is measured.

        Raises:
            InputError: A model cannot be loaded, or torch and transformers are not installed.
        """
        for name, model in self.named().items():
            try:
                _KINDS[name](model)
            except DPTextError as error:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"the model of {option} cannot be loaded: {error.message}", error.hint) from None


def of_rows(given: Mapping[str, Any], *more: str) -> list[str]:
    """Return the options that were given and are for releases whose rows belong to records."""
    options = {name: given.get(name) for name in (*more, "split", "text_pair")}
    options |= {"seeds": given.get("seeds", 1) > 1, **(given.get("evaluators") or Evaluators()).named()}
    return [f"--{name.replace('_', '-')}" for name, value in options.items() if value]


def loaded(kind: str, name: str) -> tuple[Any, Any]:
    """Return the tokenizer and the model of a kind, such as "AutoModelForMaskedLM"; both are loaded once."""
    from dptext_etl_models.inference import language_model

    files = language_model.model_files(name)
    with silent():
        return language_model.tokenizer(files), language_model.model(kind, files, device())


@contextmanager
def silent() -> Iterator[None]:
    """Let transformers print nothing, such as which weights of a masked model an encoder lacks."""
    from dptext_etl_models.inference.language_model import need_transformers

    need_transformers()
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


_KINDS: Mapping[str, Callable[[str], object]] = {
    "classifier": lambda name: loaded("AutoModel", name),
    "encoder": lambda name: loaded("AutoModel", name),
    "masked_model": lambda name: loaded("AutoModelForMaskedLM", name),
    "perplexity_model": lambda name: loaded("AutoModelForCausalLM", name),
}


def sentence_vectors(name: str, texts: Sequence[str]) -> Vectors:
    """Return the vectors of texts by a sentence encoder, of length 1, shape (texts, dimensions)."""
    import torch

    tokenizer, model = loaded("AutoModel", name)
    parts: list[Vectors] = []
    order = np.argsort([len(text) for text in texts], kind="stable")
    for first in range(0, len(order), _ROWS):
        given = _tokens(tokenizer, model, [texts[row] for row in order[first : first + _ROWS]])
        with torch.inference_mode():
            states = (model.get_encoder() if model.config.is_encoder_decoder else model)(**given)[0].float()
            real = given["attention_mask"][..., None]
            mean = (states * real).sum(1) / real.sum(1).clamp(min=1)
            parts.append(torch.nn.functional.normalize(mean, dim=1).cpu().numpy())
    vectors = np.concatenate(parts)
    placed = np.empty_like(vectors)
    placed[order] = vectors
    return placed


def surprise(name: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the surprise of each text in nats under a causal model, and how many tokens it is of, shape (texts, 2).

    Every token counts but the first, which nothing precedes; where the model has a start token, that comes first.
    """
    import torch

    tokenizer, model = loaded("AutoModelForCausalLM", name)
    start = tokenizer.bos_token_id
    most = min(LONGEST, positions(model) - (start is not None))
    sums = np.zeros((len(texts), 2))
    for row, text in enumerate(texts):
        tokens = tokenizer.encode(text, add_special_tokens=False, truncation=True, max_length=most)
        ids = torch.as_tensor([[*([] if start is None else [start]), *tokens]], device=model.device)
        if ids.shape[1] < 2:
            continue
        with torch.inference_mode():
            logs = model(ids).logits[0, :-1].float().log_softmax(-1)
        sums[row] = float(-logs.gather(1, ids[0, 1:, None]).sum()), ids.shape[1] - 1
    return sums


def positions(model: Any) -> int:
    """Return how many tokens a model can read; RoBERTa's kind numbers them from 2.

    The length that a tokenizer states is of no use: without such a length it is 10**30.
    """
    most = getattr(model.config, "max_position_embeddings", None)
    return 10**9 if most is None or most <= 2 else int(most) - 2


def _tokens(tokenizer: Any, model: Any, texts: Sequence[str]) -> dict[str, Any]:
    most = min(LONGEST, tokenizer.model_max_length, positions(model))
    tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=most, return_tensors="pt")
    return {field: tokens[field].to(model.device) for field in ("input_ids", "attention_mask")}
