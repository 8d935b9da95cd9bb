"""Find the public range that a model's scores are clipped to: from a paper, or from a file of `dptext calibrate`.

The guarantee holds for any range that is fixed before the data is seen (docs/spec/privacy.md#arbitrary-scores); a good
range wastes less of epsilon. A range from the texts that are privatized would be its own release
(docs/spec/privacy.md#public-parameters; Meisenbacher et al. 2024 do this with SST-2). So every range here is a public
input, which comes from a paper or from a file that names its public corpus.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dptext_etl.artifacts import Artifact, canon
from dptext_etl.errors import ArtifactError
from dptext_etl_models.inference.language_model import ROLE, WEIGHTS

CLIP_FILE = "dptext_clip.json"
"""Name of the file in a model's folder that holds its range."""
FORMAT = "dptext-clip/1"

Clip = tuple[float, float]

PAPERS: Mapping[str, Clip] = {
    "roberta-base": (-3.2093127, 16.304797887802124),
    "modernbert-base": (-1.207156, 14.831477403640747),
    "flan-t5-base": (-19.22705113016047, 7.48324937989716),
    "flan-t5-large": (-95.0, 8.0),
    "gpt2-paraphraser": (-96.85249956065758, -8.747697966442914),
}
"""Ranges by the last part of a model's name, in lower case.

Meisenbacher et al. 2024 and its code: roberta-base (mean, mean + 4 standard deviations of the logits of 1,000 texts of
SST-2), ModernBERT-base (its repository), flan-t5-base and GPT-2 fine-tuned on paraphrases (its appendix B);
Meisenbacher and Matthes 2024: flan-t5-large. To privatize SST-2, calibrate on other text.
"""


def default_clip(name: str, files: Mapping[str, Artifact]) -> Clip | None:
    """Return the known range of a model, from its folder's `dptext_clip.json` or otherwise from a paper."""
    clip_file = files.get(ROLE + CLIP_FILE)
    if clip_file is None:
        return PAPERS.get(Path(name).name.lower())
    clip = _read(clip_file.path)
    if clip.get("model") != weights(files):
        raise ArtifactError(
            f"{CLIP_FILE} in the model's folder was estimated for other weights", "run `dptext calibrate` again"
        )
    return _range(clip, clip_file.path)


def read_clip(path: str | Path) -> Clip:
    """Read the range of a file that `dptext calibrate` wrote."""
    return _range(_read(Path(path)), Path(path))


def write_clip(path: Path, low: float, high: float, files: Mapping[str, Artifact], facts: Mapping[str, Any]) -> None:
    """Write a range and its origin; equal contents give equal bytes."""
    content = {**facts, "format": FORMAT, "low": low, "high": high, "model": weights(files)}
    path.write_text(json.dumps(json.loads(canon(content)), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def weights(files: Mapping[str, Artifact]) -> dict[str, str]:
    """Return the hash of every file of weights by name; the scores depend on them."""
    return {role.removeprefix(ROLE): item.sha256 for role, item in sorted(files.items()) if role.endswith(WEIGHTS)}


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ArtifactError(f"{path} holds no range of scores", "name a file that `dptext calibrate` wrote")
    return content


def _range(content: Mapping[str, Any], path: Path) -> Clip:
    low, high = content.get("low"), content.get("high")
    if not (isinstance(low, float) and isinstance(high, float) and -math.inf < low < high < math.inf):
        raise ArtifactError(f"{path} holds no finite range: low < high", "run `dptext calibrate` again")
    return low, high
