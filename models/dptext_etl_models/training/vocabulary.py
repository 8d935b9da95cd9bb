"""Build a tokenizer whose entries are mostly whole words, so that each word it knows is one id.

A masked language model that privatizes text draws one id per word, so only words with their own id can be
released. The most frequent words are whole entries. All other words are spelled by pieces, which are marked by "##", or
by single characters. Words are in lower case, and contractions stay whole; otherwise they are nearly the words of the
kernel (docs/mechanisms.md#words).
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptext_etl_models.training.corpus import WORD

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Start, padding, end, unknown and mask, with ids 0 to 4 as in RoBERTa."""
START, PADDING, END, UNKNOWN, MASK = range(5)
PIECE = "##"
_PATTERN = rf"{WORD.pattern}|[^\w\s]"
_ALPHABET = 300
_MARKS = (
    "\u2013\u2014\u2026\u2018\u201c\u201d\u00a3\u20ac\u00b0"  # dashes, ellipsis, quotation marks, pound, euro, degree
)


def stored_tokenizer(folder: Path, make: Callable[[], Any]) -> Any:
    """Return the tokenizer that an earlier training left in the folder, or make one and save it there."""
    from transformers import PreTrainedTokenizerFast

    if (folder / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make(), **names)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    return tokenizer


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the words of clean texts, in lower case."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(WORD.findall(text.lower()))
    return counts


def build(counts: Counter[str], size: int, pieces: int) -> Tokenizer:
    """Make a tokenizer with `size` entries."""
    characters = _characters(counts)
    base = [*SPECIAL, *characters, *(PIECE + mark for mark in characters if mark.isalnum() or mark == "'")]
    ranked = sorted((word for word in counts if len(word) > 1), key=lambda word: (-counts[word], word))
    whole = ranked[: max(0, size - len(base) - pieces)]
    rest = {word: counts[word] for word in ranked[len(whole) :] if counts[word] > 1}
    entries = dict.fromkeys([*base, *whole])
    spelled = [piece for piece in _pieces(rest, pieces + len(characters) * 2) if piece not in entries][:pieces]
    return assemble([*entries, *spelled])


def assemble(entries: list[str]) -> Tokenizer:
    """Make the tokenizer of the given entries; the first five are `SPECIAL`."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {entry: number for number, entry in enumerate(entries)}
    model = models.WordPiece(
        vocab=vocabulary, unk_token=SPECIAL[UNKNOWN], continuing_subword_prefix=PIECE, max_input_chars_per_word=64
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("\u2019", "'"), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(_PATTERN), behavior="isolated")]
    )
    tokenizer.decoder = decoders.WordPiece(prefix=PIECE, cleanup=False)
    tokenizer.add_special_tokens(list(SPECIAL))
    start, end = SPECIAL[START], SPECIAL[END]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} {end} $B:1 {end}:1",
        special_tokens=[(start, START), (end, END)],
    )
    return tokenizer


def whole_words(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of words: entries that are not special, no pieces, and have a letter or digit."""
    return sorted(
        number
        for entry, number in tokenizer.get_vocab().items()
        if number >= len(SPECIAL) and not entry.startswith(PIECE) and any(mark.isalnum() for mark in entry)
    )


def _characters(counts: Counter[str]) -> list[str]:
    marks: Counter[str] = Counter()
    for word, count in counts.items():
        for mark in word:
            marks[mark] += count
    common = sorted(marks, key=lambda mark: (-marks[mark], mark))[:_ALPHABET]
    return sorted({*common, *string.ascii_lowercase, *string.digits, *string.punctuation, *_MARKS})


def _pieces(counts: dict[str, int], size: int) -> list[str]:
    """Train word pieces on unknown words; return only those that continue a word, the most useful first."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    trained = Tokenizer(models.WordPiece(unk_token=SPECIAL[UNKNOWN]))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=3 * size, min_frequency=2, show_progress=False, continuing_subword_prefix=PIECE
    )
    repeated = (" ".join([word] * min(count, 20)) for word, count in sorted(counts.items()))
    trained.train_from_iterator(repeated, trainer)
    ordered = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    return [piece for piece, _ in ordered if piece.startswith(PIECE) and len(piece) > len(PIECE) + 1]
