"""Label texts by a released classifier, as an expression of Polars."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dptext_etl.corpora import Corpus
from dptext_etl.data_types import by_name
from dptext_etl.errors import bare
from dptext_etl.families.aggregate import Classifier
from dptext_etl.runner.publish.export import open_classifier


@bare
def label(text: str | pl.Expr, classifier: Classifier | str | Path, corpus: Corpus | str | None = None) -> pl.Expr:
    """Return the label of every text of a column, strings; null where the text is null.

    It reads your own texts and costs nothing. Nothing of it is a release: labels of private texts are private.

    Args:
        text: The column of texts, by name or as an expression.
        classifier: The classifier, or the place of its release (`open_classifier`).
        corpus: The corpus of the classifier, or its folder; by default the installed one of that name.
    """
    opened = classifier if isinstance(classifier, Classifier) else open_classifier(classifier)

    def labels(texts: pl.Series) -> pl.Series:
        return pl.Series(texts.name, opened.label(texts.cast(pl.String).to_arrow(), corpus), pl.String)

    column = by_name(text) if isinstance(text, str) else text
    return column.map_batches(labels, return_dtype=pl.String, is_elementwise=True)
