"""Set the figures of paper 003 (DP-BART, Igamberdiev and Habernal 2023) next to our figures."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dptext_etl import load
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.latent_model import decoding, encoding
from frontier import setups
from frontier.data import ROOT
from frontier.plan import SHIPPED

BUDGETS = (math.inf, 2500, 1000, 750, 500, 250, 100, 50, 10)
FIGURES: dict[str, dict[str, tuple[tuple[float | None, ...], tuple[float | None, ...]]]] = {
    "snips": {
        "PR+": (
            (None, 0.85, 0.8, 0.73, 0.65, 0.6, 0.05, 0.05, 0.05),
            (None, 0.31, 0.3, 0.23, 0.22, 0.07, 0.0, 0.0, 0.0),
        ),
        "PR": (
            (0.98, 0.88, 0.5, 0.44, 0.39, 0.08, 0.08, 0.08, 0.08),
            (54.39, 2.19, 0.07, 0.02, 0.01, 0.0, 0.0, 0.0, 0.0),
        ),
        "CLV": (
            (0.98, 0.22, 0.12, 0.11, 0.11, 0.11, 0.08, 0.13, 0.1),
            (98.41, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        ),
        "ADePT": (
            (0.92, 0.24, 0.13, 0.16, 0.14, 0.1, 0.08, 0.09, 0.05),
            (6.34, 0.16, 0.03, 0.02, 0.01, 0.01, 0.01, 0.01, 0.01),
        ),
    },
    "atis": {
        "PR+": (
            (None, 0.13, 0.13, 0.11, 0.08, 0.08, 0.06, 0.06, 0.07),
            (None, 0.24, 0.25, 0.24, 0.11, 0.08, 0.0, 0.0, 0.0),
        ),
        "PR": (
            (0.85, 0.14, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08),
            (69.26, 2.13, 0.06, 0.03, 0.01, 0.01, 0.0, 0.0, 0.0),
        ),
        "CLV": (
            (0.8, 0.09, 0.09, 0.08, 0.08, 0.09, 0.08, 0.08, 0.08),
            (97.45, 0.02, 0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        ),
        "ADePT": (
            (0.32, 0.09, 0.09, 0.08, 0.09, 0.08, 0.08, 0.08, 0.09),
            (16.04, 0.45, 0.06, 0.05, 0.03, 0.01, 0.01, 0.01, 0.01),
        ),
    },
    "imdb": {
        "PR+": (
            (None, 0.63, 0.6, 0.58, 0.53, 0.55, 0.38, 0.4, 0.41),
            (None, 1.69, 1.04, 0.76, 0.52, 0.32, 0.0, 0.0, 0.0),
        ),
        "PR": (
            (0.72, 0.64, 0.47, 0.47, 0.45, 0.46, 0.43, 0.45, 0.45),
            (89.05, 7.08, 0.25, 0.15, 0.05, 0.09, 0.06, 0.04, 0.03),
        ),
        "CLV": (
            (0.72, 0.42, 0.4, 0.47, 0.43, 0.43, 0.45, 0.46, 0.46),
            (93.49, 0.22, 0.16, 0.15, 0.12, 0.11, 0.08, 0.08, 0.05),
        ),
        "ADePT": (
            (0.72, 0.49, 0.49, 0.43, 0.44, 0.46, 0.46, 0.43, 0.44),
            (95.0, 1.74, 0.18, 0.07, 0.04, 0.03, 0.02, 0.01, 0.01),
        ),
    },
    "drugs": {
        "PR+": (
            (None, 0.38, 0.39, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37),
            (None, 0.99, 0.46, 0.38, 0.28, 0.2, 0.0, 0.0, 0.0),
        ),
        "PR": (
            (0.76, 0.62, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37),
            (88.47, 5.59, 0.15, 0.08, 0.05, 0.05, 0.04, 0.03, 0.03),
        ),
        "CLV": (
            (0.77, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37),
            (93.46, 0.15, 0.08, 0.07, 0.06, 0.06, 0.05, 0.04, 0.04),
        ),
        "ADePT": (
            (0.74, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37),
            (92.41, 1.62, 0.12, 0.05, 0.03, 0.02, 0.01, 0.01, 0.01),
        ),
    },
    "amazon": {
        "PR+": (
            (None, 0.87, 0.85, 0.84, 0.83, 0.82, 0.33, 0.33, 0.33),
            (None, 0.87, 0.66, 0.46, 0.33, 0.15, 0.0, 0.0, 0.0),
        ),
        "PR": (
            (0.91, 0.87, 0.82, 0.83, 0.79, 0.33, 0.33, 0.33, 0.33),
            (57.16, 3.44, 0.17, 0.13, 0.12, 0.14, 0.12, 0.1, 0.09),
        ),
        "CLV": (
            (0.9, 0.81, 0.4, 0.38, 0.33, 0.33, 0.33, 0.33, 0.38),
            (96.52, 0.24, 0.22, 0.2, 0.17, 0.13, 0.11, 0.1, 0.09),
        ),
        "ADePT": (
            (0.9, 0.7, 0.51, 0.46, 0.27, 0.32, 0.37, 0.32, 0.43),
            (26.96, 0.57, 0.09, 0.06, 0.05, 0.04, 0.04, 0.04, 0.04),
        ),
    },
}
"""Table 5, by data set and mechanism: macro-F1 on raw test texts, and BLEU of training texts, at `BUDGETS`."""
RAW = {"snips": 0.98, "atis": 0.89, "imdb": 0.86, "drugs": 0.78, "amazon": 0.91}
GIVEN = {"CLV": "bart-base", "PR": "bart-base-pr", "PR+": "bart-base-pr-plus", "ADePT": "adept"}
"""Folders of given weights."""
OURS = {"CLV": "english-autoencoder", "ADePT": "english-lstm"}


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    return {f"5-{name}": partial(_table_5, setup, name) for name in FIGURES}


def _latent(setup: setups.Setup, line: str, epsilon: float, name: str) -> Any:
    """Return a mechanism of the paper, with its delta for a data set."""
    folder = setup.weights(GIVEN[line], OURS.get(line, "")) or _pruned(setup, line, epsilon)
    delta = setup.settings["delta"][name]
    common: dict[str, Any] = {"epsilon": epsilon, "model": folder, "mode": "faithful", "delta": delta}
    if line == "ADePT":
        kind: Any = load("adept")
        return kind(**common | {"model": folder if setup.has("adept") else str(SHIPPED / folder)})
    kind = load("dpbart")
    variant = {"CLV": "clv", "PR": "pr", "PR+": "pr_plus"}[line]
    return kind(variant=variant, num_beams=setup.settings["beams"], length=setup.length(), **common)


def _pruned(setup: setups.Setup, line: str, epsilon: float) -> str:
    """Prune a BART model on public texts, for PR+ also under the noise of an epsilon; it is kept in target/."""
    base, sizes, paper = setup.weights("bart-base", OURS["CLV"]), setup.sizes, setup.settings["pruning"]
    stages, steps, texts = (
        str(sizes[ours] or paper[name])
        for ours, name in (("stages", "stages"), ("steps", "steps"), ("public", "texts"))
    )
    corpus = "openwebtext" if setup.given("openwebtext") else "imdb_unsup"
    content = [base, stages, steps, texts, corpus, sizes["words"], str(setup.tables), str(setup.data)]
    work = ROOT / "target" / "paper-003" / hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    work.mkdir(parents=True, exist_ok=True)
    public = work / "public.parquet"
    if not public.is_file():
        pl.DataFrame({"text": setup.public(corpus, int(texts))}).write_parquet(public)
    scale = "paper" if setup.has("bart-base") else "small"
    more = ["--corpus", str(public), "--scale", scale, "--texts", texts]
    pruned = work / GIVEN["PR"]
    _train(pruned, ["dpbart-prune", "--model", base, *more, "--stages", stages, "--steps", steps])
    if line == "PR":
        return str(pruned)
    epochs, minutes = sizes["noise_epochs"] or setup.settings["noise"]["epochs"][f"{epsilon:g}"], sizes["minutes"]
    noisy = work / f"{GIVEN['PR+']}-{epsilon:g}-{epochs}-{minutes:g}"
    words = ["dpbart-noise", "--model", str(pruned), *more, "--epsilon", f"{epsilon:g}", "--epochs", str(epochs)]
    _train(noisy, [*words, "--minutes", str(minutes)] if minutes else words)
    return str(noisy)


def _train(folder: Path, words: list[str]) -> None:
    """Run `dptext train`, unless its folder is complete."""
    if not (folder / "training.json").is_file():
        setups.train([*words, "--out", str(folder)])


def without_noise(mechanism: Any, rows: setups.Rows) -> setups.Rows:
    """Encode, clip, and decode public texts: the paper's rows of an infinite epsilon, which no policy can state."""
    model, texts = mechanism.latent_model, [text for row in rows for text in row]
    latents, clip = np.stack(encoding(model)(texts)), mechanism.clip
    if mechanism.norm == "value":
        latents = np.clip(latents, -clip, clip)
    else:
        lengths = np.linalg.norm(latents, ord=1 if mechanism.norm == "l1" else 2, axis=1, keepdims=True)
        latents = latents * np.minimum(1, clip / np.maximum(lengths, 1e-12))
    return [(text or "",) for text in decoding(model)(list(latents.astype(np.float32)))]


def first_tokens(setup: setups.Setup, rows: setups.Rows) -> setups.Rows:
    """Return the tokens of each text that the paper's models read: its BLEU compares with them (appendix I)."""
    tokens = language_model.tokenizer(language_model.model_files(setup.weights("bart-base", OURS["CLV"])))
    longest = setup.settings["dpbart"]
    return [
        tuple(tokens.decode(tokens(text)["input_ids"][:longest], skip_special_tokens=True) for text in row)
        for row in rows
    ]


def _table_5(setup: setups.Setup, name: str) -> setups.Shown:
    budgets = (math.inf, *setup.budgets("5"))
    here: dict[tuple[str, float], tuple[float, float]] = {}
    raw = None
    if setup.is_here(name):
        task = setup.task(name, slow=True)
        raw = setups.figure(setup, task, *task.texts, macro=True) / 100
        read = first_tokens(setup, task.texts[0])
        for line, epsilon in itertools.product(FIGURES[name], budgets):
            if (line, epsilon) == ("PR+", math.inf):
                continue
            mechanism = _latent(setup, line, LARGEST if epsilon == math.inf else float(epsilon), name)
            released = without_noise if epsilon == math.inf else setups.rewrite
            train = released(mechanism, task.texts[0])
            score = setups.figure(setup, task, train, task.texts[1], macro=True) / 100
            here[line, epsilon] = score, 100 * setups.bleu(read, train)
    rows = []
    for line, printed in FIGURES[name].items():
        for at, (measure, values) in enumerate(zip(("macro-F1", "BLEU"), printed, strict=True)):
            cells = [
                setups.cell(
                    values[BUDGETS.index(epsilon)], here[line, epsilon][at] if (line, epsilon) in here else None
                )
                for epsilon in budgets
            ]
            rows.append([line, measure, *cells])
    head = ["mechanism", "figure", "no noise", *(f"ε = {epsilon:,}" for epsilon in budgets[1:])]
    title = f"Table 5: {setup.title(name)}, macro-F1 and BLEU; raw texts {setups.cell(RAW[name], raw)}"
    return setups.Shown(title, head, rows, "5")


LARGEST = 2500.0
"""Epsilon of a mechanism whose noise is skipped."""
