# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Training of rewriters: on pairs that the mechanism itself made, resumed exactly, and with a record of whose texts."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from typer.testing import CliRunner

from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl_models.inference.language_model import model_files
from dptext_etl_models.training import rewriter
from dptext_etl_models.training.corpus import Corpus, held_out
from dptext_etl_models.training.rewriter import InDomain, Settings
from models.tests.training.stopping import stopped, weights

pytestmark = pytest.mark.usefixtures("plain")
WORDS = ["the", "of", "and", "to", "in", "is", "for", "that", "it", "was", "on", "as", "with", "his", "he", "are"]
SETTINGS = Settings(texts=40, words=8, steps=4, rows=4, longest=60, rate=3e-3, warmup=1)
MECHANISM = CusText(epsilon=4.0)


def table(path, seed):
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(300)]
    pl.DataFrame({"text": texts}).write_parquet(path)
    return Corpus(path)


@pytest.fixture
def corpora(tmp_path):
    return [table(tmp_path / "public.parquet", 1)], [table(tmp_path / "field.parquet", 2)]


def test_pairs_are_privatised_public_texts_and_are_drawn_once(corpora, tmp_path):
    asked = {"words": 8, "count": 30, "seed": 1}
    seen = []
    found = rewriter.privatized_pairs(
        MECHANISM, corpora[0], tmp_path / "p", "a", progress=lambda *at: seen.append(at), **asked
    )
    assert seen[-1][0] == seen[-1][1] == len(found.train) + len(found.held)
    originals = set(corpora[0][0].texts())
    for read, written in found.train:
        assert written in originals
        assert not held_out(written)
        assert len(read.split()) == len(written.split())
    assert all(held_out(written) for _, written in found.held)
    changed = sum(read != written for read, written in found.train)
    assert changed > len(found.train) / 2, "the mechanism drew nothing"
    again = rewriter.privatized_pairs(MECHANISM, corpora[0], tmp_path / "p", "a", **asked)
    assert again.train == found.train, "pairs were drawn a second time"
    assert rewriter.privatized_pairs(MECHANISM, corpora[0], tmp_path / "p", "b", **asked).train != found.train


@pytest.mark.parametrize("base", ["example-seq2seq", "example-bart"])
def test_a_training_that_was_stopped_goes_on_with_the_same_pairs(corpora, tmp_path, base):
    pairs, also = [], InDomain(corpora[1], "disjoint-records")
    asked = (MECHANISM, model_files(base), corpora[0], tmp_path / "out", SETTINGS)
    for _ in range(2):  # once in T, once in T++
        stopped(rewriter.train, *asked, also=also, every=2 + 2 * len(pairs))
        held = sorted((tmp_path / "out" / "checkpoint").glob("*.parquet"))
        pairs.append([pq.read_table(path) for path in held])
    assert [len(found) for found in pairs] == [1, 1]
    seen = []
    facts = rewriter.train(*asked, also=also, listener=lambda told: seen.append((told.name, told.step)))
    assert pairs[0] == pairs[1]
    assert seen == [("T++", 4)], "T was trained again"
    assert [stage["stage"] for stage in facts["stages"]] == ["T", "T++"]
    assert json.loads((tmp_path / "out" / "training.json").read_text()) == facts
    assert not (tmp_path / "out" / "checkpoint").exists()


def test_what_made_a_rewriter_is_written_beside_it(corpora, tmp_path):
    facts = rewriter.train(MECHANISM, model_files("example-seq2seq"), corpora[0], tmp_path / "a", SETTINGS)
    assert facts["training_provenance"] == "public"
    assert facts["mechanism"] == {"name": "custext", "configuration": MECHANISM.cfg()}
    assert facts["corpora"][0]["sha256"] == corpora[0][0].sha256
    other = rewriter.train(
        MECHANISM, model_files("example-seq2seq"), corpora[0], tmp_path / "b", SETTINGS,
        also=InDomain(corpora[1], "disjoint-records"),
    )  # fmt: skip
    assert other["training_provenance"] == "disjoint-records"
    assert weights(tmp_path / "a") != weights(tmp_path / "b")


def test_the_command_takes_the_mechanism_of_a_policy_and_the_model_learns(corpora, tmp_path):
    from dptext_etl.cli.app import app

    policy = tmp_path / "privacy.toml"
    policy.write_text(
        'dataset = "d"\nrelease = "r"\nkey = "env:DPTEXT_SUITE_SECRET"\nid = "id"\nunit = "record"\n'
        f'source = "{tmp_path}/public.parquet"\nsink = "{tmp_path}/sink"\n'
        '[[column]]\nname = "text"\nmechanism = { name = "custext", epsilon = 4.0 }\nallow = ["cluster", "length"]\n'
        f'[ledger]\nurl = "{tmp_path}/ledger.db"\n'
    )
    out = tmp_path / "model"
    asked = [policy, "--corpus", corpora[0][0].path, "--base", "example-seq2seq", "--out", out]
    more = ["--texts", 60, "--words", 8, "--steps", 40, "--rows", 8, "--rate", "1e-2", "--longest", 60, "--json"]
    outcome = CliRunner().invoke(app, ["train", "rewriter", *map(str, asked + more)])
    assert outcome.exit_code == 0, outcome.output
    facts = json.loads((out / "training.json").read_text())
    (stage,) = facts["stages"]
    assert stage["loss_after"] < stage["loss_before"] - 1
    assert facts["mechanism"]["configuration"] == MECHANISM.cfg()
    assert model_files(str(out)).keys() >= {"model/config.json", "model/tokenizer.json", "model/model.safetensors"}


def test_a_model_that_is_no_encoder_decoder_is_refused(corpora, tmp_path):
    with pytest.raises(PolicyError, match="loading the model"):
        rewriter.train(MECHANISM, model_files("example-causal"), corpora[0], tmp_path / "a", replace(SETTINGS, steps=1))
