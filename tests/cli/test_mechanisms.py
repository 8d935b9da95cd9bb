"""`mechanisms`, `explain`, `preview`, `schema` and `-p name=value`: what can be known before anything is spent."""

import json
import math
import os
import subprocess
import sys
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from dptext_etl import available, load
from dptext_etl.cli import parameters, samples
from dptext_etl.cli.app import app
from dptext_etl.cli.commands import explain, mechanisms, preview
from dptext_etl.cli.render import word_facts
from dptext_etl.device import Computing
from dptext_etl.errors import PolicyError
from dptext_etl.inference import language_model
from dptext_etl.mechanisms.custext import CusText

SENTINEL = "zzqsentinelqzz"


def dptext(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def facts(*words):
    done = dptext(*words, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_mechanisms_lists_variants_classes_and_disclosures():
    found = facts("mechanisms")
    assert tuple(found) == mechanisms.KEYS
    custext = next(item for item in found["mechanisms"] if item["name"] == "custext")
    assert {item["variant"]: set(item["disclosures"]) for item in custext["variants"]} == {
        "plain": {"cluster", "length", "nullness"},
        "plus": {"cluster", "length", "nullness", "stopwords"},
    }
    assert {item["class"] for item in custext["variants"]} == {"COND_PURE"}
    assert {item["epsilon_per"] for item in custext["variants"]} == {"word"}
    assert "custext" in dptext("mechanisms").stdout


def test_explain_states_the_exact_law(small_vectors):
    found = facts("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5", "-p", "epsilon=1.5")
    assert tuple(found) == explain.KEYS
    mechanism = CusText(epsilon=1.5, k=5, vectors=small_vectors)
    assert found["cfg"] == mechanism.cfg()
    words, law = mechanism.transition("good")
    assert {item["word"]: Fraction(item["exact"]) for item in found["example"]["outputs"]} == dict(
        zip(words, law, strict=True)
    )
    assert found["law"]["epsilon_table"] == found["law"]["epsilon_worst"] == mechanism.epsilon_table <= 1.5
    telling = found["example"]["most_telling"]
    worst = max(
        (own / other, seen, word)
        for word in words
        for seen, other in zip(*mechanism.transition(word), strict=True)
        for own in [dict(zip(words, law, strict=True))[seen]]
    )
    assert (telling["ratio"], telling["seen"], telling["instead_of"]) == (float(worst[0]), *worst[1:])
    assert telling["ratio"] <= math.exp(mechanism.epsilon_table) * (1 + 1e-12)
    assert found["spend"]["epsilon"] == 150
    assert found["spend"]["log10_odds"] == pytest.approx(150 / math.log(10))
    claim = found["guarantee"]
    assert claim["class"] == "COND_PURE"
    assert claim["unit"] == "word"
    assert "cluster" in claim["disclosures"]
    assert all(item["meaning"] for item in found["parameters"])
    assert {item["name"] for item in found["parameters"]} == set(CusText.model_fields)


def test_explain_is_readable(small_vectors):
    shown = dptext("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5").stdout
    for words in (
        "epsilon is per",
        "neighbours",
        "the output set of every word",
        "bits per word",
        "10^",
        "probability",
    ):
        assert words in shown


def test_explain_states_the_law_of_every_word_mechanism(word_mechanism):
    """From the mechanism itself: exact where it is exact, a bound where it is not, and it says which."""
    law = word_facts.law(word_mechanism)
    assert law["epsilon_worst"] <= law["epsilon_word"] * (1 + 1e-12)
    assert law["epsilon_word"] == pytest.approx(law["times_epsilon"] * word_mechanism.epsilon) or math.isinf(
        law["epsilon_word"]
    )
    if law["is_exact"]:
        assert law["epsilon_worst"] == law["epsilon_table"]
    claim = word_mechanism.metric_claim
    assert (law["metric"] is None) is (claim is None)
    if claim is not None:
        assert law["epsilon_word"] <= float(claim.epsilon) * float(claim.diameter) * (1 + 1e-9)
    example = word_facts.worked(word_mechanism, "good")
    listed = math.fsum(item["probability"] for item in example["outputs"])
    assert listed + example["others"]["probability"] == pytest.approx(1.0)
    assert 0 <= example["stays"] <= 1
    if example["most_telling"] is not None:
        assert example["most_telling"]["log10_odds"] <= law["log10_odds"] * (1 + 1e-9)


def test_explain_says_what_each_length_gives(word_mechanism):
    told = word_facts.lengths(word_mechanism)
    assert [item["length"] for item in told] == list(word_facts.LENGTHS)
    by = {item["length"]: item for item in told}
    if word_mechanism.hides_length:
        assert by["fixed"]["class"] == by["noisy"]["class"] == "PURE_LDP"
        assert by["fixed"]["disclosures"] == ["nullness"]
    assert "length" in by["disclose"]["disclosures"]
    for item in told:
        assert (item["class"] is None) is ("refused" in item)
        assert item.get("refused", "would hide nothing: x").partition(": ")[0].endswith("would hide nothing")


@pytest.mark.parametrize(
    ("given", "said", "instead"),
    [
        (("custext", "length=fixed", "n_max=9"), "its words disclose cluster", 'use length "disclose"'),
        (("custext", "norm=row"), "the published code, not the paper", 'norm "cluster" or mode "faithful"'),
        (("santext", "length=fixed"), "needs n_max", "from 1 to 100000"),
        (("santext", "length=noisy", "n_max=9"), "the price of length", "both or neither"),
        (
            ("santext", "variant=plus", "length=fixed", "n_max=9"),
            "its words disclose sens_class",
            'use length "disclose"',
        ),
        (("diffractor", "mode=faithful", "length=fixed", "n_max=9"), "would hide nothing", 'use length "disclose"'),
        (("diffractor", "variant=geometric", "gamma=9"), "gamma belongs to variant", "tem"),
    ],
)
def test_what_has_no_theorem_is_refused_with_the_reason_and_what_has_one(given, said, instead):
    name, *parameters = given
    done = dptext("explain", name, *(word for item in parameters for word in ("-p", item)))
    assert done.exit_code == 2
    assert said in done.stderr
    assert instead in done.stderr
    assert f"Hint: parameters of {name}" in done.stderr
    assert "Value error" not in done.stderr


def test_explain_prints_the_lines_that_a_policy_needs():
    assert facts("explain", "custext")["consent"] == ['allow = ["cluster"]']
    plus = ("explain", "santext", "-p", "variant=plus", "-p", "limit=300")
    assert facts(*plus)["consent"] == ['allow = ["sens_class"]', 'accept_unbounded = ["UMLDP"]']
    assert facts(*plus, "-p", "p=1")["consent"] == []
    assert facts("explain", "santext", "-p", "mode=faithful", "-p", "limit=300")["consent"][-1] == "publish = false"


def test_a_word_outside_the_vocabulary_is_uniform(small_vectors):
    found = facts("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5", "--word", "unheardof")
    assert {item["exact"] for item in found["example"]["outputs"]} == {"1/103"}
    assert found["example"]["most_telling"] is None


def test_preview_draws_on_public_sentences_at_several_epsilons(small_vectors):
    found = facts("preview", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5")
    assert tuple(found) == preview.KEYS
    assert found["ledgered"] is False
    assert [row["before"] for row in found["sentences"]] == list(samples.PUBLIC)
    assert all([item["epsilon"] for item in row["after"]] == list(CusText.shown_epsilons) for row in found["sentences"])


@pytest.mark.parametrize("name", available())
def test_every_mechanism_has_a_preview_or_says_what_it_lacks(name, monkeypatch):
    """With what is installed, offline: nothing is downloaded, and what is drawn is another text."""
    monkeypatch.setattr(language_model, "_downloaded", None)
    done = dptext("preview", name, "--public-text", "the good hotel was clean", "--epsilon", 3, "--json")
    if done.exit_code:
        assert done.exit_code == 2
        said, hint = done.stderr.splitlines()
        assert "needs a language model" in said or "is not installed" in said
        assert hint.startswith("Hint: ")
        return
    found = json.loads(done.stdout)
    assert ("model" in found["taken"]) is ("model" in load(name).model_fields)
    (row,) = found["sentences"]
    (item,) = row["after"]
    assert item["spend"] > 0
    assert item["text"] != row["before"]


def test_a_preview_takes_the_usual_model_before_the_small_one(monkeypatch):
    """What is on the machine decides: a model of the hub's cache, else the one that ships, else a sentence."""
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    kind, here = load("dpmlm"), set()
    monkeypatch.setattr(language_model, "is_here", lambda model: model in here)
    with pytest.raises(
        PolicyError, match=r"none for it: it is meant for FacebookAI(.|\n)*pip install ./models"
    ) as caught:
        kind.first_look({})
    assert "hf download" in caught.value.hint
    here.add("english-small")
    assert kind.first_look({}) == {"model": "english-small"}
    here.add("FacebookAI/roberta-base")
    assert kind.first_look({}) == {"model": "FacebookAI/roberta-base"}
    assert kind.first_look({"model": "elsewhere"}) == {}


def test_a_preview_of_gaussian_noise_assumes_a_bound_on_the_records():
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    kind = load("dpbart")
    assert kind.first_look({"model": "m"}) == {"n_rec": 10_000}
    assert kind.first_look({"model": "m", "noise": "laplace"}) == {}
    assert kind.first_look({"model": "m", "n_rec": 5}) == {}


def test_a_model_is_here_by_folder_by_name_or_from_the_hubs_cache(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert language_model.is_here(str(tmp_path))
    assert not language_model.is_here(str(tmp_path / "nowhere"))
    assert not language_model.is_here("a/b")
    snapshot = tmp_path / "hub" / "models--a--b" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").touch()
    refs = tmp_path / "hub" / "models--a--b" / "refs"
    refs.mkdir()
    (refs / "main").write_text("c0ffee")
    assert language_model.is_here("a/b")


def test_a_preview_takes_no_text_unless_it_is_called_public(small_vectors):
    refused = dptext("preview", "--text", SENTINEL)
    assert refused.exit_code == 2
    assert SENTINEL not in refused.output
    base = ("preview", "-p", f"vectors={small_vectors}", "-p", "k=5", "--public-text", "the good words", "--epsilon", 3)
    (row,) = facts(*base)["sentences"]
    assert row["before"] == "the good words"
    assert [(item["epsilon"], item["spend"]) for item in row["after"]] == [(3.0, 9.0)]


def test_two_previews_have_different_keys(small_vectors):
    words = ("preview", "-p", f"vectors={small_vectors}", "-p", "k=5", "--public-text", "the good " * 50)
    assert facts(*words) != facts(*words)


def test_schema_is_that_of_the_policy_file():
    found = json.loads(dptext("schema").stdout)
    assert {"dataset", "source", "column", "ledger"} <= set(found["properties"])


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([], {}),
        (None, {}),
        (["epsilon=2"], {"epsilon": 2.0}),
        (["epsilon=1e-1", "k=10", "variant=plus"], {"epsilon": 0.1, "k": 10, "variant": "plus"}),
        (["vectors=a=b"], {"vectors": "a=b"}),
        ([" k =7"], {"k": 7}),
    ],
)
def test_parameters_take_the_types_of_the_fields(given, values):
    found = parameters.parse(CusText, "custext", given)
    assert found == values
    assert [type(item) for item in found.values()] == [type(item) for item in values.values()]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["epsilon"], "NAME=VALUE"),
        (["=2"], "NAME=VALUE"),
        (["epsilom=2"], "did you mean epsilon?"),
        (["k=many"], "valid integer"),
        (["k=2", "k=3"], "twice"),
        (["variant=best"], "'plain' or 'plus'"),
    ],
)
def test_other_parameters_are_refused(given, said):
    with pytest.raises(PolicyError, match=said.replace("?", r"\?")):
        parameters.parse(CusText, "custext", given)


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "inf", "two"])
def test_epsilons_that_mean_nothing_are_refused(epsilon):
    done = dptext("explain", "custext", "-p", f"epsilon={epsilon}")
    assert done.exit_code == 2
    assert "custext: epsilon:" in done.stderr
    assert "Hint: parameters of custext" in done.stderr


def test_unknown_mechanisms_are_told_what_there_is():
    for command in ("explain", "preview"):
        done = dptext(command, "no_such")
        assert done.exit_code == 2
        assert "custext" in done.stderr
        assert "Hint:" in done.stderr


MODELS = ["adept", "dp_paraphrase", "dp_prompt", "dpbart", "dpmlm"]


@pytest.mark.parametrize("name", MODELS)
def test_explain_states_what_a_model_can_tell(name):
    """Offline: the usual models are not here, so the small example stands in, and that is said."""
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    found = facts("explain", name)
    assert tuple(found) == explain.KEYS
    assert "small example" in found["note"]
    assert found["law"] is None
    assert (found["draw"] is None) is (found["guarantee"]["unit"] == "record")
    assert (found["noise"] is None) is (found["guarantee"]["unit"] != "record")
    for item in found["conversions"]:
        assert 0 < item["epsilon"] < math.inf
        assert item["rule"]
    one, _, ten, _ = found["conversions"]
    assert one["epsilon"] < ten["epsilon"] <= 10 * one["epsilon"] * (1 + 1e-9)
    shown = dptext("explain", name).stdout
    assert f"computes here on {Computing(**found['computing'])}" in shown
    assert "at a fixed delta" in shown
    assert ("standard deviation" in shown) is (found["noise"] is not None)


@pytest.mark.parametrize("name", MODELS)
def test_explain_says_where_a_model_computes(name, computing):
    """As it is set; the LSTM of adept knows float32 alone."""
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    dtype = "float32" if name == "adept" else computing.dtype
    assert facts("explain", name)["computing"] == {"device": computing.device, "dtype": dtype, "auto": []}


def test_explain_says_where_no_table_computes(small_vectors):
    assert facts("explain", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5")["computing"] is None


def test_records_of_one_person_lose_less_together_under_gaussian_noise():
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    one, _, ten, _ = facts("explain", "dpbart", "-p", "epsilon=500")["conversions"]
    assert one["epsilon"] == pytest.approx(500)
    assert ten["rule"] == "gaussian"
    assert ten["epsilon"] < 10 * one["epsilon"]


def test_mechanisms_are_listed_without_torch(tmp_path):
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; from dptext_etl.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "mechanisms", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(MODELS) <= {item["name"] for item in json.loads(done.stdout)["mechanisms"]}


def test_a_parameter_that_is_a_range_or_a_path_is_read_as_either():
    kind = load("dpmlm")
    assert parameters.parse(kind, "dpmlm", ["clip=-3.2,16.3"])["clip"] == (-3.2, 16.3)
    assert parameters.parse(kind, "dpmlm", ["clip=range.json"])["clip"] == "range.json"


@pytest.mark.parametrize("command", ["run", "privatize", "preview"])
def test_where_models_compute_is_a_setting_of_the_process(command, monkeypatch):
    monkeypatch.setenv("DPTEXT_DEVICE", "auto")
    monkeypatch.setenv("DPTEXT_DTYPE", "auto")
    from dptext_etl.cli.running import compute_on

    compute_on(None, None)
    assert (os.environ["DPTEXT_DEVICE"], os.environ["DPTEXT_DTYPE"]) == ("auto", "auto")
    compute_on("cpu", "float32")
    assert (os.environ["DPTEXT_DEVICE"], os.environ["DPTEXT_DTYPE"]) == ("cpu", "float32")
    shown = dptext(command, "--help").stdout
    assert "--device" in shown
    assert "--dtype" in shown
