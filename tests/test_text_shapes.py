"""What counts as a word, shape by shape, and that strict releases are made only of draws and single blanks."""

import re

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dptext_etl import ColumnPolicy, _kernel
from dptext_etl.column import release
from dptext_etl.guarantee import GuaranteeClass
from tests.study import study

from .examples import examples

shapes = study("shapes")
KEY = "env:DPTEXT_SHAPES_SECRET"
WORDS = {
    "Don't": ["Don't"],
    "don\u2019t can't\u2019ve": ["don\u2019t", "can't\u2019ve"],
    "rock 'n' roll": ["rock", "n", "roll"],
    "state-of-the-art": ["state", "of", "the", "art"],
    "3.14 1,000 -5 1e3 ½ 10th": ["3.14", "1,000", "5", "1e3", "½", "10th"],
    "$5.00 50%": ["5.00", "50"],
    "john.doe@ex-ample.org": ["john.doe", "ex", "ample.org"],
    "https://a.b/c?d=1&e=f_g": ["https", "a.b", "c", "d", "1", "e", "f_g"],
    "#tag @you C++": ["tag", "you", "C"],
    "U.S.A. e.g.": ["U.S.A", "e.g"],
    "<mask> </s> [CLS]": ["mask", "s", "CLS"],
    "😀 👩\u200d👩\u200d👧 🇩🇪 ™ …": [],
    "我喜欢电影": ["我", "喜", "欢", "电", "影"],
    "カタカナ ひら 한국어": ["カタカナ", "ひ", "ら", "한국어"],
    "فيلم סרט": ["فيلم", "סרט"],
    "e\u0301cole": ["e\u0301cole"],
    "co\u00adoperate co\u200boperate": ["co\u00adoperate", "co", "operate"],
    "x² H₂O": ["x", "²", "H", "₂", "O"],
    "snake_case __": ["snake_case"],
    " \t\r\n\u00a0\u3000": [],
    "": [],
}
pieces = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="aeé\u0301\u0308\u200d\u00ad'\u2019.-_@/:0१½我ひカ한אم😀🇩🇪\u202e \n", max_size=20),
    st.sampled_from([*WORDS, "the", "good", "GOOD", "<PAD>", "nonesuch", "0" * 400]),
)
texts = st.lists(pieces, max_size=8).map(" ".join)


@pytest.mark.parametrize(("text", "words"), WORDS.items())
def test_what_counts_as_a_word(text, words):
    assert [segment for segment, is_word in _kernel.split(text) if is_word] == words
    assert "".join(segment for segment, _ in _kernel.split(text)) == text


def policy(mechanism):
    return ColumnPolicy(
        dataset="shapes",
        column="text",
        release="r",
        mechanism=mechanism,
        key=KEY,
        allow=mechanism.guarantee.disclosures,
        accept_unbounded={"UMLDP"} if mechanism.guarantee.guarantee_class is GuaranteeClass.UMLDP else set(),
    )


@pytest.fixture
def released(word_mechanism):
    column = policy(word_mechanism)

    def one(text):
        out = release(pa.array([text], pa.large_string()), pa.array(["r1"]), column)
        return out.text[0].as_py(), out.positions[0].as_py()

    return one


def test_a_strict_release_is_output_words_and_single_blanks(word_mechanism, released):
    if word_mechanism.mode != "strict":
        pytest.skip("faithful modes keep what the papers keep")
    allowed = word_mechanism.output_words()
    assert all(word and not re.search(r"\s", word) and word == word.lower() for word in allowed)

    @examples(60, suppress_health_check=[HealthCheck.too_slow])
    @given(texts)
    def check(text):
        out, positions = released(text)
        words = out.split(" ") if out else []
        assert set(words) <= allowed
        count = sum(is_word for _, is_word in _kernel.split(text))
        if word_mechanism.length != "disclose":
            assert positions == word_mechanism.n_max >= len(words)
        elif word_mechanism.input_policy()["oov"] == "drop":
            assert positions == len(words) <= count
        else:
            assert positions <= len(words) == min(count, word_mechanism.n_max)

    check()


@pytest.mark.parametrize(
    "text", ["Qzxvjkw", "qzxvjkw's 4711qzx", "a.qzx@qzx.example", "我qzx", "qzx\u0301", "<qzx>", "4711"]
)
def test_no_unknown_word_or_number_is_released_in_strict_mode(word_mechanism, released, text):
    if word_mechanism.mode != "strict":
        pytest.skip("faithful modes keep what the papers keep")
    out, _ = released(f"{text} good {text}")
    assert not re.search(r"qzx|4711|[^\x00-\x7f]", out.lower().replace("é", "e").replace("ï", "i"))


def test_a_faithful_release_changes_nothing_but_words(word_mechanism, released):
    if word_mechanism.mode != "faithful":
        pytest.skip("strict releases have no other marks")

    @examples(40, suppress_health_check=[HealthCheck.too_slow])
    @given(texts)
    def check(text):
        out, _ = released(text)
        marks = [segment for segment, is_word in _kernel.split(text) if not is_word]
        at = 0
        for mark in marks:  # all of them, in order
            at = out.index(mark, at) + len(mark)

    check()


def test_the_pages_table_agrees_with_the_rules(shapes):
    for name, _, words, uniform, drop, faithful in shapes.rows():
        count = 0 if words == "none" else words.count(" ") + 1
        boxes = [cell.count(shapes.DRAWN) + cell.count(shapes.UNIFORM) for cell in (uniform, drop, faithful)]
        assert boxes[0] == count, name
        assert boxes[1] == uniform.count(shapes.DRAWN) == boxes[2], name
        assert re.fullmatch(r"nothing|`[□▣]( [□▣])*`", uniform), name
        assert re.fullmatch(r"nothing|`□( □)*`", drop), name
