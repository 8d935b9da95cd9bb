"""Every command that learns refuses a file that a policy names as its source, and lists the files that it read."""

import json
import shutil
import tomllib

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl.artifacts import listed, sha256_file
from dptext_etl.cli.app import app
from dptext_etl.errors import PolicyError
from dptext_etl.policy import Policy
from dptext_etl.runner.source.roles import refuse_own_inputs
from dptext_etl_models.commands.train import app as training

LEARNING = {
    "adept": ["--corpus", "{raw}"],
    "bart": ["--corpus", "{raw}=2"],
    "denoiser": ["--corpus", "{public}", "--corpus", "{raw}"],
    "dpbart-noise": ["--model", "none", "--epsilon", "500", "--corpus", "{raw}"],
    "dpbart-prune": ["--model", "none", "--corpus", "{raw}"],
    "encoder": ["{raw}"],
    "masked-lm": ["--corpus", "{public}", "--examine", "{raw}"],
    "paraphraser": ["--pairs", "{raw}", "--base", "none"],
    "rewriter": ["{policy}", "--corpus", "{public}", "--also", "{raw}", "--base", "none"],
    "vectors": ["--wordnet", "{folder}"],
}
"""Every command of `dptext train`, with an input that is the raw table."""


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A policy in the working folder, its raw table, and a copy of it under another name in another folder."""
    folder, away = tmp_path / "inside", tmp_path / "away"
    for place in (folder, away):
        place.mkdir()
    texts = [f"The room was cold and the staff was kind to guest {n}. We will come again." for n in range(1_200)]
    pl.DataFrame({"id": range(1_200), "text": texts}).write_parquet(folder / "raw.parquet")
    pl.DataFrame({"text": [text.upper() for text in texts]}).write_parquet(away / "public.parquet")
    shutil.copy(folder / "raw.parquet", away / "copy.parquet")
    (folder / "privacy.toml").write_text(
        'dataset = "d"\nrelease = "r"\nsource = "raw.parquet"\nsink = "out"\nid = "id"\nunit = "record"\n'
        'key = "env:A_SECRET"\nledger = { url = "ledger.db" }\n'
        '[[column]]\nname = "text"\nmechanism = { name = "surrogate", epsilon = 2.0, corpus = "example" }\n'
    )
    monkeypatch.chdir(folder)
    return {
        "raw": folder / "raw.parquet",
        "copy": away / "copy.parquet",
        "public": away / "public.parquet",
        "folder": away,
        "policy": folder / "privacy.toml",
        "out": away / "out",
    }


def test_every_command_is_here():
    assert {*LEARNING} == {item.callback.__name__.replace("_", "-") for item in training.registered_commands}


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("name", LEARNING)
def test_a_command_refuses_the_raw_table(places, name, copied):
    given = {**places, "raw": places["copy" if copied else "raw"]}
    arguments = [argument.format(**given) for argument in LEARNING[name]]
    refused = CliRunner().invoke(app, ["train", name, *arguments, "--out", str(places["out"])])
    assert "names this table as raw" in " ".join(refused.output.split())
    assert refused.exit_code == 5
    assert not places["out"].exists()


@pytest.mark.parametrize("copied", [False, True])
def test_a_range_of_the_raw_table_is_refused(places, copied):
    corpus, out = str(places["copy" if copied else "raw"]), str(places["out"])
    refused = CliRunner().invoke(app, ["calibrate", "--model", "none", "--corpus", corpus, "--out", out])
    assert "names this table as raw" in " ".join(refused.output.split())
    assert refused.exit_code == 5


def test_artifacts_list_their_files_and_those_of_their_inputs(places):
    vectors, again = places["folder"] / "v.safetensors", places["folder"] / "w.safetensors"
    learn = ["--steps", "1", "--out"]
    done = CliRunner().invoke(app, ["train", "encoder", str(places["public"]), *learn, str(vectors)])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(
        app, ["train", "encoder", str(places["public"]), "--base", str(vectors), *learn, str(again)]
    )
    assert done.exit_code == 0, done.output
    size = places["public"].stat().st_size
    assert listed(vectors)[sha256_file(places["public"])] == ("public.parquet", size)
    assert {*listed(vectors), sha256_file(vectors)} == {*listed(again)}
    assert json.dumps({**listed(again)}).count("public.parquet") == 1


def test_a_plan_refuses_a_range_that_was_made_from_its_source(places):
    clip = places["folder"] / "clip.json"
    facts = {"format": "dptext-clip/1", "low": 0.0, "high": 1.0, "corpus": {"raw.parquet": sha256_file(places["raw"])}}
    clip.write_text(json.dumps(facts))
    mechanism = {"name": "dpmlm", "model": "example-masked", "epsilon": 20.0, "clip": str(clip)}
    values = tomllib.loads(places["policy"].read_text())
    policy = Policy.parse(
        {**values, "source": str(places["raw"]), "column": [{"name": "text", "mechanism": mechanism}]}
    )
    refuse_own_inputs(policy, [str(places["public"])])
    with pytest.raises(PolicyError, match="clip of dpmlm was made from a file of the source"):
        refuse_own_inputs(policy, [str(places["raw"])])
