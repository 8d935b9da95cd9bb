"""Encode texts by a static sentence embedding: sums of token vectors, in integers, under the embedding's own tokens.

`dptext corpus vectors` writes a file of token vectors from an installed package; `dptext corpus build --vectors` puts
them, with the tokenizer, into a corpus. Tokens follow from one text, and sums of integers are exact, so every machine
with the same version of `tokenizers` has the same vectors (docs/spec/surrogate.md#static-encoder). The file:

* `vectors`: I16, shape (v, k); `tokenizer`: U8, a tokenizer of the library `tokenizers` as JSON;
* metadata: `format` and `description`, plain data as canonical JSON: name, license, provenance, hashes of both sources.
"""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from dptext_etl.artifacts import MADE_FROM, canon, made_from, save_tensors, sha256_file
from dptext_etl.corpora.corpus import TokenEncoder, to_integers, tokenizer_of
from dptext_etl.errors import ArtifactError, PolicyError, seam
from dptext_etl.extensions import pip_install

FORMAT = "dptext-token-vectors/1"
PACKAGE = "wordllama"
"""A package with a static sentence embedding that pages and commands recommend; its license is MIT."""
_HINT = "name an installed package, or a folder, with one .safetensors file of token vectors and one tokenizer as JSON"


def version() -> str:
    """Return the version of the library that cuts texts into tokens, which is part of a configuration."""
    try:
        return metadata.version("tokenizers")
    except metadata.PackageNotFoundError:
        raise PolicyError("token vectors need the library tokenizers", pip_install("static")) from None


def write(name: str, out: Path, terms: str = "") -> dict[str, Any]:
    """Write the token vectors of an installed package or a folder, and return the facts of the file.

    Args:
        name: Name of the distribution, or a folder.
        out: A new .safetensors file.
        terms: The license, if the package states none.

    Raises:
        ArtifactError: There is no such package, it does not hold one tokenizer and one matrix, or no license is stated.
    """
    if out.exists() or out.suffix != ".safetensors":
        raise ArtifactError(f"{out} is there, or its name does not end with .safetensors", "name a new file with --out")
    files, stated, provenance = _package(name)
    weights = [path for path in files if path.suffix == ".safetensors"]
    tokenizers = []
    for path in (path for path in files if path.suffix == ".json"):
        with suppress(ValueError):
            content = json.loads(path.read_bytes())
            model = content.get("model") if isinstance(content, dict) else None
            tokenizers += [path] if isinstance(model, dict) and "vocab" in model else []
    if len(weights) != 1 or len(tokenizers) != 1:
        found = f"{len(weights)} .safetensors files and {len(tokenizers)} tokenizers"
        raise ArtifactError(f"{name} holds {found}; allowed: one of each", _HINT)
    if not (terms or stated):
        raise ArtifactError(f"{name} states no license", "read its terms, and give them with --license")
    tokenizer = tokenizers[0].read_bytes()
    vectors = to_integers(_matrix(weights[0]))
    unknown = tokenizer_of(tokenizer).token_to_id(json.loads(tokenizer)["model"].get("unk_token") or "")
    if unknown is not None and unknown < len(vectors):
        vectors[unknown] = 0  # it says nothing
    TokenEncoder.of(tokenizer, vectors)
    facts = {
        "name": Path(name).name,
        "licence": terms or stated,
        "provenance": provenance,
        "weights_sha256": sha256_file(weights[0]),
        "tokenizer_sha256": sha256_file(tokenizers[0]),
        MADE_FROM: made_from([weights[0], tokenizers[0]]),
    }
    tensors: dict[str, npt.NDArray[Any]] = {"vectors": vectors, "tokenizer": np.frombuffer(tokenizer, np.uint8)}
    with seam("writing token vectors", ArtifactError, "name a place that can be written: --out FILE"):
        save_tensors(out, tensors, {"format": FORMAT, "description": canon(facts).decode()})
    shown = {key: fact for key, fact in facts.items() if key != MADE_FROM}
    return {"out": str(out), **shown, "sha256": sha256_file(out), "tokens": len(vectors), "width": vectors.shape[1]}


def _package(name: str) -> tuple[list[Path], str, str]:
    """Return the files of a package or folder, its license ("" if it states none), and where it comes from."""
    if Path(name).is_dir():
        return sorted(path for path in Path(name).rglob("*") if path.is_file()), "", f"the folder {Path(name).name}"
    try:
        package = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        raise ArtifactError(
            f"there is no installed package {name!r}", f"pip install {name}, or name a folder"
        ) from None
    files = [Path(str(package.locate_file(file))) for file in package.files or []]
    stated = package.metadata.json
    terms = str(stated.get("license_expression") or stated.get("license") or "")
    return [path for path in files if path.is_file()], terms.partition("\n")[0].strip(), f"{name} {package.version}"


def _matrix(path: Path) -> npt.NDArray[np.float64]:
    """Return the matrix of a file; if it also holds `weights` of tokens or a `mapping` to its rows, of all tokens."""
    with seam(f"reading {path.name}", ArtifactError, _HINT), safe_open(path, "np") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a mapping)
        weights, mapping = tensors.pop("weights", None), tensors.pop("mapping", None)
        matrices: list[npt.NDArray[np.float64]] = [
            tensor.astype(np.float64) for tensor in tensors.values() if tensor.ndim == 2
        ]
        if len(matrices) == 1 == len(tensors):
            (matrix,) = matrices
            matrix = matrix if mapping is None else matrix[mapping]
            matrix = matrix if weights is None else matrix * weights.astype(np.float64)[:, None]
    if len(matrices) != 1 or len(tensors) != 1 or not np.isfinite(matrix).all():
        msg = f"{path.name} holds {len(tensors)} tensors; allowed: one matrix of finite numbers, a row per token"
        raise ArtifactError(msg, _HINT)
    return matrix


def is_token_vectors(path: str | Path) -> bool:
    """Return whether a path is a file of token vectors."""
    if not str(path).endswith(".safetensors") or not Path(path).is_file():
        return False
    with seam(f"reading {Path(path).name}", ArtifactError, _HINT), safe_open(path, "np") as file:
        return bool((file.metadata() or {}).get("format") == FORMAT)


def read(path: Path) -> tuple[TokenEncoder, dict[str, Any]]:
    """Return the encoder of a file of token vectors, and its facts."""
    with seam(f"reading {path.name}", ArtifactError, _HINT), safe_open(path, "np") as file:
        facts: dict[str, Any] = json.loads(file.metadata()["description"])
        tokenizer, vectors = file.get_tensor("tokenizer").tobytes(), file.get_tensor("vectors")
    facts = {name: facts[name] for name in ("name", "licence", "provenance")}
    return TokenEncoder.of(tokenizer, vectors), {**facts, "vectors": sha256_file(path)}
