"""`make -C studies paper-000`: run the tables of a paper, print them, and write them into studies/reports/papers.md."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from papers import settings

from frontier import described, generated
from frontier.data import DATA, ROOT
from frontier.setups import Setup, Shown

PAGE = ROOT / "studies" / "reports" / "papers.md"
PAPERS = ("000", "001", "002", "003", "004")
LIBRARIES = ("nltk", "sacrebleu", "sklearn", "torch", "transformers")


def main(arguments: list[str] | None = None) -> None:
    """Run one paper."""
    parser = argparse.ArgumentParser(prog="python -m frontier.reproduce", description=__doc__)
    parser.add_argument("paper", choices=PAPERS)
    parser.add_argument("--size", choices=settings.SIZES, default="small", help="see studies/papers/sizes.toml")
    parser.add_argument("--rows", type=int, help="training texts of a set, instead of the size's")
    parser.add_argument("--tests", type=int, help="test texts of a set, instead of the size's")
    parser.add_argument("--seed", type=int, default=0, help="first seed of trainings")
    parser.add_argument("--models", type=Path, help="folder of given weights, such as deberta-v3-base and roberta-base")
    parser.add_argument("--tables", type=Path, help="folder of the papers' tables, as studies/recipes writes them")
    parser.add_argument("--data", type=Path, help="folder of public data; without any, small tables are generated")
    parser.add_argument("--table", action="append", default=[], help="only this table, such as 3-yelp; others stay")
    parser.add_argument("--out", type=Path, help="file of the tables (Markdown); without it, the page is updated")
    given = parser.parse_args(arguments)
    for folder in (given.models, given.tables, given.data):
        if folder is not None and not folder.is_dir():
            parser.error(f"there is no folder {folder.name!r}")
    lacking = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if lacking:
        parser.error(f"these libraries are not installed: {', '.join(lacking)}")
    data = given.data or (DATA if DATA.is_dir() else None)
    data = data if data is not None and any(data.glob("*/*.parquet")) else None
    setup = Setup(given.paper, given.size, given.rows, given.tests, given.models, given.tables, data, given.seed)
    needed = (name for table in setup.settings["table"].values() if "partial" not in table for name in table["sets"])
    absent = [name for name in dict.fromkeys(needed) if not setup.is_here(name)]
    if absent:
        parser.error(f"the data folder lacks sets, and --tables has none of them: {', '.join(absent)}")
    if setup.has("gte-small") and importlib.util.find_spec("sentence_transformers") is None:
        parser.error("the weights gte-small need the library sentence-transformers, which is not installed")
    folders = (Path(setup.weights(name, "")) for name in settings.tools_of(given.paper) if setup.has(name))
    broken = [path.name for path in folders if path.is_dir() and not (path / "config.json").is_file()]
    if broken:
        parser.error(f"these folders of weights have no config.json: {', '.join(broken)}")
    print(*missing(setup), sep="\n", flush=True)
    write(setup, given.out or PAGE, page=given.out is None, only=given.table)


def missing(setup: Setup) -> list[str]:
    """Return a line for each set of the paper that is neither given nor included: source, license, and recipe."""
    included = {path.name for path in setup.data.iterdir()} if setup.data is not None else set()
    names = [name for name in settings.sets_of(setup.paper) if not setup.given(name) and name not in included]
    return [f"{name}: {_of_set(name)}" for name in names]


def _of_set(name: str) -> str:
    about = settings.sets()[name]
    return (
        f"{about['source']}; license: {about['license']}; "
        f"`python -m recipes {name} DOWNLOAD {name}.parquet` reads the {about['download']}"
    )


def sets_table() -> str:
    """Return the page's table of sets."""
    rows = [
        [name, ", ".join(paper for paper in PAPERS if name in settings.sets_of(paper)), *about.values()]
        for name, about in settings.sets().items()
    ]
    return Shown("Sets", ["set", "paper", "source", "license", "download"], rows).markdown()


def write(setup: Setup, path: Path, *, page: bool, kept: Path | None = None, only: Sequence[str] = ()) -> None:
    """Run the tables of a paper, and write each into a file, or into its place on the page, when it is ready.

    Tables that a call with the same settings and commit finished are read again from target/papers: it continues.
    With `only`, other tables come from the latest call with the same settings, and each names its own commit.
    """
    kept = kept or ROOT / "target" / "papers" / setup.paper / _key(setup)
    kept.mkdir(parents=True, exist_ok=True)
    began, texts, asked = time.process_time(), [], f"Commit {commit()}, "
    tables = import_module(f"frontier.paper_{setup.paper}").reproduced(setup)
    unknown = sorted(set(only) - tables.keys())
    if unknown:
        sys.exit(f"paper {setup.paper} has no table {unknown[0]!r}: name {', '.join(tables)}")
    for name, run in tables.items():
        file = kept / f"{name}.md"
        ready = file.is_file() and (asked in file.read_text(encoding="utf-8") or (bool(only) and name not in only))
        if not ready and (not only or name in only):
            start = time.process_time()
            table = run()
            _whole(file, _text(setup, table, time.process_time() - start))
            print(file.read_text(encoding="utf-8"), flush=True)
        elif not ready:
            continue
        texts.append(file.read_text(encoding="utf-8"))
        end = "" if len(texts) == len(tables) else f"\n*{len(texts)} of {len(tables)} tables are ready.*\n"
        block = "\n".join([described.head(setup), *texts]) + end
        if page:
            block = placed(placed(path.read_text(encoding="utf-8"), setup.paper, block), "sets", sets_table())
        _whole(path, block)
    print(f"{time.process_time() - began:,.0f} CPU-seconds")


def _whole(path: Path, text: str) -> None:
    """Replace a file at once."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _key(setup: Setup) -> str:
    content: list[object] = [
        setup.size,
        setup.rows,
        setup.tests,
        setup.seed,
        *map(str, (setup.models, setup.tables, setup.data)),
    ]
    content += [settings.of_size(setup.size)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@cache
def commit() -> str:
    """Return the commit of this checkout at the first call, with "changed" if tracked source files differ from it."""
    git = ["git", "-C", str(ROOT)]
    try:
        name = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True)
        paths = ["--", "dptext_etl", "eval", "models", "studies", ":!studies/reports"]
        changed = subprocess.run(
            [*git, "status", "--porcelain", "-uno", *paths], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name.stdout.strip() + (", changed" if changed.stdout.strip() else "")


def _text(setup: Setup, table: Shown, seconds: float) -> str:
    """Return a table of the page: the paper's settings, what differs from them, the commit, and CPU-seconds."""
    words = setup.sizes["words"]
    shown = Shown(
        table.title + (f"; texts cut to {words} words" if words else ""), table.head, table.rows, table.number
    )
    sets = settings.of_paper(setup.paper)["table"][table.number]["sets"]
    note = f"*{generated.NOTE}*\n\n" if setup.data is None and any(not setup.given(name) for name in sets) else ""
    stamp = f"Commit {commit()}, {time.strftime('%Y-%m-%d')}; {seconds:,.0f} CPU-seconds.\n"
    return f"{note}{shown.markdown()}\n{described.below(setup, shown)}\n{stamp}"


def placed(page: str, paper: str, text: str) -> str:
    """Return the page with the tables of a paper, or with the table of "sets", between its marks."""
    name = paper if paper == "sets" else f"paper-{paper}"
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    text_, count = re.subn(f"{start}.*?{end}", lambda _: f"{start}\n\n{text}\n{end}", page, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"the page has no place for paper {paper}")
    return text_


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
