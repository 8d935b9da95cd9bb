"""Run the recipes of `recipes/*/policy.toml`: synthetic tables over corpora with more public texts.

`python studies/written_utility.py --vectors FILE --model FOLDER|GGUF` runs the commands that the head of each policy
lists, once per key and epsilon, on public data sets in the place of private ones. `dptext corpus vectors` writes FILE.
`--written FOLDER` reads NAME.parquet from there in the place of new texts. Work and figures are kept in
`target/written-utility/`: a stopped run continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import polars as pl
from surrogate_measures import Rows
from synthetic_utility import DATA, ROOT, data_sets

from dptext_etl import _kernel

RECIPES = ROOT / "studies" / "recipes"
WORK_FOLDER = ROOT / "target" / "written-utility"
NAMES = {"UCI sentences": "uci_sentences", "Banking77": "banking77"}
EPSILONS = (1.0, 4.0)
KEYS = {"uci_sentences": 3, "banking77": 1}
"""Keys of a recipe, as many as the goal was stated for."""
_COMMAND = "#   dptext "


def commands(policy: Path, files: Mapping[str, str]) -> list[list[str]]:
    """Return the commands that the head of a policy lists, without `dptext`, with files for MODEL and VECTORS."""
    lines = [line for line in policy.read_text("utf-8").splitlines() if line.startswith(_COMMAND)]
    return [[files.get(word, word) for word in shlex.split(line.removeprefix(_COMMAND))] for line in lines]


def dptext(*words: str) -> dict[str, Any]:
    """Run a command in this process, and return its JSON; a failure ends the study."""
    from typer.testing import CliRunner

    from dptext_etl.cli.app import app

    done = CliRunner().invoke(app, [*words, "--json"])
    if done.exit_code:
        sys.exit(f"dptext {shlex.join(words)} failed ({done.exit_code}): {done.output}{done.exception or ''}")
    return dict(json.loads(done.stdout))


def prepared(
    folder: Path, recipe: Path, tables: Mapping[str, Rows], files: Mapping[str, str], written: Path | None = None
) -> None:
    """Write the tables of a recipe and its corpus, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(recipe, folder / "policy.toml")
    for name, (texts, labels) in tables.items():
        ids = [f"{name}{row}" for row in range(len(texts))]
        pl.DataFrame({"id": ids, "text": texts, "label": labels}).write_parquet(folder / f"{name}.parquet")
    if written is not None and written.exists() and not (folder / "written.parquet").exists():
        for suffix in (".parquet", ".json"):
            shutil.copy(written.with_suffix(suffix), folder / f"written{suffix}")
    with chdir(folder):
        for words in commands(recipe, files):
            if words[0] == "corpus" and not Path(words[words.index("--out") + 1]).exists():
                dptext(*words)


def released(folder: Path, recipe: Path, epsilon: float, key: int) -> dict[str, float]:
    """Run the policy at an epsilon under a key, in a separate folder, and return macro-F1 of each figure."""
    own_folder = folder / f"epsilon-{epsilon:g}-key-{key}"
    kept = own_folder / "figures.json"
    if not kept.exists():
        shutil.rmtree(own_folder, ignore_errors=True)
        own_folder.mkdir()
        for path in (*folder.glob("*.parquet"), folder / "corpus"):
            (own_folder / path.name).symlink_to(path.absolute())
        text = (folder / "policy.toml").read_text("utf-8").replace("epsilon = 1.0", f"epsilon = {epsilon}")
        (own_folder / "policy.toml").write_text(text, "utf-8")
        secret = _kernel.Secret.from_bytes(hashlib.sha256(f"synthetic-utility {key}".encode()).digest())
        secret.write(str(own_folder / "noise.key"))
        with chdir(own_folder):
            results: dict[str, Any] = {}
            for words in commands(recipe, {}):
                if words[0] in {"run", "evaluate"}:
                    results = dptext(*words)
        (column,) = results["columns"]
        scores = column["metrics"][0]["scores"]
        figures = {one["what"].removeprefix("macro-F1, "): one["value"] for one in scores if "macro-F1" in one["what"]}
        kept.write_text(json.dumps(figures))
    return dict(json.loads(kept.read_text("utf-8")))


def lines(
    results: Mapping[str, Mapping[float, Sequence[Mapping[str, float]]]], minutes: Mapping[str, float]
) -> Iterator[str]:
    """Yield a table: a row per data set and figure, with the mean over keys at each epsilon."""
    yield "| data set | figure | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " | keys | minutes |"
    yield "|---|---|" + "---|" * (len(EPSILONS) + 2)
    for name, by_epsilon in results.items():
        keys = len(next(iter(by_epsilon.values())))
        for figure in next(iter(by_epsilon.values()))[0]:
            cells = (f"{statistics.mean(one[figure] for one in by_epsilon[epsilon]):.3f}" for epsilon in EPSILONS)
            yield f"| {name} | {figure} | {' | '.join(cells)} | {keys} | {minutes[name]:.0f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the recipes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=Path, required=True, help="file of `dptext corpus vectors`, for the corpora")
    parser.add_argument("--model", default="", help="causal model that writes: a folder or a .gguf file")
    parser.add_argument("--written", type=Path, help="folder with NAME.parquet and NAME.json of an earlier run")
    parser.add_argument("--only", nargs="*", default=list(NAMES.values()), help="recipes to run")
    parser.add_argument("--keys", type=int, help="keys of every recipe")
    given = parser.parse_args(arguments)
    if not DATA.exists():
        sys.exit("skipped: shared/data does not lie next to this checkout")
    results: dict[str, dict[float, list[dict[str, float]]]] = {}
    minutes: dict[str, float] = {}
    for data in data_sets():
        name = NAMES.get(data.name, "")
        if name not in given.only:
            continue
        folder, recipe = WORK_FOLDER / f"{name}-{given.vectors.stem}", RECIPES / name / "policy.toml"
        tables = {"train": data.train, "test": data.test, **({"public": data.public} if data.public[0] else {})}
        files = {"MODEL": given.model, "VECTORS": str(given.vectors.absolute())}
        began = time.monotonic()
        prepared(folder, recipe, tables, files, given.written and given.written / f"{name}.parquet")
        keys = range(given.keys or KEYS[name])
        results[name] = {epsilon: [released(folder, recipe, epsilon, key) for key in keys] for epsilon in EPSILONS}
        minutes[name] = (time.monotonic() - began) / 60
    print("\n".join(lines(results, minutes)))


if __name__ == "__main__":
    main()
