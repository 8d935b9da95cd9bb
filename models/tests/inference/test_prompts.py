"""A prompt that is too long loses tokens of its text, and keeps every token of its template."""

import pytest

pytest.importorskip("transformers")
from transformers import PreTrainedTokenizerFast

from dptext_etl_models.inference import example_model
from dptext_etl_models.inference.prompts import Prompts

LIMIT = 40


@pytest.fixture(scope="module")
def tokenizer():
    """Pieces of words, and single bytes for all other characters."""
    made = example_model._unigram()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("text", ["漢" * 500, "漢a" * 300, "a " * 500, "»" * 300, "é x" * 200, ""])
@pytest.mark.parametrize(("template", "begins", "ends"), [
    ("go: {text} now", ["▁", "g", "o", ":"], ["▁now"]),
    ("go: {text}» now", ["▁", "g", "o", ":"], ["<0xC2>", "<0xBB>", "▁now"]),
    ("go: {text}漢字", ["▁", "g", "o", ":"], [f"<0x{byte:02X}>" for byte in "漢字".encode()]),
    ("«{text}»", ["▁", "<0xC2>", "<0xAB>"], ["<0xC2>", "<0xBB>"]),
])  # fmt: skip
def test_the_template_stays(tokenizer, text, template, begins, ends):
    for continued, last in ((False, ["</s>"]), (True, [])):
        (ids,) = Prompts(tokenizer, template, LIMIT, 1000, continued=continued).encode([text])
        tokens = tokenizer.convert_ids_to_tokens(ids)
        assert len(tokens) <= LIMIT
        assert (tokens[: len(begins)], tokens[-len(ends + last) :]) == (begins, ends + last)


@pytest.mark.parametrize("count", [1, 5, 500])
def test_what_a_prompt_holds_is_known(tokenizer, count):
    """The report on texts counts the words that are cut."""
    text = "漢 ab" * count
    prompts = Prompts(tokenizer, "go: {text} now", LIMIT, 1000, continued=False)
    (ids,) = prompts.encode([text])
    assert tokenizer.decode(ids, skip_special_tokens=True) == f"go: {prompts.reads(text)} now"
    assert (prompts.reads(text) == text) == (count < 500)
