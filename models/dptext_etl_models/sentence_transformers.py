"""Encode texts by a model of the library sentence-transformers, so that a vector depends on its own text only.

A text is padded to a length that follows from its own tokens. A batch of that length has a fixed number of rows, of
which one is public and padded, because the library has another path if none is. Each batch has one thread, and no
operation mixes rows (docs/spec/privacy.md#batch-independence). Floats differ by machine: docs/spec/synthetic.md#vectors
says how a release stays the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import canon, sha256_file
from dptext_etl.corpora.corpus import KIND, MOST_CHARACTERS, MOST_DIMENSIONS, Int8s
from dptext_etl.device import Dtype, device, drops_with_gpu, place, threads
from dptext_etl.errors import ArtifactError, PolicyError, seam, without_panics
from dptext_etl.extensions import pip_install
from dptext_etl_models.inference.torch_threads import single_threads

_BUCKET = 8  # rows are padded to a multiple of that many tokens
_TOKENS = {"cpu": 512, "cuda": 2**15}  # of a batch
_AT_ONCE = 8192  # texts whose tokens are in memory
_PADDED = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_FILES = frozenset({".json", ".txt", ".model", ".safetensors", ".bin"})
_HINT = "name the folder of a model of sentence-transformers, or an installed package that holds it"


def version() -> str:
    """Return the version of the library, which is part of a configuration."""
    try:
        return metadata.version(KIND)
    except metadata.PackageNotFoundError:
        problem = "the encoder sentence-transformers needs a library that is not here"
        raise PolicyError(problem, pip_install("semantic")) from None


def folder_of(name: str) -> Path:
    """Return the folder of a model, which is a path or lies in an installed package; nothing is downloaded."""
    if Path(name).is_dir():
        return Path(name)
    with suppress(metadata.PackageNotFoundError, ValueError):
        package = metadata.distribution(name)
        folders = [package.locate_file(path.parent) for path in package.files or [] if path.name == "modules.json"]
        if len(folders) == 1:
            return Path(str(folders[0]))
    raise ArtifactError(f"there is no folder {name!r}, and no package of that name that holds one model", _HINT)


def files_sha256(folder: Path) -> str:
    """Return the hash of the names and contents of a model's files, 64 hex digits."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _FILES and path.is_file())
    contents = [[path.relative_to(folder).as_posix(), sha256_file(path)] for path in paths]
    return hashlib.sha256(canon(contents)).hexdigest()


class SentenceModel:
    """A model in memory; several threads may use it, one call after the other."""

    def __init__(self, name: str, dtype: Dtype, sha256: str | None = None) -> None:
        """Load a model, whose files must have the hash if there is one."""
        self.version = version()
        self.folder, self.device, self._lock = folder_of(name), device(), Lock()
        self.sha256 = files_sha256(self.folder)
        if self.sha256 != (sha256 or self.sha256):
            msg = f"the files of the model {self.folder.name} are not those that encoded the corpus"
            raise ArtifactError(msg, f"bring them back; their hash is {sha256}")
        with seam("loading a model of sentence-transformers", ArtifactError, _HINT):
            import torch
            from sentence_transformers import SentenceTransformer

            model = SentenceTransformer(str(self.folder), device=place(self.device), local_files_only=True)
            self._model: Any = model.to(getattr(torch, dtype)).eval()
            self._public = self._tokens("a")  # fills batches
            self._width = self._forward([self._public], self._length(self._public)).shape[1]
        if self._width > MOST_DIMENSIONS:
            msg = f"the model's vectors have {self._width} dimensions; allowed: up to {MOST_DIMENSIONS}"
            raise ArtifactError(msg, "use a smaller encoder")

    def encode(self, texts: Sequence[str], *, n_max: int = 0) -> Int8s:
        """Return int8 vectors of length 127 or less, shape (n, k); zeros for an empty text and for a failed one.

        A model reads what fits into its window, whatever `n_max` is.
        """
        del n_max
        with self._lock, single_threads(1 if self.device == "cuda" else threads()) as pool:
            parts = [texts[first : first + _AT_ONCE] for first in range(0, max(1, len(texts)), _AT_ONCE)]
            floats = np.concatenate([self.floats(part, pool) for part in parts])
        lengths = np.linalg.norm(floats, axis=1, keepdims=True)
        usable = np.isfinite(lengths) & (lengths > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            vectors: Int8s = np.rint(np.where(usable, 127.0 * floats / lengths, 0.0)).astype(np.int8)
        return vectors

    def floats(self, texts: Sequence[str], pool: Any) -> npt.NDArray[np.float64]:
        """Return vectors as the model computes them, shape (n, k); zeros for an empty text and for a failed one."""
        tokens: dict[int, dict[str, Any]] = {}
        by_length: dict[int, list[int]] = {}
        for row, text in enumerate(texts):
            with suppress(Exception), without_panics():  # a failure depends only on the text, and shows nothing of it
                if text.strip():
                    tokens[row] = self._tokens(text[:MOST_CHARACTERS])
                    by_length.setdefault(self._length(tokens[row]), []).append(row)
        batches = []
        for length, rows in by_length.items():
            count = max(2, _TOKENS[self.device] // length)
            batches += [(length, count, rows[first : first + count - 1]) for first in range(0, len(rows), count - 1)]
        floats = np.zeros((len(texts), self._width))
        done = pool.map(lambda batch: self._batch([tokens[row] for row in batch[2]], *batch[:2]), batches)
        for (_, _, rows), vectors in zip(batches, done, strict=True):
            floats[rows] = vectors
        return floats

    def _tokens(self, text: str) -> dict[str, Any]:
        import torch

        tokens = {name: item for name, item in self._model.preprocess([text]).items() if isinstance(item, torch.Tensor)}
        if not tokens.keys() <= _PADDED:
            raise ArtifactError("the model reads more than tokens", "use a model whose first module is a transformer")
        return tokens

    def _length(self, tokens: dict[str, Any]) -> int:
        """Return the padded length of a row; a full window has no room for padding."""
        length = int(tokens["input_ids"].shape[1])
        return max(length, min((length // _BUCKET + 1) * _BUCKET, int(self._model.max_seq_length or 2**30)))

    def _batch(self, rows: list[dict[str, Any]], length: int, count: int) -> npt.NDArray[np.float64]:
        """Return the vectors of rows, one by one if they fail together; zeros where only the row can be the cause."""
        public = [self._public] * (count - len(rows))
        try:
            return self._forward([*rows, *public], length)[: len(rows)]
        except Exception:  # noqa: BLE001
            self._forward([self._public] * count, length)  # out of memory? Then this fails, too
            if len(rows) == 1:
                return np.zeros((1, self._width))
        return np.concatenate([self._batch([row], length, count) for row in rows])

    def _forward(self, rows: Sequence[dict[str, Any]], length: int) -> npt.NDArray[np.float64]:
        import torch

        with torch.inference_mode():
            pad, ends = torch.nn.functional.pad, [length - row["input_ids"].shape[1] for row in rows]
            padded = {name: [pad(row[name], (0, end)) for row, end in zip(rows, ends, strict=True)] for name in rows[0]}
            batch = {name: torch.cat(items).to(self._model.device) for name, items in padded.items()}
            vectors: npt.NDArray[np.float64] = self._model(batch)["sentence_embedding"].double().cpu().numpy()
        return vectors


@drops_with_gpu
@lru_cache(maxsize=2)
def loaded(name: str, dtype: Dtype, sha256: str) -> SentenceModel:
    """Return a model, which a process loads once."""
    return SentenceModel(name, dtype, sha256)
