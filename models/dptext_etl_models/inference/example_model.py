"""Build tiny random language models that need no download, for tests, documentation and examples.

Their weights are random and carry no knowledge of words; shapes, files and tokenizers are as in real models. Each
model is built once per machine from a fixed seed and kept in the artifact cache.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from dptext_etl.artifacts import Artifact, store

PREFIX = "example-"
"""Prefix of the names of these models, as in "example-masked"."""
KINDS = ("masked", "causal", "seq2seq", "bart")
CLIPS = {"masked": (-6.0, 10.0), "causal": (-6.0, 6.0), "seq2seq": (-6.0, 6.0), "bart": (-6.0, 6.0)}
"""Public ranges for their scores."""
WORDS = 400
"""Number of whole words in their tokenizers, which are the first of the embedded vocabulary."""
_SEED = 20_260_101
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def example_model(kind: str) -> dict[str, Artifact]:
    """Return the files of the tiny model of a kind by file name; build them if this machine does not have them."""
    files = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    return stored_model(kind, files, lambda folder: _build(kind, folder))


def stored_model(
    kind: str, files: Sequence[str], build: Callable[[Path], None], version: int = 1
) -> dict[str, Artifact]:
    """Return the cached files of a random model by name; `build` writes them into a folder if they are missing."""
    built: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="dptext-example-") as folder:

        def write(name: str, out: Path) -> None:
            if not built:
                build(Path(folder))
                built.append(Path(folder))
            out.write_bytes((Path(folder) / name).read_bytes())

        return {
            name: store(
                {"format": "dptext-example-model/1", "kind": kind, "file": name, "version": version},
                partial(write, name),
                suffix=Path(name).suffix,
                provenance="random weights from a fixed seed; no text was used",
                license="none needed",
            )
            for name in files
        }


def _build(kind: str, folder: Path) -> None:
    """Write a model and its tokenizer into a folder; the state of torch's generators does not change."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    tokenizer = _unigram() if kind == "seq2seq" else _byte_pairs(framed=kind != "causal")
    specials = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    if kind != "seq2seq":
        specials |= {"bos_token": "<s>", "mask_token": "<mask>", "cls_token": "<s>", "sep_token": "</s>"}
    saved = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)
    config = _config(kind, tokenizer.get_vocab_size(), {name: saved.convert_tokens_to_ids(name) for name in _SPECIAL})
    kinds = {
        "masked": transformers.RobertaForMaskedLM,
        "causal": transformers.GPT2LMHeadModel,
        "seq2seq": transformers.T5ForConditionalGeneration,
        "bart": transformers.BartForConditionalGeneration,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model = kinds[kind](config)
    model.save_pretrained(folder)
    saved.save_pretrained(folder)


def _config(kind: str, size: int, ids: dict[str, int]) -> Any:
    """Return the shape of a model: two layers of width 32, with weights large enough for different scores."""
    import transformers

    special = {"bos_token_id": ids["<s>"], "eos_token_id": ids["</s>"], "pad_token_id": ids["<pad>"]}
    if kind == "masked":
        return transformers.RobertaConfig(
            vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=130, type_vocab_size=1, initializer_range=0.4, **special,
        )  # fmt: skip
    if kind == "causal":
        return transformers.GPT2Config(
            vocab_size=size, n_positions=128, n_embd=32, n_layer=2, n_head=2, initializer_range=0.2,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **special,
        )  # fmt: skip
    if kind == "seq2seq":
        return transformers.T5Config(
            vocab_size=size, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, initializer_factor=1.0,
            decoder_start_token_id=ids["<pad>"], eos_token_id=ids["</s>"], pad_token_id=ids["<pad>"],
        )  # fmt: skip
    return transformers.BartConfig(
        vocab_size=size, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=128, init_std=0.2,
        decoder_start_token_id=ids["</s>"], forced_eos_token_id=None, **special,
    )  # fmt: skip


@cache
def words() -> tuple[str, ...]:
    """Return the whole words that the tokenizers know."""
    from dptext_etl.embeddings import WordVectors

    return WordVectors.load(limit=WORDS).words


def _byte_pairs(*, framed: bool) -> Any:
    """Return a byte-level tokenizer, like RoBERTa's ("framed" by special tokens) or GPT-2; it accepts any text.

    Merges build words from their beginning, so that no merge of one word breaks another.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate([*_SPECIAL, *symbols])}
    merges: list[tuple[str, str]] = []
    for word in words():
        spelling = "Ġ"
        for byte in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(word)[0][0]:
            if spelling + byte not in vocabulary:
                vocabulary[spelling + byte] = len(vocabulary)
                merges.append((spelling, byte))
            spelling += byte
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if framed:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>",
            pair="<s> $A </s> </s> $B </s>",
            special_tokens=[(name, vocabulary[name]) for name in ("<s>", "</s>")],
        )
    tokenizer.add_special_tokens(list(_SPECIAL))
    return tokenizer


def _unigram() -> Any:
    """Return a tokenizer like T5's: pieces with a mark for blanks, and single bytes for everything else."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?'-"
    pieces = [(name, -1e4) for name in ("<pad>", "</s>", "<unk>")]  # never found in a text
    pieces += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    pieces += [("▁", -6.0), *((letter, -8.0) for letter in letters)]
    pieces_in_vocabulary = {piece for piece, _ in pieces}
    pieces += [
        ("▁" + word, -3.0 - 0.01 * rank) for rank, word in enumerate(words()) if "▁" + word not in pieces_in_vocabulary
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(replacement="▁")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return tokenizer
