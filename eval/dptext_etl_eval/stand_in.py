"""Read a public stand-in of a private table, and refuse a table that a policy names as raw."""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dptext_etl.corpora.everyday import SIZE, everyday_texts, generate
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.runner.source.table import READ_HINT, Files, schema_of
from dptext_etl_eval.classifier import require_classes
from dptext_etl_eval.pairs import Values

MOST_TESTED = 2_000
SHIPPED = "everyday"
"""Name of the stand-in that ships: sentences from the templates of the corpus `everyday-30k` that it does not hold."""
UPPER_END = "everyday: the templates of surrogate's corpus made these sentences, so its figures are an upper end"


@dataclass(frozen=True)
class StandIn:
    """Public rows in the place of private ones, and other rows to test on; no row is in both."""

    texts: tuple[str, ...]
    labels: Values
    test_texts: tuple[str, ...]
    test_labels: Values


def refuse_raw(source: str, policies: Sequence[Path]) -> None:
    """Refuse a table that a policy names as its source; no row is read."""
    if ships(source):
        return
    paths = Files.at(source).paths
    folders = {Path.cwd(), *(Path(path).absolute().parent for path in paths if "://" not in path)}
    for policy in (*policies, *sorted(found for folder in folders for found in folder.glob("*.toml"))):
        try:
            raw = tomllib.loads(policy.read_text("utf-8")).get("source")
        except (OSError, ValueError):
            raise PolicyError(f"the policy {policy} cannot be read", "repair it, or move it away") from None
        if isinstance(raw, str) and _named(raw, policy.absolute().parent, paths):
            msg = f"the policy {policy} names this table as raw; a rehearsal reads public texts alone"
            raise PolicyError(msg, "give a public table of the same kind of texts")


def ships(source: str) -> bool:
    """Return whether a source names the stand-in that ships, and no file or folder."""
    return source == SHIPPED and not Path(source).exists()


def _everyday() -> pl.LazyFrame:
    held = frozenset(everyday_texts())
    made = [(one.text, one.domain, one.kind) for one in generate(2 * SIZE) if one.text not in held]
    return pl.LazyFrame(made, schema=["text", "topic", "kind"], orient="row")


def _named(raw: str, folder: Path, paths: Sequence[str]) -> bool:
    pattern = raw.removeprefix("file://").replace("{partition}", "*")
    if "://" in pattern:
        return any(path == raw or Path(path).match(pattern) for path in paths)
    held = [Path(name).resolve() for name in glob.glob(str(folder / pattern), recursive=True)]  # noqa: PTH207
    for path in (Path(path).resolve() for path in paths if "://" not in path):
        if any(path == one or one in path.parents or path.samefile(one) for one in held):
            return True
    return False


def read(source: str, *, text: str, label: str, rows: int, words: int | None = None) -> StandIn:
    """Read rows in a fixed order: `rows` that stand for private ones, then at most 2,000 to test on."""
    frame = _everyday() if ships(source) else Files.at(source).scan()
    if missing := [name for name in (text, label) if name not in schema_of(frame)]:
        raise InputError(f"the public table has no column {', '.join(map(repr, missing))}", "name others")
    with seam("reading the public table", InputError, READ_HINT):
        found: Any = frame.select(text, label).drop_nulls().collect()
        order = np.random.default_rng(0).permutation(found.height)
        texts = [" ".join(str(one).split()[:words]) for one in found[text].to_list()]
        labels: Values = np.array([str(one) for one in found[label].to_list()])
    left = found.height - rows
    if left < 20:
        msg = f"{found.height:,} public rows with text and label; {rows:,} stand in and 20 or more test"
        raise InputError(msg, "give fewer --rows, or more public rows")
    stands, tested = order[:rows], order[rows : rows + MOST_TESTED]
    require_classes(labels[stands], "label")
    return StandIn(
        tuple(texts[row] for row in stands), labels[stands], tuple(texts[row] for row in tested), labels[tested]
    )
