"""`python studies/former_learner.py`: compare the learner of `dptext evaluate` with the one before it.

The figures of trained latent mechanisms (`latent_utility.py`) come from the former learner. Both read the same releases
here: texts of DP-BART-CLV, whose model ships, and of `surrogate`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import surrogate_measures as measures
from latent_utility import DATA, MODEL, N_REC, Corpus, corpora, f1, released

from dptext_etl.corpora import Corpus as PublicCorpus
from dptext_etl_eval.statistics import macro_f1
from dptext_etl_models.mechanisms.dpbart import DPBart

ROWS = 500
KEYS = 3


def former(texts: Sequence[str], corpus: Corpus) -> float:
    """Return the macro-F1 of the former learner: one and two words, C = 4, labels weigh as often as they occur."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    weighted = TfidfVectorizer(ngram_range=(1, 2)).fit(texts)
    model = LogisticRegression(C=4.0, max_iter=2000).fit(weighted.transform(texts), list(corpus.labels))
    return float(macro_f1(np.array(corpus.tested_labels), model.predict(weighted.transform(corpus.tested))))


def main() -> None:
    """Print a line for the raw texts, and one for each release."""
    snips = corpora(DATA, ROWS)[0]
    texts = list(snips.texts)
    lines = {"raw texts": [texts]}
    for epsilon in (4.0, 8.0):
        place = PublicCorpus.open(measures.EVERYDAY)
        made = measures.surrogate(place, epsilon)
        lines[f"surrogate at {epsilon:g}"] = [measures.released(made, texts) for _ in range(KEYS)]
    for epsilon in (1000.0, 2500.0, 5000.0):
        clv = DPBart(variant="clv", model=MODEL, epsilon=epsilon, n_rec=N_REC, num_beams=1)
        lines[f"DP-BART-CLV at {epsilon:,g}"] = [released(clv, texts) for _ in range(KEYS)]
    print("Snips, macro-F1 on raw test texts", "learner of `dptext evaluate`", "former learner", sep=" | ")
    for name, figures_of_line in lines.items():
        print(
            name,
            *(f"{np.mean([learn(out, snips) for out in figures_of_line]):.3f}" for learn in (f1, former)),
            sep=" | ",
        )


if __name__ == "__main__":
    main()
