"""Texts that a causal model writes for public labels: the prompt, the card, and what is refused."""

import json
import random
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models import writing
from dptext_etl_models.inference import language_model
from tests.command_line import dptext

LABELS = """
dataset = "bank"
release = "1"
source = "raw.parquet"
sink = "out"
id = "id"
subject = "user"
key = "env:DPTEXT_SUITE_SECRET"
ledger = { url = "sqlite:///ledger.db" }
[unlinked]
rows = 200
delta = 1e-9
per_subject = 1
labels = { column = "topic", values = ["card_arrival", "exchange_rate"] }
[[column]]
name = "text"
mechanism = { name = "surrogate", epsilon = 2.0, corpus = "example" }
"""
SAYS = {"card arrival": ["where is my card", "has my card come"], "exchange rate": ["what is the rate for euros"]}


class Toy:
    """A tokenizer of characters, and a model that continues a prompt with a text about its topic."""

    pad_token = eos_token = "\0"
    pad_token_id = 0

    def __init__(self):
        self.asked, self.prompts = [], []

    def __call__(self, texts, **_):
        self.prompts.append(texts)
        width = max(map(len, texts))
        ids = torch.tensor([[0] * (width - len(text)) + [ord(sign) for sign in text] for text in texts])
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}

    def decode(self, row, **_):
        return "".join(chr(number) for number in row.tolist() if number)

    def generate(self, *, input_ids, **settings):
        self.asked.append(settings)
        rows = []
        for place, row in enumerate(input_ids):
            topic = self.decode(row).rpartition("Topic: ")[2].partition("\n")[0]
            said = SAYS[topic][place % len(SAYS[topic])]
            rows.append(f' "{said}"\nKind' if place else " cut in the mid")
        width = max(map(len, rows))
        drawn = [[ord(sign) for sign in text] + [0] * (width - len(text)) for text in rows]
        return torch.cat([input_ids, torch.tensor(drawn)], dim=1)


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(LABELS)
    return path


@pytest.fixture
def toy(monkeypatch):
    made = Toy()
    monkeypatch.setattr(writing, "_opened", lambda _: (made, made))
    monkeypatch.setattr(writing, "_identity", lambda _: {"model": "0" * 64})
    return made


def test_texts_are_whole_lines_without_repetitions_and_the_card_says_how(labels, toy, tmp_path):
    out = tmp_path / "written.parquet"
    words = ("--model", "toy", "--about", "messages to a bank", "--labels", labels, "--each", 6, "--out", out)
    done = dptext("corpus", "write", *words, "--guidance", 1.6, "--license", "MIT", "--json")
    assert done.exit_code == 0, done.stderr
    texts = pl.read_parquet(out)
    assert texts.rows() == [
        ("card_arrival", "has my card come"),
        ("card_arrival", "where is my card"),
        ("exchange_rate", "what is the rate for euros"),
    ]
    card = json.loads(out.with_suffix(".json").read_text())
    assert json.loads(done.stdout) == {"out": str(out), **card}
    assert card["counts"] == {"card_arrival": 2, "exchange_rate": 1}
    assert (card["licence"], card["seed"], card["guidance"]) == ("MIT", 1, 1.6)
    assert {settings["temperature"] for settings in toy.asked} == {0.8, 1.0}
    assert all(settings["guidance_scale"] == 1.6 and settings["top_p"] == 0.95 for settings in toy.asked)
    topics = {prompt.rpartition("Topic: ")[2].partition("\n")[0] for batch in toy.prompts for prompt in batch}
    assert topics == {"card arrival", "exchange rate", "any"}


def test_a_prompt_is_six_examples_in_shuffled_order_and_the_beginning_of_the_next():
    first, second = (writing._prompt("notes", "rain", random.Random(seed)) for seed in (1, 2))
    assert first != second
    assert first.endswith("Kind: notes\nTopic: rain\nText:")
    assert sorted(first.split("\n\n")) == sorted(second.split("\n\n"))
    assert first.count("Kind: ") == 7


def test_a_real_model_is_asked_with_settings_that_it_knows(labels, tmp_path, monkeypatch):
    """Its weights are random, so no line of it ends."""
    monkeypatch.setattr(writing, "LONGEST", 3)
    monkeypatch.setattr(writing, "EXAMPLES", [("notes", "sun", "It is warm.")])  # its context is short
    wanted = writing.Wanted("example-causal", "notes", {"a": "rain"}, each=2, guidance=1.5, licence="none")
    done = writing.write(wanted, tmp_path / "written.parquet")
    assert done.texts.schema == {"label": pl.String, "text": pl.String}
    files = language_model.model_files("example-causal")
    assert done.card["model"] == {role.removeprefix("model/"): item.sha256 for role, item in files.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('labels = { column = "topic"', 'more = { column = "topic"'), "policy"),
        (
            lambda text: "\n".join(line for line in text.splitlines() if "labels" not in line),
            "declares no public labels",
        ),
    ],
)
def test_labels_come_from_a_policy_alone(labels, tmp_path, change, message):
    labels.write_text(change(LABELS))
    done = dptext(
        "corpus", "write", "--model", "m", "--about", "x", "--labels", labels, "--out", tmp_path / "o.parquet"
    )
    assert (done.exit_code, message in done.stderr) == (PolicyError.exit_code, True), done.stderr


def test_a_license_is_asked_for_and_that_of_the_model_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    wanted = writing.Wanted(str(folder), "notes", {"a": "rain"})
    with pytest.raises(PolicyError, match="the model states no license"):
        writing.write(wanted, tmp_path / "written.parquet")
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\nlicense: other\n")
    assert writing._stated_license(str(folder)) == "apache-2.0"
    field = SimpleNamespace(contents=lambda: "mit")
    reader = SimpleNamespace(get_field=lambda name: field if name == "general.license" else None)
    monkeypatch.setitem(__import__("sys").modules, "gguf", SimpleNamespace(GGUFReader=lambda _: reader))
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    assert writing._stated_license(str(tmp_path / "small.gguf")) == "mit"
    with pytest.raises(PolicyError, match="there is no file"):
        writing._stated_license(str(tmp_path / "other.gguf"))


@pytest.mark.parametrize("name", ["there.parquet", "texts.csv"])
def test_no_file_is_replaced(tmp_path, name):
    (tmp_path / "there.parquet").touch()
    with pytest.raises(InputError, match="is not the name of a new"):
        writing.write(writing.Wanted("m", "notes", {"a": "rain"}, licence="x"), tmp_path / name)


@pytest.mark.parametrize("change", [{"each": 0}, {"topics": {}}, {"about": " "}, {"guidance": 0.5}, {"guidance": 9}])
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(PolicyError):
        writing.Wanted(**{"model": "m", "about": "notes", "topics": {"a": "rain"}, **change})
