"""Release the table of `dptext demo` under three keys, and write the means of its figures for README's chart."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from dptext_etl.cli.demo_folder import DemoFolder, release

FIGURES = Path(__file__).with_name("demo_figures.json")
KEYS = 3


def measured() -> dict[str, float]:
    """Return macro-F1 of one new key by name of the form or baseline."""
    with tempfile.TemporaryDirectory() as folder:
        place = DemoFolder(Path(folder) / "demo")
        place.prepare()
        facts = release(place)
    forms = facts["forms"]
    return {
        "rows, ε = 1": forms["rows"]["f1"],
        "label names, no text": facts["f1_label_names"],
        "synthetic table, ε = 1": forms["synthetic"]["f1"],
        "its classifier, ε = 1": forms["synthetic"]["f1_classifier"],
        "raw texts": facts["f1_raw"],
    }


def main() -> None:
    """Write the means over the keys."""
    runs = [measured() for _ in range(KEYS)]
    means = {name: round(sum(run[name] for run in runs) / KEYS, 3) for name in runs[0]}
    facts = {"command": "make -C studies demo-figures", "keys": KEYS, "macro_f1": means}
    FIGURES.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(means)


if __name__ == "__main__":
    main()
