"""Every policy of a page, a notebook, or an example has a form and an epsilon that `docs/choose.md` recommends."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECOMMENDED = {"rows": ("surrogate", 8.0), "shuffled": ("surrogate", 8.0), "synthetic": ("maxent", 4.0)}
"""The mechanism of each form, and the greatest epsilon of a text or of a person's statistic."""
CAP = 20.0
"""The greatest epsilon of a cap."""
LEFT: dict[str, str] = {}
"""Files that are not judged, each with the reason."""
MARK = "not a recommendation"
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
EPSILON = r"\bepsilon[\"']?\s*[=:]\s*([\d.]+)"
MECHANISM = re.compile(r"mechanism[\"']?\s*[=:]\s*\{[^}]*?\bname[\"']?\s*[=:]\s*[\"'](\w+)[\"']([^}]*)")
OBJECT = re.compile(
    r"\b(DPMLM|DPPrompt|DPBart|DPParaphrase|ADePT|CusText|Diffractor|Madlib|SanText|Surrogate)\(([^)]*)"
)
LOADED = re.compile(r"\bload\(\"(\w+)\"\)\(([^)]*)")
LIMIT = re.compile(r"\bcap[\"']?\s*[=:]\s*(?:\{|Cap\()[^})]*?" + EPSILON)
RAISES = re.compile(r"^sed .*s/\^cap = \.\*/.*$", re.MULTILINE)
"""Commands of the runbook that raise a cap."""


def sources():
    """Return every file with policies that a reader may copy."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("*.md"))
    for folder in ("examples", "dagster_project"):
        paths = sorted((ROOT / folder).iterdir())
        yield from (path for path in paths if path.suffix in (".md", ".ipynb", ".toml", ".py", ".sh", ".yaml"))


def parts(path, text):
    """Return the parts that a reader copies as a whole: blocks of a page, cells of a notebook, or the file."""
    if path.suffix == ".md":
        return FENCE.findall(text)
    if path.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [text]


def form_of(part):
    entry = r"^\[{0}\]|\b{0}[\"']?\s*[=:]\s*\{{"
    forms = ("shuffled", "synthetic")
    return next((form for form in forms if re.search(entry.format(form), part, re.MULTILINE)), "rows")


def faults(part):
    """Return the mechanisms and caps of a part that `docs/choose.md` does not recommend."""
    part = part.replace('\\"', '"')
    if MARK in part:
        published = "[[column]]" in part and not re.search(r"^publish = false\b", part, re.MULTILINE)
        return ["is marked, but does not hold publish = false"] if published else []
    name, highest = RECOMMENDED[form_of(part)]
    found = []
    for shown, entries in [*MECHANISM.findall(part), *OBJECT.findall(part), *LOADED.findall(part)]:
        epsilon = re.search(EPSILON, entries)
        if shown.lower() != name or not epsilon or float(epsilon[1]) > highest:
            found.append(f"{shown} at epsilon {epsilon[1] if epsilon else 'of its own'}")
    return found + [f"a cap of {value}" for value in LIMIT.findall(RAISES.sub("", part)) if float(value) > CAP]


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in sources()])
def test_policies_are_as_recommended(path):
    found = [fault for part in parts(path, path.read_text(encoding="utf-8")) for fault in faults(part)]
    if path.name in LEFT:
        assert found, "this file has no fault: delete it from LEFT"
    else:
        assert found == []


def test_the_rule_is_that_of_the_page():
    page = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    table = page.partition("## Which mechanism")[2].partition("\n\n[The interactive report]")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.count("|") > 3]
    named = {name for row in rows[2:] for name in re.findall(r"`(surrogate|custext|dpmlm|maxent)`", row[1])}
    assert named == {RECOMMENDED["rows"][0]}
    assert max(float(value) for row in rows[2:] for value in re.findall(r"\d+", row[2])) == RECOMMENDED["rows"][1]
    assert "F1 at ε = 1 / 4 |" in page, "synthetic tables were measured up to epsilon 4"
    assert "The cap of 20 that" in page


RECOMMENDED_PART = """cap = { measure = "pure", epsilon = 20, period = "2026" }
[[column]]
name = "text"
mechanism = { name = "surrogate", epsilon = 4.0, corpus = "everyday-30k-2" }
"""


def test_faults_are_found():
    assert faults(RECOMMENDED_PART) == []
    assert faults(RECOMMENDED_PART.replace("epsilon = 20", "epsilon = 200")) == ["a cap of 200"]
    assert faults(RECOMMENDED_PART.replace("4.0", "9.0")) == ["surrogate at epsilon 9.0"]
    assert faults(RECOMMENDED_PART.replace("surrogate", "custext")) == ["custext at epsilon 4.0"]
    assert faults('mechanism={"name": "custext", "epsilon": 2.0},') == ["custext at epsilon 2.0"]
    assert faults("mechanism = DPBart(epsilon=500.0)") == ["DPBart at epsilon 500.0"]
    assert faults('cap = Cap(measure="pure", epsilon=700, period="all")') == ["a cap of 700"]
    assert faults("# not a recommendation\n" + RECOMMENDED_PART) == ["is marked, but does not hold publish = false"]
    assert faults("publish = false  # not a recommendation\n" + RECOMMENDED_PART.replace("4.0", "99")) == []
    synthetic = '[synthetic]\nmechanism = { name = "maxent", epsilon = 5.0 }'
    assert faults(synthetic) == ["maxent at epsilon 5.0"]
