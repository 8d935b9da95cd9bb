# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Training of the small masked language model: loss, files, resumption, card, command."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors import safe_open

from dptext_etl.cli.app import app
from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.clipping import CLIP_FILE
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from dptext_etl_models.training import corpus as corpora
from dptext_etl_models.training import masked_lm
from dptext_etl_models.training.corpus import Corpus
from dptext_etl_models.training.masked_card import SETTINGS, figures, finish
from dptext_etl_models.training.masked_examples import Recipe
from dptext_etl_models.training.vocabulary import MASK
from models.tests.model_makers import TEXTS
from models.tests.training.stopping import stopped

TINY = masked_lm.Settings(
    vocabulary=400, pieces=20, hidden=32, layers=1, heads=2, inner=32, recipe=Recipe(short=24, long=40), tokens=256,
    steps=40, rate=5e-3, warmup=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def held():
    return masked_lm.Held([(TEXTS, 1.0)], {"made up": TEXTS[::7]}, {"made up": "0" * 64})


@pytest.fixture(scope="module")
def trained(held, tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("trained") / "tiny"
    losses = []
    masked_lm.train(held, out, replace(TINY, steps=150), listener=lambda seen: losses.append(seen.loss), every=50)
    return out, losses


def test_the_loss_falls(trained):
    _, losses = trained
    assert len(losses) == 3
    assert losses[-1] < losses[0] - 1


def test_the_model_finds_more_than_a_guess_does(trained, held):
    out, _ = trained
    unigrams = json.loads((out / "training.json").read_text())["unigrams"]
    assert unigrams[0] == "the"
    found = figures(out, held.examined, unigrams, pieces=40)
    assert set(found) == {"all", "made up"}
    for setting in SETTINGS:
        score = found["all"][setting]
        assert score == found["made up"][setting]
        assert score.ten >= score.first >= score.guess > 0
        assert score.guess_ten >= score.guess
    assert found["all"]["alone"].first > 1.5 * found["all"]["alone"].guess
    assert found["all"]["pair, all masked"].words > found["all"]["pair"].words == found["all"]["alone"].words


def test_files_are_those_that_transformers_and_mechanisms_read(trained):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    out, _ = trained
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForMaskedLM.from_pretrained(out, dtype="auto")
    assert model.dtype is torch.float16
    assert model.lm_head.decoder.weight is model.roberta.embeddings.word_embeddings.weight
    assert tokenizer.mask_token_id == MASK
    assert tokenizer.model_max_length == model.config.max_position_embeddings - 2 == 40
    mechanism = DPMLM(epsilon=10.0, model=str(out), clip=(-5.0, 5.0))
    with safe_open(out / "model.safetensors", framework="np") as file:
        assert {str(file.get_tensor(name).dtype) for name in file.keys()} == {"float16"}  # noqa: SIM118
    assert 30 <= mechanism.outputs < 400


def test_a_training_that_was_stopped_ends_as_one_that_was_not(held, tmp_path):
    whole, again = tmp_path / "whole", tmp_path / "stopped"
    masked_lm.train(held, whole, TINY, every=10)
    stopped(masked_lm.train, held, again, TINY, every=10, after=2)
    assert (again / "checkpoint").is_dir()
    masked_lm.train(held, again, TINY, every=10)
    for name in ("model.safetensors", "tokenizer.json", "config.json", "training.json"):
        assert (whole / name).read_bytes() == (again / name).read_bytes(), name


def test_other_seeds_give_other_weights_and_other_settings_are_refused_in_one_folder(held, tmp_path):
    short = replace(TINY, steps=2)
    weights = []
    for seed in (1, 2, 1):
        out = tmp_path / str(len(weights))
        masked_lm.train(held, out, replace(short, seed=seed))
        weights.append((out / "model.safetensors").read_bytes())
    assert weights[0] == weights[2] != weights[1]
    with pytest.raises(PolicyError, match="other settings"):
        masked_lm.train(held, tmp_path / "0", replace(short, seed=3))
    masked_lm.train(held, tmp_path / "0", replace(short, seed=1, minutes=1.0))  # time is none of its identity


def test_the_card_says_what_was_measured(trained, held):
    out, _ = trained
    facts = finish(out, held, terms="Made up, free of any rights.", pieces=20)
    assert facts.keys() == {"out", "steps", "bytes", "held_out", "clip"}
    card = (out / "README.md").read_text()
    found = json.loads((out / CLIP_FILE).read_text())
    for said in (
        "# tiny",
        "150 steps",
        "Made up, free of any rights.",
        "| made up | `" + "0" * 64,
        f"({found['low']:.4f}, {found['high']:.4f})",
        f"{(out / 'model.safetensors').stat().st_size:,} bytes of weights",
        f"| {100 * facts['held_out']['alone']['first']:.1f} | {100 * facts['held_out']['alone']['guess']:.1f} |",
    ):
        assert said in card, said
    assert DPMLM(epsilon=10.0, model=str(out)).clip_range == (found["low"], found["high"]) == tuple(facts["clip"])
    assert facts["bytes"] == sum(p.stat().st_size for p in out.iterdir() if p.is_file() and p.name != "README.md")
    assert finish(out, held, pieces=20) == facts  # a range that lies there already changes nothing


def test_texts_are_kept_back_by_their_own_hash(tmp_path):
    texts = [f"text number {number}" for number in range(5_000)]
    kept = [text for text in texts if corpora.held_out(text)]
    assert 50 < len(kept) < 160
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"text": texts}), path)
    found = masked_lm.read([Corpus(path)], [Corpus(path)])
    assert found.examined["c"] == texts  # given only for examination, it is used whole
    found = masked_lm.read([Corpus(path, 2.0)])
    assert found.examined == {"c": kept}
    assert found.train == [([text for text in texts if text not in set(kept)], 2.0)]
    assert found.hashes == {"c.parquet": Corpus(path).sha256}


def test_shares_weigh_words_of_corpora(held):
    texts = [(["a b", "a b"], 1.0), (["c"], 3.0)]
    counts = masked_lm.frequencies(replace(held, train=texts))
    assert counts["c"] > counts["a"] == counts["b"]


@pytest.mark.parametrize("given", ["x.parquet=0", "x.parquet=-1", "x.parquet=nan", "x.parquet=inf", "x.parquet=much"])
def test_shares_are_positive_numbers(given):
    with pytest.raises(PolicyError, match="not a share"):
        Corpus.parse(given)
    assert (Corpus.parse("a=b.parquet=2.5").share, Corpus.parse("x.parquet").share) == (2.5, 1.0)


def test_corpora_without_texts_are_refused(tmp_path):
    pq.write_table(pa.table({"text": pa.array([None], pa.string())}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match="no texts"):
        masked_lm.read([Corpus(tmp_path / "c.parquet")])


def test_markup_is_dropped_and_sentences_are_split():
    assert corpora.clean("It\u2019s  1 @,@ 000<br />now <unk> .") == "It's 1,000 now ."
    assert corpora.sentences('He said "no." Then? Yes! e.g') == ['He said "no.', "Then?", "Yes!", "e.g"]


def test_the_command_trains_examines_and_tells(tmp_path):
    path, out = tmp_path / "public.parquet", tmp_path / "model"
    pq.write_table(pa.table({"body": TEXTS}), path)
    given = ["--corpus", f"{path}=1", "--examine", path, "--text", "body", "--out", out, "--steps", 2]
    shape = ["--vocabulary", 1_000, "--width", 24, "--layers", 1, "--seed", 3, "--license", "None needed.", "--json"]
    done = CliRunner().invoke(app, ["train", "masked-lm", *map(str, given + shape)])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert tuple(facts) == ("out", "steps", "bytes", "held_out", "clip")
    assert (facts["steps"], json.loads((out / "training.json").read_text())["settings"]["seed"]) == (2, 3)
    assert "None needed." in (out / "README.md").read_text()
    assert language_model.model_files(str(out))["model/dptext_clip.json"]
