"""Small masked language models of several architectures, built and saved by tests; nothing is downloaded."""

from pathlib import Path

from dptext_etl_models.inference.example_model import example_model, words

CLIP = (-6.0, 10.0)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
ARCHITECTURES = ("roberta", "bert", "modernbert", "deberta", "deberta-v3", "distilbert", "electra", "albert", "mpnet")


def make(kind, folder, seed=5):
    """Write a model of an architecture into a folder, with a tokenizer like its own."""
    import torch
    import transformers as hf

    Path(folder).mkdir(parents=True, exist_ok=True)
    tokenizer = byte_pairs() if kind in ("roberta", "modernbert") else word_pieces()
    names = ["pad_token", "cls_token", "sep_token", "mask_token", "unk_token"]
    known = tokenizer.get_vocab()
    given = (
        ["<pad>", "<s>", "</s>", "<mask>", "<unk>"]
        if "<pad>" in known
        else ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
    )
    saved = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, given, strict=True)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _model(kind, len(saved), saved.pad_token_id, saved.cls_token_id, saved.sep_token_id)
        for part in model.parameters():
            part.data += 0.15 * torch.randn_like(part)
    model.save_pretrained(folder)
    saved.save_pretrained(folder)
    return str(folder)


def example_folder(kind, folder):
    """Write the files of an example model into a new folder, and return it."""
    folder.mkdir()
    for name, item in example_model(kind).items():
        (folder / name).write_bytes(item.path.read_bytes())
    return folder


def _model(kind, size, pad, first, last):
    import transformers as hf

    common = {"vocab_size": size, "pad_token_id": pad, "max_position_embeddings": 128}
    if kind == "roberta":
        places = {**common, "max_position_embeddings": 130, "type_vocab_size": 1}
        return hf.RobertaForMaskedLM(hf.RobertaConfig(**places, **SIZES))
    if kind == "bert":
        return hf.BertForMaskedLM(hf.BertConfig(**common, **SIZES))
    if kind == "modernbert":
        ends = {"bos_token_id": first, "eos_token_id": last, "cls_token_id": first, "sep_token_id": last}
        more = {"local_attention": 16, "global_attn_every_n_layers": 2}
        return hf.ModernBertForMaskedLM(hf.ModernBertConfig(**common, **SIZES, **ends, **more))
    if kind.startswith("deberta"):
        legacy = kind == "deberta"
        more = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0, "legacy": legacy}
        return hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(**common, **SIZES, **more))
    if kind == "distilbert":
        shape = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
        return hf.DistilBertForMaskedLM(hf.DistilBertConfig(**common, **shape))
    if kind == "electra":
        return hf.ElectraForMaskedLM(hf.ElectraConfig(**common, **SIZES, embedding_size=24))
    if kind == "albert":
        return hf.AlbertForMaskedLM(hf.AlbertConfig(**common, **SIZES, embedding_size=24))
    return hf.MPNetForMaskedLM(hf.MPNetConfig(**{**common, "max_position_embeddings": 130, "pad_token_id": 1}, **SIZES))


def byte_pairs():
    """The tokenizer of the example: byte-level pairs, as RoBERTa has."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(example_model("masked")["tokenizer.json"].path))


def word_pieces():
    """Pieces as BERT has: whole words, letters to begin with and letters to continue with."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    special = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789'.,!?<>/[]"
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words()])
    made = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix="##")
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    made.add_special_tokens(special)
    return made


TEXTS = [
    f"The {size} {animal} {verb} the {food} in {place}. It doesn\u2019t {verb} {number} of them!"
    for size in ("old", "small", "quiet")
    for animal in ("cat", "dog", "bird", "fish")
    for verb in ("eat", "like", "see")
    for food in ("bread", "rice", "corn")
    for place in ("Paris", "Oslo")
    for number in ("12", "none")
]
