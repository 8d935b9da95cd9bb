"""Build the corpora of a data set's domain, as `make -C studies surrogate-utility` does; both share them."""

from __future__ import annotations

from functools import cache

import surrogate_measures as measures

from dptext_etl.corpora import Corpus
from frontier.data import CUTS, DATA, ROOT

WORK_FOLDER = ROOT / "target" / "surrogate-utility"


@cache
def domain_corpus(data_set: str) -> Corpus:
    """Return the corpus of public texts of the domain of a data set; it is built once."""
    corpus = measures.corpus(CUTS[data_set].domain, DATA, WORK_FOLDER, {})
    assert corpus is not None
    return corpus
