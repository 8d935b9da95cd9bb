"""Run the table of paper 002 (Meisenbacher and Matthes 2024): rewriting what DP-BART and DP-Prompt released."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rewriting_again import MODEL, TEMPLATE, rewritten

from dptext_etl import load
from dptext_etl.mechanism import Mechanism
from frontier import setups
from frontier.data import DATA
from frontier.plan import SHIPPED

AS_RELEASED, BASIC, ADVANCED = "rewritten", "T", "T++"
PRINTED = {
    "yelp": {
        ("DP-BART", 625): ((25.72, 50.12, 0.31), (18.96, 26.28, 0.31), (25.20, 33.62, 0.42)),
        ("DP-BART", 1875): ((22.02, 70.91, 0.57), (27.11, 39.34, 0.50), (40.29, 48.11, 0.53)),
        ("DP-Prompt", 137): ((17.92, 18.84, 0.23), (10.86, 17.57, 0.19), (9.42, 17.57, 0.38)),
        ("DP-Prompt", 206): ((19.71, 19.23, 0.44), (13.47, 17.59, 0.41), (12.95, 17.57, 0.48)),
    },
    "trustpilot": {
        ("DP-BART", 625): ((60.39, 60.03, 0.36), (55.99, 58.51, 0.28), (55.17, 59.38, 0.42)),
        ("DP-BART", 1875): ((59.38, 65.04, 0.62), (59.48, 61.47, 0.51), (60.90, 60.88, 0.58)),
        ("DP-Prompt", 137): ((58.53, 58.08, 0.22), (54.49, 58.10, 0.16), (49.61, 58.09, 0.36)),
        ("DP-Prompt", 206): ((61.99, 60.37, 0.43), (56.63, 59.91, 0.33), (54.73, 60.30, 0.45)),
    },
}
"""Table 1: static attacker, adaptive attacker, and cosine, as released, written anew by T, and by T++."""
RAW = {"yelp": 95.32, "trustpilot": 73.23}
ALIGNED = {"yelp": "imdb_unsup", "trustpilot": "wiki_en"}
"""Public texts of the domain, which an advanced user has privatized to tune T++."""
RATE, BATCH = 1e-4, 8


def reproduced(setup: setups.Setup) -> list[setups.Shown]:
    """Run Table 1, and return it with the paper's figures."""
    return [_table_1(setup, name) for name in PRINTED]


def _mechanism(setup: setups.Setup, name: str, epsilon: float) -> Any:
    if name == "DP-BART":
        kind: Any = load("dpbart")
        return kind(epsilon=epsilon, model=setup.weights("bart-base", "english-autoencoder"), mode="faithful")
    kind = load("dp_prompt")
    given = setup.weights("flan-t5-base", str(SHIPPED / "english-denoiser"))
    return kind(epsilon=epsilon, model=given, l_max=28)


def _table_1(setup: setups.Setup, name: str) -> setups.Shown:
    task, rows = setup.task(name, slow=True), []
    raw = setups.figure(setup, task, *task.texts, secret=True)
    for (mechanism, epsilon), printed in PRINTED[name].items():
        if epsilon not in setup.some((625, 1875, 137, 206), (1875, 206)):
            continue
        made = _mechanism(setup, mechanism, float(epsilon))
        first = tuple(setups.rewrite(made, part) for part in task.texts)
        base = setup.weights("flan-t5-base", MODEL)
        with tempfile.TemporaryDirectory(prefix="dptext-rewriter-") as room:
            folder = advanced(setup, made, base, ALIGNED[name], Path(room))
            for values, way, model in zip(printed, (AS_RELEASED, BASIC, ADVANCED), (None, base, folder), strict=True):
                train, test = first if model is None else (anew(model, part) for part in first)
                attacks = [
                    setups.figure(setup, task, learned_from, test, secret=True)
                    for learned_from in (task.texts[0], train)
                ]
                here = (*attacks, setups.cosine(setup, task.texts[1], test))
                rows.append([mechanism, f"{epsilon:,}", way, *map(setups.cell, values, here, (1, 1, 2))])
    title = f"Table 1: {setups.title(name, setup.tables)}; attacker on raw texts {setups.cell(RAW[name], raw, 1)}"
    return setups.Shown(title, ["mechanism", "ε", "text", "attacker, static", "attacker, adaptive", "cosine"], rows)


def anew(model: str, rows: setups.Rows) -> setups.Rows:
    """Write released texts anew."""
    return [(text,) for text in rewritten(model, [row[0] for row in rows])]


def advanced(setup: setups.Setup, mechanism: Mechanism, base: str, source: str, room: Path) -> str:
    """Tune T on public texts that the same mechanism privatized, and return the folder of T++."""
    frame = pl.read_parquet(DATA / "public_corpus" / f"{source}.parquet")
    count = max(16, int(setup.rows * setup.slow))
    texts = [setups.cut(text) for text in frame["text"].sample(count, seed=5)]
    released = [row[0] for row in setups.rewrite(mechanism, [(text,) for text in texts])]
    return _tuned(base, released, texts, room)


def _tuned(base: str, read: Sequence[str], written: Sequence[str], room: Path) -> str:
    import torch

    from dptext_etl_models.inference import language_model

    files = language_model.model_files(base)
    tokenizer = language_model.tokenizer(files)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = copy.deepcopy(language_model.sequence_model(files)).requires_grad_(True).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        order = np.random.default_rng(0).permutation(len(read)).tolist()
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            prompts = [TEMPLATE.format(text=read[at]) for at in some]
            given = tokenizer(prompts, padding=True, truncation=True, max_length=120, return_tensors="pt")
            wanted = tokenizer([written[at] for at in some], padding=True, truncation=True, max_length=60)
            labels = torch.tensor(wanted["input_ids"]).masked_fill(torch.tensor(wanted["attention_mask"]) == 0, -100)
            loss = model(input_ids=given["input_ids"], attention_mask=given["attention_mask"], labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval().save_pretrained(room)
    for role, item in files.items():
        name = role.removeprefix(language_model.ROLE)
        if not (room / name).exists() and not name.endswith(language_model.WEIGHTS):
            shutil.copy(item.path, room / name)
    return str(room)
