"""Figure 1 of paper 001 done again: as printed, with our scores, and with the paper's formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from dptext_etl.allocation import Allocation, score
from dptext_etl.guarantee import MICRO

WORDS = ("The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog")
PRINTED = (2.17, 1.01, 0.43, 0.38, 0.38, 1.49, 2.07, 0.79, 0.28)
TOTAL = 9.0
WAYS: dict[str, Literal["code"] | bool] = {"ours": False, "formulas as printed": True, "the paper's code": "code"}
FIVE = ("ic", "pos", "ner", "wi", "sd")


def figure(nltk_data: Path) -> str:
    """Write the table; rows with WordNet only where NLTK's data are.

    Args:
        nltk_data: Folder of NLTK's data.
    """
    inverse = [1.0 / part for part in PRINTED]
    ours = Allocation(total=TOTAL, scores=FIVE)
    rows = [
        ("paper, Figure 1", [f"{part:.2f}" for part in PRINTED]),
        ("scores that it implies", [f"{part / sum(inverse):.4f}" for part in inverse]),
        *((f"our `{name}`", [f"{value:.3f}" for value in score.load(name)(ours).of(WORDS)]) for name in FIVE),
        ("**ours**", [f"**{part / MICRO:.2f}**" for part in ours.over(WORDS)]),
    ]
    if nltk_data.exists():
        tools = {"tagger": f"nltk:{nltk_data}", "information": f"wordnet:{nltk_data}"}
        for title, printed in WAYS.items():
            other = Allocation(total=TOTAL, scores=FIVE, printed=printed, **tools)
            rows.append((f"{title}, NLTK and WordNet", [f"{part / MICRO:.2f}" for part in other.over(WORDS)]))
    table = [["", *WORDS], ["---"] * (len(WORDS) + 1), *([title, *cells] for title, cells in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in table)
