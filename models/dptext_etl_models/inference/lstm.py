"""Define the autoencoder of ADePT: one LSTM reads a text into its last state, another writes a text from such a state.

Paper: Krishna, Gupta and Dupuy 2021, "ADePT: Auto-encoder based Differentially Private Text Transformation", with the
sizes of Igamberdiev and Habernal 2023. A text is cut to l - 1 words and an end, and padded in front to l positions. So
the state always makes l steps, and z = [h; c] has 2 * hidden numbers for every text. A folder holds `config.json`,
`model.safetensors` and `tokenizer.json` (words, lower-cased).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dptext_etl.artifacts import canon, save_tensors
from dptext_etl_models.inference.beams import Search, beam_search

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ("<PAD>", "<SOS>", "<EOS>", "<UNK>")
"""First ids of every vocabulary; their names are ordinary characters in a text."""

KIND = "dptext-lstm-autoencoder/1"
CHARACTERS = 128
"""Characters that are read per word of the length; longer texts are cut before anything else."""
ROWS = {"cpu": 256, "cuda": 1024}
"""Records per batch; all batches have the same shape, and dummy records fill them."""

State = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Sizes:
    """Sizes of an autoencoder; the defaults are from Igamberdiev and Habernal 2023."""

    vocabulary: int  # number of ids, the special ones included
    embedding: int = 300  # coordinates per word
    hidden: int = 512  # coordinates of h, and of c
    length: int = 20  # l, the positions of a text, its end included


class Autoencoder(nn.Module):
    """Two LSTMs of one layer and one embedding."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.embedding, padding_idx=PAD)
        self.encoder = nn.LSTM(sizes.embedding, sizes.hidden, batch_first=True)
        self.decoder = nn.LSTM(sizes.embedding, sizes.hidden, batch_first=True)
        self.scores = nn.Linear(sizes.hidden, sizes.vocabulary)

    def encode(self, ids: torch.Tensor) -> torch.Tensor:
        """Return z = [h; c] after the last position, shape (rows, 2 * hidden), of ids of shape (rows, l)."""
        _, (h, c) = self.encoder(self.embedding(ids))
        return torch.cat([h[0], c[0]], dim=1)

    def state(self, latents: torch.Tensor) -> State:
        """Turn latents, shape (rows, 2 * hidden), into the initial state of the decoder."""
        h, c = latents[None].chunk(2, dim=2)
        return h.contiguous(), c.contiguous()

    def step(self, ids: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Read one id per row, shape (rows,); return scores of the next id, (rows, vocabulary), and the new state."""
        out, state = self.decoder(self.embedding(ids[:, None]), state)
        return self.scores(out[:, 0]), state

    def forward(self, latents: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return states of the decoder that writes known texts (teacher forcing), for training; `scores` reads them."""
        start = targets.new_full((len(targets), 1), START)
        written = torch.cat([start, targets[:, :-1]], 1)
        states: torch.Tensor = self.decoder(self.embedding(written), self.state(latents))[0]
        return states


def clipped(latents: torch.Tensor, bound: float) -> torch.Tensor:
    """Clip latents to Euclidean norm `bound` with gradients, for training; a release clips in float64."""
    return latents * (bound / latents.norm(dim=1, keepdim=True).clamp_min(bound))


def word_tokenizer(words: Iterable[str]) -> Any:
    """Return a tokenizer (tokenizers) over a public list of words, in order; special ids come first."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    numbers = {name: number for number, name in enumerate(SPECIAL)}
    for word in words:
        numbers.setdefault(word, len(numbers))
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=SPECIAL[UNKNOWN]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # words and single punctuation marks
    return tokenizer


def save(folder: Path, model: Autoencoder, tokenizer: Any, **facts: Any) -> None:
    """Write an autoencoder as a folder of public files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_bytes(canon({"format": KIND, **asdict(model.sizes), **facts}))
    weights = {name: value.detach().float().cpu().numpy() for name, value in model.state_dict().items()}
    save_tensors(folder / "model.safetensors", weights, {"format": "pt"})
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")


def load(folder: Path, device: str = "cpu") -> tuple[Autoencoder, Any]:
    """Read a folder of `save`: the model in evaluation mode without gradients, and its tokenizer."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    written = json.loads((folder / "config.json").read_bytes())
    if written.get("format") != KIND:
        raise ValueError(f"an LSTM autoencoder's config.json says {KIND!r}")
    model = Autoencoder(Sizes(**{name: int(written[name]) for name in Sizes.__dataclass_fields__}))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return model.eval().requires_grad_(requires_grad=False).to(device), tokenizer


def random_autoencoder(folder: Path, words: Iterable[str]) -> None:
    """Write a tiny autoencoder with random weights from a fixed seed, for tests, documentation and examples."""
    tokenizer = word_tokenizer(words)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(20_260_102)
        model = Autoencoder(Sizes(tokenizer.get_vocab_size(), embedding=16, hidden=32, length=16))
        for weight in model.parameters():
            weight.mul_(2.0)
        model.embedding.weight.mul_(0.3)  # so outputs depend more on the state than on earlier outputs
        model.scores.weight.mul_(4.0)
        model.scores.bias[END] -= 4.0
    save(folder, model, tokenizer, provenance="random")


class AutoencoderModel:
    """Encode and decode texts with an LSTM autoencoder, for latent mechanisms."""

    def __init__(self, model: Autoencoder, tokenizer: Any, *, beams: int = 1) -> None:
        self.model, self.beams, self.length = model, beams, model.sizes.length
        self.tokenizer = tokenizer
        self.device = model.scores.weight.device
        self.rows = ROWS[self.device.type]

    @property
    def size(self) -> int:
        """Numbers in a latent."""
        return 2 * self.model.sizes.hidden

    def ids(self, texts: Sequence[str]) -> torch.Tensor:
        """Return the ids of texts, shape (rows, l): padding in front, words, an end."""
        return self._places(texts, in_front=True)

    def targets(self, texts: Sequence[str]) -> torch.Tensor:
        """Return the target ids of the decoder, shape (rows, l): words, an end, padding."""
        return self._places(texts, in_front=False)

    def _places(self, texts: Sequence[str], *, in_front: bool) -> torch.Tensor:
        read = self.tokenizer.encode_batch([text[: CHARACTERS * self.length] for text in texts])
        places = np.full((len(read), self.length), PAD, np.int64)
        for row, item in zip(places, read, strict=True):
            words = [*item.ids[: self.length - 1], END]
            row[self.length - len(words) if in_front else 0 :][: len(words)] = words
        return torch.from_numpy(places).to(self.device)

    def reads(self, text: str) -> str:
        """Return the part of a text that fits into l places, with its end."""
        text = text[: CHARACTERS * self.length]
        ends = [end for _, end in self.tokenizer.encode(text).offsets]
        return text[: ends[self.length - 2]] if len(ends) >= self.length else text

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the raw latents of a batch, shape (rows, size); they are not clipped or noisy and must stay secret."""
        return np.asarray(self.model.encode(self.ids(texts)).float().cpu().numpy())

    @torch.inference_mode()
    def decode(self, latents: npt.NDArray[np.float32]) -> list[str]:
        """Return the likeliest text of each noisy latent, shape (rows, size): words and blanks."""
        start = _Decoding(self.model, torch.from_numpy(np.ascontiguousarray(latents)).to(self.device))
        outputs = beam_search(start, Search(self.beams, self.length, END, (PAD, START, UNKNOWN))).tolist()
        words = self.tokenizer.id_to_token
        return [" ".join(words(number) for number in row if number != END) for row in outputs]


class _Decoding:
    """Hold the beams of a batch, each with a state of the decoder."""

    def __init__(self, model: Autoencoder, latents: torch.Tensor) -> None:
        self._model, self._state = model, model.state(latents.to(model.scores.weight.dtype))

    def first(self) -> torch.Tensor:
        rows = self._state[0].shape[1]
        return self._step(torch.full((rows,), START, dtype=torch.int64, device=self._state[0].device))

    def spread(self, beams: int) -> None:
        h, c = self._state
        self._state = h.repeat_interleave(beams, 1), c.repeat_interleave(beams, 1)

    def following(self, ids: torch.Tensor, origins: torch.Tensor) -> torch.Tensor:
        h, c = self._state
        self._state = h[:, origins], c[:, origins]
        return self._step(ids)

    def _step(self, ids: torch.Tensor) -> torch.Tensor:
        scores, self._state = self._model.step(ids, self._state)
        return scores
