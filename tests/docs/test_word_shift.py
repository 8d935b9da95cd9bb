"""The page of an export says how far draws move a word, with the figures that were measured on public texts."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_figures_of_an_export_are_the_measured_ones():
    facts = json.loads((ROOT / "studies" / "benchmarks" / "word_shift.json").read_text("utf-8"))
    template = (ROOT / "dptext_etl" / "runner" / "publish" / "export_readme.md.jinja").read_text("utf-8")
    shares = [facts["shares"][title]["card"] for title in ("raw texts", "drawn at ε = 4")]
    sentence = re.search(rf"On public texts \({facts['set']}, ε = 4, `{facts['corpus']}`\).*", template)[0]
    assert re.findall(r"(\d+)%", sentence) == [f"{100 * share:.0f}" for share in shares]
