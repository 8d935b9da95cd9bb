"""Attacks with known answers: a cipher that is read in context, guesses about members, queries, masked words."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dptext_etl.mechanisms.custext import CusText
from dptext_etl_eval import Pairs
from dptext_etl_eval.attacks import masked_tokens, reconstruction
from dptext_etl_eval.attacks.masked_tokens import MaskedTokens
from dptext_etl_eval.attacks.membership import Membership, area
from dptext_etl_eval.attacks.query import Query, asked
from dptext_etl_eval.attacks.reconstruction import Candidates, Reconstruction
from dptext_etl_eval.evaluators import Evaluators
from dptext_etl_eval.ngrams import OTHERS, START, Ngrams
from tests.later import later

sklearn = later("sklearn", reason="scikit-learn is not installed (extra: eval)")

TEXTS = tuple(
    f"the {one} of the {two} was {three} in the {four}"
    for one, two, three, four in itertools.product(
        ("song", "king", "city"), ("north", "people"), ("written", "built"), ("early", "second", "last")
    )
)
WORDS = sorted({word for text in TEXTS for word in text.split()})
TURNED = {word: WORDS[place ^ 1] for place, word in enumerate(WORDS)}
CIPHERED = tuple(" ".join(TURNED[word] for word in text.split()) for text in TEXTS)


class Cipher(CusText):
    """Two words of a list often change places: odds that an attacker can invert."""

    def transition(self, word):
        if word not in TURNED:
            return [word], [Fraction(1)]
        return [TURNED[word], word], [Fraction(7, 10), Fraction(3, 10)]


def by_what(scores):
    return {score.what: score for score in scores}


@pytest.fixture(scope="module")
def custext():
    return CusText(epsilon=200.0, limit=500)


def test_a_beam_finds_the_best_of_all_readings():
    model = Ngrams.load()
    random = np.random.default_rng(5)
    choices = [("the", "king"), ("of", "was", "zzqzz"), ("the", "a"), ("people", "song")]
    text = [Candidates(words, np.array(model.numbers(words)), np.log(random.random(len(words)))) for words in choices]

    def explained(picked):
        numbers = [START, START, *model.numbers([of[at] for of, at in zip(choices, picked, strict=True)])]
        total = 0.0
        for place, (at, here) in enumerate(zip(picked, text, strict=True)):
            chance = model.chances(*(np.array([number]) for number in numbers[place : place + 3]))[0]
            total += np.log(chance / OTHERS if numbers[place + 2] == model.other else chance) + here.logs[at]
        return total

    best = max(itertools.product(*(range(len(words)) for words in choices)), key=explained)
    found = reconstruction.hypotheses(model, text)[0][0]
    assert found == [words[at] for words, at in zip(choices, best, strict=True)]


def test_whoever_knows_the_mechanism_reads_a_cipher():
    found = by_what(Reconstruction().of(Pairs(raw=TEXTS, released=CIPHERED, mechanism=Cipher(epsilon=1.0))))
    assert found["released words that are unchanged"].value == 0
    back = found["words recovered"]
    assert back.value > 0.8
    assert back.interval[0] > back.blind == pytest.approx(3 / 10)
    assert found["changed words recovered"].value == back.value


def test_a_causal_model_chooses_among_the_best_readings(monkeypatch):
    """Its odds and the mechanism's are multiplied; without a model, nothing is added."""
    likes = {"the song": 1.0, "the king": 9.0, "a king": 2.0}
    monkeypatch.setattr(reconstruction, "surprise", lambda _, texts: np.array([[likes[text], 2.0] for text in texts]))
    readings = [(["the", "king"], -1.0), (["a", "king"], -2.0), (["the", "song"], -3.5)]
    assert reconstruction.chosen("model", readings) == ["a", "king"]
    monkeypatch.setattr(reconstruction, "surprise", lambda _, texts: np.zeros((len(texts), 2)))
    evaluators = Evaluators(perplexity_model="models/gpt")
    pairs = Pairs(raw=TEXTS, released=CIPHERED, mechanism=Cipher(epsilon=1.0), evaluators=evaluators)
    found = by_what(Reconstruction().of(pairs))
    assert found["words recovered, gpt"].value > 0.8
    assert found["changed words recovered, gpt"].value == found["words recovered, gpt"].value
    assert len(found) == 5


def test_releases_of_another_length_are_not_read():
    pairs = Pairs(raw=TEXTS, released=("the",) * len(TEXTS), mechanism=Cipher(epsilon=1.0))
    (score,) = Reconstruction().of(pairs)
    assert (score.value, score.note) == (None, "no release has as many words as its raw text")


def test_the_area_is_that_of_scikit_learn():
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(1)
    members, others = random.integers(0, 9, 40).astype(float), random.integers(0, 7, 30).astype(float)
    truth = [1] * len(members) + [0] * len(others)
    assert area(members, others) == pytest.approx(roc_auc_score(truth, np.concatenate([members, others])))


def test_members_are_found_in_raw_texts_and_not_in_noise(custext):
    texts = tuple(f"{text} row{number}" for number, text in enumerate(TEXTS * 3))
    same = by_what(Membership().of(Pairs(raw=texts, released=texts)))
    assert {score.value for score in same.values()} == {1.0}
    assert {score.raw for score in same.values()} == {1.0}
    random = np.random.default_rng(0)
    noise = tuple(" ".join(random.choice(WORDS, 10)) for _ in texts)
    found = by_what(Membership().of(Pairs(raw=texts, released=noise)))
    low, high = found["area under the curve, by the text itself"].interval
    assert low < 0.5 < high
    known = by_what(Membership().of(Pairs(raw=texts, released=texts, mechanism=custext)))
    assert "area under the curve, by 4 draws of it" in known


def test_queries_reveal_words_of_a_loud_mechanism_at_once_and_of_a_silent_one_never(custext):
    loud = by_what(Query().of(Pairs(raw=TEXTS, released=TEXTS, mechanism=custext)))
    assert (loud["words that 1 query reveals"].value, loud["median number of queries"].value) == (1, 1)
    silent = by_what(Query().of(Pairs(raw=TEXTS, released=TEXTS, mechanism=CusText(epsilon=0.001, limit=500))))
    assert silent["words that 1,000 queries reveal"].value <= 0.1
    assert silent["median number of queries"].value is None
    assert set(asked(custext)) <= set(custext.input_words())


@pytest.fixture
def oracle(monkeypatch):
    """A model that knows the raw texts, and predicts the word of the right row and place."""

    class Oracle(masked_tokens.Predictor):
        def __init__(self, name):
            assert name == "english-small"

        def masked(self, row, words):
            return (masked_tokens.Masked(row, place, []) for place in range(len(words)))

        def predict(self, rows):
            return [[TEXTS[item.row].split()[item.place]] for item in rows]

    monkeypatch.setattr(masked_tokens, "Predictor", Oracle)


def test_a_masked_word_is_compared_with_the_word_in_its_place(oracle):
    released = tuple(" ".join(["other"] * 10) if row % 2 else text for row, text in enumerate(TEXTS))
    found = by_what(MaskedTokens().of(Pairs(raw=TEXTS, released=released, models=True)))
    assert (found["by position, first prediction"].value, found["by bag, first prediction"].value) == (1, 1)
    assert found["by position, first prediction"].blind == pytest.approx(3 / 10)
    assert found["by bag, first prediction"].blind == 1
    shorter = tuple(text.rpartition(" ")[0] for text in TEXTS)
    none = by_what(MaskedTokens().of(Pairs(raw=TEXTS, released=shorter, models=True)))
    assert none["by position, first prediction"].value is None
    assert none["by bag, first prediction"].value == 1


def test_a_real_model_masks_one_word_at_a_time():
    pytest.importorskip("transformers", reason="transformers is not installed (extra: models)")
    model = masked_tokens.Predictor("example-masked")
    rows = list(model.masked(3, ["cat", "mat", "sat"]))
    assert [(item.row, item.place) for item in rows] == [(3, 0), (3, 1), (3, 2)]
    mask = model._tokenizer.mask_token_id
    assert [item.tokens.count(mask) for item in rows] == [1, 1, 1]
    together, alone = model.predict(rows), [model.predict([item])[0] for item in rows]
    assert together == alone
    assert all(len(words) == masked_tokens.TOP for words in together)


def test_attacks_that_lack_a_mechanism_or_models_are_excluded():
    has = Pairs(raw=TEXTS, released=TEXTS).has
    assert Query.needs - has == Reconstruction.needs - has == {"word mechanism"}
    assert MaskedTokens.needs - has == {"masked model"}


def test_no_person_is_on_both_sides_of_an_encoders_split():
    from dptext_etl_eval.fine_tuning import parted

    people = np.array([f"p{row % 7}" for row in range(60)])
    learn, test = parted(people, 60)
    assert sorted([*learn, *test]) == list(range(60))
    assert not set(people[learn]) & set(people[test])
    assert len(parted(None, 100)[0]) == 70


@pytest.mark.thorough
def test_an_encoder_learns_a_word_that_tells_the_attribute():
    pytest.importorskip("accelerate", reason="accelerate is not installed (extra: models)")
    from dptext_etl_eval.attacks.attribute_by_encoder import AttributeByEncoder

    city = np.array(["oslo", "rome"] * 60)
    raw = tuple(f"{('cat', 'mat')[row % 2]} sat here" for row in range(120))
    pairs = Pairs(raw=raw, released=("dog sat here",) * 120, attribute=city, models=True)
    found = by_what(AttributeByEncoder().of(pairs))
    assert found["adaptive attacker, accuracy"].raw == 1
    assert found["adaptive attacker, accuracy"].value < 0.7
