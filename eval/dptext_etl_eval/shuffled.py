"""Measure how near the shares of labels in a shuffled release come to the true shares.

No text of the release belongs to a record, so whatever compares a row with its raw text is excluded, by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from dptext_etl.accounting.shuffling import COUNT
from dptext_etl.corpora.corpus import Corpus
from dptext_etl.corpora.frequencies import estimate_frequencies
from dptext_etl.errors import InputError, PolicyError, meant, seam
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.policy import Policy
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import published_manifest
from dptext_etl.runner.shard.charging import at_most
from dptext_etl.runner.source.roles import why_hidden
from dptext_etl.runner.source.table import Files
from dptext_etl_eval.baselines import NO_WORDS, label_names
from dptext_etl_eval.evaluators import of_rows
from dptext_etl_eval.evidence import Evidence, Listener, without_rows
from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import LABEL, Pairs, Values, raw_sample
from dptext_etl_eval.report import refuse_published


@dataclass(frozen=True)
class SharesOfLabels(Metric):
    """How far shares of labels that are counted in a shuffled release are from the true ones."""

    title: ClassVar[str] = "Shares of labels that a reader counts"
    says: ClassVar[str] = (
        "A reader gives each public text the label whose name is nearest to it, and counts. The figure is the share of "
        "records whose label would have to change to turn counted shares into true ones (total variation): 0 is "
        "perfect. Raw texts, counted by the same rule, show the errors of the rule itself; the corpus without any "
        "private text is the baseline. Neighborhood shares remove the draw's error, not the pull toward the corpus."
    )

    counts: Mapping[str, int]  # how often each public text was drawn
    corpus: tuple[str, ...]  # texts of the corpus
    epsilon: float  # epsilon of a draw
    near: int  # number of near texts of the mechanism

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the distance of counted and of neighborhood shares; the releases of `pairs` are not read."""
        labels = np.unique(np.asarray(pairs.label))
        rest = [] if pairs.rest is None else pairs.rest[LABEL].to_list()
        labels = np.unique([*labels.tolist(), *rest])
        true = _shares(labels, Counter([*np.asarray(pairs.label).tolist(), *rest]))
        guessed = label_names(labels, self.corpus)
        if guessed is None:
            return [Score("distance of counted shares", None, note=NO_WORDS)]
        topics = dict(zip(self.corpus, guessed.tolist(), strict=True))
        seen, raw = Counter[str](), label_names(labels, pairs.raw)
        for text, count in self.counts.items():
            seen[topics[text]] += count
        shares = estimate_frequencies(self.counts, topics, epsilon=self.epsilon, near=self.near)
        near = np.clip(_shares(labels, {item.topic: item.neighborhood_share for item in shares}), 0.0, None)
        blind = _distance(true, _shares(labels, Counter(topics.values())))
        by_rule = None if raw is None else _distance(true, _shares(labels, Counter(raw.tolist())))
        return [
            Score("distance of counted shares", _distance(true, _shares(labels, seen)), blind=blind, raw=by_rule),
            Score("distance of neighborhood shares", _distance(true, near / near.sum()), blind=blind, raw=by_rule),
        ]


def _shares(labels: Values, counts: Mapping[str, float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    shares = np.array([counts.get(str(label), 0.0) for label in labels], np.float64)
    return shares / shares.sum() if shares.sum() else shares


def _distance(first: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(np.abs(first - other).sum() / 2)


def evaluate_shuffled(
    policy: Policy,
    out: Path,
    *,
    released: str | None = None,
    rows: int = 2_000,
    label: str | None = None,
    partition: str | None = None,
    progress: Listener | None = None,
    **given: Any,
) -> Evidence:
    """Measure the published shuffled release of a policy against its raw table."""
    if label is None:
        msg = "a shuffled release holds no ids, so its measure counts labels, and no label column was named"
        raise PolicyError(msg, "--label COLUMN, whose values are words; `estimate_frequencies` counts your own topics")
    if refused := of_rows(given, "attribute", "subject", "models", "show_texts"):
        msg = f"{', '.join(refused)}: no text of a shuffled release belongs to a record, so no attack on rows applies"
        raise PolicyError(msg, "the central epsilon of the release bounds what anyone learns of a record")
    layout = Layout.of(policy, partition)
    place = released or layout.sink
    refuse_published(out, place)
    published_manifest(Layout.of_sink(place, policy.storage_options)).require_of(policy, layout.partition)
    (column,) = policy.column_policies()
    text, mechanism = str(column.column), column.mechanism
    assert isinstance(mechanism, ChoiceMechanism)  # noqa: S101  (the policy says so)
    measure = SharesOfLabels(
        _counts(place, policy, text), tuple(Corpus.open(mechanism.corpus).texts), mechanism.epsilon, mechanism.near
    )
    if not measure.counts.keys() <= set(measure.corpus):
        raise InputError("the release holds texts that are not of the policy's corpus", "`dptext check` says more")
    pairs = _raw(layout, text, label, rows)
    return without_rows(text, measure, pairs, _cost(policy), progress)


def _counts(place: str, policy: Policy, text: str) -> dict[str, int]:
    with seam("reading the shuffled release", InputError, "`dptext check` says more"):
        table = scan_published(place, policy.storage_options).collect()
    if COUNT in table.columns:
        return dict(table.group_by(text).agg(pl.col(COUNT).sum()).iter_rows())  # once for each label
    return dict(table.drop_nulls(text).group_by(text).len().iter_rows())


def _raw(layout: Layout, text: str, label: str, rows: int) -> Pairs:
    """Return a sample of raw texts with their labels."""
    frame = Files.find(layout).scan(all_text=True)
    if label not in (columns := frame.collect_schema().names()):
        raise InputError(f"the raw table has no column {label!r}", meant([label], columns, why_hidden(frame)))
    with seam("reading the raw table", InputError, "is the file intact and readable?"):
        labeled_rows = frame.select(text, pl.col(label).cast(pl.String).alias("label")).drop_nulls().collect()
    return raw_sample(labeled_rows, text, "label", rows, what="a text and a label")


def _cost(policy: Policy) -> dict[str, Any]:
    """Return the charge of a record, rounded up; all of it is public."""
    (column,) = policy.column_policies()
    shuffled, mechanism = policy.shuffled, column.mechanism
    assert shuffled is not None  # noqa: S101  (the caller looked)
    assert isinstance(mechanism, ChoiceMechanism)  # noqa: S101
    return {
        "mechanism": mechanism.name,
        "class": mechanism.guarantee.guarantee_class.value,
        "epsilon of a record": at_most(float(shuffled.epsilon(mechanism.law))),
        "delta": shuffled.delta,
        "epsilon of a draw, to those who see whose it is": at_most(mechanism.epsilon),
        "records of a person that take part": shuffled.per_subject,
    }
