"""Make public texts for tests of corpora: a few thousand short sentences of three topics."""

from __future__ import annotations

from itertools import product
from pathlib import Path

TEMPLATES = {
    "hotel": ("Please {} a {} room in {} for two {}", "We want to {} the {} hotel near {} for some {}"),
    "music": ("Please {} the {} song of {} for two {}", "We want to {} the {} album about {} for some {}"),
    "bank": ("Please {} the {} account with {} for two {}", "We want to {} the {} money from {} for some {}"),
}
VERBS = ("find", "keep", "open", "change", "share", "see", "move", "choose")
KINDS = ("old", "new", "small", "large", "good", "bad", "quiet", "famous")
PLACES = ("London", "Paris", "the city", "the river", "my friends", "the school", "the village")
TIMES = ("days", "weeks", "nights")


def labeled() -> list[tuple[str, str]]:
    """Return 8,064 distinct sentences and their topics."""
    words = list(product(VERBS, KINDS, PLACES, TIMES))
    return [(form.format(*of), topic) for topic, forms in TEMPLATES.items() for form in forms for of in words]


def texts() -> list[str]:
    """Return only the sentences."""
    return [text for text, _ in labeled()]


def static_package(room: Path, width: int) -> Path:
    """Put the package `smallvec` into a folder: a static embedding, installed by its metadata only."""
    import numpy as np
    import tokenizers
    from safetensors.numpy import save_file

    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[PAD]"])
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(3)
    (room / "smallvec").mkdir()
    tokenizer.save(str(room / "smallvec" / "tokenizer.json"))
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), width)).astype(np.float16)
    save_file({"embedding.weight": vectors}, room / "smallvec" / "weights.safetensors")
    info = room / "smallvec-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: smallvec\nVersion: 1.2\nLicense-Expression: MIT\n")
    rows = ("smallvec/tokenizer.json", "smallvec/weights.safetensors", "smallvec-1.2.dist-info/METADATA")
    (info / "RECORD").write_text("".join(f"{row},,\n" for row in rows))
    return room
