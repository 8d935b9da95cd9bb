"""Tables of public texts from a noisy statistic: functions of only the noisy sums, near the means, deterministic."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.corpora import Corpus
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.aggregate import Noisy, describe, linear_discriminant, noisy, partial_sum, scored, table
from dptext_etl.families.aggregate.contributions import unpacked
from dptext_etl.families.aggregate.max_entropy import drawn_rows, flattened, floored, shares_of_rows
from tests.later import later

from ..examples import examples

stats = later("scipy.stats")

LABELS = ("music", "money", "health")
SAYS = {
    "music": ["play the new album", "add this song to my list", "the concert was too loud"],
    "money": ["i sent money to the wrong account", "the bank closed my account", "please pay the rent"],
    "health": ["the doctor was patient", "pain in my back", "the drug helped"],
}


@pytest.fixture(scope="module")
def statistic():
    return describe("example", epsilon=4.0, delta=1e-6, labels=LABELS)


def key(statistic):
    return _kernel.ReleaseKey(_kernel.Secret.from_bytes(bytes(range(1, 33))), "demo", "text", "r", statistic.cfg())


def released(statistic, copies):
    rows = [(text, label) for label, texts in SAYS.items() for text in texts] * copies
    texts, labels = zip(*rows, strict=True) if rows else ((), ())
    ids = pa.array([str(i) for i in range(len(rows))], pa.string())
    columns = pa.array(texts, pa.string()), pa.array(labels, pa.string())
    partial = partial_sum(statistic, key(statistic), ids, columns[0], columns[1] if statistic.labels else None)
    return noisy(statistic, key(statistic), partial)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()])
def test_every_type_of_string_has_the_same_sums(statistic, kind):
    texts, labels = ["a new album", None, "the rent"], ["music", "money", None]
    ids = pa.array(["a", "b", "c"])
    plain, other = (
        partial_sum(statistic, key(statistic), ids, pa.array(texts, dtype), pa.array(labels, dtype))
        for dtype in (pa.string(), kind)
    )
    assert other.digest == plain.digest
    assert np.array_equal(other.sums, plain.sums)
    assert np.array_equal(other.moments, plain.moments)


def test_the_table_holds_public_texts_listed_labels_and_the_rows_asked_for(statistic):
    made = table(released(statistic, 300), 1000)
    assert made.num_rows == 1000
    assert set(made["text"].to_pylist()) <= set(statistic.corpus.texts)
    assert set(made["label"].to_pylist()) == set(LABELS)
    rows = list(zip(made["label"].to_pylist(), made["text"].to_pylist(), strict=True))
    assert rows == sorted(rows)


def test_texts_are_about_their_label(statistic):
    made = table(released(statistic, 300), 3000)
    near = Counter(zip(made["label"].to_pylist(), made["text"].to_pylist(), strict=True))
    for label, text in (
        ("music", "Add this song to my list for the evening"),
        ("money", "I sent money to the wrong account"),
        ("health", "I have had pain in my back for two weeks"),
    ):
        assert near[label, text] > max(near[other, text] for other in LABELS if other != label)


def test_the_classifier_finds_what_was_summed(statistic):
    learned = linear_discriminant(released(statistic, 300))
    texts = [(text, label) for label, some in SAYS.items() for text in some]
    assert learned.predict(learned.encode([text for text, _ in texts])) == [label for _, label in texts]


def test_written_texts_follow_if_their_label_is_the_nearest_one_under_the_statistic(statistic):
    found = released(statistic, 300)
    texts = [(text, label) for label, some in SAYS.items() for text in some]
    wrong = [("please pay the rent", "music"), ("the drug helped", "money")]
    said, intended = zip(*texts, *wrong, strict=True)
    written = pa.table({"text": said, "label": intended})
    made = table(found, 100, written=written)
    assert made[:100].equals(table(found, 100))
    assert list(zip(*(made[100:][name].to_pylist() for name in ("text", "label")), strict=True)) == texts
    with pytest.raises(InputError, match="written texts have the columns text and label"):
        table(found, 100, written=written.drop_columns("label"))


def test_a_table_is_a_function_of_the_noisy_sums_and_public_facts(statistic):
    found = released(statistic, 100)
    again = Noisy(statistic, found.sums.copy(), found.moments.copy())
    assert table(found, 200).equals(table(again, 200))
    moved = found.sums.copy()
    moved[0, 0] += 1
    assert not table(Noisy(statistic, moved, found.moments), 200).equals(table(found, 200))


def test_names_of_labels_say_something_where_the_noise_is_large():
    statistic = describe("example", epsilon=0.05, delta=1e-6, labels=("a", "b"))
    empty = unpacked(statistic, bytes(8 * (math.prod(statistic.shape) + statistic.moments)))
    learned = linear_discriminant(empty, {"a": "play a song", "b": "doctor and pain"})
    assert learned.predict(learned.encode(["the concert", "the doctor"])) == ["a", "b"]
    assert linear_discriminant(empty, {"a": "", "b": ""}).slopes.shape == (2, statistic.projection.width)
    with pytest.raises(InputError, match="names"):
        linear_discriminant(empty, {"c": "x"})


@pytest.mark.parametrize("rows", [
    [], [("play the new song", "music")], [("play the new song", None)], [(None, "music")], [("zzzz", "music")],
], ids=["no record", "one", "one without label", "one null text", "one failed encoding"])  # fmt: skip
def test_empty_blocks_and_a_single_record_give_noise_a_table_and_a_classifier(statistic, rows):
    ids = pa.array([f"r{number}" for number in range(len(rows))], pa.string())
    texts, labels = (pa.array([row[at] for row in rows], pa.string()) for at in (0, 1))
    exact = partial_sum(statistic, key(statistic), ids, texts, labels)
    empty = [block for block, count in enumerate(exact.sums[:, -1]) if not count]
    assert len(empty) == len(statistic.blocks) - sum(text is not None for text, _ in rows)
    found = noisy(statistic, key(statistic), exact)
    assert (found.sums[empty] != 0).mean() > 0.9, "an empty block has the noise of any other one"
    made = table(found, 60)
    assert set(made["label"].to_pylist()) == set(LABELS)
    assert made.num_rows == 60
    learned = linear_discriminant(found)
    assert np.isfinite(learned.slopes).all()
    assert set(learned.predict(learned.encode(["play a song"]))) <= set(LABELS)


def test_a_table_without_labels_follows_the_column():
    statistic = describe("example", epsilon=8.0, delta=1e-6)
    about = [text for text in SAYS["money"] for _ in range(500)]
    ids = pa.array([str(i) for i in range(len(about))])
    found = noisy(statistic, key(statistic), partial_sum(statistic, key(statistic), ids, pa.array(about), None))
    made = table(found, 2000)
    assert made.column_names == ["text"]
    assert made["text"].to_pylist().count("I sent money to the wrong account") > 5 * 2000 / len(statistic.corpus)


def test_rows_come_from_the_pool_under_the_encoder_of_the_statistic(statistic, tmp_path):
    """Vectors of the pool are not read: here each text has the vector of another one."""
    texts = [f"{text} {number}" for some in SAYS.values() for text in some for number in ("today", "again", "too")]
    facts = {"licence": "CC0", "provenance": "made for tests"}
    wrong = np.roll(statistic.corpus.encoder.encode(texts), 9, axis=0)
    pool = Corpus.save(tmp_path / "pool", texts, facts, vectors=wrong)
    made = table(released(statistic, 300), 1000, pool=pool)
    assert set(made["text"].to_pylist()) <= set(texts)
    about = {text: label for label, some in SAYS.items() for text in texts if text.rpartition(" ")[0] in some}
    right = [
        about[text] == label
        for text, label in zip(*(made[name].to_pylist() for name in ("text", "label")), strict=True)
    ]
    assert np.mean(right) > 0.6
    assert table(released(statistic, 300), 100, pool=statistic.corpus).equals(table(released(statistic, 300), 100))


def test_a_label_with_few_texts_of_its_own_draws_from_a_quarter_of_an_even_share(statistic, tmp_path):
    """All texts of the pool are about music, so that the classifier gives few of them to other labels."""
    public, facts = statistic.corpus.texts, {"licence": "CC0", "provenance": "written for tests"}
    texts = [f"{song} {first} {second}" for song in SAYS["music"] for first in public for second in public[:8]]
    pool = Corpus.save(tmp_path / "pool", texts, facts, encoder=statistic.corpus.encoder)
    summed = released(statistic, 300)
    learned, quarter = linear_discriminant(summed), len(texts) // (4 * len(LABELS))
    owned, drawn = Counter(learned.predict(learned.encode(texts))), table(summed, 3000, pool=pool)
    assert owned["money"] < quarter / 2
    shares = Counter(drawn.filter(pa.compute.equal(drawn["label"], "money"))["text"].to_pylist())
    assert entropy(np.log(list(shares.values()))) > np.log(quarter / 4)


def test_every_text_has_its_scores_in_tenths_once(statistic):
    summed = released(statistic, 300)
    made, learned = scored(summed), linear_discriminant(summed)
    texts = made["text"].to_pylist()
    assert sorted(texts) == sorted(statistic.corpus.texts)
    expected = learned.scores(learned.encode(texts, statistic.corpus))
    tenths = np.array(made["scores"].to_pylist())
    assert np.abs(tenths - expected).max() <= 0.05 + 1e-6
    assert np.allclose(10 * tenths, np.rint(10 * tenths), atol=1e-5)
    assert made["label"].to_pylist() == [learned.labels[place] for place in expected.argmax(axis=1)]
    pairs = list(zip(made["label"].to_pylist(), texts, strict=True))
    assert pairs == sorted(pairs)
    pool = scored(summed, pool=statistic.corpus)
    assert pool.equals(made)


@pytest.mark.parametrize("rows", [0, -1, 2**31 + 1])
def test_a_number_of_rows_out_of_range_is_refused(statistic, rows):
    with pytest.raises(PolicyError, match="rows"):
        table(released(statistic, 1), rows)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=9), st.integers(1, 10_000))
@examples(200)
def test_shares_add_up_and_no_label_is_excluded(counts, rows):
    shares = shares_of_rows(floored(np.array(counts)), rows)
    assert sum(shares) == rows
    assert min(shares) >= int(rows * 0.2 / (1.2 * len(counts))) - 1


def test_draws_follow_their_weights():
    logs, n = np.log([1.0, 2.0, 5.0, 8.0]), 40_000
    found = np.bincount(drawn_rows(bytes(range(32)), logs, 0, n), minlength=4)
    assert stats.chisquare(found, n * np.array([1, 2, 5, 8]) / 16).pvalue > 1e-6


def test_rows_are_positions_of_one_stream():
    logs, whole = np.zeros(1000), drawn_rows(bytes(32), np.zeros(1000), 0, 100)
    assert whole[40:60].tolist() == drawn_rows(bytes(32), logs, 40, 20).tolist()
    bound = Fraction(1000 * 2**40)
    assert whole[7] == _kernel.below(bytes(32), 10, 7, int(bound), 1) // 2**40


def entropy(logs):
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())


@given(st.integers(1, 3000), st.floats(0, 1e4), st.floats(0, 0.9), st.integers(0, 2**32))
def test_rows_are_spread_over_enough_texts(count, steepness, spread, seed):
    logs = steepness * np.random.default_rng(seed).normal(size=count)
    least, flat = np.log(max(1, spread * count)), flattened(logs, spread * count)
    if entropy(logs) >= least:
        assert np.array_equal(flat, logs)
    else:
        assert least - 1e-9 <= entropy(flat) <= least + 1e-3
        assert np.array_equal(np.argsort(flat, kind="stable"), np.argsort(logs, kind="stable"))


def test_texts_far_from_the_corpus_still_draw_many_texts():
    """The mean of one repeated text is not a mean of corpus texts: its slope grows as the noise shrinks."""
    place = describe("example", epsilon=8.0, delta=1e-6, labels=("a", "b"))
    column = pa.array(["music music music"] * 4000 + ["money money money"] * 4000, pa.large_string())
    labels = pa.array(["a"] * 4000 + ["b"] * 4000, pa.large_string())
    ids = pa.array([str(row) for row in range(8000)])
    made = table(noisy(place, key(place), partial_sum(place, key(place), ids, column, labels)), 10_000)
    for label in "ab":
        shares = Counter(made.filter(pa.compute.equal(made["label"], label))["text"].to_pylist())
        assert entropy(np.log(list(shares.values()))) > np.log(0.78 * len(shares))
        assert max(shares.values()) < 5000 / 4
