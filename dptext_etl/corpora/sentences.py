"""Encode texts by a model of the library sentence-transformers, so that a vector depends on its own text only.

A text is padded to a length that follows from its own tokens. A batch of that length has a fixed number of rows, of
which one is public and padded: the library takes another path if no row of a batch is padded. No operation mixes rows
(docs/spec/privacy.md#batch-independence). Floats differ by machine: docs/spec/synthetic.md#vectors says how a release
stays the same, and the number type belongs to the corpus. The hash of the files names a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import canon, sha256_file
from dptext_etl.device import Dtype, device, drops_with_gpu, place, threads
from dptext_etl.errors import ArtifactError, PolicyError, seam, without_panics
from dptext_etl.extensions import pip_install
from dptext_etl.parallel import single_threads

KIND = "sentence-transformers"
MOST_CHARACTERS = 2**16  # of a text that a tokenizer or a model reads; tokenizers may panic for millions of blanks
MOST_DIMENSIONS = 1040  # inner products of int8 vectors of that many dimensions stay below 2^24
_PUBLIC = "a"  # the text of rows that fill a batch
_BUCKET = 8  # rows are padded to a multiple of that many tokens
_TOKENS = {"cpu": 512, "cuda": 2**15}  # of a batch
_AT_ONCE = 8192  # texts whose tokens are in memory
_PADDED = frozenset({"input_ids", "attention_mask", "token_type_ids"})  # others say how a text is cut: one row a batch
_FILES = frozenset({".json", ".txt", ".model", ".safetensors", ".bin"})
_HINT = "name its folder, an installed package with the folder, or its name on the hub"

Int8s = npt.NDArray[np.int8]


@contextmanager
def _required() -> Iterator[None]:
    try:
        yield
    except ImportError:  # also of its metadata
        problem = "the encoder sentence-transformers needs a library that is not here"
        raise PolicyError(problem, pip_install("semantic")) from None


def version() -> str:
    """Return the version of the library, which is part of a configuration."""
    with _required():
        return metadata.version(KIND)


def folder_of(name: str) -> Path:
    """Return the folder of a model: a path, the folder in an installed package, or what the hub's cache holds."""
    if Path(name).is_dir():
        return Path(name)
    try:
        package = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        with seam("loading a model of sentence-transformers", ArtifactError, _HINT):
            from huggingface_hub import snapshot_download

            patterns = [f"{part}*{suffix}" for part in ("", "[0-9]_*/") for suffix in sorted(_FILES)]
            return Path(snapshot_download(name, allow_patterns=patterns))
    folders = [path.parent for path in package.files or [] if path.name == "modules.json"]
    if len(folders) != 1:
        raise ArtifactError(f"the package {name} holds {len(folders)} models; allowed: one", _HINT)
    return Path(str(package.locate_file(folders[0])))


def files_sha256(folder: Path) -> str:
    """Return the hash of the names and contents of a model's files, 64 hex digits."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _FILES and path.is_file())
    return hashlib.sha256(
        canon([[path.relative_to(folder).as_posix(), sha256_file(path)] for path in paths])
    ).hexdigest()


class SentenceModel:
    """A model in memory; several threads may use it, one batch after the other."""

    def __init__(self, name: str, dtype: Dtype, sha256: str | None = None) -> None:
        """Load a model, whose files must have the hash if there is one."""
        with _required():
            import torch
            from sentence_transformers import SentenceTransformer
        folder = folder_of(name)
        self.sha256 = files_sha256(folder)
        if self.sha256 != (sha256 or self.sha256):
            msg = f"the files of the model {folder.name} are not those that encoded the corpus"
            raise ArtifactError(msg, f"bring them back; their hash is {sha256}")
        with seam("loading a model of sentence-transformers", ArtifactError, _HINT):
            self.device = device()
            model = SentenceTransformer(str(folder), device=place(self.device), local_files_only=True)
            self._model: Any = model.to(getattr(torch, dtype)).eval()
            self._fill = self._features(_PUBLIC)
        self._lock = Lock()

    def encode(
        self, texts: Sequence[str], *, n_max: int = 0, report: Callable[[int], object] = lambda _: None
    ) -> Int8s:
        """Return int8 vectors of length 127 or less, shape (n, k); zeros for an empty text and for a failed one.

        Args:
            texts: The texts.
            n_max: Unused: a model reads what fits into its window.
            report: Called with the number of texts of every batch.
        """
        del n_max
        with self._lock:  # the tokens of all texts would need too much memory
            parts = [texts[first : first + _AT_ONCE] for first in range(0, max(1, len(texts)), _AT_ONCE)]
            floats = np.concatenate([self.floats(part, report) for part in parts])
        lengths = np.linalg.norm(floats, axis=1, keepdims=True)
        usable = np.isfinite(lengths) & (lengths > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = 127.0 * floats / lengths
        vectors: Int8s = np.rint(np.where(usable, scaled, 0.0)).astype(np.int8)
        return vectors

    def floats(self, texts: Sequence[str], report: Callable[[int], object] = lambda _: None) -> npt.NDArray[np.float64]:
        """Return vectors as the model computes them, shape (n, k); zeros for an empty text and for a failed one."""
        features: dict[int, dict[str, Any]] = {}
        for row, text in enumerate(texts):
            if text.strip():
                with suppress(Exception), without_panics():  # a failure depends only on the text, and shows nothing
                    features[row] = self._features(text[:MOST_CHARACTERS])
        batches = list(self._batches(features))
        with single_threads(1 if self.device == "cuda" else threads()) as pool:
            fill = pool.submit(self._forward, [self._fill], self._bucket(self._fill)).result()
            floats = np.zeros((len(texts), fill.shape[1]))
            done = pool.map(lambda batch: self._batch([features[row] for row in batch[0]], *batch[1:]), batches)
            for (rows, *_), vectors in zip(batches, done, strict=True):
                floats[rows] = vectors
                report(len(rows))
        report(len(texts) - len(features))
        return floats

    def _features(self, text: str) -> dict[str, Any]:
        return dict(self._model.preprocess([text]))

    def _bucket(self, features: dict[str, Any]) -> int:
        """Return the padded length of a row; 0 where rows cannot be padded. A full window has no room for padding."""
        import torch

        tensors = {name for name, value in features.items() if isinstance(value, torch.Tensor)}
        if not tensors or not tensors <= _PADDED:
            return 0
        length, window = int(features["input_ids"].shape[1]), self._model.max_seq_length or 2**30
        return max(length, min((length // _BUCKET + 1) * _BUCKET, int(window)))

    def _batches(self, features: dict[int, dict[str, Any]]) -> Iterator[tuple[list[int], int, int]]:
        """Yield rows, padded length, and number of rows of every batch; the last row of each is public and padded."""
        by_length: dict[int, list[int]] = {}
        for row, item in features.items():
            by_length.setdefault(self._bucket(item), []).append(row)
        for length, rows in sorted(by_length.items()):
            count = max(2, _TOKENS[self.device] // length) if length else 1
            step = max(1, count - 1)
            for first in range(0, len(rows), step):
                yield rows[first : first + step], length, count

    def _batch(self, rows: list[dict[str, Any]], length: int, count: int) -> npt.NDArray[np.float64]:
        """Return the vectors of rows, one by one if they fail together; zeros where only the row can be the cause."""
        fill = [self._fill] * (count - len(rows))
        try:
            return self._forward([*rows, *fill], length)[: len(rows)]
        except Exception:  # noqa: BLE001
            public = self._forward([self._fill] * count, length)  # out of memory? Then this fails, too
            if len(rows) == 1:
                return np.zeros_like(public[:1])
        return np.concatenate([self._batch([row], length, count) for row in rows])

    def _forward(self, rows: Sequence[dict[str, Any]], length: int) -> npt.NDArray[np.float64]:
        import torch

        with torch.inference_mode():
            batch = dict(rows[0])
            for name in batch.keys() & _PADDED if length else ():
                wide = [torch.nn.functional.pad(row[name], (0, length - row[name].shape[1])) for row in rows]
                batch[name] = torch.cat(wide)
            at = self._model.device
            batch = {name: item.to(at) if isinstance(item, torch.Tensor) else item for name, item in batch.items()}
            vectors: npt.NDArray[np.float64] = self._model(batch)["sentence_embedding"].double().cpu().numpy()
        if vectors.ndim != 2 or not 1 <= vectors.shape[1] <= MOST_DIMENSIONS:
            raise ArtifactError(
                f"the model's vectors have shape {vectors.shape}; allowed: up to {MOST_DIMENSIONS} wide",
                "use a smaller encoder",
            )
        return vectors


@drops_with_gpu
@lru_cache(maxsize=2)
def loaded(name: str, dtype: Dtype, sha256: str) -> SentenceModel:
    """Return a model, which a process loads once."""
    return SentenceModel(name, dtype, sha256)
