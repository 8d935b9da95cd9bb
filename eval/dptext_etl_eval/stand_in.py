"""Read a public stand-in of a private table, and refuse a table that a policy names as raw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from dptext_etl.accounting.shuffling import OTHER
from dptext_etl.data_types import by_name
from dptext_etl.errors import InputError, seam
from dptext_etl.runner.source import roles
from dptext_etl.runner.source.table import READ_HINT, Files
from dptext_etl_eval.baselines import CORPUS, public_rows
from dptext_etl_eval.classifier import require_classes
from dptext_etl_eval.pairs import Values

MOST_TESTED = 2_000
SHIPPED = "everyday"
"""Name of the stand-in that ships: sentences from the templates of the corpus `everyday-30k` that it does not hold."""
_EVERYDAY = Path(__file__).with_name("everyday.parquet")
UPPER_END = "everyday: the templates of surrogate's corpus made these sentences, so its figures are an upper end"


@dataclass(frozen=True)
class StandIn:
    """Public rows in the place of private ones, and other rows to test on; no row is in both."""

    texts: tuple[str, ...]
    labels: Values
    test_texts: tuple[str, ...]
    test_labels: Values
    corpus: str = CORPUS  # the corpus of all forms but custext


def refuse_raw(source: str, policies: Sequence[Path]) -> None:
    """Refuse a table that a policy names as its source, also one in this folder or next to it; no row is read."""
    if not ships(source):
        roles.refuse_raw(Files.at(source).paths, policies, why="only public texts may be compared with a release")


def ships(source: str) -> bool:
    """Return whether a source names the stand-in that ships, and no file or folder."""
    return source == SHIPPED and not Path(source).exists()


def read(
    source: str,
    *,
    text: str,
    label: str,
    rows: int,
    words: int | None = None,
    corpus: str = CORPUS,
    values: Sequence[str] = (),
) -> StandIn:
    """Read rows in a fixed order: `rows` that stand for private ones, then at most 2,000 to test on.

    With `values`, rows of other labels are "other" if it is one of them, and are excluded otherwise.
    """
    scanned = pl.scan_parquet(_EVERYDAY).rename({"domain": "topic"}) if ships(source) else Files.at(source).scan()
    public = public_rows(scanned, text, label)
    if values:
        listed = by_name(label).cast(pl.String)
        listed = pl.when(listed.is_in(values)).then(listed).otherwise(pl.lit(OTHER if OTHER in values else None))
        public = public.with_columns(listed.alias(label)).drop_nulls()
    with seam("reading the public table", InputError, READ_HINT):
        order = np.random.default_rng(0).permutation(public.height)
        texts = [" ".join(str(cell).split()[:words]) for cell in public[text].to_list()]
        labels: Values = np.array([str(cell) for cell in public[label].to_list()])
    left = public.height - rows
    if left < 20:
        msg = f"{public.height:,} public rows with text and label; {rows:,} serve as private rows and 20 or more test"
        raise InputError(msg, "give fewer --rows, or more public rows")
    stands, tested = order[:rows], order[rows : rows + MOST_TESTED]
    require_classes(labels[stands], "label")
    return StandIn(
        tuple(texts[row] for row in stands), labels[stands], tuple(texts[row] for row in tested), labels[tested], corpus
    )
