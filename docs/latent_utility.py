"""`make latent-utility`: what ADePT and DP-BART leave of two public data sets, as a page (`docs/latent-utility.md`).

The small BART of `models/` is pruned (PR) and trained under noise (PR+) on public text, ADePT's autoencoder is trained
on the same text; what was trained before is taken as it is. Releases are made by the library's own column path under
one throw-away key each, as paper 003 does: training texts are released, a classifier learns from them, and is tested on
original texts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.column import draw
from dptext_etl.families.latent import LatentMechanism
from dptext_etl.gaussian import largest_mu
from dptext_etl.keys import throwaway
from dptext_etl.mechanisms.adept import Adept
from dptext_etl.mechanisms.dpbart import DPBart

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "latent-utility.md"
MODEL = "english-autoencoder"
SHIPPED = ROOT / "models" / "dptext_etl_models" / MODEL
EPSILONS = (math.inf, 2500.0, 1000.0, 750.0, 500.0, 250.0, 100.0, 50.0, 10.0)
PLUS = (2500.0, 1000.0, 500.0, 250.0)
"""Budgets at which a PR+ model is trained; a release takes the model whose budget is the nearest by ratio."""
N_REC = 10_000
ORDER = ("DP-BART-PR+", "DP-BART-PR", "DP-BART-CLV", "ADePT")
LEVEL = {"f1": 0.04, "bleu": 0.5}
"""Smaller differences count as none: two standard errors of a share of 700 texts; half a point of BLEU."""


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
    """Folders of what is compared."""

    bart: str
    pruned: Path
    plus: dict[float, Path]
    adept: Path


def corpora(data: Path, rows: int) -> list[Corpus]:
    """Read Snips and ATIS: some of the training texts, drawn at random, and all test texts."""
    found = []
    for name, title in (("snips", "Snips"), ("atis", "ATIS")):
        frame = pl.read_parquet(data / name / f"{name}.parquet").select("split", "text", "label")
        train = frame.filter(pl.col("split") == "train")
        train = train.sample(min(rows, len(train)), seed=0, shuffle=True)
        test = frame.filter(pl.col("split") == "test")
        found.append(Corpus(title, *(part[name].to_list() for part in (train, test) for name in ("text", "label"))))
    return found


def mechanisms(models: Models, epsilon: float, beams: int) -> dict[str, LatentMechanism]:
    """What is compared at a budget, in the paper's expected order."""
    common: dict[str, Any] = {"epsilon": epsilon, "n_rec": N_REC, "num_beams": beams}
    found: dict[str, LatentMechanism] = {}
    if models.plus:
        nearest = min(models.plus, key=lambda trained: abs(math.log(trained / epsilon)))
        found["DP-BART-PR+"] = DPBart(variant="pr_plus", model=str(models.plus[nearest]), **common)
    found["DP-BART-PR"] = DPBart(variant="pr", model=str(models.pruned), **common)
    found["DP-BART-CLV"] = DPBart(variant="clv", model=models.bart, **common)
    found["ADePT"] = Adept(model=str(models.adept), **common)
    return found


def released(mechanism: LatentMechanism, texts: Sequence[str]) -> list[str]:
    """Release a column under a new key."""
    ids = pa.array([str(row) for row in range(len(texts))])
    drawn = draw(mechanism, pa.array(texts, pa.large_string()), ids, throwaway(mechanism.cfg()))
    out: list[str | None] = drawn.text.to_pylist()
    return [text or "" for text in out]


def without_noise(mechanism: LatentMechanism, texts: Sequence[str]) -> list[str]:
    """Encode, clip and decode: what is left at an infinite budget; public texts alone."""
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
    """Corpus BLEU of texts against what they were, 0 to 100, in lower case."""
    from sacrebleu.metrics import BLEU

    return float(BLEU(lowercase=True, force=True).corpus_score(list(after), [list(before)]).score)


def f1(texts: Sequence[str], corpus: Corpus) -> float:
    """Macro F1 on original test texts of a logistic regression that learnt from `texts`."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    try:
        learnt = features.fit_transform(texts)
    except ValueError:  # no word at all was released
        return 0.0
    model = LogisticRegression(C=4.0, max_iter=1_000).fit(learnt, list(corpus.labels))
    said = model.predict(features.transform(corpus.tested))
    return float(f1_score(list(corpus.tested_labels), said, average="macro", zero_division=0))


def measured(corpus: Corpus, models: Models, beams: int) -> list[dict[str, Any]]:
    """All figures of one data set, budget after budget; the first row is that of the original texts."""
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


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say, figure by figure, where the paper's order holds under noise and where it does not."""
    said = []
    for figure, title in (("f1", "F1"), ("bleu", "BLEU")):
        holds, level, fails = [], [], []
        for epsilon in filter(math.isfinite, EPSILONS):
            at = {row["name"]: row[figure] for row in rows if row["epsilon"] == epsilon}
            for better, worse in itertools.pairwise(name for name in ORDER if name in at):
                gap = at[better] - at[worse]
                (holds if gap > LEVEL[figure] else level if gap >= -LEVEL[figure] else fails).append(
                    f"{better} over {worse} at ε = {_amount(epsilon)}"
                )
        line = f"*{title}*: holds in {len(holds)} of {len(holds) + len(level) + len(fails)} comparisons"
        line += f", level in {len(level)}" if level else ""
        line += f"; **does not hold**: {'; '.join(fails)}" if fails else ""
        said.append(line + ".")
    return said


def trained(folder: Path, bart: str, minutes: float, plus: Iterable[float]) -> Models:
    """Return the models, training on public text what is not there yet; a training that was stopped goes on."""
    from dptext_etl.training.base_model import Base
    from dptext_etl.training.corpus import Corpus as Public
    from dptext_etl.training.latent import adept, dpbart_noise, dpbart_prune
    from dptext_etl.training.token_rows import public_texts

    public = DATA / "public_corpus"
    shares = {"sgd_utterances": 3.0, "wiki_en": 2.0, "imdb_unsup": 1.0}
    corpora = [Public(public / f"{name}.parquet", share) for name, share in shares.items()]
    facts = {"corpora": [{"name": one.name, "sha256": one.sha256, "share": repr(one.share)} for one in corpora]}
    models = Models(
        bart, folder / "pr", {epsilon: folder / f"pr-plus-{epsilon:g}" for epsilon in plus}, folder / "adept"
    )
    missing = [path for path in (models.pruned, *models.plus.values(), models.adept) if not _whole(path)]
    texts = public_texts(corpora, 18, 40_000, seed=3) if missing else []

    def tell(progress: Any) -> None:
        print(progress, flush=True)

    if models.pruned in missing:
        dpbart_prune.train(Base.load(bart), texts, dpbart_prune.SMALL, models.pruned, facts=facts, listener=tell)
    for epsilon, path in models.plus.items():
        if path in missing:
            settings = replace(dpbart_noise.SMALL, epsilon=epsilon, minutes=minutes)
            dpbart_noise.train(Base.load(str(models.pruned)), texts, settings, path, facts=facts, listener=tell)
    if models.adept in missing:
        adept.train(texts, replace(adept.SMALL, minutes=3 * minutes), models.adept, facts=facts, listener=tell)
    return models


def _whole(path: Path) -> bool:
    """Say whether a training was finished: its model is there, and no checkpoint is newer."""
    model, notes = path / "model.safetensors", path / "checkpoint"
    if not model.exists():
        return False
    return all(note.stat().st_mtime <= model.stat().st_mtime for note in notes.glob("*.safetensors"))


def steps(models: Models) -> str:
    """Say how long the models were trained, as their folders do."""
    folders = {"PR": models.pruned, **{f"PR+ at {epsilon:g}": path for epsilon, path in models.plus.items()}}
    written = {name: json.loads((path / "training.json").read_bytes()) for name, path in folders.items()}
    written["ADePT"] = json.loads((models.adept / "config.json").read_bytes())
    return ", ".join(f"{name} {found['steps']:,}" for name, found in written.items())


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def shown(row: dict[str, Any]) -> list[str]:
    """One row of a table."""
    return [_amount(row["epsilon"]), row["name"], f"{row['bleu']:.2f}", f"{row['f1']:.3f}"]


def _amount(epsilon: float) -> str:
    return "" if math.isnan(epsilon) else "∞" if math.isinf(epsilon) else f"{epsilon:g}"


INTRODUCTION = """<!-- written by `make latent-utility` (docs/latent_utility.py): do not edit -->
# What latent mechanisms leave of a text

Two public data sets, released by ADePT and by DP-BART in three variants over paper 003's budgets, by
`make latent-utility`. Last run {day}, {minutes:.0f} CPU-minutes beside trainings that were there before.

* ε is **per text**, with δ = 1e-6 (a public bound of {n_rec:,} records), Gaussian noise by the analytic formula. At
  ε = ∞ latents are clipped and get no noise.
* {rows:,} training texts of each data set are released; a logistic regression over one- and two-word TF-IDF features
  learns from them and is tested on the original test texts: *F1* is the mean over classes. *BLEU* compares released
  with original texts. The paper uses all texts, BERT as classifier and beams of 10; here beams are {beams}.
* The model is `{model}` ({size:.1f} MB), not bart-base (558 MB); PR and PR+ come from it by `dptext train dpbart-prune`
  and `dpbart-noise` at small scale, PR+ at ε = {plus}: other budgets take the nearest. ADePT is an LSTM of
  {hidden} + {hidden} numbers. All were trained on the public corpora that their folders name, none on these texts.
* Steps of training: {steps}. The paper takes 3,000 for PR and 50,000 and more for each PR+.
"""


def page(results: dict[str, list[dict[str, Any]]], **facts: Any) -> str:
    """Write the page."""
    parts = [INTRODUCTION.format(day=datetime.now(UTC).date().isoformat(), n_rec=N_REC, **facts)]
    for name, rows in results.items():
        parts += [f"## {name}", table(["ε", "mechanism", "BLEU", "F1"], map(shown, rows))]
        parts += [f"Against the paper's order ({' above '.join(ORDER)}), neighbours compared at every finite ε:"]
        parts += ["\n".join(f"* {line}" for line in verdicts(rows))]
    parts += ["## Why", WHY.format(**facts)]
    return "\n\n".join(parts) + "\n"


WHY = """A latent at (ε, δ) tells any decoder at most μ²/8 nats, μ being the sensitivity in standard deviations of
the noise: n numbers in [-C, C] at noise 2C√n/μ, or a vector of norm C at noise 2C/μ, have a ratio of signal to noise of
μ²/4 at most in all, whatever n is. That is {nats}. A sentence of nine words takes 50 nats and more to spell.

* *Pruning* therefore gives no room by itself. It helps because the decoder of CLV and PR was trained with hardly any
  noise, and is less disturbed by few numbers with little noise than by many with much.
* *PR+* gets more out of the same latent: its decoder has learnt what the noise looks like. With a tenth of the paper's
  steps and less it finds whole phrases again at large budgets; at small ones it writes mostly frequent words, and among
  them some of the text's own: enough to tell a topic, which is why F1 is far above what BLEU suggests, as in the paper.
  It is what training helps most: with a few hundred steps its BLEU stayed below 3 at every budget.
* *ADePT* is stronger here than in the paper, and stands above CLV and PR, whose decoders have seen hardly any noise;
  PR+ is level with it or above it where the budget is large. Its decoder is a language model of whole words that was
  trained on dialogues much like Snips, so its wrong words still tell the topic; the paper's was trained on web pages.
  A clip by norm leaves every text the whole ratio μ²/4, a clip by value only the part that the numbers inside [-C, C]
  fill. It was trained for thousands of steps as PR+ was, a few per cent of what the paper's models have had.
* *ATIS* has one class that three of four texts belong to and 25 others: the mean over classes is low for everything,
  the original texts included, and differences are mostly those of one or two small classes.
* Below what the bound allows, differences of F1 are chance: a classifier that learns from noise says one or two
  classes, and which ones depends on the draw. The figures are of one release each."""


def nats(epsilon: float) -> float:
    """Return what a noisy latent tells at most."""
    return largest_mu(epsilon, 1e-6) ** 2 / 8


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing, measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=ROOT / "target" / "latent-utility", help="folder of models")
    parser.add_argument("--bart", default=str(SHIPPED), help="the model that is pruned")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each training at most; ADePT takes three times")
    parser.add_argument("--plus", type=float, nargs="*", default=PLUS, help="budgets of PR+ models")
    parser.add_argument("--rows", type=int, default=1000, help="texts of each data set that are released")
    parser.add_argument("--beams", type=int, default=3)
    given = parser.parse_args(arguments)
    if not DATA.exists():
        sys.exit("left out: shared/data does not lie beside this checkout")
    models = trained(given.models, given.bart, given.minutes, given.plus)
    began = time.process_time()
    results = {one.name: measured(one, models, given.beams) for one in corpora(DATA, given.rows)}
    lines = mechanisms(models, 500.0, given.beams)
    weights = lines["DP-BART-CLV"].artifacts()["model/model.safetensors"].path
    facts = {
        "minutes": (time.process_time() - began) / 60,
        "rows": given.rows,
        "beams": given.beams,
        "model": MODEL,
        "size": weights.stat().st_size / 1e6,
        "plus": ", ".join(f"{epsilon:g}" for epsilon in given.plus) or "none",
        "steps": steps(models),
        "nats": ", ".join(f"{nats(epsilon):.0f} at ε = {epsilon:g}" for epsilon in EPSILONS[1:]),
        "hidden": lines["ADePT"].latent_model.size // 2,
    }
    PAGE.write_text(page(results, **facts), encoding="utf-8")
    print(f"written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
