"""Run every cell of every table at the size "full": 24 generated rows, copies of included models as given weights."""

import re
import shutil
import sys

import pytest

COPIES = {
    "roberta-base": "english-small",
    "bert-base-uncased": "example-masked",
    "deberta-v3-base": "example-masked",
    "all-MiniLM-L6-v2": "english-small",
    "all-MiniLM-L12-v2": "english-small",
    "all-mpnet-base-v2": "example-masked",
    "gpt2": "example-causal",
    "gpt2-paraphraser": "english-paraphraser",
    "flan-t5-base": "english-denoiser",
    "flan-t5-large": "english-denoiser",
    "bart-base": "english-autoencoder",
    "adept": "english-lstm",
}
"""The included model whose copy plays each of the papers' weights; this command prunes and trains both PR models."""


@pytest.fixture
def weights(tmp_path):
    language_model = pytest.importorskip("dptext_etl_models.inference.language_model")
    for name, ours in COPIES.items():
        (tmp_path / "weights" / name).mkdir(parents=True)
        for role, item in language_model.model_files(ours).items():
            shutil.copy(item.path, tmp_path / "weights" / name / role.removeprefix("model/"))
    return tmp_path / "weights"


def _tables(page):
    """Yield the number, the heads, and the rows of each table of a page."""
    for number, lines in re.findall(r"\*\*(?:Table )?(\d|Figure \d).*\*\*\n\n((?:\|.*\n)+)", page):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
        yield number, head, rows


@pytest.fixture
def asked(monkeypatch, reproduce):
    """Return the folders of weights that tables ask for; what describes them on the page does not count."""
    from frontier import setups

    names, weights = set(), setups.Setup.weights

    def recorded(setup, name, ours):
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") != "frontier.described":
            frame = frame.f_back
        if frame is None:
            names.add(name)
        return weights(setup, name, ours)

    monkeypatch.setattr(setups.Setup, "weights", recorded)
    return names


@pytest.mark.thorough
@pytest.mark.parametrize("paper", ["000", "001", "002", "003", "004"])
def test_every_cell_of_a_paper_has_a_figure_at_full_size(reproduce, weights, asked, tmp_path, monkeypatch, paper):
    """Classifiers train for one epoch, PR for two steps of each stage, and PR+ for a second at most.

    Figures are means of two runs; paper 001, which trains most, has one. Paper 003 is the slowest: 96 releases with ten
    beams. Paper 004 has 5,000 words with a distance between all pairs, and 20 simulated attacks. A gain has no value
    where raw texts bring nothing.
    """
    from frontier import described, paper_003, setups
    from papers import settings

    few = {"epochs": 1, "seeds": 2, "steps": 2, "public": 200, "minutes": 0.015, "vocabulary": 5000, "attacks": 20}
    full = settings.of_size("full") | few | ({"seeds": 1} if paper == "001" else {})
    monkeypatch.setattr(settings, "of_size", lambda size: full)
    monkeypatch.setattr(paper_003, "ROOT", tmp_path)
    setup = setups.Setup(paper, "full", rows=24, tests=24, models=weights, data=None)
    out = tmp_path / "tables.md"
    reproduce.write(setup, out, page=False, kept=tmp_path / "kept")
    page = out.read_text(encoding="utf-8")
    tools = {name: settings.tools()[name] for name in settings.tools_of(paper)}
    ours = {
        name: tool for name, tool in tools.items() if "folder" in tool or not {"always", "sets", "file"} & tool.keys()
    }
    assert asked == {tool.get("folder", name) for name, tool in ours.items()}, "the settings list all that tables use"
    given = {tool.get("folder", name): tool.get("paper", name) for name, tool in ours.items()}
    replaced = set(re.findall(r"in the place of (.*?)(?=; |\. Opposite|\.\n)", page))
    assert not replaced & {given[name] for name in COPIES if name in given}
    assert replaced >= {tool["paper"] for name, tool in tools.items() if "always" in tool}
    assert all(described.replaced(setup, name) == "" for name in tools if name in COPIES)
    budgets, absent = {}, []
    for number, head, rows in _tables(page):
        shown = budgets.setdefault(number, set())
        shown |= {name.removeprefix("ε = ") for name in head if name.startswith("ε = ")}
        shown |= {row[head.index("ε")] for row in rows if "ε" in head}
        absent += [
            (number, name, cell)
            for row in rows
            for name, cell in zip(head, row, strict=True)
            if re.search(r"\d / –", cell) and not name.startswith(("γ", "gain"))
        ]
    wanted = setup.settings["table"]
    assert {number: {float(value.replace(",", "")) for value in shown} for number, shown in budgets.items()} == {
        number: set(map(float, table["every"])) for number, table in wanted.items()
    }
    assert absent == []
