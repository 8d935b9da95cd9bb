"""Write the card of a small masked language model: data, license, settings, figures, and the range of its scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dptext_etl.artifacts import sha256_file
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.clipping import CLIP_FILE, write_clip
from dptext_etl_models.training.calibration import estimate
from dptext_etl_models.training.masked.figures import Score, figures
from dptext_etl_models.training.masked.masked_lm import FACTS, Held

CARD = "README.md"
WEIGHTS = "model.safetensors"
LICENCE = "The license of the weights follows from that of the corpora."
_CALIBRATED = 500  # held-out texts
_DEVIATIONS = 7.0
"""Upper end of the range, in standard deviations above the mean. Scores of these models have a long upper tail, because
they start as logarithms of frequencies: with the 4 deviations of the papers, the right word of a pair scored like six
other words. 7 deviations were best on held-out texts."""


def finish(out: Path, held: Held, *, licence: str | None = None, pieces: int = 300) -> dict[str, Any]:
    """Evaluate a trained model, estimate the range of its scores on held-out texts, and write its card."""
    facts = json.loads((out / FACTS).read_text(encoding="utf-8"))
    (out / CLIP_FILE).unlink(missing_ok=True)
    files = language_model.model_files(str(out))
    kept = sorted(text for texts in held.examined.values() for text in texts)
    found = estimate(files, kept[:: max(1, len(kept) // _CALIBRATED)], deviations=_DEVIATIONS)
    about = found.facts(held.hashes) | {"provenance": "public texts that the training kept back"}
    write_clip(out / CLIP_FILE, *found.clip, files, about)
    scores = figures(out, held.examined, facts["unigrams"], pieces)
    size = sum(path.stat().st_size for path in out.iterdir() if path.is_file() and path.name != CARD)
    low, high = found.clip
    more = {
        "name": out.name,
        "weights": (out / WEIGHTS).stat().st_size,
        "sha256": sha256_file(out / WEIGHTS),
        "size": size,
        "method": about["method"],
        "low": low,
        "high": high,
        "licence": licence or LICENCE,
    }
    (out / CARD).write_text(_card(facts, scores, more), encoding="utf-8")
    shares = {name: score.shares() for name, score in scores["all"].items()}
    return {
        "out": str(out),
        "steps": facts["steps"],
        "bytes": size,
        "held_out": shares,
        "clip": [low, high],
    }


_TEXT = """# {name}

A small masked language model whose vocabulary is whole words, so that DP-MLM runs without a hub. It was trained on
public text alone: nothing of it depends on any text that is privatised. It knows little of the world; take a larger one
for real work.

- RoBERTa, {layers} layers of width {hidden}, {vocabulary:,} entries, {long} places
- half precision: {weights:,} bytes of weights, {size:,} bytes in all
- SHA-256 of the weights `{sha256}`
- {steps:,} steps of about {tokens:,} tokens; {pairs:.0%} of the examples are pairs, as DP-MLM shows them
- range of its scores ({method}; whole words behind masks of texts kept back): ({low:.4f}, {high:.4f})

## Data and licence

| corpus | SHA-256 |
| --- | --- |
{corpora}

Two in a hundred texts of each were kept back, by their own hash; files that were only examined on are in the table.

{licence}

## Figures

Words found on texts kept back, in percent: at once (top 1) and among ten (top 10), beside always saying the most
frequent word, or the ten most frequent ones. Every masked word counts, those outside the vocabulary as missed.

| corpus | setting | masked words | top 1 | most frequent | top 10 | ten most frequent |
| --- | --- | --- | --- | --- | --- | --- |
{figures}

A pair shows the plain text first, so that finding its words is mostly copying; what the model knows of language shows
where a text stands alone.

## Settings

```json
{settings}
```
"""


def _card(facts: dict[str, Any], scores: dict[str, dict[str, Score]], more: dict[str, Any]) -> str:
    settings = facts["settings"]
    return _TEXT.format(
        **{name: settings[name] for name in ("layers", "hidden", "vocabulary", "tokens")},
        **{name: settings["recipe"][name] for name in ("long", "pairs")},
        **more,
        steps=facts["steps"],
        corpora="\n".join(f"| {name} | `{value}` |" for name, value in facts["corpora"].items()),
        figures="\n".join(_row(corpus, name, score) for corpus, row in scores.items() for name, score in row.items()),
        settings=json.dumps(settings, indent=1, sort_keys=True),
    )


def _row(corpus: str, setting: str, score: Score) -> str:
    share = {name: f"{100 * value:.1f}" for name, value in score.shares().items()}
    cells = (corpus, setting, f"{score.words:,}", share["first"], share["guess"], share["ten"], share["guess_ten"])
    return f"| {' | '.join(cells)} |"
