"""`make -C studies word-shift`: how far `surrogate` moves the share of texts that hold a word, on public texts.

It writes `studies/benchmarks/word_shift.json`, which holds the figures of pages and exports.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import surrogate_measures as measures
from surrogate_measures import EVERYDAY

from dptext_etl.corpora import Corpus

ROOT = Path(__file__).resolve().parent.parent
DATA, RESULT = ROOT.parent / "shared" / "data", ROOT / "studies" / "benchmarks" / "word_shift.json"
WORDS = ("card", "money", "account", "please")
EPSILONS = (1.0, 4.0, 8.0)


def shares(texts: list[str]) -> dict[str, float]:
    """Return the share of texts that hold each of `WORDS`."""
    return {
        word: round(sum(bool(re.search(rf"\b{word}\b", text.lower())) for text in texts) / len(texts), 4)
        for word in WORDS
    }


def main() -> None:
    """Measure the shares in the corpus, in raw texts, and in drawn ones."""
    raw, _ = measures.data_sets(DATA)["Banking77"].train
    corpus = Corpus.open(EVERYDAY)
    drawn = {epsilon: measures.released(measures.surrogate(corpus, epsilon), raw) for epsilon in EPSILONS}
    facts = {
        "set": "Banking77",
        "texts": len(raw),
        "corpus": EVERYDAY,
        "shares": {
            "raw texts": shares(raw),
            **{f"drawn at ε = {epsilon:g}": shares(texts) for epsilon, texts in drawn.items()},
            "the corpus": shares(list(corpus.texts)),
        },
    }
    RESULT.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(RESULT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
