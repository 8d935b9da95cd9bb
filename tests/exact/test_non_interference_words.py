"""Every word mechanism: where epsilon says that nothing is revealed, nothing is revealed.

Specification: docs/spec/privacy.md#ni, docs/spec/privacy.md#ni-err.

At epsilon 10^-12 the scores of a word no longer reach its draw: laws differ by 10^-12. Under fixed record keys two
texts that agree on the disclosures must then be released as the same bytes, in text and positions. Whatever reaches the
output by another road than the scores (length, case, punctuation, order, failures) shows itself.
"""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.artifacts import sha256_file
from dptext_etl.errors import ArtifactError, DPTextError, PolicyError
from dptext_etl.families.stored_distributions import TableParts, save_table
from dptext_etl.families.words import STRICT_INPUT, sample_many
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanism import PAD

from ..examples import examples
from .fixed_keys import release_with_keys

KEY = pa.array([bytes(range(100, 132))], pa.binary(32))
BLIND = ["baka", "bale", "bami", "bano", "bapu", "bara"]
MUTE = (1e-12, 1e-6)
"""The second where the first makes noise too large to be computed exactly."""

between = st.text(
    alphabet=" ,;!?\t\n\u3000\u00a0…—“”()[]<>/\\|@#%^&*+=~`\u200b\u202e😀\U0001f469\u200d", max_size=4
).map(lambda s: f" {s} ")
casing = st.sampled_from([str.lower, str.upper, str.title, str.capitalize])
foreign = st.sampled_from(
    ["zzxqv", "ünïcödé", "12345", "3.14", "я", "我", "e\u0301x", "x" * 4_000, "don\u2019tt", "½", "\u0627\u0644"]
)


@pytest.fixture
def mute(word_mechanism):
    if word_mechanism.mode != "strict":
        pytest.skip("faithful mode and words that are shown tell what they tell")
    if word_mechanism.guarantee.guarantee_class is GuaranteeClass.UMLDP:
        pytest.skip("words that are shown are no draw")
    for epsilon in MUTE:
        quiet = {"epsilon": epsilon} | ({"epsilon_length": MUTE[0]} if word_mechanism.length == "noisy" else {})
        mechanism = word_mechanism.model_copy(update=quiet)
        try:
            release(mechanism, "good")
        except PolicyError:
            continue
        return mechanism
    raise AssertionError("no epsilon is small enough")


def release(mechanism, text):
    released = release_with_keys(mechanism, pa.array([text], pa.large_string()), KEY)
    return released.text[0].as_py(), released.positions[0].as_py()


def classes(mechanism):
    """Words that no disclosure reveals apart, as lists of at least two; a word kept unchanged is a class of one."""
    words = [word for word in mechanism.input_words() if word.isalpha()][:300]
    if not {Disclosure.CLUSTER, Disclosure.STOPWORDS} & mechanism.guarantee.disclosures:
        return [words]
    sets = {}
    for word in words:
        sets.setdefault(frozenset(mechanism.transition(word)[0]), []).append(word)
    return list(sets.values())


@st.composite
def neighbors(draw, mechanism, groups):
    """Two texts that agree on the disclosures, and on nothing else."""
    hidden = mechanism.length != "disclose"
    chosen = draw(st.lists(st.integers(-1, len(groups) - 1), max_size=8))
    if hidden:
        chosen = [-1 if which < 0 else 0 for which in chosen]

    def text():
        words = []
        for which in chosen:
            group = groups[which]
            known = draw(casing)(group[draw(st.integers(0, len(group) - 1))])
            words.append(draw(foreign) if which < 0 else known)
        if hidden:  # any number of known words follows, within the length and beyond
            words += [draw(casing)(groups[0][0])] * draw(st.sampled_from([0, 1, 5, 29, 40]))
        return draw(between) + "".join(word + draw(between) for word in words)

    return text(), text()


def test_equal_disclosures_give_equal_bytes(mute):
    groups = classes(mute)
    assert any(len(group) > 1 for group in groups)

    @examples(40, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data):
        one, other = data.draw(neighbors(mute, groups))
        assert release(mute, one) == release(mute, other)

    check()


def test_the_mark_of_a_filled_place_is_a_word_like_others_where_a_text_holds_it(mute):
    """No one writes themselves into the places that padding fills: `<PAD>` is the word "pad" between two marks."""
    assert release(mute, f"good {PAD} good") == release(mute, "good pad good")


def test_what_is_disclosed_does_reach_the_output(mute):
    """The test above can fail: another number of words is seen, unless the length is hidden."""
    word = classes(mute)[-1][0]
    short, long = release(mute, f"{word} {word}"), release(mute, f"{word} {word} {word}")
    assert (short == long) is (mute.length != "disclose")
    loud = mute.model_copy(update={"epsilon": 200.0})
    assert release(loud, f"{word} " * 9) != release(mute, f"{word} " * 9)


def test_nothing_but_its_own_draw_decides_a_word(word_mechanism):
    """Another word elsewhere, another case, other marks: under fixed keys the other draws stay as they are."""
    if word_mechanism.length != "disclose" or word_mechanism.mode != "strict":
        pytest.skip("places are those of strict texts that show their length")
    words = [word for word in word_mechanism.input_words() if word.isalpha()][10:22]
    before = release(word_mechanism, " ".join(words))[0].split(" ")
    for at in (0, 5, 11):
        changed = [w.upper() for w in words]
        changed[at] = word_mechanism.input_words()[0]
        after = release(word_mechanism, "?! ".join(changed))[0].split(" ")
        try:
            drawn = (
                len(word_mechanism.transition(changed[at])[0]) > 1 and len(word_mechanism.transition(words[at])[0]) > 1
            )
        except PolicyError:
            drawn = True
        if drawn:  # a word that is kept has no position
            assert [*before[:at], *before[at + 1 :]] == [*after[:at], *after[at + 1 :]]


def test_padding_is_a_word_like_any_other(word_mechanism):
    if word_mechanism.length == "disclose":
        pytest.skip("nothing is padded")
    drawn = sample_many(word_mechanism, PAD, 300)
    assert len(drawn) == 300
    assert set(drawn) - {PAD} <= word_mechanism.output_words()
    assert len(set(drawn)) > 1


@pytest.fixture(scope="module")
def blind(tmp_path_factory):
    """A table of one set of words whose scorer is constant."""
    path = tmp_path_factory.mktemp("blind") / "table.safetensors"
    rows = np.broadcast_to(np.array([5, 1, 3, 7, 2, 9], np.uint64), (6, 6))
    save_table(path, TableParts.partition(BLIND, [np.arange(6)], [rows]).tensors(), {"scorer": "constant"})
    return _kernel.Table.open(str(path), sha256_file(path))


@examples(60)
@given(st.text(max_size=200))
def test_any_text_is_released_within_the_vocabulary(blind, text):
    policy = json.dumps({**STRICT_INPUT, "n_max": 10_000})
    [row] = pa.array(blind.release_with_keys(KEY, pa.array([text]), policy)).to_pylist()
    words = row["text"].split(" ") if row["text"] else []
    assert set(words) <= set(BLIND)
    assert len(words) == row["positions"]


def test_ni_err_a_failing_table_releases_nothing(blind, tmp_path):
    sentinel = "qzxvjkw"
    for texts, policy in (([sentinel, sentinel], json.dumps(STRICT_INPUT)), ([sentinel], '{"case": "qzxvjkw"}')):
        with pytest.raises(DPTextError) as caught:
            blind.release_with_keys(KEY, pa.array(texts), policy)
        assert sentinel not in str(caught.value)
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"no table")
    with pytest.raises(ArtifactError):
        _kernel.Table.open(str(broken), sha256_file(broken))
