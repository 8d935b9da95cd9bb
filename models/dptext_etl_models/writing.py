"""Write public texts with a causal language model, from the names of labels and one public sentence about the domain.

The texts become part of a corpus: they represent what people might say about each label. Nothing private enters: the
labels are the public list of a policy, and the model has learned from public texts.

The prompt is a plain list of six examples from other domains, in an order shuffled for each batch, and ends where the
new text begins. Sampling uses the words that hold 95% of the probability, at the temperatures 0.8 and 1.0 in turn. With
`guidance`, each score is moved away from the score under the label "any", which makes opinions clearer
(classifier-free guidance).
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dptext_etl import files
from dptext_etl.artifacts import MADE_FROM, made_from, sha256_file
from dptext_etl.corpora import Corpus
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.policy import Policy
from dptext_etl_models.inference import language_model

EXAMPLES = (
    ("questions to a public library", "opening hours", "Are you open on the Sunday before Christmas?"),
    ("reports to the manager of a building", "heating", "The radiator in room 12 has been cold since Monday."),
    ("notes of a hiking club", "weather", "We turned back at noon because of the thunder."),
    ("orders in a restaurant", "allergies", "Could I have the soup without celery, please?"),
    ("comments on a bicycle shop", "repair", "They fixed my brakes while I waited and charged very little."),
    ("letters to a school", "absence", "My daughter has a fever and will stay home tomorrow."),
)
"""Kind, topic, and text: written for this prompt, about none of the domains of our studies."""
TOP_P = 0.95
TEMPERATURES = (0.8, 1.0)
ANY = "any"
LONGEST = 48
"""Tokens of a text, at most."""
ENCODER = "everyday-30k"
"""The corpus whose encoder compares written texts with their labels."""
_GGUF = ".gguf"
_BATCH = 20
_REPORT, _FIRST = 15.0, 0.5  # seconds between two lines of progress, and between two looks for the first batch
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What to write.

    Attributes:
        model: Folder of a causal model, a name on the hub, or a .gguf file.
        about: One public sentence about the texts, such as "messages of customers to their bank".
        topics: Public words that describe a label, by label.
        number: Number of texts of each label.
        seed: Seed of the order of examples and of the draws.
        guidance: Strength of the guidance against "any"; 1 uses none.
        license: Terms of the model's license, if the model states none.
    """

    model: str
    about: str
    topics: Mapping[str, str]
    number: int = 20
    seed: int = 1
    guidance: float = 1.0
    license: str = ""

    def __post_init__(self) -> None:
        if self.number < 1 or not self.topics or not self.about.strip():
            raise PolicyError(
                "a label, a sentence about the texts, and at least one text per label are needed",
                "pass --labels with at least one label, --about, and a positive --each",
            )
        if not 1.0 <= self.guidance <= 5.0:
            raise PolicyError("guidance is from 1 (none) to 5", "1.6 works for opinions")


def topics_of(path: Path) -> dict[str, str]:
    """Return the public labels that a policy lists, each with the words that describe it.

    Raises:
        PolicyError: The policy lists no labels: labels that are read from a table are private.

    The corpus that the policy names is not opened: the texts may be for that corpus.
    """
    with seam(f"reading {path}", PolicyError, "`dptext init FILE` writes a policy"):
        values = tomllib.loads(path.read_text("utf-8"))
    for holder in (values.get("synthetic"), *_listed(values.get("column"))):
        mechanism = holder.get("mechanism") if isinstance(holder, dict) else None
        if isinstance(mechanism, dict) and "corpus" in mechanism:
            mechanism["corpus"] = ENCODER
    policy = Policy.parse(values)
    if policy.synthetic is not None and policy.synthetic.labels is not None:
        labels = policy.synthetic.labels
        return {label: labels.names.get(label, _in_words(label)) for label in labels.cells}
    if policy.labels is not None:
        return {label: _in_words(label) for label in policy.labels.values}
    msg = f"the policy {path} declares no public labels"
    raise PolicyError(
        msg, "list them: [synthetic.labels] values, or labels of [shuffled]; never read them from a table"
    )


def _in_words(label: str) -> str:
    return re.sub(r"[_|]+", " ", label).strip()


class Written(NamedTuple):
    """Texts, and the card that says how they came about."""

    texts: pl.DataFrame  # columns label, text
    card: dict[str, Any]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def write(wanted: Wanted, out: Path, progress: Progress = lambda _: None) -> Written:
    """Write texts for every label into a Parquet file, and their card into a file next to it.

    Args:
        wanted: The model, the labels, and how many texts.
        out: A new .parquet file; the card has the same name and ends with .json.
        progress: Called with lines that say how far it is, how fast, and the time left.

    Raises:
        PolicyError: The model cannot be loaded, or states no license and none is given.
        InputError: The file exists, or cannot be written.
    """
    if out.suffix != ".parquet" or out.exists():
        raise InputError(f"{out} is not the name of a new .parquet file", "name a new file")
    terms = wanted.license or _stated_license(wanted.model)
    if not terms:
        raise PolicyError("the model states no license", 'look it up, and give it: --license "Apache-2.0"')
    labels = list(wanted.topics)
    batches = _batches(wanted, out)
    rows = [pair for pairs in _written(wanted, labels, batches, progress) for pair in pairs]
    order = {label: place for place, label in enumerate(labels)}
    texts = pl.DataFrame(
        sorted(rows, key=lambda row: order[row[0]]), schema={"label": pl.String, "text": pl.String}, orient="row"
    )
    card = {
        "model": _identity(wanted.model),
        MADE_FROM: made_from([wanted.model]),
        "licence": terms,
        "about": wanted.about,
        "prompt": prompt(wanted.about, "TOPIC", random.Random(0)),  # noqa: S311  (nothing is secret)
        "seed": wanted.seed,
        "guidance": wanted.guidance,
        "top_p": TOP_P,
        "temperatures": TEMPERATURES,
        "counts": dict(texts.group_by("label").len().sort("label").iter_rows()),
        "nearest_is_intended": _nearest_is_intended(texts, wanted.topics),
    }
    with seam(f"writing {out}", InputError, "is the folder there and writable by you?"):
        texts.write_parquet(out)
    files.write(out.with_suffix(".json"), json.dumps(card, indent=2).encode(), action="writing the card")
    shutil.rmtree(batches)
    return Written(texts, card)


def _batches(wanted: Wanted, out: Path) -> Path:
    """Return the folder that keeps finished batches until all are there; a stopped command continues from it."""
    folder = out.with_suffix(".batches")
    facts = json.dumps({**asdict(wanted), "model": _identity(wanted.model), "batch": _BATCH}, sort_keys=True)
    settings = folder / "settings.json"
    with seam(f"reading {folder}", InputError, "is the folder writable by you?"):
        folder.mkdir(exist_ok=True)
        known = settings.read_text("utf-8") if settings.is_file() else None
    if known not in (None, facts):
        msg = f"{folder} holds batches that other settings wrote"
        raise InputError(msg, "delete it, or repeat the command with its former options")
    files.write(settings, facts.encode(), action="writing the settings")
    return folder


def _written(
    wanted: Wanted, labels: Sequence[str], batches: Path, progress: Progress
) -> Iterator[list[tuple[str, str]]]:
    """Yield the texts of every label in order, and report the rate and the time left."""
    least = len(labels) * -(-wanted.number // _BATCH)
    workers = min(len(labels), os.cpu_count() or 1, int(os.environ.get("DPTEXT_THREADS") or 64))

    def count() -> int:
        return len([*batches.glob("*-*.json")])

    there, began, first = count(), time.monotonic(), 0.0
    if there:
        progress(f"{there:,} batches of an earlier start are there")

    def tell() -> None:
        nonlocal first
        done, now = count(), time.monotonic()
        left = max(0, least - done)
        if done > there and not first:
            first, seconds = now, now - began
            progress(
                f"the first of about {least:,} batches needed {seconds:.0f} s, most of it to load the model: "
                f"about {left * seconds / workers / 60:.1f} minutes, or less"
            )
        elif done > there + 1:  # the rate leaves out how long the model loads
            rate = 60 * (done - there - 1) / max(1e-9, now - first)
            progress(f"{done:,} of about {least:,} batches, {rate:.1f} per minute, {left / rate:.1f} minutes left")

    with _pool(workers) as pool:
        tasks = [pool.submit(_of_label, wanted, label, number, batches) for number, label in enumerate(labels)]
        while wait(tasks, timeout=_REPORT if first else _FIRST).not_done:
            tell()
        tell()
        yield from (task.result() for task in tasks)


def _pool(workers: int) -> Executor:
    """Return processes: two threads of one process are slower than one."""
    if workers == 1:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this process when the command was killed: it would wait for its next label forever."""

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


def prompt(about: str, topic: str, order: random.Random) -> str:
    """Return the list of examples in a shuffled order, and the beginning of the new one."""
    examples = order.sample(EXAMPLES, len(EXAMPLES))
    parts = [f"Kind: {kind}\nTopic: {subject}\nText: {text}" for kind, subject, text in examples]
    return "\n\n".join([*parts, f"Kind: {about}\nTopic: {topic}\nText:"])


def _of_label(wanted: Wanted, label: str, number: int, batches: Path) -> list[tuple[str, str]]:
    """Return distinct texts of a label, in one thread."""
    texts = dict[str, None]()
    for text in _texts(wanted, label, number, batches):
        texts[text] = None
        if len(texts) == wanted.number:
            break
    return [(label, text) for text in texts]


@lru_cache(maxsize=1)
def _model(name: str) -> tuple[Any, Any]:
    import torch

    torch.set_num_threads(1)
    return opened(name)


def _texts(wanted: Wanted, label: str, number: int, batches: Path) -> Iterator[str]:
    """Yield texts of a label, batch by batch, until three times as many as wanted were drawn; each batch is kept."""
    order = random.Random(f"{wanted.seed} {label}")  # noqa: S311  (public texts)
    for turn in range(-(-3 * wanted.number // _BATCH)):
        state = order.getstate()
        prompts = [prompt(wanted.about, wanted.topics[label], order)]
        if wanted.guidance > 1:
            order.setstate(state)
            prompts.append(prompt(wanted.about, ANY, order))
        seed, kept = order.getrandbits(63), batches / f"{number}-{turn}.json"
        if not kept.is_file():
            found = _batch(wanted, prompts, seed, TEMPERATURES[turn % len(TEMPERATURES)])
            files.write(kept, json.dumps(found).encode(), action="writing a batch")
        yield from json.loads(kept.read_text("utf-8"))


def _batch(wanted: Wanted, prompts: Sequence[str], seed: int, temperature: float) -> list[str]:
    """Return the texts of a batch that ended; others are cut in the middle of a sentence."""
    import torch

    model, tokenizer = _model(wanted.model)
    draws = torch.Generator().manual_seed(seed)
    texts = []
    for row in _continuations(
        model, tokenizer, prompts, guidance=wanted.guidance, temperature=temperature, draws=draws
    ):
        line, end, _ = tokenizer.decode(row, skip_special_tokens=True).partition("\n")
        text = line.strip().strip("\"'")
        texts += [text] if end and text else []
    return texts


def _continuations(
    model: Any, tokenizer: Any, prompts: Sequence[str], *, guidance: float, temperature: float, draws: Any
) -> Any:
    """Draw a batch of continuations of the first prompt, guided against the second one if there is one.

    `generate` of transformers reads the prompt once per continuation, which is ten times slower as the draws.
    """
    import torch

    with torch.inference_mode():
        first = [model(tokenizer(prompt, return_tensors="pt")["input_ids"], use_cache=True) for prompt in prompts]
        caches, scores = [out.past_key_values for out in first], [out.logits[:, -1].expand(_BATCH, -1) for out in first]
        for cache in caches:
            cache.batch_repeat_interleave(_BATCH)
        rows: list[list[int]] = [[] for _ in range(_BATCH)]
        going, last = list(range(_BATCH)), None
        while going and len(rows[going[0]]) < LONGEST:
            if last is not None:
                scores = [model(last, past_key_values=cache).logits[:, -1] for cache in caches]
            logs = [score.log_softmax(-1) for score in scores]
            mixed = logs[0] if len(logs) == 1 else torch.lerp(logs[1], logs[0], guidance)
            last = _likely((mixed / temperature).softmax(-1), draws)
            drawn = last[:, 0].tolist()
            for row, token in zip(going, drawn, strict=True):
                rows[row].append(token)
            stops = [token == tokenizer.eos_token_id or "\n" in tokenizer.decode([token]) for token in drawn]
            if any(stops):  # texts that ended are no longer computed: most end long before the last token
                kept = [place for place, stop in enumerate(stops) if not stop]
                going, last = [going[place] for place in kept], last[kept]
                for cache in caches if kept else ():
                    cache.batch_select_indices(torch.tensor(kept))
    return rows


def _likely(shares: Any, draws: Any) -> Any:
    """Draw a word per row among the likeliest that hold `TOP_P`.

    A word outside is drawn again: a sort of the vocabulary costs a fifth of the whole time.
    """
    drawn = shares.multinomial(1, generator=draws)
    outside = shares.new_ones(len(shares)) > 0
    while True:
        chances = shares[outside]
        likelier = chances * (chances > chances.gather(-1, drawn[outside]))
        outside = outside.masked_scatter(outside, likelier.sum(-1) >= TOP_P)
        if not outside.any():
            return drawn
        drawn[outside] = shares[outside].multinomial(1, generator=draws)


def opened(name: str) -> tuple[Any, Any]:
    """Load a causal model in float32 and its tokenizer, from a folder, the hub, or a .gguf file."""
    if not name.endswith(_GGUF):
        model_folder_files = language_model.model_files(name)
        model, tokenizer = language_model.causal_model(model_folder_files), language_model.tokenizer(model_folder_files)
    else:
        hint = "it needs the package gguf: pip install gguf"
        with seam("loading the model", PolicyError, hint):
            import torch
            import transformers

            transformers.utils.logging.disable_progress_bar()
            folder, file = Path(name).parent, Path(name).name
            load = transformers.AutoModelForCausalLM.from_pretrained
            model = load(folder, gguf_file=file, dtype=torch.float32, local_files_only=True).eval()
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file, local_files_only=True)
    return model, tokenizer


def _identity(name: str) -> dict[str, str]:
    """Return the name of a model and the SHA-256 of its files."""
    if name.endswith(_GGUF):
        return {Path(name).name: sha256_file(Path(name))}
    return {
        role.removeprefix(language_model.ROLE): item.sha256 for role, item in language_model.model_files(name).items()
    }


def _stated_license(name: str) -> str:
    """Return the license that a model's own files state: the metadata of a .gguf file, or the head of its README."""
    if name.endswith(_GGUF):
        if not Path(name).is_file():
            raise PolicyError(f"there is no file {name}", "name a .gguf file, or the folder of a model")
        with seam("reading the .gguf file", PolicyError, "pip install gguf"):
            from gguf import GGUFReader

            field = GGUFReader(name).get_field("general.license")
            return "" if field is None else str(field.contents())
    card = Path(name) / "README.md"
    head = card.read_text(encoding="utf-8", errors="replace").partition("\n---")[0] if card.is_file() else ""
    stated = re.search(r"^license:\s*(\S.*)$", head, re.MULTILINE)
    return "" if stated is None else stated[1].strip()


def _nearest_is_intended(texts: pl.DataFrame, topics: Mapping[str, str]) -> float:
    """Return the share of texts for which the nearest of the other texts' label means belongs to their own label."""
    vectors = Corpus.open(ENCODER).encoder.encode(texts["text"].to_list()).astype(np.float64)
    labels = list(topics)
    numbers = np.array([labels.index(label) for label in texts["label"]], np.int64)
    sums = np.zeros((len(labels), vectors.shape[1]))
    np.add.at(sums, numbers, vectors)
    right = 0
    for vector, label in zip(vectors, numbers, strict=True):
        without = sums.copy()
        without[label] -= vector
        lengths = np.linalg.norm(without, axis=1)
        right += int(np.argmax(without @ vector / np.where(lengths > 0, lengths, 1.0)) == label)
    return right / len(numbers) if len(numbers) else 0.0
