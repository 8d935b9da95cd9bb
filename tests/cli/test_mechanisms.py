"""`mechanisms`, `explain`, `preview`, `schema`, `key`, and `-p name=value` answer before anything is spent."""

import json
import os
import stat
import subprocess
import sys

import pytest

from dptext_etl import keys, load
from dptext_etl.cli.commands.run import compute_on
from dptext_etl.cli.options import parse_parameters
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.custext import CusText

from ..command_line import dptext, facts, refused, require_models
from .test_explain import MODELS


def test_mechanisms_lists_variants_classes_and_disclosures():
    pytest.importorskip("dptext_etl_models")
    found = facts("mechanisms")
    assert tuple(found) == ("mechanisms",)
    custext = next(item for item in found["mechanisms"] if item["name"] == "custext")
    assert {item["variant"]: set(item["disclosures"]) for item in custext["variants"]} == {
        "plain": {"cluster", "length", "nullness"},
        "plus": {"cluster", "length", "nullness", "stopwords"},
    }
    assert {item["class"] for item in custext["variants"]} == {"COND_PURE"}
    assert {item["epsilon_per"] for item in custext["variants"]} == {"word"}
    assert "custext" in dptext("mechanisms").stdout


def test_mechanisms_says_which_run_here_and_what_the_others_lack(monkeypatch):
    """Nothing is downloaded; a model that is not on this machine is named with the line that brings it."""
    require_models()
    from dptext_etl_models.inference import language_model

    here = {"english-small", "google/flan-t5-base"}
    monkeypatch.setattr(language_model, "is_here", lambda model: model in here)
    found = {item["name"]: item["here"] for item in facts("mechanisms")["mechanisms"]}
    assert found["custext"] == {"runs": True, "with": {}, "lacks": None, "hint": None}
    assert found["dpmlm"]["with"] == {"model": "english-small"}
    assert found["dp_prompt"]["with"] == {"model": "google/flan-t5-base"}
    assert {name for name, item in found.items() if not item["runs"]} == {"adept", "dp_paraphrase", "dpbart"}
    for name in ("adept", "dp_paraphrase", "dpbart"):
        assert "this machine has none" in found[name]["lacks"]
        assert f"brings the small {load(name).small_model}" in found[name]["hint"]
    shown = dptext("mechanisms").stdout
    assert "model english-small" in shown
    assert "pip install ./models" in shown


@pytest.mark.parametrize("name", ["dp_prompt", "dpbart", "dpmlm"])
def test_a_policy_without_a_model_names_the_small_one_that_is_installed(name, monkeypatch):
    """The usual model is not here, and none replaces it in silence: another model is another configuration."""
    require_models()
    from dptext_etl_models.inference import language_model

    kind = load(name)
    given = {"n_rec": 10} if name == "dpbart" else {}
    monkeypatch.setattr(language_model, "is_here", lambda model: model == kind.small_model)

    def nothing(model, revision=None):
        raise PolicyError("the model is not on this machine", "download it")

    monkeypatch.setattr(language_model, "model_files", nothing)
    with pytest.raises(PolicyError) as caught:
        kind(epsilon=5.0, **given).artifacts()
    assert (
        caught.value.hint == f'write model = "{kind.small_model}" for the small one that is installed; or download it'
    )
    with pytest.raises(PolicyError) as caught:
        kind(epsilon=5.0, model="elsewhere", **given).artifacts()
    assert caught.value.hint == "download it"


def test_hints_and_ranges_of_models_name_the_line_to_write():
    pytest.importorskip("dptext_etl_models")
    with pytest.raises(PolicyError, match=r"write n_rec = 10_000 for at most 10,000 of them"):
        load("dpbart")(epsilon=5.0)
    pytest.importorskip("dptext_etl_models")
    kind = load("dpmlm")
    assert parse_parameters(kind, "dpmlm", ["clip=-3.2,16.3"])["clip"] == (-3.2, 16.3)
    assert parse_parameters(kind, "dpmlm", ["clip=range.json"])["clip"] == "range.json"


def test_schema_and_unknown_mechanisms_say_what_there_is():
    found = json.loads(dptext("schema").stdout)
    assert {"dataset", "source", "column", "ledger"} <= set(found["properties"])
    for command in ("explain", "preview"):
        stderr = refused(command, "no_such")
        assert "custext" in stderr
        assert "Hint:" in stderr


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([], {}), (None, {}), (["epsilon=2"], {"epsilon": 2.0}),
        (["epsilon=1e-1", "k=10", "variant=plus"], {"epsilon": 0.1, "k": 10, "variant": "plus"}),
        (["vectors=a=b"], {"vectors": "a=b"}), ([" k =7"], {"k": 7}),
    ],
)  # fmt: skip
def test_parameters_take_the_types_of_the_fields(given, values):
    found = parse_parameters(CusText, "custext", given)
    assert found == values
    assert [type(item) for item in found.values()] == [type(item) for item in values.values()]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["epsilon"], "NAME=VALUE"), (["=2"], "NAME=VALUE"), (["epsilom=2"], "did you mean 'epsilon'?"),
        (["k=many"], "must be a whole number"), (["k=2", "k=3"], "twice"), (["variant=best"], "'plain' or 'plus'"),
    ],
)  # fmt: skip
def test_other_parameters_are_refused(given, said):
    with pytest.raises(PolicyError, match=said.replace("?", r"\?")):
        parse_parameters(CusText, "custext", given)


def test_mechanisms_are_listed_without_torch(tmp_path):
    pytest.importorskip("dptext_etl_models")
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; from dptext_etl.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "mechanisms", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(MODELS) <= {item["name"] for item in json.loads(done.stdout)["mechanisms"]}


@pytest.mark.parametrize("command", ["run", "preview"])
def test_where_models_compute_is_a_setting_of_the_process(command, monkeypatch):
    monkeypatch.setenv("DPTEXT_DEVICE", "auto")
    monkeypatch.setenv("DPTEXT_DTYPE", "auto")
    compute_on(None, None)
    assert (os.environ["DPTEXT_DEVICE"], os.environ["DPTEXT_DTYPE"]) == ("auto", "auto")
    compute_on("cpu", "float32")
    assert (os.environ["DPTEXT_DEVICE"], os.environ["DPTEXT_DTYPE"]) == ("cpu", "float32")
    shown = dptext(command, "--help").stdout
    assert "--device" in shown
    assert "--dtype" in shown


def test_a_new_key_is_private_works_and_differs_from_others(tmp_path):
    path = tmp_path / "noise.key"
    done = dptext("key", "new", path, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (tuple(found), stat.S_IMODE(path.stat().st_mode)) == (("path", "reference", "mode"), 0o600)
    text = path.read_text().strip()
    assert len(bytes.fromhex(text)) == 32
    assert text not in done.output
    assert not keys.resolve(found["reference"]).published
    for name in ("a", "b"):
        assert dptext("key", "new", tmp_path / name).exit_code == 0
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()


def test_a_key_is_never_overwritten_and_needs_a_folder(tmp_path):
    path = tmp_path / "noise.key"
    assert dptext("key", "new", path).exit_code == 0
    before = path.read_bytes()
    done = dptext("key", "new", path)
    assert done.exit_code == 5
    assert "Hint:" in done.stderr
    assert before.decode().strip() not in done.output
    assert path.read_bytes() == before
    assert "Hint:" in refused("key", "new", tmp_path / "nowhere" / "noise.key")
