"""Measure how well a classifier learns from a synthetic table, next to guesses that need no private text.

No row of the table belongs to a record, so whatever compares a row with its raw text is excluded, by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from dptext_etl.checks.sink_files import Manifest
from dptext_etl.corpora import Corpus
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.families.aggregate import Noisy, read_statistic
from dptext_etl.families.aggregate.statistic import OTHER
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import Synthetic
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard.charging import at_most
from dptext_etl.runner.source.roles import open_table
from dptext_etl.runner.source.table import Files, schema_of
from dptext_etl_eval.baselines import Asked, guesses, labeled_texts
from dptext_etl_eval.classifier import Guesses, crossed, scores
from dptext_etl_eval.evaluators import of_rows
from dptext_etl_eval.evidence import Evidence, Listener, without_rows
from dptext_etl_eval.measure import DISCRIMINANT, Metric, Score, attacks
from dptext_etl_eval.metrics.downstream import free_guess
from dptext_etl_eval.pairs import LABEL, RAW, Free, Pairs, Rows, Values, raw_sample
from dptext_etl_eval.readers import WORDS, Readers
from dptext_etl_eval.report import refuse_published
from dptext_etl_eval.statistics import macro_f1


@dataclass(frozen=True)
class LearnedFromTable(Metric):
    """Macro-F1 of a classifier that learned from a synthetic table, next to raw texts and free guesses."""

    title: ClassVar[str] = "Labels that a classifier gets right"
    says: ClassVar[str] = (
        "TF-IDF and logistic regression, whose labels weigh the same. It learns from the synthetic table and is tested "
        "on raw texts, which may be among those that were summed. With raw texts in the place of the table it learns "
        "from other rows, in five folds. The linear discriminant of the statistic comes with the release. A reader of "
        "vectors learns from the vectors of its texts. A reader of scores regresses scores on words, or on vectors. "
        "Label names, "
        "public data, written texts, public labeled texts, and zero-shot labels need no private text: a table "
        "that does no better brings nothing."
    )

    texts: tuple[str, ...]  # the texts of the table
    labels: Values  # their labels
    statistic: Noisy  # the statistic of its manifest
    names: dict[str, str]  # words that describe a label, from the policy
    free: Free = field(default_factory=Free)  # what guesses labels without any private text
    pool: Corpus | None = None  # the corpus of the table's texts; None for the corpus of the statistic

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return all figures; the releases of `pairs` are not read."""
        raw = crossed(pairs, LABEL, train=RAW, test=RAW)
        listed, readers = np.unique(raw.truth), Readers(self.texts, self.labels, self.statistic, self.names, self.pool)
        results = []
        for name, found in {DISCRIMINANT: readers.classify(pairs.raw), **readers.guesses(pairs.raw)}.items():
            figures = None if name == WORDS else _MACRO_F1
            results += scores(Guesses(raw.truth, found, raw.blind), raw, f"{{figure}}, {name}", pairs.subject, figures)
        free = guesses(self.free, listed, pairs.raw)
        return results + [free_guess(what, guessed, pairs, raw) for what, guessed in free.items()]


_MACRO_F1 = {"macro-F1": macro_f1}


def evaluate_table(
    policy: Policy,
    out: Path,
    *,
    released: str | None = None,
    rows: int = 2_000,
    label: str | None = None,
    free_guesses: Asked | None = None,
    tested: str | None = None,
    progress: Listener | None = None,
    **given: Any,
) -> Evidence:
    """Measure the published synthetic table of a policy against its raw table, or against raw rows of another table.

    `tested` is a table of the same columns that was not summed; `free_guesses` names the free guesses.
    """
    synthetic = policy.synthetic
    if synthetic is None or synthetic.labels is None:
        msg = "the synthetic table has no labels, so no classifier learns from it"
        raise PolicyError(msg, "`read_statistic` reads its mean; a table with labels names them in [synthetic]")
    if label is not None and (label,) != synthetic.labels.all_columns:
        names = ", ".join(map(repr, synthetic.labels.all_columns))
        msg = f"the synthetic table has the labels of {names} only"
        raise PolicyError(msg, "leave out --label; other labels need their own table")
    _refuse_links(given)
    place = released or Layout.of(policy).sink
    refuse_published(out, place)
    manifest = Manifest.read(Layout.of_sink(place, policy.storage_options))
    if manifest is None:
        raise InputError("no synthetic table is published there", "`dptext run POLICY` publishes it")
    manifest.require_of(policy, manifest.partition)
    statistic = read_statistic({"columns": manifest.columns}, policy.statistic.corpus)
    text, label_of = pl.col(synthetic.column).alias("text"), _label_of(synthetic)
    with seam("reading the synthetic table", InputError, "`dptext check` says more"):
        table = scan_published(place, policy.storage_options).select(text, label_of).collect()
    measure = LearnedFromTable(
        tuple(table["text"]),
        table["label"].to_numpy().astype(str),
        statistic,
        synthetic.names,
        _free(free_guesses or Asked(), synthetic),
        synthetic.opened_pool(policy.storage_options),
    )
    pairs = _raw(policy, synthetic, rows, tested)
    return without_rows(synthetic.column, measure, pairs, cost_of(policy, manifest), progress)


def cost_of(policy: Policy, manifest: Manifest) -> dict[str, Any]:
    """Return the charge of the whole table for a record, and for a person if known, rounded up; all is public."""
    (column,) = manifest.columns
    statistic = column["statistic"]
    facts = {
        "mechanism": column["mechanism"],
        "class": column["class"],
        "epsilon of the whole table for one record": at_most(statistic["epsilon"]),
        "delta": statistic["delta"],
    }
    if policy.unit == "subject":
        facts["records of a person that count"] = statistic["per_subject"]
        facts["epsilon of the whole table for a person"] = at_most(statistic["per_subject"] * column["unit_epsilon"])
    return {**facts, "rows": column["synthetic"]["rows"], "assumptions": column["assumptions"]}


def _refuse_links(given: dict[str, Any]) -> None:
    """Refuse what compares a row of the release with its raw text: no row of a synthetic table belongs to a record."""
    if refused := of_rows(given, "attribute", "subject", "models", "show_texts", "partition"):
        names = ", ".join(sorted(type(attack).__module__.rpartition(".")[2] for attack in attacks()))
        msg = f"{', '.join(refused)}: no row of a synthetic table belongs to a record, so these attacks are excluded: "
        raise PolicyError(msg + names, "the epsilon of the table bounds what anyone learns of a record")


def _free(free_guesses: Asked, synthetic: Synthetic) -> Free:
    """Read what needs no private text; public tables have the columns of the policy, and written texts its labels."""
    public = None if free_guesses.public is None else _public(free_guesses.public, synthetic)
    written = None if free_guesses.written is None else labeled_texts(free_guesses.written, "text", "label")
    asked = (free_guesses.zero_shot, free_guesses.about, synthetic.names, free_guesses.progress)
    return Free(public, written, *asked)


def _raw(policy: Policy, synthetic: Synthetic, rows: int, tested: str | None) -> Pairs:
    """Return a sample of raw texts with their labels, as the statistic counts these; unlisted ones go by "other"."""
    text, name, listed = "text", "label", policy.statistic.labels
    subject = policy.subject if policy.unit == "subject" else None
    table = open_table(policy, Layout.of(policy)).frame if tested is None else Files.at(tested).scan(all_text=True)
    frame = table.select(
        pl.col(synthetic.column).alias(text),
        _label_of(synthetic),
        *([] if subject is None else [pl.col(subject).cast(pl.String).alias("subject")]),
    )
    with seam("reading the raw table", InputError, "is the file intact and readable?"):
        labeled_rows = frame.drop_nulls(text).filter(pl.col(name).is_in(list(listed))).collect()
    return raw_sample(
        labeled_rows, text, name, rows, what="a text and a listed label", subject="subject" if subject else None
    )


def _label_of(synthetic: Synthetic, unlisted: str | None = OTHER) -> pl.Expr:
    """Return the listed label of a row, as the statistic names it."""
    assert synthetic.labels is not None  # noqa: S101  (the caller looked)
    label = synthetic.labels.label_of()
    return pl.when(label.is_in(list(synthetic.labels.cells))).then(label).otherwise(pl.lit(unlisted)).alias("label")


def _public(place: str, synthetic: Synthetic) -> Rows:
    """Read public texts with listed labels."""
    text, name = "text", "label"
    frame = Files.at(place).scan()
    if missing := [column for column in synthetic.columns if column not in schema_of(frame)]:
        raise InputError(f"the public table has no column {', '.join(map(repr, missing))}", "rename its columns")
    values = [] if synthetic.labels is None else list(synthetic.labels.cells)
    with seam("reading the public table", InputError, "is the file intact and readable?"):
        strings = frame.select(pl.col(synthetic.columns).cast(pl.String)).drop_nulls()
        rows = (
            strings.select(pl.col(synthetic.column).alias(text), _label_of(synthetic, unlisted=None))
            .drop_nulls()
            .collect()
        )
        rows = rows.filter(pl.col(name).is_in(values))
    if rows[name].n_unique() < 2:
        raise InputError(
            "fewer than two of the listed labels occur in the public table", "name them as the policy does"
        )
    return tuple(rows[text].cast(pl.String)), rows[name].to_numpy().astype(str)
