"""The sums of a synthetic table: the projection, the sensitivity by search and enumeration, and exact partial sums."""

import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.aggregate import Partial, contributions, counted, describe, noisy, partial_sum
from dptext_etl.families.aggregate.contributions import add, joined, upper
from dptext_etl.families.aggregate.statistic import GRIDS, projection, whole_roots

from ..examples import examples
from ..quick import quick
from .column_sums import LABELS, SECRET, key, strings, summed, toy_statistic
from .stream_oracle import oracle_canon, oracle_fingerprint, oracle_hmac

TEXTS = [
    "the room was cold",
    "Play the new album",
    "my account was closed by the bank",
    "",
    "zzzz qqqq",  # no known word: a failed encoding
    None,
    "the doctor was kind",
    "a long text " * 40,
]


@pytest.fixture(scope="module")
def statistic():
    return toy_statistic()


# --- projection -------------------------------------------------------------------------------------------------


def test_directions_are_nearly_principal_and_orthogonal(statistic):
    vectors, found = statistic.corpus.vectors, statistic.projection
    rows = found.directions.astype(float) / 128
    assert np.abs(rows @ rows.T - np.eye(len(rows))).max() < 0.03
    centered = vectors - vectors.mean(axis=0)
    spread = centered.T @ centered
    kept = np.trace(rows @ spread @ rows.T)
    assert kept > 0.98 * np.sort(np.linalg.eigvalsh(spread))[-len(rows) :].sum()


PROJECTIONS = [
    ("example", 16, "29784cee0a126f6241817ad2b12123fa0996323739b1075a9f12f371af790caa"),
    ("everyday-30k", 64, "0025089fa51eecf47f7d504f3f157e805915b352eef5c5923413aa1f95b46ebe"),
]


@pytest.mark.parametrize(("name", "width", "sha256"), quick(PROJECTIONS))
def test_the_projection_of_a_corpus_never_changes(name, width, sha256):
    """Other numbers on another machine would be another configuration, and a release could not continue there."""
    assert describe(name, epsilon=1.0, delta=1e-6, width=width).projection.sha256 == sha256


@pytest.mark.parametrize("balanced", [False, True])
def test_a_product_of_permuted_rows_gives_the_same_directions(balanced):
    vectors = describe("example", epsilon=1.0, delta=1e-6).corpus.vectors
    other = np.random.default_rng(0).permutation(vectors)
    assert projection(vectors, 8, balanced=balanced).sha256 == projection(other, 8, balanced=balanced).sha256


def test_balanced_directions_are_longer_where_texts_differ_less():
    """Lengths follow the fourth root of the variance, up to 4 times the usual one (docs/spec/synthetic.md#balanced)."""
    random = np.random.default_rng(1)
    spreads = np.array([40.0, 20.0, 10.0, 2.5, 1.0])
    vectors = np.clip(np.rint(random.normal(size=(4000, 5)) * spreads), -127, 127).astype(np.int8)
    plain, balanced = projection(vectors, 5), projection(vectors, 5, balanced=True)
    lengths = np.linalg.norm(balanced.directions, axis=1) / np.linalg.norm(plain.directions, axis=1)
    expected = np.minimum(4.0, np.sqrt(spreads[0] / spreads))
    assert np.allclose(lengths, expected, rtol=0.05)
    assert lengths[-2:] == pytest.approx(4.0, rel=0.05)


@given(
    st.integers(0, 2**62 - 1)
    | st.integers(0, 2**31 - 2).map(lambda n: n * n)
    | st.integers(1, 2**30).map(lambda n: n * n - 1)
)
@examples(500)
def test_roots_are_whole_and_rounded_down(square):
    assert whole_roots(np.array([square])).tolist() == [math.isqrt(square)]


def extremes(statistic, random):
    """Vectors on the edge: shortest and longest, along and against every direction, near the clip, and zero."""
    k = statistic.projection.directions.shape[1]
    along = statistic.projection.directions[:8].astype(float)
    wild = random.normal(size=(40, k))
    out = [np.zeros((1, k)), np.eye(k)[:3], -np.eye(k)[:3]]
    for length in (1, 30, 60, 90, 120, 127, 133):
        out += [rows * (length / np.linalg.norm(rows, axis=1, keepdims=True)) for rows in (along, -along, wild)]
    out.append(np.full((1, k), 127.0))
    out.append(np.full((1, k), -127.0))
    return np.clip(np.rint(np.concatenate(out)), -127, 127).astype(np.int8)


def test_contributions_follow_the_rule_in_whole_numbers_of_any_size(statistic):
    projected, clip = statistic.projection, statistic.projection.clip
    vectors = np.concatenate([extremes(statistic, np.random.default_rng(1)), statistic.corpus.vectors])
    found = projected.contributions(vectors)
    inside = outside = failed = 0
    for vector, got in zip(vectors.tolist(), found.tolist(), strict=True):
        length = sum(x * x for x in vector)
        if not length or length > projected.longest:
            expected, failed = [0] * projected.width, failed + 1
        else:
            v = [
                sum(a * b for a, b in zip(row, vector, strict=True)) - center
                for row, center in zip(projected.directions.tolist(), projected.center.tolist(), strict=True)
            ]
            square = sum(x * x for x in v)
            if square > clip * clip:
                expected = [(1 if x > 0 else -1) * math.isqrt(x * x * clip * clip // square) for x in v]
                outside += 1
            else:
                expected, inside = v, inside + 1
        assert got == expected
        assert sum(x * x for x in got) <= clip * clip
    assert inside > 20 and outside > 20 and failed > 2  # noqa: PT018


# --- sensitivity --------------------------------------------------------------------------------------------------


def contribution(statistic, x, block):
    """What one record adds to S and T, through the code that adds; None for a null text."""
    total = Partial.zero(statistic)
    if x is not None:
        add(statistic, total, x[None], np.array([block]))
    return joined(total.sums, total.moments)


def weights(statistic, width):
    """2 G^2 over the variance of each integer of S and T, in units of V: 2 G^2 for S, 2 for i < j, 1 for i = j."""
    diagonal, above = [1] * width, [2] * (width * (width - 1) // 2)
    return np.array([2 * statistic.grid**2] * math.prod(statistic.shape) + diagonal + above)


def loss(statistic, width, one, other):
    """D * 2 G^4 of two tables that differ in one record, in whole numbers of any size: 8 G^4 is 2 rho V / G^2 = 4."""
    moved = zip((one - other).tolist(), weights(statistic, width).tolist(), strict=True)
    return sum(weight * change * change for change, weight in moved)


@pytest.mark.parametrize(("width", "grid"), [(2, 16), (1, 64)])
def test_the_largest_loss_of_a_changed_record_is_the_stated_one(width, grid):
    """Enumerate every pair of contributions in d dimensions, with all blocks and null: the most is exactly 4."""
    toy = SimpleNamespace(
        grid=grid, count_step=11 * grid // 16, shape=(2, width + 1), moments=width * (width + 1) // 2,
        projection=SimpleNamespace(width=width),
    )  # fmt: skip
    axes = np.meshgrid(*[np.arange(-grid, grid + 1)] * width)
    inside = np.stack(axes, axis=-1).reshape(-1, width)
    inside = inside[(inside**2).sum(axis=1) <= grid**2]
    adds = [contribution(toy, x, block) for x in inside for block in (0, 1)] + [contribution(toy, None, 0)]
    records, most = np.array(adds), []
    for record in records:
        moved = (records - record) ** 2
        most.append(int((moved * weights(toy, width)).sum(axis=1).max()))
    assert max(most) == 8 * grid**4
    assert most[-1] * 256 == 505 * 2 * grid**4, "a null text, or a record that does not count: 1 + 121/256 + 1/2"


def test_no_replaced_record_moves_the_sums_beyond_the_sensitivity(statistic):
    """Search all pairs of extreme vectors: same label, different labels, a text that becomes null."""
    vectors, width = extremes(statistic, np.random.default_rng(2)), statistic.projection.width
    points = statistic.contributions(vectors)
    blocks = range(len(statistic.blocks))
    found = [contribution(statistic, x, block) for x in points for block in blocks]
    found = np.stack([*found, contribution(statistic, None, 0)])
    scaled = found * np.sqrt(weights(statistic, width)) / statistic.grid**2
    norms = np.einsum("ij,ij->i", scaled, scaled)
    distances = norms[:, None] + norms[None] - 2 * (scaled @ scaled.T)
    pairs = zip(*np.unravel_index(np.argsort(-distances, axis=None)[:200], distances.shape), strict=True)
    largest = max(loss(statistic, width, found[i], found[j]) for i, j in pairs)
    bound = 2 * statistic.grid**2 * statistic.sensitivity**2
    assert 0.85 * bound < largest <= bound  # directions are opposite except for the center
    for x in points:
        assert int((x**2).sum()) <= statistic.grid**2


def test_contributions_are_clipped_vectors_in_integers_rounded_to_zero(statistic):
    vectors = extremes(statistic, np.random.default_rng(3))
    clipped = statistic.projection.contributions(vectors)
    for u, x in zip(clipped.tolist(), statistic.contributions(vectors).tolist(), strict=True):
        assert x == [(1 if v > 0 else -1) * (abs(v) * statistic.grid // statistic.projection.clip) for v in u]


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.5, 1.0, 8.0])
def test_the_grid_is_the_finest_whose_noise_the_kernel_draws(epsilon):
    found = describe("example", epsilon=epsilon, delta=1e-8, labels=LABELS)
    assert found.grid in GRIDS
    assert 2 * found.grid**2 * found.variance <= 2**48
    assert found.grid == 1024 or 2 * (2 * found.grid) ** 2 * 3.99 * found.variance > 2**48
    assert found.configuration()["grid"] == found.grid


def test_the_second_moment_is_summed_over_all_labels_in_its_order(statistic):
    rows = [(f"r{i}", text, label) for i, (text, label) in enumerate(zip(TEXTS, ["billing", None] * 4, strict=True))]
    texts = strings([text for text in TEXTS if text is not None])
    points = statistic.contributions(contributions.encoded(statistic, texts)).tolist()
    width, found = statistic.projection.width, summed(statistic, rows).moments.tolist()
    pairs = [(i, i) for i in range(width)] + [(i, j) for i in range(width) for j in range(i + 1, width)]
    assert [*zip(*upper(width), strict=True)] == pairs
    assert found == [sum(x[i] * x[j] for x in points) for i, j in pairs]


def test_sums_of_the_most_records_fit_into_64_bits():
    """The bound that a policy is held to: every record is on the edge, in the same place."""
    with pytest.raises(PolicyError, match="would not fit into 64 bits"):
        describe("example", epsilon=8.0, delta=4e-15, labels=LABELS)
    found = describe("example", epsilon=8.0, delta=5e-15, labels=LABELS)
    assert int(0.01 / 5e-15) * found.grid**2 < 2**61


@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_person_moves_the_sums_beyond_theirs(k):
    """Remove a person, and replace all that a person has, with `counted` choosing the records that count."""
    statistic = describe("example", epsilon=1.0, delta=1e-6, labels=LABELS, per_subject=k)
    bound, width = 2 * statistic.grid**4, statistic.projection.width
    texts = list(statistic.corpus.texts)
    far = statistic.projection.contributions(statistic.corpus.vectors)
    order = np.argsort(far[:, 0])
    low, high = [texts[i] for i in order[:6]], [texts[i] for i in order[-6:]]

    def of(own, gone=None):
        rows = [(f"r{i}", text, "billing") for i, text in enumerate(own) if i != gone]
        rows += [(f"o{i}", texts[i], "delivery") for i in range(5)]
        people = pa.array(["p"] * (len(rows) - 5) + [f"q{i}" for i in range(5)])
        mask = counted(statistic, key(statistic), strings([row[0] for row in rows]), people)
        assert mask[:-5].sum() == min(k, len(rows) - 5)
        assert mask[-5:].all()
        total = summed(statistic, [row for row, here in zip(rows, mask, strict=True) if here])
        return joined(total.sums, total.moments)

    def apart(one, other):
        return loss(statistic, width, one, other)

    with_person, other, without = of(low), of(high), of([])
    assert k * k * 0.09 * bound < apart(with_person, without) <= k * k * 505 / 256 * bound
    assert apart(with_person, other) <= k * k * 4 * bound
    for gone in range(6):  # one record of the person goes, and another one may come in
        assert apart(with_person, of(low, gone)) <= 4 * bound


def test_who_counts_depends_on_ids_alone_and_not_on_their_order():
    statistic = describe("example", epsilon=1.0, delta=1e-6, per_subject=2)
    ids, people = [f"r{i}" for i in range(60)], [f"p{i % 7}" for i in range(60)]
    mask = counted(statistic, key(statistic), strings(ids), pa.array(people))
    chosen = {name for name, here in zip(ids, mask, strict=True) if here}
    assert len(chosen) == 14
    shuffled = np.random.default_rng(3).permutation(60)
    again = counted(
        statistic, key(statistic), strings([ids[i] for i in shuffled]), pa.array([people[i] for i in shuffled])
    )
    assert {ids[i] for i, here in zip(shuffled, again, strict=True) if here} == chosen
    other = counted(statistic, key(statistic, "2025-02"), strings(ids), pa.array(people))
    assert other.tolist() != mask.tolist()
    with pytest.raises(InputError, match="null"):
        counted(statistic, key(statistic), strings(ids[:2]), pa.array(["p", None]))


# --- sums ---------------------------------------------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(st.sampled_from(TEXTS), st.sampled_from(["billing", "delivery", "unlisted", "other", None])), max_size=12
)


@given(ROWS, st.integers(0, 12), st.randoms(use_true_random=False))
@examples(60)
def test_sums_of_partitions_in_any_order_are_those_of_the_whole(statistic, drawn, at, random):
    rows = [(f"r{i}", text, label) for i, (text, label) in enumerate(drawn)]
    whole = summed(statistic, rows)
    random.shuffle(rows)
    parts = summed(statistic, rows[:at]) + summed(statistic, rows[at:]) + Partial.zero(statistic)
    travelled = Partial.unpacked(statistic, parts.packed())
    assert np.array_equal(joined(travelled.sums, travelled.moments), joined(whole.sums, whole.moments))
    assert travelled.digest == whole.digest
    texts = [text for text, _ in drawn if text is not None]
    assert whole.sums[:, -1].sum() == len(texts) * statistic.count_step


def test_the_digest_is_the_sum_of_keyed_hashes(statistic):
    rows = [("r1", "a", "billing"), ("é", None, None), ("r3", "", "")]
    context = {"v": 1, "ds": "demo", "col": "text", "rel": "2025-01", "mech": statistic.cfg()}
    release = oracle_hmac(SECRET, b"dptext/rel/v1\0" + oracle_canon(context))
    total = 0
    for rid, text, label in rows:
        name = rid.encode()
        message = len(name).to_bytes(8, "little") + name + oracle_fingerprint(SECRET, text)
        message += b"\x00" if label is None else b"\x01" + label.encode()
        total += int.from_bytes(oracle_hmac(release, b"dptext/row/v1\0" + message), "little")
    found = summed(statistic, rows)
    assert int.from_bytes(found.digest, "little") == total % 2**256
    numbers = [*found.sums.ravel().tolist(), *found.moments.tolist()]
    noise_key = _kernel.noise_key(key(statistic), found.digest, pa.array(numbers))
    assert noise_key == oracle_hmac(release, b"dptext/sum/v1\0" + found.digest + np.array(numbers, "<i8").tobytes())


def test_keys_and_noise_are_the_golden_ones_of_the_specification():
    """The values of docs/spec/stream.md#golden-vectors, which only the standard library computes."""
    cfg = "eadb3298c3f7b613c8ccfb0b0d7541474901682a1f314bb679743103a029cbd3"
    made = _kernel.ReleaseKey(_kernel.Secret.from_bytes(bytes(range(32))), "demo", "text", "2025-01", cfg)
    columns = strings(["r1", "r2", "r3"]), strings(["hello world", "", None]), strings(["a", None, "b"])
    digest = _kernel.table_digest(made, *columns)
    assert digest.hex() == "c9352cd4ca53ca282a21bef99c8d3c4a8946b44a71bef410d3a6956ce884a65a"
    found = _kernel.noise_key(made, digest, pa.array([1, -2, 3], pa.int64()))
    assert found.hex() == "9d3e63424361a88162340dbbd5d4a51a269a42679cace30611b20bf9fd12e1c1"
    assert _kernel.discrete_gaussians(found, 9, 0, 8, 5, 2) == [1, -1, -2, 0, 0, -1, -1, 2]


def test_labels_outside_the_list_and_nulls_count_as_other(statistic):
    assert statistic.blocks == ("billing", "delivery", "other")
    step = statistic.count_step
    found = summed(
        statistic, [("a", "x", "billing"), ("b", "x", "unheard of"), ("c", "x", None), ("d", None, "billing")]
    )
    assert found.sums[:, -1].tolist() == [step, 0, 2 * step]
    listed = describe("example", epsilon=1.0, delta=1e-6, labels=("other", "billing"))
    assert listed.blocks == ("other", "billing")
    assert summed(listed, [("a", "x", "unheard of")]).sums[:, -1].tolist() == [step, 0]


@pytest.mark.parametrize(
    "labels",
    [
        pa.array(["billing", None]).dictionary_encode(),
        pa.array(["billing", "gone"], pa.string_view()),
        pa.array(["billing", "billing "], pa.large_string()),
    ],
)
def test_label_columns_of_any_string_type_are_read(statistic, labels):
    found = partial_sum(statistic, key(statistic), strings(["a", "b"]), strings(["x", "y"]), labels)
    assert found.sums[:, -1].tolist() == [statistic.count_step, 0, statistic.count_step]


@pytest.mark.parametrize("labels", [pa.array([1, 2]), pa.array([b"a", b"b"]), pa.array(["billing"])])
def test_labels_of_another_type_or_length_are_refused(statistic, labels):
    with pytest.raises(InputError):
        partial_sum(statistic, key(statistic), strings(["a", "b"]), strings(["x", "y"]), labels)


def test_failed_encodings_count_and_nulls_do_not(statistic):
    for text in ("", "zzzz qqqq"):
        found = summed(statistic, [("a", text, "billing")])
        assert not found.sums[:, :-1].any()
        assert not found.moments.any()
        assert found.sums[0, -1] == statistic.count_step
    assert not contribution(statistic, None, 0).any()
    found = summed(statistic, [("a", None, "billing")])
    assert not joined(found.sums, found.moments).any()


def test_a_column_without_labels_is_one_block():
    statistic = describe("example", epsilon=1.0, delta=1e-6)
    assert (statistic.shape, statistic.moments) == ((1, statistic.projection.width + 1), 0)
    found = summed(statistic, [("a", "the room was cold", None), ("b", None, None)])
    assert found.sums[0, -1] == statistic.count_step
    with pytest.raises(InputError, match="labels"):
        partial_sum(statistic, key(statistic), strings(["a"]), strings(["x"]), strings(["y"]))


def test_no_records_at_all_are_summed_and_released(statistic):
    found = summed(statistic, [])
    assert not joined(found.sums, found.moments).any()
    released = noisy(statistic, key(statistic), found)
    assert released.sums.any()
    assert released.moments.any()
