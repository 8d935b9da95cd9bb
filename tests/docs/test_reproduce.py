"""The commands that run a paper's tables: the page has a place for each, and the smallest run fills it."""

import importlib
import re
import shutil
import subprocess
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
        assert re.search(r"^Size \w+: \d+ training.* Models: ", part, re.MULTILINE), paper
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


def test_the_words_of_the_page_are_those_of_the_settings(reproduce):
    """Settings, differences, and opposite signs are generated; only figures and commits are kept."""
    from frontier import described, setups

    if not setups.DATA.is_dir():
        pytest.skip("the public data sets are not next to this checkout")
    assert described.again(PAGE) == PAGE


def test_settings_list_the_sets_and_tools_of_every_table(reproduce):
    from frontier import paper_000, paper_001, paper_002, paper_003, paper_004, setups
    from papers import settings

    def firsts(cells):
        return {key[0] for key in cells}

    printed = {
        ("000", "1"): set(paper_000.TASKS),
        ("000", "2"): firsts(paper_000.RIVALS),
        ("000", "3"): firsts(paper_000.PRIVACY),
        ("001", "1"): set(paper_001.ADVERSARIAL),
        ("001", "2"): firsts(paper_001.MEMBERSHIP),
        ("001", "3"): firsts(paper_001.UTILITY),
        ("001", "4"): set(paper_001.ABLATION),
        ("002", "1"): set(paper_002.PRINTED),
        ("003", "5"): set(paper_003.FIGURES),
        ("004", "1"): set(paper_004.UTILITY),
    }
    for (paper, number), sets in printed.items():
        assert set(settings.of_paper(paper)["table"][number]["sets"]) == sets
    assert tuple(settings.of_paper("001")["budget"]["scores"]) == paper_001.FIVE
    for paper in reproduce.PAPERS:
        names = {name.removeprefix("figure-").partition("-")[0] for name in _tables_of(paper, setups)}
        assert names == {number.lower().replace("figure ", "") for number in settings.of_paper(paper)["table"]}
    used = {name for paper in reproduce.PAPERS for name in settings.tools_of(paper)}
    assert used == settings.tools().keys()


def _tables_of(paper, setups):
    return importlib.import_module(f"frontier.paper_{paper}").reproduced(setups.Setup(paper, data=None))


@pytest.mark.parametrize(
    ("number", "given", "replaced"),
    [
        ("3", (), "sums of word vectors in the place of gte-small (scores wi and sd)"),
        ("3", ("gte-small",), ""),
        ("2", (), "english-small in the place of bert-base-uncased (masked words)"),
        ("2", ("bert-base-uncased",), ""),
    ],
)
def test_a_table_says_which_model_replaces_the_papers(reproduce, tmp_path, number, given, replaced):
    from frontier import described, setups

    for name in given:
        (tmp_path / name).mkdir()
    setup = setups.Setup("001", "full", models=tmp_path, data=None)
    name = "gte-small" if number == "3" else "bert-base-uncased"
    lines = [line for line in described.differences(setup, number) if f" in the place of {name} (" in line]
    assert lines == ([replaced] if replaced else [])
    assert not any("GPT-2" in line for line in described.differences(setup, "1")), "Table 1 has no perplexity"


def test_only_the_size_full_leaves_texts_whole(reproduce):
    from frontier import setups

    text = " ".join(["word"] * 400)
    lengths = {
        size: len(setups.Setup("001", size, rows=20).cut(text).split()) for size in ("smallest", "small", "full")
    }
    assert lengths == {"smallest": 6, "small": 32, "full": 400}
    assert setups.Setup("001", "full", rows=24).budgets("1") == [0.1, 0.5, 1, 500, 1000, 1500]


def test_dpbart_of_paper_001_rewrites_a_fifth_of_imdb(reproduce):
    from frontier import generated, setups

    setup = setups.Setup("001", "full", data=None)
    assert [len(setup.task("imdb", slow=slow).texts[0]) for slow in (True, False)] == [24, 120]
    assert generated.ROWS == 160, "a quarter of these are for the test"


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


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_papers_gpu_runs_every_paper_at_full_size_and_needs_both_folders():
    make = ["make", "-n", "-C", str(STUDIES), "papers-gpu"]
    shown = subprocess.run([*make, "MODELS=a", "TABLES=b"], check=True, capture_output=True, text=True).stdout
    command = "do python -m frontier.reproduce $paper --size full --models a --tables b"
    assert f"for paper in 000 001 002 003 004; {command}" in shown
    refused = subprocess.run([*make, "MODELS=a"], check=False, capture_output=True, text=True)
    assert (refused.returncode, "Name both folders: MODELS=folder TABLES=folder" in refused.stderr) == (2, True)


def test_a_data_folder_without_a_set_is_refused_and_an_empty_one_is_no_data(reproduce, tmp_path, capsys, monkeypatch):
    from frontier import generated

    monkeypatch.setattr(reproduce, "write", lambda setup, path, **more: path.write_text(str(setup.data)))
    reproduce.main(["004", "--data", str(tmp_path), "--out", str(tmp_path / "out.md")])
    assert (tmp_path / "out.md").read_text() == "None"
    (tmp_path / "sst2").mkdir()
    generated.table("sst2", paired=False, numbers=False).write_parquet(tmp_path / "sst2" / "sst2.parquet")
    with pytest.raises(SystemExit):
        reproduce.main(["004", "--data", str(tmp_path)])
    assert "--tables has none of them: qnli_dev, medsts" in capsys.readouterr().err
