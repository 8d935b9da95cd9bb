"""Train a small masked language model on public text, so that DP-MLM runs without a hub.

The model is a RoBERTa of a few million weights whose vocabulary consists of whole words. It learns quickly on a CPU for
four reasons: examples are short, the head runs only at masked positions, the embeddings start from word vectors (the
embedded `english-20k`), and the bias starts at the words' frequencies. docs/models.md says which larger models to use
for real work.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models.training.corpus import NOTHING, Corpus, clean, held_out
from dptext_etl_models.training.initial_weights import started
from dptext_etl_models.training.masked_examples import Examples, Recipe
from dptext_etl_models.training.resumable import (
    FACTS,
    FOLDER,
    Checkpoint,
    Listener,
    Schedule,
    identity,
    run,
    save_half,
    write_facts,
)
from dptext_etl_models.training.vocabulary import END, MASK, PADDING, SPECIAL, START, UNKNOWN, build, count_words

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import RobertaConfig


_TOKENIZER = "tokenizer.json"
_COUNTS = "words.json"
_POOL = 100  # batches that are made together


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a training; the model that ships was made with the defaults."""

    vocabulary: int = 14_000  # number of entries of the tokenizer
    pieces: int = 1_000  # number of these entries that are pieces of words
    hidden: int = 192  # width of the model
    layers: int = 3  # number of layers
    heads: int = 6  # attention heads per layer
    inner: int = 768  # width of the feed-forward layers
    recipe: Recipe = field(default_factory=Recipe)  # how examples are made; its `long` is the longest input
    tokens: int = 2_048  # ids per batch
    steps: int = 20_000  # largest number of steps
    minutes: float | None = None  # time limit in minutes; None for no limit
    rate: float = 1e-3  # learning rate at its peak
    warmup: int = 200  # steps until the peak
    decay: float = 0.01  # weight decay
    seed: int = 7  # seed of weights and examples


@dataclass(frozen=True)
class Held:
    """Hold the texts of corpora: those to train on, and those held out."""

    train: list[tuple[list[str], float]]  # texts and share of each corpus
    examined: dict[str, list[str]]  # held-out texts by the name of the corpus
    hashes: dict[str, str]  # hash of every file


def read(corpora: Sequence[Corpus], examined: Sequence[Corpus] = ()) -> Held:
    """Read the corpora into memory; hold out two texts in a hundred, and all texts of the corpora `examined`."""
    train, kept = [], {}
    for corpus in corpora:
        texts: tuple[list[str], list[str]] = ([], [])
        for text in corpus.texts():
            texts[held_out(text)].append(text)
        if not texts[False]:
            raise InputError(f"the corpus {corpus.name} has no texts to train on", "name a file of public texts")
        train.append((texts[False], corpus.share))
        kept[corpus.name] = texts[True]
    for corpus in examined:
        kept[corpus.name] = list(corpus.texts())
    return Held(train, kept, {corpus.path.name: corpus.sha256 for corpus in (*corpora, *examined)})


def frequencies(split_texts: Held) -> Counter[str]:
    """Count the words of the texts to train on, each corpus weighted by its share."""
    counted = [(count_words(map(clean, texts)), share) for texts, share in split_texts.train]
    whole = sum(counts.total() for counts, _ in counted)
    parts = sum(share for _, share in split_texts.train)
    mixed: Counter[str] = Counter()
    for counts, share in counted:
        factor = whole * share / parts / max(1, counts.total())
        for word, count in counts.items():
            mixed[word] += max(1, round(count * factor))
    return mixed


def train(
    texts: Held,
    out: Path,
    settings: Settings,
    *,
    listener: Listener | None = None,
    every: int = 500,
    report_every: int = 50,
) -> dict[str, Any]:
    """Train, or resume from the checkpoint in `out`; write the model in half precision."""
    work = out / FOLDER
    work.mkdir(parents=True, exist_ok=True)
    about = {"settings": asdict(replace(settings, minutes=None)), "corpora": texts.hashes}
    path = work / FACTS
    text = json.dumps(about, indent=1, sort_keys=True)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise PolicyError(
            f"the folder {path.parent.parent} holds a training with other settings or corpora",
            "name another --out, or delete its folder checkpoint to begin anew",
        )
    path.write_text(text, encoding="utf-8")
    tokenizer, counts = _tokenizer(work, texts, settings)
    model = started(_shape(tokenizer.get_vocab_size(), settings), tokenizer, counts, settings.seed)
    start_facts: dict[str, Any] = {"recipe": settings.recipe, "tokens": settings.tokens, "seed": settings.seed}
    examples = Examples(texts.train, tokenizer, **start_facts, pool=min(_POOL, settings.steps))

    def loss_at(step: int) -> Tensor:
        batch = examples[step]
        parts = (batch.ids, batch.labels, batch.attended, batch.types)
        ids, labels, attended, types = (torch.from_numpy(item) for item in parts)
        mask = None if attended.all() else attended
        hidden = model.roberta(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        masked = labels != NOTHING
        return torch.nn.functional.cross_entropy(model.lm_head(hidden[masked]), labels[masked])

    def saved(steps: int) -> None:
        save_half(model, _as_roberta(tokenizer, settings), out)
        write_facts(out, {**facts, "steps": steps})

    facts: dict[str, Any] = {"settings": asdict(settings), "corpora": texts.hashes, "unigrams": _most(counts)}
    checkpoint, how = Checkpoint(work / "state.safetensors", identity(about)), Schedule.of(settings)
    reports: dict[str, Any] = {"every": every, "report_every": report_every, "listener": listener, "saved": saved}
    return {**facts, "steps": run(model, loss_at, how, checkpoint, name="masked-lm", **reports)}


def _most(counts: Counter[str]) -> list[str]:
    """Return the ten most frequent words, which are the best guesses without context."""
    return [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]]


def _tokenizer(work: Path, texts: Held, settings: Settings) -> tuple[Tokenizer, Counter[str]]:
    """Build the tokenizer, or read the one of the training that is resumed."""
    from tokenizers import Tokenizer

    if (work / _COUNTS).exists():
        return Tokenizer.from_file(str(work / _TOKENIZER)), Counter(
            json.loads((work / _COUNTS).read_text(encoding="utf-8"))
        )
    counts = frequencies(texts)
    tokenizer = build(counts, settings.vocabulary, min(settings.pieces, settings.vocabulary // 10))
    tokenizer.save(str(work / _TOKENIZER))
    vocabulary = tokenizer.get_vocab()
    kept = Counter({word: count for word, count in counts.items() if word in vocabulary})
    (work / _COUNTS).write_text(json.dumps(kept), encoding="utf-8")
    return tokenizer, kept


def _shape(size: int, settings: Settings) -> RobertaConfig:
    """Return the configuration of a model with `size` entries."""
    from transformers import RobertaConfig

    return RobertaConfig(
        vocab_size=size,
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.inner,
        max_position_embeddings=settings.recipe.long + PADDING + 1,
        type_vocab_size=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=1e-5,
        bos_token_id=START,
        pad_token_id=PADDING,
        eos_token_id=END,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )


def _as_roberta(tokenizer: Tokenizer, settings: Settings) -> Any:
    """Return a tokenizer as one of transformers, with RoBERTa's names of special tokens."""
    from transformers import PreTrainedTokenizerFast

    names = {"bos": START, "cls": START, "pad": PADDING, "eos": END, "sep": END, "unk": UNKNOWN, "mask": MASK}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=settings.recipe.long,
        clean_up_tokenization_spaces=False,
        **{f"{name}_token": SPECIAL[number] for name, number in names.items()},
    )
