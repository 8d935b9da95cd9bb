"""The learners of `studies/surrogate_utility.py` see words and vectors, and the examples of its guide run."""

import re
from pathlib import Path

import polars as pl

from dptext_etl.corpora import Corpus
from tests.later import later
from tests.study import study

later("sklearn", reason="scikit-learn is not installed (extra: eval)")
ROOT = Path(__file__).resolve().parents[2]
utility = study("surrogate_utility")
TRAIN = (["play a song of the band", "book a hotel room for us"] * 20, ["music", "hotel"] * 20)
TEST = (["a new album by the singer", "rooms of a cheap hotel", "a song"], ["music", "hotel", "music"])


def test_learners_are_shared_and_see_words_vectors_or_both(utility):
    place = Corpus.open("example")
    assert utility.measures.f1(TRAIN, (TRAIN[0], TRAIN[1])) == 1.0
    assert utility.measures.f1(TRAIN, TEST, place, words=False) == 1.0  # album, singer: no word of the training texts
    assert utility.measures.f1(TRAIN, (TEST[0], ["hotel", "music", "hotel"]), place, words=False) == 0.0
    assert utility.measures.guessing(TEST, (TRAIN[0], ["hotel"] * 40)) == 0.5
    # Except the figures of synthetic tables and of the papers' pairs, and the comparison with the former learner
    exempt = {"synthetic_utility.py", "former_learner.py", "setups.py"}
    for folder in ("studies", "examples"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".ipynb") and path.name not in exempt:
                assert "LogisticRegression" not in path.read_text(encoding="utf-8"), path


def test_the_examples_of_the_how_to_page_run(capsys):
    page = (ROOT / "docs" / "surrogate-corpus.md").read_text(encoding="utf-8").partition("{#learn}")[2]
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "surrogate-corpus.md", "exec"), {})
    assert "travel" in capsys.readouterr().out


def test_the_tidy_file_has_every_line_and_encoder_at_every_epsilon(utility):
    table = pl.read_parquet(ROOT / "docs" / "frontier.parquet").filter(pl.col("measure") == "surrogate_utility")
    for name, plan in utility.PLAN.items():
        here = table.filter(pl.col("dataset") == f"{name} (surrogate)", pl.col("figure") == utility.F1)
        assert set(here["variant"]) == {line.title for line in plan}
        assert len(here) == len(plan) * len(utility.EPSILONS) * len(utility.SEEDS)
        assert here["value"].is_between(0.0, 1.0, closed="none").all()
    table = pl.read_parquet(ROOT / "docs" / "frontier.parquet").filter(pl.col("measure") == "encoder_utility")
    for name, lines in utility.ENCODERS.items():
        here = table.filter(pl.col("dataset") == name + utility.BESIDE, pl.col("figure") == utility.F1)
        assert set(here.group_by("variant", "epsilon").len().rows()) == {
            (line.title, epsilon, len(utility.SEEDS)) for line in lines for epsilon in (2.0, 4.0, 8.0)
        }
