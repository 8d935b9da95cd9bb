"""Canary rows: the same in every process, of the id column's type, never an id in use, no one's record."""

import subprocess
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from dptext_etl import _kernel, load
from dptext_etl.checks import CANARY, plan, plant
from dptext_etl.checks import canaries as canary_rows
from dptext_etl.checks.canaries import ids_from, in_vocabulary_words, pseudo_words
from dptext_etl.errors import InputError
from dptext_etl.keys import canonical_ids, id_type
from tests.policy_files import custext_column, policy_in

NO_IDS = pl.Series([], dtype=pl.String)


@pytest.fixture(scope="module")
def policy(tmp_path_factory, small_vectors):
    key = tmp_path_factory.mktemp("keys") / "noise.key"
    key.write_text("5a" * 32)
    key.chmod(0o600)
    return make(key, small_vectors)


def make(key, vectors, **changes):
    column = custext_column(vectors, **changes) | {"allow": ["cluster", "stopwords"]}
    facts = {"dataset": "reviews", "key": f"file:{key}", "unit": "subject", "subject": "user", "keep": ["stars"]}
    return policy_in(Path("nowhere"), column, **facts)


def secret(policy):
    return policy.column_policies()[0].secret


def planned(policy, shard=0, dtype=None, taken=NO_IDS, **more):
    return plan(policy, secret(policy), shard, dtype or pl.String(), taken, **more)


def test_two_out_of_vocabulary_and_six_in_vocabulary_rows_of_24_words(policy):
    canaries = planned(policy)
    assert Counter(row.kind for row in canaries.rows) == {"out_of_vocabulary": 2, "in_vocabulary": 6}
    mechanism = policy.column_policies()[0].mechanism
    for row in canaries.rows:
        words = row.words["text"]
        assert len(words) == 24
        assert [word for word, is_word in _kernel.split(row.texts["text"]) if is_word] != []
        assert [word.lower() for word, is_word in _kernel.split(row.texts["text"]) if is_word] == list(words)
        known = mechanism.output_words()
        assert all((word in known) is (row.kind == "in_vocabulary") for word in words)
    assert canaries.tokens == frozenset(pseudo_words(secret(policy), "reviews", "r1", "text"))


def test_words_are_long_and_the_same_for_the_same_names(policy):
    for token in planned(policy).tokens:
        assert len(token) >= 16
        assert token.isascii()
        assert token.isalpha()
        assert _kernel.split(token) == [(token, True)]
    assert planned(policy) == planned(policy)
    ids = [frozenset(planned(policy, shard).ids()) for shard in range(20)]
    assert len(frozenset.union(*ids)) == 20 * 8
    assert planned(policy, partition="a").ids().to_list() != planned(policy, partition="b").ids().to_list()
    assert planned(policy).ids().to_list() != planned(policy, partition="a").ids().to_list()
    other = policy.model_copy(update={"release": "r2"})
    assert not planned(other).tokens & planned(policy).tokens
    assert not frozenset(planned(other).ids()) & frozenset(planned(policy).ids())
    canaries = planned(policy)
    said = repr(canaries) + str(canaries) + repr(canaries.rows)
    assert not [word for row in canaries.rows for word in row.words["text"] if word in said]


def test_the_same_id_always_carries_the_same_text(policy):
    """Types with few values: shards and partitions meet, and the ledger must see replays, never another text."""
    texts: dict[int, str] = {}
    meetings = 0
    for shard in range(40):
        for row in planned(policy, shard, pl.Int8(), pl.Series([], dtype=pl.Int8), partition=str(shard % 3)).rows:
            meetings += row.id in texts
            assert texts.setdefault(row.id, row.texts["text"]) == row.texts["text"]
    assert meetings > 100


def test_another_process_plans_the_same_rows(policy, warm):
    script = (
        "import sys, polars as pl\n"
        "from dptext_etl import Policy\n"
        "from dptext_etl.checks import plan\n"
        "policy = Policy.parse(eval(sys.argv[1]))\n"
        "rows = plan(policy, policy.column_policies()[0].secret, 4, pl.Int64(), pl.Series([1], dtype=pl.Int64)).rows\n"
        "print([(row.id, row.kind, dict(row.texts)) for row in rows])\n"
    )
    facts = policy.model_dump(mode="json", by_alias=True)
    done = subprocess.run([*warm, "-c", script, repr(facts)], capture_output=True, text=True, check=True)
    here = planned(policy, 4, pl.Int64(), pl.Series([1], dtype=pl.Int64)).rows
    assert done.stdout.strip() == str([(row.id, row.kind, dict(row.texts)) for row in here])


IDS = {
    "String": ["a", "b"], "Int8": [1, -3], "Int16": [1, -3], "Int32": [1, -3], "Int64": [1, -3], "UInt8": [1, 3],
    "UInt16": [1, 3], "UInt32": [1, 3], "UInt64": [1, 3], "Decimal": [Decimal("1.50"), Decimal("-2.25")],
    "Date": [date(2026, 1, 1), date(2026, 1, 2)], "Binary": [b"a", b"\x00"], "Categorical": ["a", "b"],
    "uuid": ["3f2b1c9e-0d4a-4b6e-9b1a-2f6c3d4e5f60", "00000000-0000-4000-8000-000000000000"],
}  # fmt: skip
DTYPES = {
    "Decimal": pl.Decimal(20, 2),
    "uuid": pl.String(),
    **{
        f"Datetime {unit} {zone}": pl.Datetime(unit, zone)
        for unit in ("ms", "us", "ns")
        for zone in ("UTC", "Asia/Tokyo")
    },
    "Struct": pl.Struct({"shop": pl.String(), "number": pl.Int32(), "day": pl.Date()}),
}
NAMES = [*IDS, *(name for name in DTYPES if name not in IDS)]


def raw(name):
    dtype = DTYPES.get(name) or getattr(pl, name)()
    values = IDS.get(name)
    if isinstance(dtype, pl.Datetime):
        values = [1_700_000_000_000, 1_800_000_000_000]
        return pl.Series("id", values, dtype=pl.Int64).cast(dtype)
    if name == "Struct":
        values = [{"shop": "x", "number": n, "day": date(2026, 1, 1)} for n in (1, 2)]
    return pl.Series("id", values, dtype=dtype)


@pytest.mark.parametrize("name", NAMES)
def test_ids_of_every_type_that_identifies(policy, name):
    ids = raw(name)
    canaries = planned(policy, dtype=ids.dtype, taken=ids)
    frame = pl.DataFrame({"id": ids, "user": ["u", "v"], "stars": [1, 2], "text": ["good", None], "other": [1.5, 2.5]})
    out = plant(frame, canaries, policy)
    assert (out.schema, out.height) == (pl.Schema({**frame.schema, CANARY: pl.Boolean}), 2 + 8)
    canonical = canonical_ids(out["id"].to_arrow())
    assert len(set(canonical.to_pylist())) == 10
    assert id_type(out["id"].to_arrow().type) == id_type(ids.to_arrow().type)
    marked = out.filter(pl.col(CANARY))
    assert marked["id"].to_list() == canaries.ids().to_list()
    assert all(marked[column].is_null().all() for column in ("user", "stars", "other"))
    assert marked["text"].to_list() == [row.texts["text"] for row in canaries.rows]
    assert out.filter(~pl.col(CANARY)).drop(CANARY).equals(frame)


@pytest.mark.parametrize(
    "dtype",
    [pl.Float64(), pl.Boolean(), pl.Datetime("us"), pl.Enum(["a"]), pl.Time(), pl.Int128(), pl.List(pl.String())],
)
def test_types_that_identify_nothing_are_refused(policy, dtype):
    with pytest.raises(InputError) as caught:
        planned(policy, dtype=dtype, taken=pl.Series([], dtype=dtype))
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_used_ids_are_never_taken_and_a_full_column_is_refused(policy):
    used = pl.Series(list(range(-128, 128, 2)), dtype=pl.Int8)
    assert all(value % 2 for value in planned(policy, dtype=pl.Int8(), taken=used).ids())
    first = planned(policy).ids()
    assert not frozenset(planned(policy, taken=first).ids()) & frozenset(first)
    asked = []

    def taken(ids):
        asked.append(ids)
        return ids.is_in(first.implode())

    assert planned(policy, taken=taken) == planned(policy, taken=first)
    assert all(ids.dtype == pl.String for ids in asked)
    with pytest.raises(InputError, match="no free record ids of type Int8"):
        planned(policy, dtype=pl.Int8(), taken=pl.Series(list(range(-128, 128)), dtype=pl.Int8))
    seeds = [bytes([n]) * 32 for n in range(50)]
    days = ids_from(seeds, pl.Date())
    assert days.to_list() == ids_from(seeds, pl.Date()).to_list()
    assert days.max() - days.min() > timedelta(365)


def test_columns_that_are_missing_or_ours_are_refused(policy):
    canaries = planned(policy)
    frame = pl.DataFrame({"id": ["a"], "user": ["u"], "stars": [1], "text": ["good"]})
    with pytest.raises(InputError, match="columns are missing: text"):
        plant(frame.drop("text"), canaries, policy)
    with pytest.raises(InputError, match=f"the column {CANARY} is ours"):
        plant(frame.with_columns(pl.lit(value=False).alias(CANARY)), canaries, policy)


def test_in_vocabulary_words_can_change_and_are_none_that_a_mechanism_keeps(policy, small_vectors, tmp_path):
    mechanism = policy.column_policies()[0].mechanism
    words = in_vocabulary_words(mechanism, secret(policy), "reviews", "r1", "text")
    assert len(set(words)) == len(words) > 40
    for word in words:
        outputs, probabilities = mechanism.transition(word)
        assert mechanism.survival(word) == probabilities[outputs.index(word)] < 1
        assert sum(probabilities) == Fraction(1)
    stopwords = tmp_path / "stop.txt"
    stopwords.write_text("good\nthe\nwordaa\n")
    key = policy.key.removeprefix("file:")
    plus = make(key, small_vectors, variant="plus", stopwords=str(stopwords))
    mechanism = plus.column_policies()[0].mechanism
    words = {word for shard in range(30) for row in planned(plus, shard).rows for word in row.words["text"]}
    assert not words & {"good", "the", "wordaa"}
    assert words & mechanism.output_words()


def test_canary_words_are_derived_once_however_large_the_corpus_is(monkeypatch):
    calls = []

    def counted(*names):
        calls.append(names)
        return pseudo_words(*names)

    monkeypatch.setattr(canary_rows, "pseudo_words", counted)
    mechanism = load("surrogate")(epsilon=2.0, corpus="example")
    assert canary_rows.in_vocabulary_words(mechanism, _kernel.Secret(), "reviews", "once", "text")
    assert len(calls) == 1
