"""The commands that run a paper's tables: the page has a place for each, and the smallest run fills it."""

import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "studies"
PAGE = (STUDIES / "reports" / "papers.md").read_text(encoding="utf-8")


@pytest.fixture
def reproduce(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    if not (ROOT.parent / "shared" / "data").is_dir():
        pytest.skip("shared/data does not lie next to this checkout")
    from frontier import reproduce

    yield reproduce
    for name in [name for name in sys.modules if name.partition(".")[0] in {"frontier", "rewriting_again"}]:
        del sys.modules[name]


def test_the_page_shows_a_run_of_every_paper():
    for paper in ("000", "001", "002", "003", "004"):
        part = re.search(f"<!-- paper-{paper}: start -->(.*?)<!-- paper-{paper}: end -->", PAGE, re.DOTALL)[1]
        assert "| --- |" in part
        assert re.search(r"\*Run of \d{4}-\d\d-\d\d: \d+ training and \d+ test texts", part), paper
    makefile = (STUDIES / "Makefile").read_text(encoding="utf-8")
    assert "paper-000 paper-001 paper-002 paper-003 paper-004: paper-%:" in makefile


@pytest.mark.thorough
@pytest.mark.parametrize("paper", ["000", "001", "002", "004"])
def test_the_smallest_run_prints_the_papers_figures_and_ours(reproduce, tmp_path, paper):
    pytest.importorskip("dptext_etl_models")
    out = tmp_path / "tables.md"
    reproduce.main([paper, "--rows", "24", "--tests", "20", "--slow", "0.5", "--out", str(out)])
    tables = out.read_text(encoding="utf-8")
    assert re.search(r"\d / -?\d", tables)
    assert reproduce.placed(PAGE, paper, tables).count(tables.strip()) == 1


@pytest.mark.thorough
def test_given_weights_are_used(reproduce, tmp_path):
    """A folder with a model under the paper's name is fine-tuned and read in place of the included one."""
    language_model = pytest.importorskip("dptext_etl_models.inference.language_model")
    for name, ours in (("bert-base-uncased", "example-masked"), ("gpt2", "example-causal")):
        (tmp_path / "weights" / name).mkdir(parents=True)
        for role, item in language_model.model_files(ours).items():
            shutil.copy(item.path, tmp_path / "weights" / name / role.removeprefix("model/"))
    from frontier import setups

    setup = setups.Setup(24, 20, tmp_path / "weights")
    task = setup.task("sst2")
    guessed = setups.learned(setup, task, *(part[:20] for part in (task.texts[0], task.labels[0])))(task.texts[1])
    assert set(guessed) <= {str(label) for label in task.labels[0]}
    assert setups.perplexity(setup, task.texts[1]) > 50
    pairs = setup.task("mrpc")
    assert 0 <= setups.figure(setup, pairs, *pairs.texts) <= 100


@pytest.mark.parametrize("words", [["000", "--models", "no-such-folder"], ["005"]])
def test_what_is_missing_is_named_before_anything_runs(reproduce, words, capsys):
    with pytest.raises(SystemExit):
        reproduce.main(words)
    assert re.search("there is no folder|invalid choice", capsys.readouterr().err)
