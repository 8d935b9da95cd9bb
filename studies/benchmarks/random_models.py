"""Language models in the shapes that papers use, with random weights: speed is real, texts mean nothing.

    python random_models.py FOLDER

Writes roberta-base and bart-base shapes, float32, with a byte-level tokenizer of 50,265 tokens trained on IMDb.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from measuring import SKIPPED
from tasks import data

TOKENS = 50_265
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
REVIEWS = 6_000
NUMBERS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


@functools.cache
def folder() -> Path | None:
    """Build the models once per run, in a folder that goes with it; None with a sentence where something is missing."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers", "tokenizers")):
        print("skipped: language models need torch and transformers", file=sys.stderr)
        return None
    place = tempfile.mkdtemp(prefix="dptext-bench-models-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    done = subprocess.run([sys.executable, __file__, place], capture_output=True, text=True, check=False)
    if done.returncode not in (0, SKIPPED):
        sys.exit(f"building the models failed\n{done.stderr}")
    if done.returncode:
        print(done.stderr.strip(), file=sys.stderr)
        return None
    return Path(place)


def build(folder: Path) -> None:
    """Write the models into `folder/roberta` and `folder/bart`."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    tokens = tokenizer(reviews())
    torch.manual_seed(0)
    for name, model in (("roberta", roberta()), ("bart", bart())):
        model.save_pretrained(folder / name)
        tokens.save_pretrained(folder / name)
        del model


def reviews() -> Iterator[str]:
    """Give the texts that the tokenizer is trained on."""
    column = pl.read_parquet(data("imdb/imdb.parquet"), columns=["text"])["text"].head(REVIEWS)
    return (f" {text}" for text in column)


def tokenizer(texts: Iterable[str], tokens: int = TOKENS) -> Any:
    """Train a byte-level tokenizer of this number of tokens that frames texts and pairs as RoBERTa's does."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=tokens,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    made.add_special_tokens([AddedToken(SPECIAL[-1], lstrip=True, special=True)])
    missing = tokens - made.get_vocab_size()
    made.add_tokens([AddedToken(f"<none{number}>", normalized=False) for number in range(missing)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(name, made.token_to_id(name)) for name in ("<s>", "</s>")],
    )
    begin, pad, end, unknown, mask = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=begin,
        cls_token=begin,
        pad_token=pad,
        eos_token=end,
        sep_token=end,
        unk_token=unknown,
        mask_token=mask,
        model_max_length=512,
    )


def roberta(tokens: int = TOKENS, **shape: int) -> Any:
    """Return roberta-base's shape: 12 layers of 768, where `shape` says nothing else."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    usual = {"vocab_size": tokens, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return RobertaForMaskedLM(RobertaConfig(**{**usual, **NUMBERS, **shape}))


def bart(tokens: int = TOKENS, **shape: int) -> Any:
    """Return bart-base's shape: 6 and 6 layers of 768; no text ends early, as random weights would have it."""
    from transformers import BartConfig, BartForConditionalGeneration

    usual = {
        "vocab_size": tokens, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
        "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
        "max_position_embeddings": 1024, "decoder_start_token_id": 2, "forced_eos_token_id": None,
    }  # fmt: skip
    model = BartForConditionalGeneration(BartConfig(**{**usual, **NUMBERS, **shape}))
    model.final_logits_bias[:, NUMBERS["eos_token_id"]] = -1e4
    return model


if __name__ == "__main__":
    build(Path(sys.argv[1]))
