"""Where large products of matrices are computed: `DPTEXT_DEVICE=auto|cpu|cuda`, a setting of the machine alone.

It never enters a configuration: what is computed is exact, so every device gives the same answer.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Literal

from dptext_etl.errors import PolicyError

Device = Literal["cpu", "cuda"]
SETTING = "DPTEXT_DEVICE"


def device() -> Device:
    """Return where to compute: "cuda" where torch sees a GPU, unless the setting says "cpu".

    Raises:
        PolicyError: Another setting, or "cuda" where there is none.
    """
    asked = os.environ.get(SETTING, "auto").strip().lower()
    if asked == "cpu":
        return "cpu"
    if asked not in ("auto", "cuda"):
        raise PolicyError(f"{SETTING} is auto, cpu or cuda", f"leave {SETTING} unset to use a GPU if there is one")
    if _sees_gpu(asked):
        return "cuda"
    if asked == "cuda":
        raise PolicyError(
            f"{SETTING} is cuda, but torch sees no GPU here",
            f"install dptext-etl[models] with a CUDA build of torch, or set {SETTING}=auto",
        )
    return "cpu"


@cache
def _sees_gpu(asked: str) -> bool:
    """Whether torch sees a GPU; with "auto" torch is only imported where the machine has NVIDIA's driver."""
    driver = any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg"))
    if importlib.util.find_spec("torch") is None or (asked == "auto" and not driver):
        return False
    import torch

    return bool(torch.cuda.is_available())
