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
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
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
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What to write.

    Attributes:
        model: Folder of a causal model, a name on the hub, or a .gguf file.
        about: One public sentence about the texts, such as "messages of customers to their bank".
        topics: Public words that describe a label, by label.
        each: Number of texts of each label.
        seed: Seed of the order of examples and of the draws.
        guidance: Strength of the guidance against "any"; 1 uses none.
        license: Terms of the model's license, if the model states none.
    """

    model: str
    about: str
    topics: Mapping[str, str]
    each: int = 20
    seed: int = 1
    guidance: float = 1.0
    license: str = ""

    def __post_init__(self) -> None:
        if self.each < 1 or not self.topics or not self.about.strip():
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
        progress: Called with one line per finished label.

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
    workers = min(len(labels), os.cpu_count() or 1, int(os.environ.get("DPTEXT_THREADS") or 64))
    shares = [labels[start::workers] for start in range(workers)]  # two threads of one process are slower than one
    rows = list[tuple[str, str]]()
    if workers == 1:
        rows += _write_share(wanted, labels, progress)
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for share, done in zip(shares, pool.map(_write_share, [wanted] * workers, shares), strict=True):
                rows += done
                progress(f"{len(rows):,} texts of {len(share)} more labels")
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
    return Written(texts, card)


def prompt(about: str, topic: str, order: random.Random) -> str:
    """Return the list of examples in a shuffled order, and the beginning of the new one."""
    examples = order.sample(EXAMPLES, len(EXAMPLES))
    parts = [f"Kind: {kind}\nTopic: {subject}\nText: {text}" for kind, subject, text in examples]
    return "\n\n".join([*parts, f"Kind: {about}\nTopic: {topic}\nText:"])


def _write_share(wanted: Wanted, labels: Sequence[str], progress: Progress = lambda _: None) -> list[tuple[str, str]]:
    import torch

    torch.set_num_threads(1)
    model, tokenizer = opened(wanted.model)
    pairs = list[tuple[str, str]]()
    for label in labels:
        texts = list[str]()
        for text in _texts(model, tokenizer, wanted, label):
            texts += [text] if text not in texts else []
            if len(texts) == wanted.each:
                break
        pairs += [(label, text) for text in texts]
        progress(f"{label}: {len(texts)} texts")
    return pairs


def _texts(model: Any, tokenizer: Any, wanted: Wanted, label: str) -> Iterator[str]:
    """Yield texts of a label, batch by batch, until three times as many as wanted were drawn."""
    import torch

    order = random.Random(f"{wanted.seed} {label}")  # noqa: S311  (public texts)
    for turn in range(-(-3 * wanted.each // _BATCH)):
        state = order.getstate()
        prompts = [prompt(wanted.about, wanted.topics[label], order)]
        if wanted.guidance > 1:
            order.setstate(state)
            prompts.append(prompt(wanted.about, ANY, order))
        draws = torch.Generator().manual_seed(order.getrandbits(63))
        temperature = TEMPERATURES[turn % len(TEMPERATURES)]
        for row in _continuations(
            model, tokenizer, prompts, guidance=wanted.guidance, temperature=temperature, draws=draws
        ):
            line, end, _ = tokenizer.decode(row, skip_special_tokens=True).partition("\n")
            text = line.strip().strip("\"'")
            if end and text:  # a text that did not end is cut in the middle of a sentence
                yield text


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
        tokens = list[Any]()
        ended = [False] * _BATCH
        while len(tokens) < LONGEST and not all(ended):
            if tokens:
                scores = [model(tokens[-1], past_key_values=cache).logits[:, -1] for cache in caches]
            logs = [score.log_softmax(-1) for score in scores]
            mixed = logs[0] if len(logs) == 1 else torch.lerp(logs[1], logs[0], guidance)
            shares, places = (mixed / temperature).softmax(-1).sort(descending=True)
            shares[shares.cumsum(-1) - shares >= TOP_P] = 0.0
            tokens.append(places.gather(-1, shares.multinomial(1, generator=draws)))
            last = tokens[-1][:, 0].tolist()
            stops = [token == tokenizer.eos_token_id or "\n" in tokenizer.decode([token]) for token in last]
            ended = [before or stop for before, stop in zip(ended, stops, strict=True)]
    return torch.cat(tokens, 1).tolist()


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
