"""The commands that run a paper's tables: the page has a place for each, and the smallest run fills it."""

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "studies"
PAGE = (STUDIES / "reports" / "papers.md").read_text(encoding="utf-8")


def test_the_page_has_a_place_for_every_paper_and_says_how_its_tables_were_made():
    for paper in ("000", "001", "002", "003", "004"):
        part = re.search(f"<!-- paper-{paper}: start -->(.*?)<!-- paper-{paper}: end -->", PAGE, re.DOTALL)[1]
        if "| --- |" not in part:
            assert "No run of this paper is on this page yet" in part
            continue
        assert re.search(rf"`make -C studies paper-{paper} PAPER=\"--size \w+ --seed \d\"`", part), paper
        assert re.search(r"^Size \w+: \d+ training", part, re.MULTILINE), paper
        assert part.count("\n| --- |") == len(
            re.findall(r"^Commit [0-9a-f]{12}, [-\d]+(?:; [\d,]+ CPU-seconds)?\.$", part, re.MULTILINE)
        )
        assert part.count("\n| --- |") == part.count("\nWhat differs here: ")
        assert part.count("What differs here: ") == part.count("The paper's settings (")
    makefile = (STUDIES / "Makefile").read_text(encoding="utf-8")
    assert "paper-000 paper-001 paper-002 paper-003 paper-004: paper-%:" in makefile


def test_every_set_has_a_source_a_license_and_a_recipe(reproduce):
    """The page has the table of sets; a command names each set that was not given."""
    from frontier import setups
    from papers import settings
    from recipes.tables import RECIPES

    used = {name for paper in reproduce.PAPERS for name in settings.sets_of(paper)}
    assert used <= settings.sets().keys() == RECIPES.keys()
    assert all(set(about) == {"source", "license", "download"} for about in settings.sets().values())
    assert reproduce.placed(PAGE, "sets", reproduce.sets_table()) == PAGE
    (line,) = reproduce.missing(setups.Setup("004", "smallest", data=None))[1:2]
    assert line.startswith("qnli_dev: https://gluebenchmark.com (from SQuAD 1.1); license: CC BY-SA 4.0; `python -m")


def test_only_the_size_full_leaves_texts_whole(reproduce):
    from frontier import setups

    text = " ".join(["word"] * 400)
    lengths = {
        size: len(setups.Setup("001", size, rows=20).cut(text).split()) for size in ("smallest", "small", "full")
    }
    assert lengths == {"smallest": 6, "small": 32, "full": 400}
    assert setups.Setup("001", "full", rows=24).budgets("1") == [0.1, 0.5, 1, 500, 1000, 1500]


@pytest.mark.thorough
def test_both_divisions_of_paper_001_spend_the_same_total(reproduce):
    """Section 4.1.1: epsilon times the mean number of words of the set, whatever a text's length."""
    from frontier import paper_001, setups

    setup = setups.Setup("001", "smallest", data=None)
    task = setup.task("sst2")
    assert paper_001.equal_totals(setup, task, "1-Diffractor", 0.5) == pytest.approx(0.5 * task.words)
    assert paper_001.equal_totals(setup, task, "DP-BART", 500.0) == 500.0
    evenly = paper_001.made(setup, task, "1-Diffractor", 0.5, ())
    by_scores = paper_001.made(setup, task, "1-Diffractor", 0.5, ("wi", "sd"))
    assert evenly.cost(4) == pytest.approx(by_scores.allocation.total, rel=1e-4)
    assert evenly.cost(4) == pytest.approx(4 * evenly.of(4).epsilon_per_word)
    rows = task.texts[0][:8]
    assert sum(after == before for before, after in zip(rows, evenly.rewrite(rows), strict=True)) < len(rows) / 2


def test_a_run_without_data_says_so_and_a_second_call_continues(reproduce, tmp_path, monkeypatch):
    from frontier import generated, paper_004, setups

    setup, asked = setups.Setup("004", "smallest", data=None), []

    def shown(name):
        asked.append(name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return setups.Shown(name, ["a"], [["1 / 2"]], "1")

    tables = {name: lambda name=name: shown(name) for name in ("one", "two")}
    monkeypatch.setattr(paper_004, "reproduced", lambda setup: tables)
    out = tmp_path / "out.md"
    with pytest.raises(KeyboardInterrupt):
        reproduce.write(setup, out, page=False, kept=tmp_path / "kept")
    assert "**one; texts cut to 6 words**" in out.read_text(encoding="utf-8")
    reproduce.write(setup, out, page=False, kept=tmp_path / "kept")
    assert (asked, out.read_text(encoding="utf-8").count(generated.NOTE)) == (["one", "two", "two"], 2)


@pytest.mark.parametrize(("places", "tokens"), [(1024, 512), (24, 24)])
def test_dpbart_reads_as_many_tokens_as_the_paper_or_its_model_allows(reproduce, tmp_path, places, tokens):
    from frontier import setups

    (tmp_path / "bart-base").mkdir()
    (tmp_path / "bart-base" / "config.json").write_text(f'{{"max_position_embeddings": {places}}}')
    assert setups.Setup("002", "full", models=tmp_path, data=None).length() == tokens
    assert setups.Setup("003", "full", models=tmp_path, data=None).length() == 20
    assert setups.Setup("002", "full", data=None).length() == 24


def test_bleu_of_paper_003_compares_with_the_tokens_that_its_models_read(reproduce):
    pytest.importorskip("dptext_etl_models")
    from frontier import paper_003, setups

    rows = [(" ".join(["good"] * 40),), ("A short text.",)]
    read = paper_003.first_tokens(setups.Setup("003", "full", data=None), rows)
    assert len(read[0][0].split()) == 20
    assert read[1][0].strip().lower().startswith("a short text")


@pytest.mark.thorough
@pytest.mark.parametrize("paper", ["000", "001", "002", "003", "004"])
def test_the_smallest_run_prints_the_papers_figures_and_ours(reproduce, tmp_path, paper):
    pytest.importorskip("dptext_etl_models")
    out = tmp_path / "tables.md"
    reproduce.main([paper, "--size", "smallest", "--out", str(out)])
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

    setup = setups.Setup("004", "smallest", models=tmp_path / "weights")
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
