"""Fine-tune an encoder-decoder on pairs (M(c), c) of public texts c, so that it writes released texts anew.

Meisenbacher and Matthes 2024 (section 3) tune Flan-T5-large for one epoch at rate 5e-5 on 100,000 texts of C4 that a
mechanism has privatized: T. Further pairs of public texts of the data's own field make T++. What T does to a released
text is post-processing, and costs nothing, exactly if nothing of T depends on a protected record
(docs/spec/privacy.md#rewrite-again); `training.json` therefore names the texts that T was trained on.

Pairs are drawn with a random key that is thrown away, because a policy's key would draw, for equal ids and texts, what
a release draws. They are kept next to the checkpoint until the training ends, because they cannot be drawn again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from dptext_etl.artifacts import Artifact
from dptext_etl.column import draw
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.keys import throwaway
from dptext_etl.mechanism import Mechanism
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.prompts import Prompts
from dptext_etl_models.training import paraphraser
from dptext_etl_models.training.calibration import TEMPLATES
from dptext_etl_models.training.corpus import (
    NOTHING,
    Corpus,
    Pair,
    SentencePairs,
    clean,
    held_out,
    public_texts,
    short_texts,
    stacked,
)
from dptext_etl_models.training.paraphraser import encoders, fine_tune, trainable, write
from dptext_etl_models.training.resumable import FOLDER, Checkpoint, Listener, identity, write_facts

HELD = 256
"""Held-out texts whose pairs are scored before and after a training."""
_CHUNK = 500  # texts that are privatized between two reports


def privatized_pairs(
    mechanism: Mechanism,
    corpora: Sequence[Corpus],
    path: Path,
    identity: str,
    *,
    words: int,
    count: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> SentencePairs:
    """Return pairs of a privatized public text and the text, pairs of an earlier attempt if they are there."""
    if path.is_file():
        table = pq.read_table(path)
        if (table.schema.metadata or {}).get(b"identity") == identity.encode():
            return _pairs(table, path)
    held_out_texts = [clean(text) for corpus in corpora for text in corpus.texts() if held_out(text)]
    held_out_texts = short_texts(held_out_texts, words, HELD, seed)
    texts = [*held_out_texts, *public_texts(corpora, words, count, seed)]
    table = pa.table(
        {
            "read": pa.array(_privatized(mechanism, texts, progress), pa.large_string()),
            "written": pa.array(texts, pa.large_string()),
            "held": pa.array([place < len(held_out_texts) for place in range(len(texts))]),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    pq.write_table(table.replace_schema_metadata({"identity": identity}), draft)
    draft.replace(path)
    return _pairs(table, path)


def _privatized(
    mechanism: Mechanism, texts: Sequence[str], progress: Callable[[int, int], None] | None
) -> list[str | None]:
    key = throwaway(mechanism.cfg())
    mechanism.probe()
    rewritten: list[str | None] = []
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        ids = pa.array([str(start + place) for place in range(len(chunk))])
        rewritten += draw(mechanism, pa.array(chunk, pa.large_string()), ids, key).text.to_pylist()
        if progress is not None:
            progress(len(rewritten), len(texts))
    mechanism.probe()
    return rewritten


def _pairs(table: Any, path: Path) -> SentencePairs:
    """Return the pairs both of whose texts say something."""
    kept: tuple[list[Pair], list[Pair]] = ([], [])
    for row in table.to_pylist():
        if (row["read"] or "").strip() and row["written"].strip():
            kept[row["held"]].append((row["read"], row["written"]))
    if not kept[False]:
        raise InputError(
            "nothing is left of any text after the mechanism", "give more texts, or a mechanism that keeps some words"
        )
    return SentencePairs(tuple(kept[False]), tuple(kept[True]), path.name, "")


Provenance = Literal["public", "disjoint-records"]


@dataclass(frozen=True)
class Settings(paraphraser.Settings):
    """Hold the settings of Meisenbacher and Matthes 2024, as far as stated; `steps` and `minutes` are of a stage."""

    template: str = TEMPLATES["seq2seq"]  # prompt around the released text
    epochs: int = 1
    words: int = 60  # largest number of words of a public text
    texts: int = 100_000  # pairs of every stage: of the corpora, and of in-domain texts


@dataclass(frozen=True)
class InDomain:
    """Hold the further texts that make T++ of T."""

    corpora: Sequence[Corpus] = ()  # texts of the data's own field
    provenance: Provenance = "public"  # "disjoint-records" for other records of the same source


class Examples(paraphraser.Examples):
    """Turn pairs into an encoder's input and a decoder's output."""

    def __init__(self, pairs: Sequence[Pair], encoders: tuple[Prompts, Prompts], config: Any, longest: int) -> None:
        self._start, end = config.decoder_start_token_id, config.eos_token_id
        if not isinstance(self._start, int) or not isinstance(end, int):
            raise PolicyError(
                "the model names no token that starts or ends an answer",
                "add decoder_start_token_id and eos_token_id to its config.json",
            )
        self._padding = config.pad_token_id if isinstance(config.pad_token_id, int) else 0
        super().__init__(pairs, *encoders, end, longest)

    def batch(self, chosen: Sequence[int]) -> tuple[paraphraser.Ids, ...]:
        """Return the encoder's input, its mask, the decoder's input, and labels (`NOTHING` after the end)."""
        rows = [self._rows[number] for number in chosen]
        read = stacked([prompt for prompt, _ in rows], self._padding)
        mask = stacked([[1] * len(prompt) for prompt, _ in rows], 0)
        written = stacked([[self._start, *answer[:-1]] for _, answer in rows], self._padding)
        return read, mask, written, stacked([answer for _, answer in rows], NOTHING)

    def loss(self, model: Any, parts: Sequence[Tensor]) -> Tensor:
        """Return the mean cross-entropy of the labels of a batch."""
        ids, mask, written, labels = parts
        logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=written, use_cache=False).logits
        counted = labels != NOTHING
        return torch.nn.functional.cross_entropy(logits[counted].float(), labels[counted])


def train(
    mechanism: Mechanism,
    base: Mapping[str, Artifact],
    corpora: Sequence[Corpus],
    out: Path,
    settings: Settings,
    *,
    also: InDomain | None = None,
    listener: Listener | None = None,
    drawn: Callable[[int, int], None] | None = None,
    every: int = 500,
) -> dict[str, Any]:
    """Fine-tune a rewriter for a mechanism, or resume from the checkpoint in `out`."""
    also = also or InDomain()
    model = trainable("AutoModelForSeq2SeqLM", base)
    weights = model.config.dtype or torch.float32
    model = model.float()
    encode = encoders(language_model.tokenizer(base), settings, continued=False)
    about: dict[str, Any] = {
        "training": "rewriter",
        "training_provenance": "public" if not also.corpora else also.provenance,
        "mechanism": {"name": type(mechanism).__module__.rpartition(".")[2], "configuration": mechanism.cfg()},
        "base": dict(language_model.identity(base)),
        "settings": asdict(replace(settings, minutes=None)),
        "corpora": [corpus.facts for corpus in corpora],
        "also": [corpus.facts for corpus in also.corpora],
    }
    folder, stages = out / FOLDER, list[dict[str, Any]]()
    for name, texts in (("T", corpora), ("T++", also.corpora)):
        if not texts:
            continue
        about_pairs = identity({**about, "settings": {**about["settings"], "steps": None}, "stage": name})
        pairs = privatized_pairs(
            mechanism, texts, folder / f"{len(stages)}.parquet", about_pairs,
            words=settings.words, count=settings.texts, seed=settings.seed, progress=drawn,
        )  # fmt: skip
        examples, held_out_examples = (
            Examples(part, encode, model.config, settings.longest) for part in (pairs.train, pairs.held)
        )
        if not len(examples):
            raise PolicyError(f"no text has fewer than {settings.longest} tokens", "raise --longest")
        checkpoint = Checkpoint(folder / f"{len(stages)}.safetensors", identity(about_pairs, {"steps": settings.steps}))
        done = fine_tune(
            model, examples, held_out_examples, settings, checkpoint, name=name, every=every, listener=listener
        )
        stages.append({"stage": name, "pairs": len(examples), **done})
    facts = {**about, "stages": stages}
    write(out, model.to(weights), base)
    write_facts(out, facts)
    shutil.rmtree(folder, ignore_errors=True)
    return facts
