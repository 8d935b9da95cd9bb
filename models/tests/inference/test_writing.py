"""Texts that a causal model writes for public labels: the prompt, the card, and refusals."""

import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
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
[shuffled]
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
    """A tokenizer of characters, and continuations of a prompt with texts about its topic."""

    def __init__(self):
        self.settings, self.prompts = [], []

    def decode(self, row, **_):
        return "".join(map(chr, row))

    def continuations(self, _model, _tokenizer, prompts, **settings):
        self.settings.append(settings)
        self.prompts += prompts
        texts = SAYS[prompts[0].rpartition("Topic: ")[2].partition("\n")[0]]
        rows = [" cut in the mid", *(f' "{text}"\nKind' for text in texts)]
        return [list(map(ord, row)) for row in rows]


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(LABELS)
    return path


@pytest.fixture
def toy(monkeypatch):
    made = Toy()
    monkeypatch.setattr(writing, "_model", lambda _: (None, made))
    monkeypatch.setenv("DPTEXT_THREADS", "1")  # processes would not have these functions
    monkeypatch.setattr(writing, "_continuations", made.continuations)
    monkeypatch.setattr(writing, "_identity", lambda _: {"model": "0" * 64})
    return made


def test_texts_are_whole_lines_without_repetitions_and_the_card_says_how(labels, toy, tmp_path):
    out = tmp_path / "written.parquet"
    words = ("--model", "toy", "--about", "messages to a bank", "--labels", labels, "--each", 6, "--out", out)
    done = dptext("corpus", "write", *words, "--guidance", 1.6, "--license", "MIT", "--json")
    assert done.exit_code == 0, done.stderr
    texts = pl.read_parquet(out)
    assert texts.rows() == [
        ("card_arrival", "where is my card"),
        ("card_arrival", "has my card come"),
        ("exchange_rate", "what is the rate for euros"),
    ]
    card = json.loads(out.with_suffix(".json").read_text())
    shown = {"license" if name == "licence" else name: fact for name, fact in card.items()}  # the file keeps its keys
    assert json.loads(done.stdout) == {"out": str(out), **shown}
    assert card["counts"] == {"card_arrival": 2, "exchange_rate": 1}
    assert (card["licence"], card["seed"], card["guidance"]) == ("MIT", 1, 1.6)
    assert {settings["guidance"] for settings in toy.settings} == {1.6}
    topics = {prompt.rpartition("Topic: ")[2].partition("\n")[0] for prompt in toy.prompts}
    assert topics == {"card arrival", "exchange rate", "any"}


def test_both_temperatures_are_used_in_turn(toy, tmp_path):
    list(writing._texts(writing.Wanted("toy", "notes", {"a": "card arrival"}, number=20), "a", 0, tmp_path))
    assert [settings["temperature"] for settings in toy.settings] == [0.8, 1.0, 0.8]


WANTED = writing.Wanted("toy", "notes", {"a": "card arrival", "b": "exchange rate"}, number=40, license="MIT")


def test_a_stopped_command_continues_after_its_last_batch(toy, tmp_path, monkeypatch):
    whole = writing.write(WANTED, tmp_path / "whole.parquet")
    asked, before = list(toy.prompts), toy.continuations
    toy.prompts.clear()

    def stopping(*args, **settings):
        if len(toy.prompts) == 4:
            raise KeyboardInterrupt
        return before(*args, **settings)

    monkeypatch.setattr(writing, "_continuations", stopping)
    with pytest.raises(KeyboardInterrupt):
        writing.write(WANTED, tmp_path / "written.parquet")
    assert len(list((tmp_path / "written.batches").glob("*-*.json"))) == 4
    monkeypatch.setattr(writing, "_continuations", before)
    other = dataclasses.replace(WANTED, seed=2)
    with pytest.raises(InputError, match="batches that other settings wrote"):
        writing.write(other, tmp_path / "written.parquet")
    lines = list[str]()
    again = writing.write(WANTED, tmp_path / "written.parquet", lines.append)
    assert toy.prompts == asked  # no batch twice, none excluded, in the same order
    assert again.texts.equals(whole.texts)
    assert again.card == whole.card
    assert not (tmp_path / "written.batches").exists()
    assert lines[0] == "4 batches of an earlier start are there"
    assert re.match(r"the first of about 4 batches needed \d+ s", lines[1])


COMMAND = """
import sys
from pathlib import Path

from dptext_etl_models import writing

writing.LONGEST, writing.EXAMPLES = 3, [("notes", "sun", "It is warm.")]
if __name__ == "__main__":
    wanted = writing.Wanted("example-causal", "notes", {"a": "rain", "b": "snow"}, number=200, license="none")
    writing.write(wanted, Path(sys.argv[1]), print)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="children of a process are read from /proc")
def test_a_killed_command_leaves_no_process_and_continues(tmp_path):
    """The weights are random, so batches hold no text; each is written once."""
    script, out, batches = tmp_path / "command.py", tmp_path / "written.parquet", tmp_path / "written.batches"
    script.write_text(COMMAND)
    command, setting = [sys.executable, str(script), str(out)], {**os.environ, "DPTEXT_THREADS": "2"}
    running = subprocess.Popen(command, env=setting)
    while not [*batches.glob("*-*.json")]:
        assert running.poll() is None
        time.sleep(0.01)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert len(children) >= 2
    running.kill()
    running.wait()
    until = time.monotonic() + 60
    while left := [child for child in children if Path(f"/proc/{child}/exe").exists()]:
        assert time.monotonic() < until, f"processes {left} still run"
        time.sleep(0.05)
    kept = len([*batches.glob("*-*.json")])
    done = subprocess.run(command, env=setting, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == f"{kept:,} batches of an earlier start are there"
    assert out.is_file()
    assert not batches.exists()


def test_texts_that_ended_are_no_longer_computed(monkeypatch):
    """The first text ends at once: its row leaves the batch, and the other rows follow their own words."""
    model, tokenizer = writing.opened("example-causal")
    monkeypatch.setattr(writing, "LONGEST", 5)
    sizes, decode = [], tokenizer.decode
    real = type(model).forward

    def counted(self, ids, *args, **given):
        sizes.append(len(ids))
        return real(self, ids, *args, **given)

    def ending(ids, **given):
        return "\n" if len(ids) == 1 and len(sizes) <= 2 and next(calls) % 4 == 0 else decode(ids, **given)

    calls = iter(range(10_000))
    monkeypatch.setattr(type(model), "forward", counted)
    monkeypatch.setattr(tokenizer, "decode", ending)
    draws = torch.Generator().manual_seed(3)
    rows = writing._continuations(model, tokenizer, ["rain"], guidance=1.0, temperature=1.0, draws=draws)
    ended = [place for place, row in enumerate(rows) if len(row) < 5]
    assert sizes[0] == 1
    assert sizes[-1] < writing._BATCH
    assert len(rows) == writing._BATCH
    assert ended
    monkeypatch.undo()
    with torch.inference_mode():  # every drawn word is among those that may follow the words of its own row
        for row in (rows[ended[0]], next(row for row in rows if len(row) == 5)):
            start = tokenizer("rain", return_tensors="pt")["input_ids"]
            scores = model(torch.cat([start, torch.tensor([row])], 1)).logits[0, start.shape[1] - 1 : -1]
            shares, words = scores.softmax(-1).sort(descending=True)
            for token, share, word in zip(row, shares, words, strict=True):
                assert token in word[share.cumsum(-1) - share < writing.TOP_P + 1e-4].tolist()


@pytest.mark.parametrize("guidance", [1.0, 1.6])
def test_continuations_are_those_of_transformers(guidance, monkeypatch):
    """Where only the likeliest word can be drawn: the words depend on scores, on guidance, and on nothing else."""
    monkeypatch.setattr(writing, "LONGEST", 6)
    model, tokenizer = writing.opened("example-causal")
    prompts = ["notes about the rain", "notes about any"][: 1 if guidance == 1 else 2]
    draws = torch.Generator().manual_seed(1)
    rows = writing._continuations(model, tokenizer, prompts, guidance=guidance, temperature=1e-6, draws=draws)
    ids = [tokenizer(prompt, return_tensors="pt")["input_ids"] for prompt in prompts]
    guided = {"guidance_scale": guidance, "negative_prompt_ids": ids[1]} if guidance > 1 else {}
    likeliest = model.generate(ids[0], do_sample=False, max_new_tokens=6, **guided)[0, ids[0].shape[1] :].tolist()
    assert len(rows) == writing._BATCH
    assert all(row == likeliest for row in rows)


def test_draws_keep_to_the_likeliest_words_and_follow_the_seed(monkeypatch):
    monkeypatch.setattr(writing, "LONGEST", 1)
    monkeypatch.setattr(writing, "TOP_P", 0.3)
    monkeypatch.setattr(writing, "_BATCH", 200)
    model, tokenizer = writing.opened("example-causal")

    def rows(seed):
        draws = torch.Generator().manual_seed(seed)
        return writing._continuations(model, tokenizer, ["rain"], guidance=1.0, temperature=1.0, draws=draws)

    scores = model(tokenizer("rain", return_tensors="pt")["input_ids"]).logits[0, -1]
    shares, words = scores.softmax(-1).sort(descending=True)
    likeliest = set(words[shares.cumsum(-1) - shares < 0.3].tolist())
    assert {row[0] for row in rows(1)} <= likeliest
    assert rows(1) == rows(1) != rows(2)


def test_a_prompt_is_six_examples_in_shuffled_order_and_the_beginning_of_the_next():
    first, second = (writing.prompt("notes", "rain", random.Random(seed)) for seed in (1, 2))
    assert first != second
    assert first.endswith("Kind: notes\nTopic: rain\nText:")
    assert (sorted(first.split("\n\n")), first.count("Kind: ")) == (sorted(second.split("\n\n")), 7)


def test_a_real_model_is_asked_with_settings_that_it_knows(labels, tmp_path, monkeypatch):
    """Its weights are random, so no line of it ends."""
    monkeypatch.setattr(writing, "LONGEST", 3)
    monkeypatch.setattr(writing, "EXAMPLES", [("notes", "sun", "It is warm.")])  # its context is short
    wanted = writing.Wanted("example-causal", "notes", {"a": "rain"}, number=2, guidance=1.5, license="none")
    done = writing.write(wanted, tmp_path / "written.parquet")
    assert done.texts.schema == {"label": pl.String, "text": pl.String}
    files = language_model.model_files("example-causal")
    assert done.card["model"] == {role.removeprefix("model/"): item.sha256 for role, item in files.items()}


@pytest.mark.parametrize(("change", "message"), [
    (lambda text: text.replace('labels = { column = "topic"', 'more = { column = "topic"'), "policy"),
    (lambda text: re.sub("labels.*", "", text), "declares no public labels"),
    (lambda _: "column = 5", "column: must be a list"),
    (lambda _: '[synthetic]\nmechanism = "corpus"', "synthetic.mechanism: must be a table"),
])  # fmt: skip
def test_labels_come_from_a_policy_alone(labels, tmp_path, change, message):
    labels.write_text(change(LABELS))
    words = ("--model", "m", "--about", "x", "--labels", labels, "--out", tmp_path / "o.parquet")
    done = dptext("corpus", "write", *words)
    assert (done.exit_code, message in done.stderr) == (PolicyError.exit_code, True), done.stderr


def test_the_corpus_of_the_policy_may_be_built_later(labels):
    labels.write_text(LABELS.replace('corpus = "example"', 'corpus = "made"'))
    assert writing.topics_of(labels) == {"card_arrival": "card arrival", "exchange_rate": "exchange rate"}


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
        writing.write(writing.Wanted("m", "notes", {"a": "rain"}, license="x"), tmp_path / name)


@pytest.mark.parametrize("change", [{"each": 0}, {"topics": {}}, {"about": " "}, {"guidance": 0.5}, {"guidance": 9}])
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(PolicyError):
        writing.Wanted(**{"model": "m", "about": "notes", "topics": {"a": "rain"}, **change})
