"""Laws on lists (docs/spec/privacy.md#diffractor): each draw is the one that explicit weights, or the discrete
Laplace itself, would give; no malformed file is opened."""

import hashlib
import json
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.plugins import register_plugin_function

from dptext_etl import _kernel
from dptext_etl.artifacts import sha256_file
from dptext_etl.errors import ArtifactError, PolicyError

from ..examples import examples
from .listed_laws import (
    DROP,
    FAITHFUL,
    GEOMETRIC,
    STRICT,
    TEM,
    TOKEN,
    blob,
    explicit,
    make,
    names,
    oracle_geometric,
    oracle_list,
    oracle_tem,
    oracle_text,
    orders,
    release,
    text,
    write,
)


def test_facts_of_lists(folder):
    tem = make(folder / "t", names(7), orders(7, 3), TEM, kept=["the"])
    assert (tem.law, tem.lists, tem.sets, tem.max_set, tem.width) == ("tem", 3, 1, 7, 1)
    assert tem.input_words() == tem.output_words() == names(7)
    assert tem.kept_words() == ["the"]
    wide = orders(5000, 2)
    geometric = make(folder / "t", names(5000), wide, GEOMETRIC)
    assert (geometric.law, geometric.lists, geometric.max_set, geometric.width) == ("geometric", 2, 5000, 1)
    assert make(folder / "t", names(5000), wide, TEM).width == 2
    assert json.loads(tem.metadata()["law"]) == TEM


@st.composite
def laws(draw):
    n = draw(st.sampled_from([1, 2, 3, 5, 12]))
    weights = draw(st.lists(st.integers(0, 2**58) | st.integers(1, 9), min_size=1, max_size=14))
    outside = draw(st.integers(1, 2**58) | st.integers(1, 9))
    law = {"tem": {"weights": weights, "outside": outside}}
    if draw(st.booleans()):
        rate = draw(st.fractions(Fraction(1, 30), 4)).limit_denominator(10**9)
        law = {"geometric": {"rate": [rate.numerator, rate.denominator]}}
    elif any(sum(explicit(law, n, i)) == 0 for i in range(n)):
        law["tem"]["weights"][0] = 1
    words = draw(st.lists(st.integers(-1, n - 1), max_size=12))
    return n, orders(n, draw(st.sampled_from([1, 2, 5])), draw(st.integers(0, 99))), law, words


@given(laws(), st.binary(min_size=32, max_size=32))
@examples(300)
def test_every_draw_is_that_of_the_explicit_law(folder, case, key):
    n, lists, law, words = case
    table = make(folder / "any", names(n), lists, law)
    [row] = release(table, [text(words)], key)
    assert row == {"text": oracle_text(key, words, lists, law), "positions": len(words)}


@pytest.mark.parametrize("n", [4095, 4096, 4097, 4353, 6000])
@pytest.mark.parametrize("count", [1, 3])
def test_long_lists_at_the_borders_of_blocks(folder, n, count):
    lists = orders(n, count, seed=n)
    top = 2**40
    law = {"tem": {"weights": [int(top * math.exp(-d / 2)) for d in range(300)], "outside": 12_345}}
    table = make(folder / "long", names(n), lists, law)
    places = [0, 1, 254, 255, 256, 257, 4094, 4095, n - 1, n // 2]
    words = [int(order[place]) for order in lists for place in places if place < n] + [-1]
    for seed in range(3):
        key = hashlib.sha256(b"%d" % seed).digest()
        assert release(table, [text(words)], key)[0]["text"] == oracle_text(key, words, lists, law)


@pytest.mark.parametrize("n", [5, 4200])
def test_the_row_of_a_word_is_the_exact_mixture(folder, n):
    lists = orders(n, 3)
    lists[0], lists[1] = np.arange(n), np.arange(n)[::-1]
    table = make(folder / "row", names(n), lists, TEM)
    for word in (0, 1, n // 2)[: 3 if n < 100 else 1]:
        outputs, weights = table.row(f"W{word}x", json.dumps(STRICT))
        exact = [Fraction(0)] * n
        for order in lists.tolist():
            row = explicit(TEM, n, order.index(word))
            for place, weight in enumerate(row):
                exact[order[place]] += Fraction(weight, 3 * sum(row))
        assert outputs == names(n)
        assert [Fraction(weight, sum(weights)) for weight in weights] == exact
    assert table.row("unknown", json.dumps(STRICT)) == (names(n), [1] * n)


def test_one_list_gives_its_weights_as_they_are(folder):
    table = make(folder / "one", names(6), [[2, 0, 1, 5, 4, 3]], TEM)
    assert table.row("w1x", json.dumps(STRICT)) == (names(6), [20, 40, 7, 3, 7, 20])


def test_geometric_probabilities_are_no_integers(folder):
    table = make(folder / "g", names(4), orders(4, 2), GEOMETRIC)
    with pytest.raises(PolicyError, match="transition") as caught:
        table.row("w1x", json.dumps(STRICT))
    assert "w1x" not in str(caught.value)


@pytest.mark.parametrize("length", ["disclose", "fixed", {"noisy": [1, 2]}])
@pytest.mark.parametrize("law", [TEM, GEOMETRIC])
def test_threads_and_order_do_not_matter(folder, law, length):
    words = [*names(30), "<PAD>"]
    table = make(folder / "threads", words, orders(31, 4), law)
    key = _kernel.ReleaseKey(_kernel.Secret.from_bytes(bytes(range(32))), "demo", "text", "r1", "ab" * 32)
    texts = [None if i % 13 == 5 else "unknown w1x, W7x w3x 17 " * (i % 9) for i in range(2500)]
    ids, policy = pa.array(range(len(texts))), json.dumps({**DROP, "n_max": 12, "length": length})
    whole = pa.array(table.release(key, pa.array(texts), ids, policy, threads=1))
    assert pa.array(table.release(key, pa.array(texts), ids, policy, threads=3)).equals(whole)
    backwards = pa.array(table.release(key, pa.array(texts[::-1]), ids[::-1], policy, threads=2))
    assert backwards.take(pa.array(range(len(texts))[::-1])).equals(whole)
    counted = pa.array(table.positions(pa.array(texts), policy)).to_pylist()
    assert counted == whole.field("positions").to_pylist()
    shown = {"disclose": [0, 3, 6, *[7] * 6]}.get(str(length), [12] * 9)
    assert counted == [0 if text is None else shown[i % 9] for i, text in enumerate(texts)]


@st.composite
def uneven(draw):
    """Lists of some of the words each, every word on one at least."""
    n = draw(st.integers(2, 9))
    words = st.permutations(range(n))
    lists = [draw(words)[: draw(st.integers(1, n))] for _ in range(draw(st.integers(1, 4)))]
    missing = sorted(set(range(n)) - {word for order in lists for word in order})
    lists[0] = [*lists[0], *missing]
    return n, lists, draw(st.lists(st.integers(0, n - 1), max_size=12))


def ends(lists):
    return np.cumsum([0, *map(len, lists)]).astype(np.uint64)


@given(uneven(), st.sampled_from([TEM, GEOMETRIC]), st.binary(min_size=32, max_size=32))
@examples(200)
def test_uneven_lists_choose_among_those_that_hold_the_word(folder, case, law, key):
    n, lists, words = case
    table = make(folder / "uneven", names(n), np.concatenate(lists), law, list_offsets=ends(lists))
    assert (table.lists, table.max_set) == (len(lists), max(map(len, lists)))
    drawn = []
    for position, word in enumerate(words):
        holding = [np.array([order]) for order in lists if word in order]
        oracle = oracle_tem if "tem" in law else oracle_geometric
        drawn.append(oracle(key, position, word, holding[oracle_list(key, position, len(holding))], law))
    out = release(table, ["unknown " + text(words)], key, FAITHFUL)
    assert out == [{"text": " ".join(["unknown", *(f"w{word}x" for word in drawn)]), "positions": len(words)}]
    if "tem" in law:
        for word in range(n):
            outputs, weights = table.row(f"w{word}x", json.dumps(FAITHFUL))
            exact = dict.fromkeys(outputs, Fraction(0))
            holding = [order for order in lists if word in order]
            for order in holding:
                row = explicit(law, len(order), order.index(word))
                for other, weight in zip(order, row, strict=True):
                    exact[f"w{other}x"] += Fraction(weight, len(holding) * sum(row))
            assert [Fraction(weight, sum(weights)) for weight in weights] == list(exact.values())
            assert all(exact.values())


def test_one_level_and_two_on_lists_of_unequal_length(folder):
    lists = [list(range(5000)), list(range(0, 5000, 5)), list(range(4096))]
    table = make(folder / "levels", names(5000), np.concatenate(lists), TEM, list_offsets=ends(lists))
    assert table.width == 2
    words, key = [0, 5, 4090, 4095, 4096, 4999] * 9, b"\x0b" * 32
    expected = []
    for position, word in enumerate(words):
        holding = [order for order in lists if word in order]
        order = holding[oracle_list(key, position, len(holding))]
        weights = explicit(TEM, len(order), order.index(word))
        expected.append(f"w{order[_kernel.draw(key, TOKEN, position, weights, 2)]}x")
    assert release(table, [text(words)], key, FAITHFUL)[0]["text"].split() == expected


def test_uneven_lists_serve_no_policy_that_hides_unknown_words(folder):
    table = make(folder / "refused", names(3), [0, 1, 2, 0, 1], TEM, list_offsets=ends([[0] * 3, [0] * 2]))
    column, keys = pa.array(["w1x"]), pa.array([b"\x01" * 32], pa.binary(32))
    for policy in (STRICT, DROP, {**FAITHFUL, "oov": "uniform"}, {**FAITHFUL, "numbers": "drop"}):
        for refused in (
            lambda policy=policy: table.release_with_keys(keys, column, json.dumps(policy)),
            lambda policy=policy: table.positions(column, json.dumps(policy)),
            lambda policy=policy: table.row("w1x", json.dumps(policy)),
        ):
            with pytest.raises(PolicyError, match="common vocabulary"):
                refused()
    even = make(folder / "even", names(3), [0, 1, 2, 2, 0, 1], TEM, list_offsets=ends([[0] * 3] * 2))
    assert len(release(even, ["w1x"], b"\x01" * 32)) == 1


@pytest.mark.parametrize("law", [TEM, GEOMETRIC])
def test_the_plugin_releases_lists_and_charges_a_noisy_length(folder, tmp_path, law):
    words = [*names(30), "<PAD>"]
    table = make(folder / "plugin", words, orders(31, 5), law)
    secret = tmp_path / "k"
    secret.write_text("5a" * 31 + "c3")
    secret.chmod(0o600)
    policy = json.dumps({**DROP, "n_max": 6, "length": {"noisy": [1, 5]}})
    texts = [None if i % 7 == 3 else "w1x W2x, unknown w29x " * (i % 4) for i in range(500)]
    path = folder / "plugin"
    table_of = {"table_path": str(path), "table_sha256": sha256_file(path), "key_reference": f"file:{secret}"}
    names_of = {"dataset": "d", "column": "text", "release": "r", "cfg": "ab" * 32, "nonce": "0"}
    prices = {"unit_micro": 2_000_000, "base_micro": 1_500_000, "delta": 0.0, "spend": True}
    arguments = table_of | names_of | prices | {"input_policy": policy}
    columns = [pl.col("text"), pl.col("id")]
    out = register_plugin_function(
        plugin_path=_kernel.__file__, function_name="dptext_table", args=columns, kwargs=arguments, is_elementwise=True
    )
    frame = pl.DataFrame({"id": range(500), "text": texts})
    got = frame.lazy().select(out).collect(engine="streaming")
    key = _kernel.ReleaseKey(_kernel.Secret.resolve(f"file:{secret}"), "d", "text", "r", "ab" * 32)
    expected = pa.array(table.release(key, pa.array(texts), pa.array(range(500)), policy)).to_pylist()
    for raw, row, want in zip(texts, got["text"].to_list(), expected, strict=True):
        charged = 0.0 if raw is None else 1.5 + 6 * 2.0
        assert row == {**want, "epsilon": charged, "delta": 0.0}


BROKEN = {
    "lists missing": {"lists": None},
    "no lists": {"lists": np.array([], np.uint32)},
    "half a list": {"lists": np.array([0, 1, 2, 3, 0, 1], np.uint32)},
    "a word twice": {"lists": np.array([0, 1, 2, 2], np.uint32)},
    "a word twice later on": {"lists": np.array([0, 1, 2, 3, 3, 2, 1, 1], np.uint32)},
    "a word that is not there": {"lists": np.array([0, 1, 2, 4], np.uint32)},
    "a word far away": {"lists": np.array([0, 1, 2, 2**32 - 1], np.uint32)},
    "wrong numbers": {"lists": np.arange(4, dtype=np.uint64)},
    "two dimensions": {"lists": np.arange(4, dtype=np.uint32).reshape(1, 4)},
    "no inputs": {"inputs": blob([])},
    "inputs missing": {"inputs": None},
    "inputs twice": {"inputs": blob(["a", "b", "c", "a"])},
    "an empty word": {"inputs": blob(["a", "", "b", "c"])},
    "offsets beyond": {"list_offsets": np.array([0, 5], np.uint64)},
    "offsets short": {"list_offsets": np.array([0, 3], np.uint64)},
    "offsets fall": {"list_offsets": np.array([0, 3, 2, 4], np.uint64)},
    "offsets of nothing": {"list_offsets": np.array([], np.uint64)},
    "no list at all": {"list_offsets": np.array([0], np.uint64)},
    "an empty list": {"list_offsets": np.array([0, 0, 4], np.uint64)},
    "huge offsets": {"list_offsets": np.array([0, 2**64 - 1], np.uint64)},
    "signed offsets": {"list_offsets": np.array([0, 4], np.int64)},
    "a word on no list": {"lists": np.arange(3, dtype=np.uint32), "list_offsets": np.array([0, 2, 3], np.uint64)},
    "too many uneven lists": {
        "lists": np.concatenate([np.arange(4), np.zeros(300)]).astype(np.uint32),
        "list_offsets": np.array([0, *range(4, 305)], np.uint64),
    },
    "outputs of its own": {"outputs": blob(["a", "b", "c", "d"])},
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("law", [TEM, GEOMETRIC])
def test_malformed_lists_are_refused(folder, case, law):
    with pytest.raises(ArtifactError, match=r"malformed|twice"):
        make(folder / "broken", names(4), [[0, 1, 2, 3]], law, **BROKEN[case])


BAD_LAWS = {
    "none": None,
    "no JSON": "tem",
    "nothing": "{}",
    "another": {"gauss": {}},
    "two": {**TEM, **GEOMETRIC},
    "no weights": {"tem": {"weights": [], "outside": 1}},
    "weights missing": {"tem": {"outside": 1}},
    "outside missing": {"tem": {"weights": [1]}},
    "more": {"tem": {"weights": [1], "outside": 1, "scale": 2}},
    "negative": {"tem": {"weights": [-1], "outside": 1}},
    "broken weight": {"tem": {"weights": [1.5], "outside": 1}},
    "nothing to draw": {"tem": {"weights": [0], "outside": 0}},
    "nothing to draw in the middle": {"tem": {"weights": [0, 0, 0, 1], "outside": 0}},
    "too heavy": {"tem": {"weights": [2**63, 2**62], "outside": 1}},
    "too heavy outside": {"tem": {"weights": [1], "outside": 2**62}},
    "beyond 64 bits": {"tem": {"weights": [2**64], "outside": 1}},
    "rate of nothing": {"geometric": {"rate": [0, 1]}},
    "no rate": {"geometric": {}},
    "no fraction": {"geometric": {"rate": [1, 0]}},
    "not in lowest terms": {"geometric": {"rate": [2, 4]}},
    "too fine": {"geometric": {"rate": [1, 2**48 + 1]}},
    "three numbers": {"geometric": {"rate": [1, 2, 3]}},
    "a float": {"geometric": {"rate": 0.5}},
}


@pytest.mark.parametrize("case", BAD_LAWS)
def test_unknown_laws_are_refused(folder, case):
    with pytest.raises(ArtifactError, match="malformed"):
        make(folder / "law", names(4), [[0, 1, 2, 3]], BAD_LAWS[case])


def test_another_format_is_refused(folder):
    with pytest.raises(ArtifactError, match="another format"):
        make(folder / "format", names(4), [[0, 1, 2, 3]], TEM, metadata={"format": "dptext-lists/2"})
    with pytest.raises(ArtifactError, match="missing"):
        make(folder / "format", names(4), [[0, 1, 2, 3]], TEM, metadata={"format": "dptext-table/1"})


@given(st.data())
@examples(200)
def test_a_file_of_any_bytes_is_refused_or_safe(folder, data):
    """Whatever a file holds, opening it under its own hash ends in an error or in a law that can be used."""
    path = folder / "any-bytes"
    write(path, names(4), orders(4, 2), data.draw(st.sampled_from([TEM, GEOMETRIC])))
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(whole))
    try:
        changed = _kernel.Table.open(str(path), hashlib.sha256(bytes(whole)).hexdigest())
    except ArtifactError:
        return
    assert release(changed, ["w0x w1x w2x w3x unknown"], b"\x01" * 32)[0]["positions"] == 5
