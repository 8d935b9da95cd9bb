# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Training of the small masked language model: examples, vocabulary, resumption, figures, card."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from dptext_etl_models.training.corpus import NOTHING, Corpus
from dptext_etl_models.training.masked_card import SETTINGS, figures, finish
from dptext_etl_models.training.masked_examples import (
    Examples,
    Recipe,
    alone,
    drawable,
    masking,
    padded,
    pair,
    segment,
)
from dptext_etl_models.training.vocabulary import END, MASK, SPECIAL, START, build, count_words, whole_words
from tests.examples import examples

TEXTS = [
    f"The {size} {animal} {verb} the {food} in {place}. It doesn\u2019t {verb} {number} of them!"
    for size in ("old", "small", "quiet")
    for animal in ("cat", "dog", "bird", "fish")
    for verb in ("eat", "like", "see")
    for food in ("bread", "rice", "corn")
    for place in ("Paris", "Oslo")
    for number in ("12", "none")
]
TINY = masked_lm.Settings(
    vocabulary=400,
    pieces=20,
    hidden=32,
    layers=1,
    heads=2,
    inner=32,
    recipe=Recipe(short=24, long=40),
    tokens=256,
    steps=40,
    rate=5e-3,
    warmup=4,
)


@pytest.fixture(scope="module")
def tokenizer():
    return build(count_words(map(corpora.clean, TEXTS)), 400, 20)


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


def names(tokenizer, ids):
    return [tokenizer.id_to_token(number) for number in ids]


def test_words_are_single_ids_and_pieces_only_spell_the_rest(tokenizer):
    assert names(tokenizer, range(5)) == list(SPECIAL)
    words = names(tokenizer, whole_words(tokenizer))
    assert {"the", "bread", "doesn't", "it", "12", "paris"} <= set(words)
    assert not any(word.startswith("##") or word in SPECIAL for word in words)
    for word in words:
        assert tokenizer.encode(word, add_special_tokens=False).tokens == [word]
    spelt = tokenizer.encode("Breadlike", add_special_tokens=False).tokens
    assert spelt[0] == "bread"
    assert all(piece.startswith("##") for piece in spelt[1:])
    assert tokenizer.encode("DOESN\u2019T,", add_special_tokens=False).tokens == ["doesn't", ","]


def test_the_vocabulary_has_the_size_that_was_asked_for_and_the_most_frequent_words():
    counts = Counter({"".join(chr(97 + int(digit)) for digit in f"{n:04d}"): 1_000 - n for n in range(1_000)})
    made = build(counts, 300, 0)
    assert made.get_vocab_size() == 300
    longer = [word for word in names(made, whole_words(made)) if len(word) > 1]
    assert longer == [word for word, _ in counts.most_common(len(longer))]


def test_pairs_are_framed_as_the_mechanism_frames_them(tokenizer):
    both = tokenizer.encode("the cat", "the dog")
    assert both.tokens == ["<s>", "the", "cat", "</s>", "</s>", "the", "dog", "</s>"]
    ids, labels = pair((both.ids[1:3], [NOTHING] * 2), (both.ids[5:7], [NOTHING] * 2))
    assert ids == both.ids
    assert set(labels) == {NOTHING}
    assert padded([(ids, labels)]).types[0].tolist() == both.type_ids


@given(
    st.lists(st.sampled_from(["the", "cat", "doesn't", "zebra", ",", "12", "see"]), min_size=1, max_size=12), st.data()
)
def test_a_word_is_one_mask_and_only_single_ids_are_asked_for(tokenizer, words, data):
    text = segment([" ".join(words)], tokenizer, drawable(tokenizer))[0]
    assert len(text) == len(words)
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, len(words) - 1)))), dtype=np.int64)
    ids, labels = masking(text, chosen)
    assert ids.count(MASK) == len(chosen)
    assert len(ids) == len(labels)
    asked = [word for place, word in enumerate(words) if place in chosen and word not in ("zebra", ",")]
    assert names(tokenizer, [label for label in labels if label != NOTHING]) == asked
    assert all(ids[place] == MASK for place, label in enumerate(labels) if label != NOTHING)
    assert [word == "," for word in words] == (~text.masked).tolist()


def test_texts_are_cut_between_words(tokenizer):
    text = segment(["the zebra sees the cat"], tokenizer, drawable(tokenizer))[0]
    for limit in range(len(text.ids) + 1):
        part = text.cut(limit)
        assert part.starts[-1] == len(part.ids) <= limit
        assert len(part.asked) == len(part.masked) == len(part)


@examples(10)
@given(st.integers(0, 5), st.floats(0, 1), st.integers(0, 3))
def test_batches_are_functions_of_seed_and_number_alone(tokenizer, seed, pairs, number):
    recipe = Recipe(pairs=pairs, short=24, long=40)
    made = [Examples([(TEXTS, 1.0)], tokenizer, recipe=recipe, tokens=200, seed=seed, pool=3) for _ in range(2)]
    _ = made[1][5]
    batch, again = made[0][number], made[1][number]
    assert (batch.ids == again.ids).all()
    assert (batch.labels == again.labels).all()
    assert batch.ids.size <= 200
    assert batch.ids.shape[1] <= 40
    assert (batch.ids[:, 0] == START).all()
    assert ((batch.labels == NOTHING) | (batch.ids == MASK)).all()
    assert (batch.labels != NOTHING).any()
    doubled = (batch.ids == END).sum(axis=1) == 3
    assert doubled.all() if pairs == 1 else pairs > 0 or not doubled.any()
    assert (batch.types.any(axis=1) == doubled).all()


def test_second_copies_repeat_the_first_but_for_masks_and_noise(tokenizer):
    recipe = Recipe(pairs=1.0, first=0.0, noise=0.0, short=40, long=40, second=(0.3, 0.3))
    batch = Examples([(TEXTS, 1.0)], tokenizer, recipe=recipe, tokens=400, seed=1, pool=2)[0]
    spelt = {entry for entry in tokenizer.get_vocab() if entry.startswith("##")}
    for ids, labels in zip(batch.ids.tolist(), batch.labels.tolist(), strict=True):
        first = ids[1 : ids.index(END)]
        second, asked = ids[len(first) + 3 : 2 * len(first) + 3], labels[len(first) + 3 : 2 * len(first) + 3]
        if spelt.isdisjoint(names(tokenizer, first)):
            restored = [label if label != NOTHING else number for number, label in zip(second, asked, strict=True)]
            assert restored == first
            assert MASK in second
            assert MASK not in first


def test_one_text_alone_is_framed(tokenizer):
    assert alone(([7, MASK], [NOTHING, 8])) == ([START, 7, MASK, END], [NOTHING, NOTHING, 8, NOTHING])


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
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    masked_lm.train(held, whole, TINY, every=10)

    class StopError(Exception):
        pass

    def stop(seen):
        raise StopError

    def again():
        try:
            masked_lm.train(held, stopped, TINY, every=10, report_every=20, listener=stop)
        except StopError:
            return True
        return False

    assert again()
    assert (stopped / "checkpoint").is_dir()
    masked_lm.train(held, stopped, TINY, every=10)
    for name in ("model.safetensors", "tokenizer.json", "config.json", "training.json"):
        assert (whole / name).read_bytes() == (stopped / name).read_bytes(), name


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
    facts = finish(out, held, licence="Made up, free of any rights.", pieces=20)
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
    assert found.examined["c"] == texts  # given to be examined on alone, it is taken whole
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
    with pytest.raises(PolicyError, match="no share"):
        Corpus.parse(given)
    assert Corpus.parse("a=b.parquet=2.5").share == 2.5
    assert Corpus.parse("x.parquet").share == 1.0


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
    shape = ["--vocabulary", 1_000, "--width", 24, "--layers", 1, "--seed", 3, "--licence", "None needed.", "--json"]
    done = CliRunner().invoke(app, ["train", "masked-lm", *map(str, given + shape)])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert tuple(facts) == ("out", "steps", "bytes", "held_out", "clip")
    assert facts["steps"] == 2
    assert json.loads((out / "training.json").read_text())["settings"]["seed"] == 3
    assert "None needed." in (out / "README.md").read_text()
    assert language_model.model_files(str(out))["model/dptext_clip.json"]


def test_texts_without_a_known_word_are_refused_instead_of_sought_for_ever(tokenizer):
    examples = Examples([(["?! ...", "--"], 1.0)], tokenizer, recipe=Recipe(), tokens=100, seed=1, pool=2)
    with pytest.raises(InputError, match="no text"):
        _ = examples[0]
