"""`make -C studies gpu`: check and measure models on a machine with a GPU, within ten minutes.

    python studies/benchmarks/gpu.py                  # writes gpu.json, which the documentation shows
    python studies/benchmarks/gpu.py bits dpmlm       # these parts; the others keep their earlier figures
    python studies/benchmarks/gpu.py --tiny --out x   # the same with tiny shapes, on the CPU where there is no GPU

Nothing is read but the package: texts, models and vectors are made here. Every part is written as soon as it is done.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gpu_checks
import gpu_generation
import gpu_models
import gpu_speed
from measuring import HERE, Row, show
from results import Origin, Results

FILE = HERE / "gpu.json"
SECONDS = 540.0
"""After this number of seconds no further part begins."""
TESTS = (
    "models/tests/inference/test_masked_rows.py",
    "models/tests/inference/test_score_masked.py",
    "models/tests/inference/test_beams.py",
    "models/tests/exact/test_generative_models.py",
)
TESTS_SECONDS = 120
PARTS = ("bits", "draws", "memory", "generation", "dpmlm", "documents", "search", "tests")


def main(arguments: list[str] | None = None) -> int:
    """Run all parts; 1 if a part failed or a check does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="*", metavar="PART", help=f"what to do, of: {', '.join(PARTS)}")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, on any machine")
    parser.add_argument("--out", type=Path, default=FILE, help="the results file")
    options = parser.parse_args(arguments)
    if options.tiny and options.out == FILE:
        parser.error("tiny shapes say nothing about speed: name another file with --out")
    device = where()
    if device == "cpu" and not options.tiny:
        print("torch sees no GPU here: nothing to measure (--tiny runs the script on the CPU)", file=sys.stderr)
        return 1
    began = time.perf_counter()
    origin = Origin.here("gpu.py", f"{device_name(device)}; ")
    size = gpu_models.TINY if options.tiny else gpu_models.WHOLE
    named = list(dict.fromkeys(options.part)) or list(PARTS)
    if unknown := [name for name in named if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    results, bad = Results.read(options.out, PARTS) if options.part else Results(options.out, PARTS), []
    with tempfile.TemporaryDirectory(prefix="dptext-gpu-") as folder:
        gpu_models.build(Path(folder), size)
        made = parts(Path(folder), device, size)
        for name in named:
            rows = run(name, made[name], began)
            bad += [name] * any(row.met is False for row in rows)
            results.put(name, rows, origin)
            results.write()
    print(f"{time.perf_counter() - began:.0f} s; written to {options.out.name}")
    if bad:
        print(f"does not hold, or was not reached: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


def parts(folder: Path, device: str, size: gpu_models.Size) -> dict[str, Callable[[], list[Row]]]:
    """Return the parts by the names of `PARTS`: first the checks, then the speed."""
    done: tuple[Callable[[], list[Row]], ...] = (
        lambda: in_both(folder, device, size),
        lambda: gpu_checks.exact_draws(device),
        lambda: gpu_checks.short_of_memory(folder, device, size),
        lambda: gpu_generation.generation(folder, device, size),
        lambda: gpu_speed.dpmlm(folder, device, size),
        lambda: gpu_speed.documents(folder, size),
        lambda: gpu_speed.search(folder, device, size),
        lambda: [] if size is gpu_models.TINY else tests(),
    )
    return dict(zip(PARTS, done, strict=True))


def run(name: str, part: Callable[[], list[Row]], began: float) -> list[Row]:
    """Run one part; one that fails or comes too late is a row that says so."""
    if time.perf_counter() - began > SECONDS:
        return [Row(name, "skipped: the time was over", met=False, goal="run")]
    started = time.perf_counter()
    try:
        rows = part()
    except (SystemExit, Exception) as exc:  # noqa: BLE001  (the minutes of the other parts must not be lost)
        rows = [Row(name, f"failed: {type(exc).__name__}: {str(exc)[:200]}", met=False, goal="run")]
    print(f"-- {name}: {time.perf_counter() - started:.0f} s\n{show(rows)}", flush=True)
    return rows


def in_both(folder: Path, device: str, size: gpu_models.Size) -> list[Row]:
    """Compare bits in both number types, and leave the setting as it was."""
    from dptext_etl.device import DTYPE_SETTING

    before, digests = os.environ.get(DTYPE_SETTING), []
    try:
        for dtype in ("float32", "bfloat16"):
            os.environ[DTYPE_SETTING] = dtype
            digests += gpu_checks.equal_bits(folder, device, dtype, size)
    finally:
        os.environ.pop(DTYPE_SETTING)
        os.environ |= {} if before is None else {DTYPE_SETTING: before}
    return digests


def tests() -> list[Row]:
    """Run the tests of models, which use the GPU where there is one; skipped without pytest."""
    if importlib.util.find_spec("pytest") is None:
        return [Row("tests of models", "skipped: pytest is not installed")]
    command = [sys.executable, "-m", "pytest", "--tb=short", "-k", "cuda", "-p", "no:cacheprovider", *TESTS]
    try:
        done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, check=False, timeout=TESTS_SECONDS)
    except subprocess.TimeoutExpired as exc:
        print_ends(exc.stdout, exc.stderr)
        return [Row("tests of models on CUDA", f"not done after {TESTS_SECONDS} s", goal="pass", met=False)]
    if done.returncode:
        print_ends(done.stdout, done.stderr)
    counts = done.stdout.decode().strip().splitlines()[-1:] or [f"exit {done.returncode}"]
    return [Row("tests of models on CUDA", counts[0], goal="pass", met=done.returncode == 0)]


def print_ends(*streams: bytes | None) -> None:
    """Print the last 10,000 bytes of each stream of a process."""
    for stream in streams:
        print((stream or b"")[-10_000:].decode(errors="replace"), flush=True)


def where() -> str:
    """Return the device of models on this machine."""
    from dptext_etl.device import device

    return device()


def device_name(device: str) -> str:
    """Name the device."""
    import torch

    return f"{torch.cuda.get_device_name()} (torch {torch.__version__})" if device == "cuda" else "no GPU"


if __name__ == "__main__":
    sys.exit(main())
