"""Copy counts: bounds are exact, they gate only where the policy pays for it, and they hold only counts."""

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import ColumnPolicy
from dptext_etl.checks import Candidate, Stage
from dptext_etl.checks.gate import judges, verdicts_of
from dptext_etl.checks.text_counts import (
    CopyCount,
    copy_reports,
    count_copies,
    gate_delta,
    ngram_chances,
    ngram_words,
)
from dptext_etl.column import release
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.words import sample_many
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import PAD
from dptext_etl.mechanisms.custext import CusText
from tests.policy_files import custext_column, policy_in


def policy(vectors, key="file:noise.key", *, epsilon=2.0, beta=None, columns=("text",)):
    texts = [custext_column(vectors, name, epsilon=epsilon) for name in columns]
    cap = {"measure": "approx", "epsilon": 1000.0, "delta": 1e-6}
    more = {} if beta is None else {"copy_gate_false_alarm": beta}
    return policy_in(Path("nowhere"), *texts, dataset="reviews", key=key, cap=cap, **more)


def decisions(facts, counts):
    """Verdicts of the gates of whole-run counts; no gate judges them unless the policy sets beta."""
    names = {"copies_within_chance", "ngrams_within_chance"}
    kinds = [kind for kind in judges(facts, Stage.STAGED) if kind.name in names]
    staged = Candidate(facts, (), (), None, {}, copies=counts)
    return tuple(verdict for kind in kinds for verdict in verdicts_of(kind(staged)))


def test_largest_probabilities_and_chances_of_runs_follow_from_the_configuration(small_vectors):
    for mechanism in (
        CusText(epsilon=0.5, k=7, vectors=small_vectors),
        CusText(epsilon=8.0, k=20, vectors=small_vectors),
        CusText(epsilon=1.0, k=103, vectors=small_vectors),
    ):
        exact = max(max(mechanism.transition(word)[1]) for word in mechanism.output_words())
        bound = mechanism.largest_probability()
        assert exact <= Fraction(bound) <= exact * (1 + Fraction(1, 10**11))
    mechanism = CusText(epsilon=2.0, k=10, vectors=small_vectors)
    words, largest = ngram_words(mechanism), mechanism.largest_probability()
    assert 200**2 * largest**words <= 1e-3 < 200**2 * largest ** (words - 1)
    few, some, many = ngram_chances(mechanism, np.array([words - 1, 100, 10_000]))
    assert (few, some) == (0, pytest.approx(100**2 * largest**words))
    assert many <= 1
    assert ngram_words(mechanism.model_copy(update={"epsilon": 400.0})) is None
    assert ngram_words(mechanism.model_copy(update={"mode": "faithful"})) is None


def test_copies_are_counted_after_the_input_policy_and_add_up(small_vectors):
    raw = pl.Series(["Good, the word!", "good bad", "don\u2019t", "", None, "other"])
    released = pl.Series(["good the word", "good worse", "don't", "", None, "thing"])
    found = count_copies(raw, released, pl.Series([3, 2, 1, 0, 0, 1]))
    assert found == CopyCount(copies=2, rows_by_draws={1: 2, 2: 1, 3: 1}, words_kept=5, words_compared=7)
    with pytest.raises(InputError, match="2 texts, 1 releases"):
        count_copies(raw.head(2), released.head(1), pl.Series([1]))
    parts = [CopyCount(1, {2: 3}, 4, 6), CopyCount(0, {2: 1, 5: 2}, 1, 12), CopyCount()]
    total = parts[0] + parts[1] + parts[2]
    assert total == CopyCount(1, {2: 4, 5: 2}, 5, 18)
    assert CopyCount.from_dict(json.loads(json.dumps(total.as_dict()))) == total
    raw = pl.Series(["Sentinelword one", "sentinelword two"])
    found = count_copies(raw, raw.str.to_lowercase(), pl.Series([2, 2]))
    said = repr(found) + repr(copy_reports(policy(small_vectors), {"text": found})) + json.dumps(found.as_dict())
    assert "sentinelword" not in said.lower()
    blanks = count_copies(pl.Series(["", " "]), pl.Series(["", ""]), pl.Series([0, 0]))
    assert blanks == CopyCount()
    (found,) = copy_reports(policy(small_vectors, beta=1e-6), {"text": blanks})
    assert found.verdict().passed


def test_a_release_stays_within_its_bound_and_copies_and_stretches_do_not(small_vectors):
    random = np.random.default_rng(1)
    column = ColumnPolicy(
        dataset="d",
        column="text",
        release="r",
        mechanism=CusText(epsilon=2.0, k=10, vectors=small_vectors),
        key="env:DPTEXT_SUITE_SECRET",
        allow={"cluster"},
    )
    words = sorted(word for word in column.mechanism.output_words() if word.isalpha())
    raw = pl.Series([" ".join(random.choice(words, n)) for n in random.integers(1, 9, 3000)])
    ids = pa.array([str(n) for n in range(len(raw))])
    out = release(raw.to_arrow(), ids, column)
    draws = pl.Series(out.positions)
    honest = count_copies(raw, pl.Series(out.text), draws)
    facts = policy(small_vectors)
    (fine,) = copy_reports(facts, {"text": honest})
    assert fine.rows == 3000
    assert 0 < fine.copies < fine.expected
    assert not fine.beyond_chance
    assert fine.threshold < 3000
    (caught,) = copy_reports(facts, {"text": count_copies(raw, raw, draws)})
    assert caught.copies == 3000
    assert caught.beyond_chance
    random = np.random.default_rng(2)
    mechanism = CusText(epsilon=2.0, k=10, vectors=small_vectors)
    words = sorted(word for word in mechanism.output_words() if word.isalpha())
    raw = pl.Series([" ".join(random.choice(words, 60)) for _ in range(300)])
    column = ColumnPolicy(
        dataset="d", column="text", release="r", mechanism=mechanism, key="env:DPTEXT_SUITE_SECRET", allow={"cluster"}
    )
    out = release(raw.to_arrow(), pa.array([str(n) for n in range(len(raw))]), column)
    text, draws, run = pl.Series(out.text), pl.Series(out.positions), ngram_words(mechanism)
    paid = policy(small_vectors, beta=1e-6)
    (fine,) = copy_reports(paid, {"text": count_copies(raw, text, draws, run)}, ngrams=True)
    assert not fine.beyond_chance
    assert fine.expected < 1
    stretch = (
        raw.str.split(" ").list.head(run).list.join(" ") + " " + text.str.split(" ").list.slice(run).list.join(" ")
    )
    (caught,) = copy_reports(paid, {"text": count_copies(raw, stretch, draws, run)}, ngrams=True)
    assert (caught.copies, caught.beyond_chance) == (300, True)
    copied, stretched = decisions(paid, {"text": count_copies(raw, stretch, draws, run)})
    assert copied.passed
    assert not stretched.passed
    assert "300" not in stretched.message.replace(f"at most {caught.threshold}", "")


def test_counts_gate_only_where_beta_pays_for_it(small_vectors):
    everything = {"text": CopyCount(1000, {10: 1000}, 10_000, 10_000)}
    (found,) = copy_reports(policy(small_vectors), everything)
    assert found.beyond_chance
    assert not found.gating
    assert not found.verdict().passed, "a verdict is the one that was computed"
    assert "report only" in found.verdict().message
    assert (decisions(policy(small_vectors), everything), gate_delta(policy(small_vectors))) == ((), 0)
    paid = policy(small_vectors, beta=1e-6)
    verdict, _ = decisions(paid, {"text": CopyCount(1000, {10: 1000})})
    assert not verdict.passed
    assert "report only" not in verdict.message
    fine, runs = decisions(paid, {"text": CopyCount(0, {10: 1000})})
    assert fine.passed
    assert (fine.name, runs.name) == ("copies_within_chance", "ngrams_within_chance")
    as_fine, _ = decisions(paid, {"text": CopyCount(1, {1: 500, 2: 1})})
    assert as_fine == decisions(paid, {"text": CopyCount(0, {1: 500, 2: 1})})[0]  # a decision, never the count
    assert (gate_delta(paid), gate_delta(policy(small_vectors, beta=1e-9))) == (2 * 10**9, 2 * 10**6)
    with pytest.raises(InputError, match="1 columns have no copy count or no bound"):
        decisions(paid, {})
    both = policy(small_vectors, beta=1e-6, columns=("text", "note"))
    counts = {"text": CopyCount(0, {1: 50}), "note": CopyCount(0, {1: 50})}
    assert [item.beta for item in copy_reports(both, counts)] == [2.5e-7, 2.5e-7]
    assert [item.beta for item in copy_reports(both, counts, ngrams=True)] == [2.5e-7, 2.5e-7]


def test_where_copies_are_likely_no_threshold_exists(small_vectors):
    loud = policy(small_vectors, epsilon=400.0, beta=1e-6)
    (found,) = copy_reports(loud, {"text": CopyCount(50, {10: 50})})
    assert found.threshold is None
    assert not found.beyond_chance
    (verdict,) = decisions(loud, {"text": CopyCount(50, {10: 50})})
    assert verdict.passed
    # CusText with K = 20 and epsilon = 3 copies a word with probability up to 0.19 (docs/spec/privacy.md#gates)
    (found,) = copy_reports(policy(small_vectors, beta=0.01), {"text": CopyCount(1, {1: 1})})
    assert found.threshold is None


def test_the_largest_probability_of_every_word_mechanism_bounds_its_laws(word_mechanism):
    bound = Fraction(word_mechanism.largest_probability())
    words = [word for word in word_mechanism.input_words() if word.isalpha()]
    for word in [*words[:12], *words[-3:], *([PAD] if word_mechanism.length != "disclose" else [])]:
        try:
            chances = word_mechanism.transition(word)[1]
        except PolicyError:
            assert word_mechanism.survival(word) <= bound
            most = max(Counter(sample_many(word_mechanism, word, 200)).values())
            assert most / 200 <= float(bound) + 0.2
            continue
        if len(chances) > 1 and Disclosure.STOPWORDS not in word_mechanism.word_disclosures:
            assert max(chances) <= bound
            assert word == PAD or word_mechanism.survival(word) <= bound
    assert 0 < bound <= 1


def test_survival_is_that_of_the_law(word_mechanism):
    """Where the law can be written down it is read from it; the geometric one's may be larger by rounding."""
    for word in [word for word in word_mechanism.input_words() if word.isalpha()][:8]:
        try:
            law = zip(*word_mechanism.transition(word), strict=True)
        except PolicyError:
            trials = 2_048
            simulated = word_mechanism.simulated_survivals(word, trials) / trials
            assert simulated <= float(word_mechanism.survival(word)) + 0.06
            drawn = sample_many(word_mechanism, word, trials).count(word) / trials
            assert drawn <= simulated + 0.06
            continue
        exact = sum(chance for output, chance in law if output == word)
        assert exact <= word_mechanism.survival(word) <= exact + Fraction(1, 2**60)
