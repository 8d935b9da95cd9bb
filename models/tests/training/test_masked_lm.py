# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Training of the small masked language model: examples, vocabulary, resumption, figures, card."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


from dptext_etl.errors import InputError
from dptext_etl_models.training import corpus as corpora
from dptext_etl_models.training.corpus import NOTHING
from dptext_etl_models.training.masked_examples import Examples, Recipe, alone, drawable, masking, padded, pair, segment
from dptext_etl_models.training.vocabulary import END, MASK, SPECIAL, START, build, count_words, whole_words
from models.tests.model_makers import TEXTS
from tests.examples import examples


@pytest.fixture(scope="module")
def tokenizer():
    return build(count_words(map(corpora.clean, TEXTS)), 400, 20)


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
    assert (ids, set(labels)) == (both.ids, {NOTHING})
    assert padded([(ids, labels)]).types[0].tolist() == both.type_ids


@given(
    st.lists(st.sampled_from(["the", "cat", "doesn't", "zebra", ",", "12", "see"]), min_size=1, max_size=12), st.data()
)
def test_a_word_is_one_mask_and_only_single_ids_are_asked_for(tokenizer, words, data):
    text = segment([" ".join(words)], tokenizer, drawable(tokenizer))[0]
    assert len(text) == len(words)
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, len(words) - 1)))), dtype=np.int64)
    ids, labels = masking(text, chosen)
    assert (ids.count(MASK), len(ids)) == (len(chosen), len(labels))
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


def test_texts_without_a_known_word_are_refused_instead_of_sought_for_ever(tokenizer):
    examples = Examples([(["?! ...", "--"], 1.0)], tokenizer, recipe=Recipe(), tokens=100, seed=1, pool=2)
    with pytest.raises(InputError, match="no text"):
        _ = examples[0]
