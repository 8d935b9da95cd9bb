"""Label texts by a released classifier, as a function of Spark."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from dptext_etl.errors import bare
from dptext_etl.families.aggregate import Classifier
from dptext_etl.runner.publish.export import open_classifier
from dptext_etl.spark.functions import arrow_udf

_opened = lru_cache(maxsize=4)(Classifier.read)


@bare
def label_function(classifier: Classifier | str | Path, corpus: str | None = None) -> Any:
    """Return a function of a column of texts that returns their labels, strings; null where the text is null.

    It reads your own texts and costs nothing. Nothing of it is a release: labels of private texts are private.
    `spark.udf.register(NAME, label_function(…))` makes it a function of SQL.

    Args:
        classifier: The classifier, or the place of its release (`open_classifier`).
        corpus: The folder of the classifier's corpus on the workers; by default the installed one of that name.
    """
    declare = arrow_udf("label_function", "label a Parquet file by `dptext label`")
    content = (classifier if isinstance(classifier, Classifier) else open_classifier(classifier)).content()

    def labels(texts: pa.Array) -> pa.Array:
        return _opened(content).label(texts, corpus)

    labels.__annotations__ = {"texts": pa.Array, "return": pa.Array}
    return declare(labels, "string")
