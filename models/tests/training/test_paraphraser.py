# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Fine-tuning of paraphrasers: it learns, and a mechanism draws from it."""

import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from typer.testing import CliRunner

from dptext_etl import ColumnPolicy, privatize
from dptext_etl.errors import InputError
from dptext_etl_models.inference.language_model import model_files, tokenizer
from dptext_etl_models.mechanisms.dp_paraphrase import DPParaphrase
from dptext_etl_models.training import paraphraser
from dptext_etl_models.training.corpus import SentencePairs

pytestmark = pytest.mark.usefixtures("plain")
WORDS = ["the", "of", "and", "to", "in", "is", "for", "that", "it", "was", "on", "as", "with", "his", "he", "are"]


def sentences(n=200):
    rng = np.random.default_rng(3)
    return [" ".join(rng.choice(WORDS, 4)) for _ in range(n)]


@pytest.fixture
def table():
    """Pairs whose paraphrase is always the same three words."""
    return pl.DataFrame({"text": sentences(), "paraphrase": [f"the {text.split()[0]} was" for text in sentences()]})


@pytest.fixture
def pairs(table, tmp_path):
    table.write_parquet(tmp_path / "pairs.parquet")
    return SentencePairs.read(tmp_path / "pairs.parquet")


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv", "jsonl"])
def test_pairs_are_read_from_any_kind_of_table(table, tmp_path, kind):
    holed = pl.concat([table, pl.DataFrame({"text": [None, "  ", "x"], "paraphrase": ["a", "b", ""]})])
    path = tmp_path / f"pairs.{kind}"
    renamed = holed.rename({"text": "one", "paraphrase": "other"})
    write = {"parquet": renamed.write_parquet, "csv": renamed.write_csv, "jsonl": renamed.write_ndjson}
    (write.get(kind) or (lambda file: renamed.write_csv(file, separator="\t")))(path)
    read = SentencePairs.read(path, ("one", "other"))
    assert sorted([*read.train, *read.held]) == sorted(table.rows())
    with pytest.raises(InputError, match="no column 'text'"):
        SentencePairs.read(path)


def test_files_that_hold_no_pairs_are_refused(tmp_path):
    for path in (tmp_path / "absent.parquet", tmp_path / "pairs.txt"):
        with pytest.raises(InputError, match="ends in"):
            SentencePairs.read(path)
    pl.DataFrame({"text": [""], "paraphrase": ["x"]}).write_csv(tmp_path / "empty.csv")
    with pytest.raises(InputError, match="no pairs"):
        SentencePairs.read(tmp_path / "empty.csv")


def test_the_loss_counts_the_paraphrase_and_its_end_alone(pairs):
    reader = tokenizer(model_files("example-causal"))
    prompts, answers = (paraphraser.Prompts(reader, t, 40, 100, continued=True) for t in ("{text} >>>>> ", "{text}"))
    examples = paraphraser.Examples(pairs.train, prompts, answers, 2, 40)
    ids, labels, attended = examples.batch([0, 1, 2])
    for row, (_, paraphrase) in enumerate(pairs.train[:3]):
        counted = ids[row][labels[row] >= 0]
        assert counted.tolist() == [*answers.encode([paraphrase])[0], 2]
        assert (labels[row][labels[row] >= 0] == counted).all()
        assert attended[row].sum() == len(prompts.encode([pairs.train[row][0]])[0]) + len(counted)
    steps = -(-len(examples) // 4)
    epoch = [number for step in range(steps) for number in examples.at(step, 4, 7)]
    assert sorted(epoch) == list(range(len(examples)))
    assert epoch != [number for step in range(steps, 2 * steps) for number in examples.at(step, 4, 7)]


def test_it_learns_and_dp_paraphrase_draws_what_it_learnt(table, tmp_path):
    table.write_csv(tmp_path / "pairs.csv")
    from dptext_etl.cli.app import app

    out = tmp_path / "model"
    asked = ["--pairs", str(tmp_path / "pairs.csv"), "--base", "example-causal", "--out", str(out), "--steps", "60"]
    outcome = CliRunner().invoke(
        app, ["train", "paraphraser", *asked, "--rows", "8", "--longest", "40", "--rate", "5e-3", "--json"]
    )
    assert outcome.exit_code == 0, outcome.output
    facts = json.loads((out / "training.json").read_text())
    assert (facts["steps"], facts["pairs"]["name"]) == (60, "pairs.csv")
    assert json.loads((out / "dptext_clip.json").read_text())["kind"] == "causal"
    assert not (out / "checkpoint").exists()

    assert facts["loss_after"] < facts["loss_before"] / 2
    calibrated = DPParaphrase(epsilon=400.0, l_max=8, model=str(out))
    assert list(calibrated.clip_range) == facts["clip"]
    mechanism = calibrated.model_copy(update={"clip": (-10.0, 14.0)})
    policy = ColumnPolicy(dataset="d", column="t", release="r", mechanism=mechanism, key="env:DPTEXT_SUITE_SECRET")
    texts = sentences()[:10]
    released = privatize(pa.array(texts), pa.array([str(i) for i in range(10)]), policy).to_pylist()
    said = [text.split() for text in released]
    assert sum(words[:1] == ["the"] and words[-1:] == ["was"] for words in said) >= 5
    assert calibrated.cfg() != DPParaphrase(epsilon=400.0, l_max=8, model="example-causal").cfg()
