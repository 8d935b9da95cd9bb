"""`make -C studies latent-utility`: measure ADePT and DP-BART on two public data sets, as rows of the tidy file.

The small BART of `models/` is pruned (PR) and trained under noise (PR+) on public text, ADePT's autoencoder is trained
on the same text; models that were trained before are used unchanged. The library's column path makes releases under
one throw-away key each, as paper 003 does: training texts are released, a classifier learns from them, and is tested on
original texts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.column import draw
from dptext_etl.keys import throwaway
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.statistics import macro_f1
from dptext_etl_models.families.latent import LatentMechanism
from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.mechanisms.dpbart import DPBart

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
MODELS_SET = "models of paper 003"
MODEL = "english-autoencoder"
SHIPPED = ROOT / "models" / "dptext_etl_models" / MODEL
EPSILONS = (math.inf, 2500.0, 1000.0, 750.0, 500.0, 250.0, 100.0, 50.0, 10.0)
PLUS = (2500.0, 1000.0, 500.0, 250.0)
"""Budgets at which a PR+ model is trained; a release uses the model whose budget is the nearest by ratio."""
N_REC = 10_000


@dataclass(frozen=True)
class Corpus:
    """A public data set: texts to release and their labels, original texts to be tested on and theirs."""

    name: str
    texts: Sequence[str]
    labels: Sequence[str]
    tested: Sequence[str]
    tested_labels: Sequence[str]


@dataclass(frozen=True)
class Models:
    """Folders of the compared models."""

    bart: str
    pruned: Path
    plus: dict[float, Path]
    adept: Path


def corpora(data: Path, rows: int) -> list[Corpus]:
    """Read Snips and ATIS: some of the training texts, drawn at random, and all test texts."""
    names = []
    for name, title in (("snips", "Snips"), ("atis", "ATIS")):
        frame = pl.read_parquet(data / name / f"{name}.parquet").select("split", "text", "label")
        train = frame.filter(pl.col("split") == "train")
        train = train.sample(min(rows, len(train)), seed=0, shuffle=True)
        test = frame.filter(pl.col("split") == "test")
        names.append(Corpus(title, *(part[name].to_list() for part in (train, test) for name in ("text", "label"))))
    return names


def mechanisms(models: Models, epsilon: float, beams: int) -> dict[str, LatentMechanism]:
    """The compared mechanisms at a budget, in the paper's expected order."""
    common: dict[str, Any] = {"epsilon": epsilon, "n_rec": N_REC, "num_beams": beams}
    mechanisms_: dict[str, LatentMechanism] = {}
    if models.plus:
        nearest = min(models.plus, key=lambda trained: abs(math.log(trained / epsilon)))
        mechanisms_["DP-BART-PR+"] = DPBart(variant="pr_plus", model=str(models.plus[nearest]), **common)
    mechanisms_["DP-BART-PR"] = DPBart(variant="pr", model=str(models.pruned), **common)
    mechanisms_["DP-BART-CLV"] = DPBart(variant="clv", model=models.bart, **common)
    mechanisms_["ADePT"] = Adept(model=str(models.adept), **common)
    return mechanisms_


def released(mechanism: LatentMechanism, texts: Sequence[str]) -> list[str]:
    """Release a column under a new key."""
    ids = pa.array([str(row) for row in range(len(texts))])
    drawn = draw(mechanism, pa.array(texts, pa.large_string()), ids, throwaway(mechanism.cfg()))
    out: list[str | None] = drawn.text.to_pylist()
    return [text or "" for text in out]


def without_noise(mechanism: LatentMechanism, texts: Sequence[str]) -> list[str]:
    """Encode, clip and decode: the result at an infinite budget; public texts only."""
    model = mechanism.latent_model
    out: list[str] = []
    for start in range(0, len(texts), model.rows):
        some = list(texts[start : start + model.rows])
        padded = some + [""] * (model.rows - len(some))
        latents = np.asarray(model.encode(padded), dtype=np.float64)
        if mechanism.norm == "value":
            latents = latents.clip(-mechanism.clip, mechanism.clip)
        else:
            norms = np.linalg.norm(latents, axis=1, keepdims=True)
            latents *= np.minimum(1.0, mechanism.clip / np.maximum(norms, 1e-12))
        out += model.decode(latents.astype(np.float32))[: len(some)]
    return out


def bleu(before: Sequence[str], after: Sequence[str]) -> float:
    """Corpus BLEU of texts against the originals, 0 to 100, in lower case."""
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU(lowercase=True, force=True).corpus_score(list(after), [list(before)]).score)


def f1(texts: Sequence[str], corpus: Corpus) -> float:
    """Macro F1 on original test texts of the learner of `dptext evaluate`, which learned from `texts`."""
    guessed = fit(counted(texts), np.array(corpus.labels))(counted(corpus.tested))
    return macro_f1(np.array(corpus.tested_labels), guessed)


def measured(corpus: Corpus, models: Models, beams: int) -> list[dict[str, Any]]:
    """All figures of one data set, budget after budget; the first row is for the original texts."""
    rows = [{"name": "original texts", "epsilon": math.nan, "bleu": 100.0, "f1": f1(corpus.texts, corpus)}]
    for epsilon in EPSILONS:
        lines = mechanisms(models, 2500.0 if math.isinf(epsilon) else epsilon, beams)
        if math.isinf(epsilon):
            lines.pop("DP-BART-PR+", None)  # trained for noise, of which there is none
        for name, mechanism in lines.items():
            out = (without_noise if math.isinf(epsilon) else released)(mechanism, corpus.texts)
            row = {"name": name, "epsilon": epsilon, "bleu": bleu(corpus.texts, out), "f1": f1(out, corpus)}
            rows.append(row)
            print(corpus.name, *shown(row), sep=" | ", flush=True)
    return rows


def trained(folder: Path, bart: str, minutes: float, plus: Iterable[float]) -> Models:
    """Return the models, training on public text the missing ones; a stopped training continues."""
    from dptext_etl_models.training import adept, dpbart
    from dptext_etl_models.training.bart import Base
    from dptext_etl_models.training.corpus import Corpus as Public
    from dptext_etl_models.training.corpus import public_texts

    public = DATA / "public_corpus"
    shares = {"sgd_utterances": 3.0, "wiki_en": 2.0, "imdb_unsup": 1.0}
    corpora = [Public(public / f"{name}.parquet", share) for name, share in shares.items()]
    facts = {"corpora": [corpus.facts for corpus in corpora]}
    models = Models(
        bart, folder / "pr", {epsilon: folder / f"pr-plus-{epsilon:g}" for epsilon in plus}, folder / "adept"
    )
    missing = [path for path in (models.pruned, *models.plus.values(), models.adept) if not _whole(path)]
    texts = public_texts(corpora, 18, 40_000, seed=3) if missing else []

    def report(progress: Any) -> None:
        print(progress, flush=True)

    if models.pruned in missing:
        dpbart.train_pruned(Base.load(bart), texts, dpbart.SMALL_PRUNE, models.pruned, facts=facts, listener=report)
    for epsilon, path in models.plus.items():
        if path in missing:
            settings = replace(dpbart.SMALL_NOISE, epsilon=epsilon, minutes=minutes)
            dpbart.train_noisy(Base.load(str(models.pruned)), texts, settings, path, facts=facts, listener=report)
    if models.adept in missing:
        adept.train(texts, replace(adept.SMALL, minutes=3 * minutes), models.adept, facts=facts, listener=report)
    return models


def _whole(path: Path) -> bool:
    """Say whether a training was finished: its model is there, and no checkpoint is newer."""
    model, notes = path / "model.safetensors", path / "checkpoint"
    if not model.exists():
        return False
    return all(note.stat().st_mtime <= model.stat().st_mtime for note in notes.glob("*.safetensors"))


def steps(models: Models) -> dict[str, int]:
    """Return how many steps the models were trained, as their folders say."""
    folders = {"PR": models.pruned, **{f"PR+ at {epsilon:g}": path for epsilon, path in models.plus.items()}}
    written = {name: json.loads((path / "training.json").read_bytes()) for name, path in folders.items()}
    written["ADePT"] = json.loads((models.adept / "config.json").read_bytes())
    return {name: int(facts["steps"]) for name, facts in written.items()}


def shown(row: dict[str, Any]) -> list[str]:
    """Return the printed cells of a row."""
    return [f"{row['epsilon']:g}", row["name"], f"{row['bleu']:.2f}", f"{row['f1']:.3f}"]


LINES = {
    "DP-BART-PR+": ("dpbart", "PR+"),
    "DP-BART-PR": ("dpbart", "PR"),
    "DP-BART-CLV": ("dpbart", "CLV"),
    "ADePT": ("adept", ""),
}
"""Mechanism and variant of every line."""


def tidy_rows(results: dict[str, list[dict[str, Any]]], texts: int, facts: dict[str, float]) -> list[dict[str, Any]]:
    """Return the rows of the tidy file.

    Args:
        results: Figures of every data set, the original texts first.
        texts: How many texts of a data set were released.
        facts: Facts of the models for readers, by name.
    """
    fixed = {"reading": "per text, with δ", "delta": 1e-6, "guarantee": "APPROX_LDP", "discloses": "nullness"}
    row_facts = [
        {"dataset": MODELS_SET, "kind": "kept", "figure": name, "value": value} for name, value in facts.items()
    ]
    for name, (original, *rows) in results.items():
        for row in rows:
            mechanism, variant = LINES[row["name"]]
            budget = {"epsilon": row["epsilon"], "epsilon_per_text": row["epsilon"], "n": texts, "key": 0}
            common = {"dataset": f"{name}, as paper 003", "mechanism": mechanism, "variant": variant, **budget, **fixed}
            common["kind"] = "kept"
            row_facts.append({**common, "figure": "BLEU, 0 to 100", "value": round(row["bleu"], 2)})
            learnt = {"value": round(row["f1"], 5), "raw": round(original["f1"], 5)}
            row_facts.append({**common, "figure": "macro-F1 on raw test texts", **learnt})
    return row_facts


def main(arguments: Sequence[str] | None = None) -> None:
    """Train missing models, measure, and write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=ROOT / "target" / "latent-utility", help="folder of models")
    parser.add_argument("--bart", default=str(SHIPPED), help="the model that is pruned")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each training at most; ADePT uses three times")
    parser.add_argument("--plus", type=float, nargs="*", default=PLUS, help="budgets of PR+ models")
    parser.add_argument("--rows", type=int, default=1000, help="texts of each data set that are released")
    parser.add_argument("--beams", type=int, default=3)
    given = parser.parse_args(arguments)
    if not DATA.exists():
        sys.exit("skipped: shared/data does not lie next to this checkout")
    models = trained(given.models, given.bart, given.minutes, given.plus)
    began = time.process_time()
    results = {one.name: measured(one, models, given.beams) for one in corpora(DATA, given.rows)}
    lines = mechanisms(models, 500.0, given.beams)
    weights = lines["DP-BART-CLV"].artifacts()["model/model.safetensors"].path
    facts = {"megabytes of the model": round(weights.stat().st_size / 1e6, 1), "beams": given.beams}
    facts |= {f"steps of {name}": count for name, count in steps(models).items()}
    from frontier import page, tidy

    tidy.put("latent_utility", tidy_rows(results, given.rows, facts))
    page.write()
    print(f"written to {tidy.FILE.relative_to(ROOT)}, {(time.process_time() - began) / 60:.0f} CPU-minutes")


if __name__ == "__main__":
    main()
