"""Tokenizers that panic: a text or a word fails by itself, and the unread rest of a long one cannot make it fail."""

from types import SimpleNamespace

import numpy as np
import pytest

from dptext_etl.corpora.corpus import TokenEncoder
from dptext_etl_models.inference import prompts
from dptext_etl_models.inference.masked import vocabulary

pytest.importorskip("tokenizers")

SPLIT = r"x{20}(x+x+)+y|[^\s]+|\s+(?!\S)|\s+"
"""Words and blanks as pre-tokenizers of current models find them; the first part fails for more than twenty x."""
PANICS = "x" * 60


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ")}
    backend = Tokenizer(models.BPE(letters, []))
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    with pytest.raises(BaseException, match="retry-limit") as caught:
        backend.encode(PANICS)
    assert not isinstance(caught.value, Exception)

    class Named(SimpleNamespace):
        def __len__(self):
            return len(letters)

    return Named(backend_tokenizer=backend, all_special_ids=[], unk_token_id=None, mask_token_id=0)


def made(tokenizer, limit=16):
    return prompts.Prompts(tokenizer, "{text}", limit, 1000, continued=False)


def test_a_text_that_makes_the_tokenizer_panic_fails_alone(tokenizer):
    reader = made(tokenizer)
    (good,), (bad,) = reader.encode(["good film"]), reader.encode(["bad"])
    assert reader.encode(["good film", PANICS, "bad"]) == [good, None, bad]


def test_a_word_that_makes_the_tokenizer_panic_fails_alone(tokenizer):
    known = vocabulary.MaskedVocabulary(tokenizer)
    (good,), (bad,) = known.encode(["good"]), known.encode(["bad"])
    assert good
    assert known.encode(["good", PANICS, "bad"]) == [good, [], bad]


def test_ten_million_blanks_are_not_read(tokenizer):
    reader = made(tokenizer)
    (found,) = reader.encode(["a" + " " * 10_000_000 + "b"])
    assert (found, len(found)) == (reader.encode(["a" + " " * 100])[0], reader.limit)
    known = vocabulary.MaskedVocabulary(tokenizer)
    assert len(known.encode(["a" * (2 * vocabulary.CHARACTERS)])[0]) == vocabulary.CHARACTERS + 1


def test_a_failure_to_decode_gives_an_empty_text(tokenizer):
    reader = made(tokenizer)
    assert reader.decode([2**40]) == ""
    reader._known = 2**50
    assert reader.decode([2**40]) == ""


def broken_normalizer():
    """A tokenizer whose library panics where a pattern that matches nothing changes bytes."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    backend = Tokenizer(models.BPE({"a": 0}, []))
    backend.normalizer = normalizers.Replace(Regex(r"(?=a)|é*"), "é")
    backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    return backend


@pytest.mark.parametrize("text", [f"zzqsentinelqzz {PANICS}", "zzqsentinelqzz \0 ﬃ"])
def test_a_panic_writes_no_text_on_the_error_stream(tokenizer, capfd, text):
    backend = tokenizer.backend_tokenizer if PANICS in text else broken_normalizer()
    encoder = TokenEncoder(["a"], np.ones((1, 2), np.int16), backend.to_str().encode())
    assert not len(encoder.numbers([text])[0])
    said = capfd.readouterr().err
    assert "panicked" in said
    assert "sentinel" not in said
