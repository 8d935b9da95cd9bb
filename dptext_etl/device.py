"""Choose the device and number type for models and large matrix products: settings of the machine, never of a release.

`DPTEXT_DEVICE=auto|cpu|cuda` and `DPTEXT_DTYPE=auto|float32|bfloat16` enter no configuration.
Exact products give the same answer on every device. The scores of a model differ in their last digits, but the
guarantee holds for any scores (docs/spec/privacy.md#arbitrary-scores), the draws come from the same stream, and the
first commit of a run is the release.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from dptext_etl.errors import PolicyError

Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16"]
SETTING = "DPTEXT_DEVICE"
DTYPE_SETTING = "DPTEXT_DTYPE"
THREADS_SETTING = "DPTEXT_THREADS"

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPUS = 32  # CUDA ends the list at the first GPU that the machine lacks
_taken = [0]  # index of this process's GPU among the visible ones; only `take_gpu` writes it, before any work
_caches: list[Callable[[], object]] = []

_BF16 = re.compile(r"\b(avx512_bf16|amx_bf16|bf16)\b")
"""CPU flags in `/proc/cpuinfo` of hardware that multiplies bfloat16 (x86: AVX-512 or AMX; ARM: bf16)."""


@dataclass(frozen=True)
class Computing:
    """Name the device and number type in which a model computes."""

    device: Device  # "cpu" or "cuda"
    dtype: Dtype  # "float32" or "bfloat16"
    auto: tuple[str, ...] = ()  # settings that were `auto`, so that the hardware decided

    def __str__(self) -> str:
        """Return a phrase for people, such as: cpu, in bfloat16 (auto chose device and dtype)."""
        chosen = f" (auto chose {' and '.join(self.auto)})" if self.auto else ""
        return f"{self.device}, in {self.dtype}{chosen}"

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain data for JSON."""
        return {"device": self.device, "dtype": self.dtype, "auto": list(self.auto)}


def computing() -> Computing:
    """Return device and number type of models on this machine, from the two settings or from the hardware."""
    where = device()
    auto = tuple(
        name for name, setting in (("device", SETTING), ("dtype", DTYPE_SETTING)) if _setting(setting) == "auto"
    )
    return Computing(where, dtype(where), auto)


def device() -> Device:
    """Return the device: "cuda" if torch sees a GPU, unless the setting says "cpu"."""
    setting = _setting(SETTING)
    if setting not in ("auto", "cpu", "cuda"):
        raise PolicyError(f"{SETTING} is auto, cpu or cuda", f"leave {SETTING} unset to use a GPU if there is one")
    gpu = setting != "cpu" and sees_gpu(setting)
    if setting == "cuda" and not gpu:
        raise PolicyError(
            f"{SETTING} is cuda, but torch sees no GPU here", f"install a CUDA build of torch, or set {SETTING}=auto"
        )
    return "cuda" if gpu else "cpu"


def dtype(where: str | None = None) -> Dtype:
    """Return the number type of models: bfloat16 if the hardware multiplies it, unless the setting decides."""
    setting = _setting(DTYPE_SETTING)
    if setting not in ("auto", "float32", "bfloat16"):
        raise PolicyError(
            f"{DTYPE_SETTING} is auto, float32 or bfloat16", f"leave {DTYPE_SETTING} unset to let the hardware decide"
        )
    if setting == "auto":
        where = device() if where is None else where
        setting = "bfloat16" if (gpu_has_bf16() if where == "cuda" else cpu_has_bf16()) else "float32"
    return "bfloat16" if setting == "bfloat16" else "float32"


def place(where: str) -> str:
    """Return torch's name of a device: of several GPUs, the one that `take_gpu` chose last, otherwise the first."""
    return f"cuda:{_taken[0]}" if where == "cuda" else where


Cached = TypeVar("Cached", bound=Any)


def drops_with_gpu(cache: Cached) -> Cached:
    """Empty a cached function or a dict of models when this process changes to another GPU."""
    _caches.append(getattr(cache, "cache_clear", None) or cache.clear)
    return cache


def take_gpu(address: str) -> None:
    """Compute on the GPU of this address from now on; models on another GPU are dropped.

    CUDA reads `CUDA_VISIBLE_DEVICES` once. Until then, the GPU becomes the first of the list, in front of all others.
    """
    torch = sys.modules.get("torch")
    listed = [gpu.strip() for gpu in os.environ.get(_VISIBLE, "").split(",")]
    visible = [gpu for gpu in listed if gpu] or [str(number) for number in range(_GPUS)]
    if torch is None or not torch.cuda.is_initialized():
        alike = [gpu for gpu in visible if gpu != address and gpu.isdecimal() == address.isdecimal()]
        visible = [address, *alike]
        os.environ[_VISIBLE] = ",".join(visible)
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if address not in visible:
        raise PolicyError(
            f"this process cannot reach the GPU that its task was given: {_VISIBLE} does not name it",
            "set spark.python.worker.reuse=false, so that every task has its own process",
        )
    before, _taken[0] = _taken[0], visible.index(address)
    if _taken[0] != before:
        for clear in _caches:
            clear()
        gc.collect()
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def threads() -> int:
    """Return how many threads the kernel uses: `DPTEXT_THREADS`, otherwise one per core of this process."""
    setting = os.environ.get(THREADS_SETTING, "").strip()
    if setting.isdecimal():
        return max(1, int(setting))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _setting(setting: str) -> str:
    return os.environ.get(setting, "auto").strip().lower()


@cache
def sees_gpu(setting: str) -> bool:
    """Say whether torch sees a GPU; with "auto", torch is imported only if the machine has NVIDIA's driver."""
    driver = any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg"))
    if importlib.util.find_spec("torch") is None or (setting == "auto" and not driver):
        return False
    import torch

    return bool(torch.cuda.is_available())


@cache
def gpu_has_bf16() -> bool:
    import torch

    return bool(torch.cuda.get_device_capability(_taken[0])[0] >= 8)


@cache
def cpu_has_bf16(listing: str = "/proc/cpuinfo") -> bool:
    try:
        return _BF16.search(Path(listing).read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return False
