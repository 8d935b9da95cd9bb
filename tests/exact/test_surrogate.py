"""The law of surrogate by enumeration: every near set, every weight, every text draws as the specification says."""

import itertools
import json
import math
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import nearest, products
from dptext_etl.corpora.frequencies import MOST, near_texts, usual_hit, weights
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.choice import cut
from dptext_etl.guarantee import MICRO, Disclosure, GuaranteeClass
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import worst_spend
from dptext_etl.parameters import validated
from dptext_etl.polars.namespace import in_kernel

from .choice_toys import FACTS, exact_weights, expected, kernel_corpus, mechanism, near_of, record_keys, released, toy
from .fixed_keys import release_with_keys
from .stream_oracle import RECORD

STRANGE = ["", "   ", "unknown", "😀👩\u200d👧", "我们 喜欢 电影", "waa " * 10_000, "waa", None]


@pytest.mark.parametrize(("m", "d"), [(m, d) for m in range(2, 8) for d in range(1, m)])
def test_every_near_set_keeps_the_bound_and_attains_it(m, d):
    """The largest ratio of two laws over all pairs of near sets, and a uniform one, is W / w exactly."""
    inside, outside = weights(m, d, Decimal("1.5"))
    total = m * outside + d * (inside - outside)
    laws = [[Fraction(inside if i in near else outside, total) for i in range(m)] for near in subsets(m, d)]
    laws.append([Fraction(1, m)] * m)
    ratios = [one / other for a, b in itertools.permutations(laws, 2) for one, other in zip(a, b, strict=True)]
    assert all(sum(law) == 1 for law in laws)
    assert max(ratios) == Fraction(inside, outside)
    assert math.log(inside / outside) <= 1.5


def subsets(m, d):
    return itertools.combinations(range(m), d)


@pytest.mark.parametrize(("m", "near"), [(3, "one"), (5, "all but one"), (24, "some"), (50, "some")])
def test_the_kernel_draws_what_the_reference_says(tmp_path, m, near):
    corpus = toy(tmp_path, m)
    hit = {"one": 1e-9, "all but one": 1 - 1e-12, "some": 0.6}[near]
    drawn = mechanism(corpus, 1.0, hit=hit)
    assert drawn.near == {"one": 1, "all but one": m - 1}.get(near, drawn.near)
    texts = [text for text in (*corpus.texts, *STRANGE) if text is not None]
    sets = near_of(corpus, texts, drawn.near)
    assert sum(found is None for found in sets) >= 4, "strange texts say nothing"
    for text, found in zip(texts, sets, strict=True):
        own = drawn.near_to(text)
        assert own == (None if found is None else found.tolist())
    repeated = [text for text in texts for _ in range(40)]
    keys = record_keys(len(repeated))
    result = released(drawn, repeated, keys)
    for place, (key, text) in enumerate(zip(keys.to_pylist(), result, strict=True)):
        number = expected(key, 0, sets[place // 40], m, drawn.weights)
        assert text == corpus.texts[number]


def test_equal_scores_come_by_number(tmp_path):
    corpus = toy(tmp_path, 50, k=1)  # of one dimension, all scores are one of two
    drawn = mechanism(corpus, 3.0, hit=0.8)
    text = next(text for text, vector in zip(corpus.texts, corpus.vectors, strict=True) if vector.any())
    scores = corpus.vectors.astype(np.int64) @ corpus.encoder.encode([text])[0].astype(np.int64)
    assert len(set(scores.tolist())) <= 3
    assert drawn.near_to(text) == sorted(range(50), key=lambda i: (-scores[i], i))[: drawn.near]


def test_products_in_floats_and_in_integers_choose_the_same(tmp_path):
    corpus = toy(tmp_path, 50, k=40)
    queries = corpus.encoder.encode(corpus.texts)
    exact = queries.astype(np.int64) @ corpus.vectors.T.astype(np.int64)
    assert np.array_equal(nearest(exact, 9), nearest(products(queries, corpus.vectors), 9))
    drawn = mechanism(corpus, 2.0, hit=0.5)
    for text, scores in zip(corpus.texts, exact, strict=True):
        near = drawn.near_to(text)
        assert near is None or near == nearest(scores[None], drawn.near)[0].tolist()


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_are_drawn_one_by_one_and_compose_to_epsilon(tmp_path, parts):
    corpus = toy(tmp_path, 20)
    drawn = mechanism(corpus, 4.0, hit=0.6, parts=parts)
    texts = [" ".join(corpus.texts[:5]), corpus.texts[0], "", "unknown words alone are here"]
    sets, keys = near_of(corpus, texts, drawn.near, parts), record_keys(len(texts))
    for row, (key, result) in enumerate(zip(keys.to_pylist(), released(drawn, texts, keys), strict=True)):
        numbers = [expected(key, at, sets[row * parts + at], 20, drawn.weights) for at in range(parts)]
        assert result == " ".join(corpus.texts[number] for number in numbers)
    cost = worst_spend(drawn)
    assert cost.eps_pure == parts * (4 * MICRO // parts) <= 4 * MICRO
    assert cost.eps_tight <= cost.eps_pure
    assert cost.n_worst == parts
    assert Fraction(drawn.weights.inside, drawn.weights.outside) <= Fraction(math.exp(4 / parts) * (1 + 1e-12))


def test_several_surrogates_share_epsilon_and_positions_differ(tmp_path):
    corpus = toy(tmp_path, 20)
    drawn, keys = mechanism(corpus, 4.0, hit=0.6, surrogates=3), record_keys(1)
    (found,) = near_of(corpus, [corpus.texts[4]], drawn.near)
    numbers = [expected(keys[0].as_py(), at, found, 20, drawn.weights) for at in range(3)]
    assert released(drawn, [corpus.texts[4]], keys) == [" ".join(corpus.texts[number] for number in numbers)]


@pytest.mark.parametrize("m", [3, 50, 20_000, 1_000_000])
def test_weights_never_exceed_e_to_epsilon(m):
    """Against decimals of twice the digits, over epsilons of every size; floats fail this for four in ten."""
    rng = np.random.default_rng(m)
    for epsilon in (*(repr(float(number)) for number in 10 ** rng.uniform(-6, 2, 60)), "4.0", "8.0", "36.27", "1e6"):
        for d in {1, max(1, m // 25), m - 1}:
            inside, outside = weights(m, d, Decimal(epsilon))
            assert (inside, outside) == exact_weights(m, d, epsilon)
            assert m * outside + d * (inside - outside) <= MOST
            with localcontext() as digits:
                digits.prec = 100
                assert Decimal(inside) / outside <= min(Decimal(epsilon), Decimal(100)).exp()


def test_the_stated_loss_is_just_above_the_true_one():
    for epsilon in ("0.001", "4.0", "50.0"):
        found = weights(20_000, 820, Decimal(epsilon))
        with localcontext() as digits:
            digits.prec = 100
            true = (Decimal(found.inside) / found.outside).ln()
            assert 0 < Decimal(found.loss.numerator) / found.loss.denominator - true < Decimal("1e-38")


def test_figures_of_the_specification():
    assert near_texts(20_000, Decimal("4.0"), Decimal("0.7")) == 820
    assert near_texts(20_000, Decimal("8.0"), Decimal("0.9")) == 60
    assert round(float(weights(20_000, 820, Decimal(100)).loss), 2) == 36.27
    assert [float(usual_hit(Decimal(epsilon), {})) for epsilon in (4, 6, 8, 99)] == [0.7, 0.8, 0.9, 0.99]
    known = {Decimal(2): Decimal("0.4"), Decimal(4): Decimal("0.6")}
    assert [float(usual_hit(Decimal(epsilon), known)) for epsilon in (1, 3, 5)] == [0.4, 0.5, 0.6]


def test_a_calibrated_corpus_says_its_own_hit_rate(tmp_path):
    corpus = toy(tmp_path, 40, hits={"2.0": 0.25, "4.0": 0.75})
    assert mechanism(corpus, 3.0).hit_rate == Decimal("0.5")
    assert mechanism(corpus, 3.0, hit=0.9).hit_rate == Decimal("0.9")
    assert mechanism(corpus, 6.0, parts=3).hit_rate == Decimal("0.25"), "by epsilon of one draw"


def test_strange_texts_cost_the_same_and_are_released(tmp_path):
    corpus = toy(tmp_path, 12)
    drawn = mechanism(corpus, 4.0, hit=0.6)
    column = pa.array(STRANGE, pa.large_string())
    result = release_with_keys(drawn, column, record_keys(len(STRANGE)))
    assert [text in corpus.texts for text in result.text.to_pylist()] == [True] * 7 + [False]
    assert result.positions.to_pylist() == drawn.positions(column).to_pylist() == [1] * 7 + [0]
    empty = mechanism(corpus, 4.0, hit=0.6, null_as_empty=True)
    keys = record_keys(2)
    keys = pa.array([keys[0].as_py()] * 2, pa.binary(32))
    result = release_with_keys(empty, pa.array([None, ""], pa.large_string()), keys)
    assert result.text[0] == result.text[1], "of one key, a null is as an empty text"
    assert result.positions.to_pylist() == [1, 1]
    assert (drawn.guarantee.disclosures, empty.guarantee.disclosures) == ({Disclosure.NULLNESS}, frozenset())
    assert drawn.guarantee.guarantee_class is GuaranteeClass.PURE_LDP


def test_threads_and_blocks_change_nothing(tmp_path):
    corpus = toy(tmp_path, 45)
    drawn = mechanism(corpus, 2.0, hit=0.7, parts=2)
    texts = [(None if i % 11 == 0 else corpus.texts[i % 45] + f" {corpus.texts[i * 7 % 45]}") for i in range(1300)]
    texts = [texts[1]] * 300 + texts  # this number of draws from one text's scores puts them all in order
    column, keys = pa.array(texts, pa.large_string()), record_keys(1600)
    policy, own = json.dumps(drawn.input_policy()), kernel_corpus(drawn)
    one, three = (pa.array(own.release_with_keys(keys, column, policy, None, threads)) for threads in (1, 3))
    assert one == three
    alone = [released(drawn, [text], keys.slice(i, 1))[0] for i, text in enumerate(texts[:340])]
    assert one.field("text").to_pylist()[:340] == alone


def test_other_parameters_are_refused(tmp_path):
    corpus = toy(tmp_path, 10)
    kind = type(mechanism(corpus))
    wrong = [
        {"parts": 2, "surrogates": 2},
        {"mode": "faithful"},
        {"hit": 1.0},
        {"hit": 0.0},
        {"parts": 2000},
        {"n_max": 70_000},
        {"epsilon": 1e-6, "parts": 2},
    ]
    for changed in wrong:
        with pytest.raises(PolicyError), validated("surrogate", kind):
            mechanism(corpus, **changed)


def golden():
    """The mixtures that docs/spec/stream.md#golden-vectors states: weights, and draws by position."""
    page = Path(__file__).parents[2].joinpath("docs", "spec", "stream").with_suffix(".md").read_text(encoding="utf-8")
    line = re.compile(
        r"ε (\S+), hit (\S+): d (\d+), w 2\^(\d+), W (\d+): ([ri0-9 ]+)(?:; rejected once: (\d+) -> (\w+))?"
    )
    for epsilon, hit, d, power, inside, first, late, drawn in line.findall(page):
        result = dict(enumerate(first.split())) | ({int(late): drawn} if late else {})
        yield epsilon, hit, int(d), (int(inside), 2 ** int(power)), result


def test_golden_mixtures(tmp_path):
    """Of equal vectors the rank is the number, so that a corpus of 20,000 texts shows every draw."""
    texts, vectors = [f"t{number}" for number in range(20_000)], np.ones((20_000, 1), np.int8)
    corpus = Corpus.save(tmp_path, texts, FACTS, vectors=vectors)
    found = list(golden())
    assert len(found) == 4
    for epsilon, hit, d, expected_weights, result in found:
        drawn = mechanism(corpus, float(epsilon), hit=float(hit))
        assert (drawn.near, drawn.weights) == (d, expected_weights)
        policy = json.dumps({**drawn.input_policy(), "draws": max(result) + 1})
        one = pa.array([RECORD], pa.binary(32))
        out = kernel_corpus(drawn).release_with_keys(one, pa.array(["x"]), policy, pa.array([1], pa.int8()))
        shown = pa.array(out).field("text")[0].as_py().split(" ")
        assert {place: shown[place][1:] for place in result} == {place: drawn[1:] for place, drawn in result.items()}


def test_an_audit_comes_near_epsilon_and_refutes_a_planted_excess(tmp_path, monkeypatch):
    from dptext_etl_eval.auditing.audit import audit_mechanism

    corpus = toy(tmp_path, 50, k=20)
    secrets = tuple(_kernel.Secret.from_bytes(bytes([n]) * 32) for n in (1, 2))
    drawn = mechanism(corpus, 2.0, hit=0.5)
    found = audit_mechanism(drawn, draws=20_000, secrets=secrets)
    assert (found.by_table, found.by_trials, found.unit) == ("holds", "not refuted", "draw")
    assert 1.75 < max(trial.lower_bound for trial in found.trials) <= 2.0
    assert audit_mechanism(mechanism(corpus, 4.0, parts=2, hit=0.5), draws=1000).claim == 2.0
    real = type(drawn).input_policy
    monkeypatch.setattr(
        type(drawn), "input_policy", lambda self: {**real(self), "inside": 2 * self.weights.inside, "near": 3}
    )
    assert audit_mechanism(drawn, draws=20_000, secrets=secrets).by_trials == "refuted"


def test_vectors_of_a_model_are_drawn_near_and_checked(tmp_path):
    corpus = toy(tmp_path, 30)
    drawn, texts = mechanism(corpus, 2.0, hit=0.7), [*corpus.texts[:5], ""]
    keys, column = record_keys(6), pa.array([*corpus.texts[:5], ""], pa.large_string())
    given = corpus.encoder.encode(texts)
    policy, own = json.dumps(drawn.input_policy()), kernel_corpus(drawn)
    result = pa.array(own.release_with_keys(keys, column, policy, pa.array(given.ravel())))
    assert result.field("text").to_pylist() == released(drawn, texts, keys)
    for wrong in (given[:5], np.where(given == given.max(), -128, given)):
        with pytest.raises(InputError, match="-127 to 127"):
            own.release_with_keys(keys, column, policy, pa.array(wrong.ravel().astype(np.int8)))


class StandIn:
    """A model of sentences: the words' own vectors; it fails on some texts."""

    def __init__(self, corpus, fails=()):
        self._corpus, self._fails = corpus, fails

    def encode(self, texts):
        known = self._corpus.encoder.encode(texts)
        known = np.ones_like(known) if "doctor" in texts[0] else known
        known[[any(word in text for word in self._fails) for text in texts]] = 0
        return known


def test_a_model_encodes_texts_and_fails_closed(tmp_path):
    words = toy(tmp_path / "words", 30)
    facts = FACTS | {"encoder": {"kind": "sentence-transformers", "name": "stand-in"}}
    corpus = Corpus.save(tmp_path / "model", words.texts, facts, vectors=words.vectors)
    for parts in (1, 2):
        drawn, same = (mechanism(one, 2.0, hit=0.7, parts=parts) for one in (corpus, words))
        drawn.__dict__["sentence_model"] = StandIn(words, fails=["bad"])
        texts = [*words.texts[:8], "", "bad text", None, " ".join(words.texts[:3])]
        column = pa.array(texts, pa.large_string())
        ids = pa.array([str(row) for row in range(len(texts))])
        keys = RecordKeys(_kernel.ReleaseKey(_kernel.Secret(), "d", "c", "r", "00" * 32), ids)
        result, expected_text = drawn.release(column, keys), same.release(column, keys).text.to_pylist()
        assert result.text.to_pylist() == expected_text, "a failure is drawn as a text that says nothing"
        assert result.failed.to_pylist() == [0] * 9 + [1] + [0] * 2
        assert drawn.near_to(words.texts[3]) == same.near_to(words.texts[3])
    assert (drawn.reproducible, same.reproducible) == (False, True)
    assert (in_kernel(drawn), in_kernel(same)) == (None, same)
    assert drawn.guarantee.assumptions - same.guarantee.assumptions == {"SCORES_LOCAL"}
    drawn.probe()
    drawn.__dict__["sentence_model"] = StandIn(words, fails=["doctor"])
    with pytest.raises(PolicyError, match="fails on public texts") as refused:
        drawn.probe()
    assert refused.value.__cause__ is None


@given(st.text(alphabet="ab ,.é😀\u0301'", max_size=30), st.integers(1, 5), st.integers(1, 9))
def test_parts_for_a_model_hold_the_words_that_parts_of_the_kernel_hold(text, parts, n_max):
    pieces = cut(text, parts, n_max)
    words = [segment for segment, is_word in _kernel.split(text) if is_word][:n_max]
    assert len(pieces) == parts
    assert text.startswith("".join(pieces))
    wanted = [words[part * len(words) // parts : (part + 1) * len(words) // parts] for part in range(parts)]
    assert [[segment for segment, is_word in _kernel.split(piece) if is_word] for piece in pieces] == wanted
