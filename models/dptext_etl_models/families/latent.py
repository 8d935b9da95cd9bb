"""Encode a whole text as one vector of constant size, add noise to it, and decode a text.

A decoder writes the released text only from the noisy vector. So the noise gives the guarantee, between any two
texts of any lengths (docs/spec/privacy.md#grid-noise, docs/spec/privacy.md#adept, docs/spec/privacy.md#dpbart):

* A text on which the encoder fails becomes the zero vector before noise (docs/spec/privacy.md#fail-closed), at the same
  spend.
* Decoding is post-processing: `noisy` may be stored and decoded again, with other beams or another decoder, for free.
* Machines compute a text's vector a little differently. Texts are protected by their first commit; where vectors leave,
  equal noise on unequal vectors would show the difference, so their noise follows from the vector
  (docs/spec/privacy.md#latent-noise).
* How much noise there is, and its cost: `families.latent_noise`.
"""

from __future__ import annotations

import hmac
import logging
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from dptext_etl import sampling
from dptext_etl.allocation import PASS, Epsilons, Marked, draw_in_passes, in_millionths
from dptext_etl.errors import PolicyError, without_panics
from dptext_etl.guarantee import MICRO, SCORES_LOCAL, Guarantee
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PROBE_TEXT, PROBE_WORDS, Released, count_words, refuse_model
from dptext_etl.parameters import PositiveInt
from dptext_etl.sampling import TOKEN
from dptext_etl_models.families.latent_noise import LATENT, LatentNoise, Scale, cut, marked, noisy_latents
from dptext_etl_models.families.model import ModelMechanism
from dptext_etl_models.inference.latent_model import Batches, LatentModel, Latents, decoding, encoding, works
from dptext_etl_models.inference.running import Progress

log = logging.getLogger("dptext_etl.latent")
LONG = 400
"""Repetitions of the public words in a text that every model cuts."""
PREVIEWED = 10_000
"""Public bound on the records that a preview assumes."""
_BOUND = b"dptext/latent/v1\0"


def latent_keys(record_keys: pa.Array, latents: npt.NDArray[np.floating]) -> pa.Array:
    """Return keys that follow from a record's key and from its latent, bit for bit (docs/spec/stream.md#latent-key)."""
    written = np.nan_to_num(np.asarray(latents, "<f8"), nan=0.0, posinf=0.0, neginf=0.0) + 0.0
    keys = [
        hmac.digest(key, _BOUND + row.tobytes(), "sha256")
        for key, row in zip(record_keys.to_pylist(), written, strict=True)
    ]
    return pa.array(keys, pa.binary(32))


class LatentMechanism(LatentNoise, ModelMechanism):
    """A mechanism that encodes a whole text as one vector, adds noise to it and decodes it.

    Attributes:
        num_beams: Of the search that decodes.
        releases: "texts": only decoded texts leave. "latents": noisy vectors may leave (`noisy`); their noise also
            depends on the hidden vector.
    """

    model_place: ClassVar[str] = "latent_model"
    preview_epsilons: ClassVar[tuple[float, ...]] = (1_000.0, 10_000.0, 100_000.0)

    num_beams: Annotated[PositiveInt, Field(le=64)] = 10
    releases: Literal["texts", "latents"] = "texts"

    @classmethod
    def preview_parameters(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the usual model or the small one that ships, and a bound on the records if Gaussian noise needs it."""
        stated = given.keys() & {"n_rec", "delta", "mode"} or given.get("noise") == "laplace"
        return super().preview_parameters(given) | ({} if stated else {"n_rec": PREVIEWED})

    @property
    def guarantee(self) -> Guarantee:
        """Any two texts of a record; that a row's latent is its own is what parallel composition rests on."""
        stated = super().guarantee
        return replace(stated, assumptions=stated.assumptions | {SCORES_LOCAL})

    def described(self) -> dict[str, dict[str, Any]]:
        """Return facts about the noise: its coordinates, its size, and the largest distance of two texts."""
        size = self.latent_model.size
        scale = self.scale(size)
        several = {"sentences": self.sentences, "shown is": "one sentence, at an even share"}
        facts: dict[str, Any] = {
            "kind": f"{self.noise}, one draw per coordinate",
            **(several if self.sentences > 1 else {}),
            "coordinates": size,
            f"clipped by {self.norm} to": self.clip,
            "sensitivity": self.sensitivity(size),
        }
        if scale.sigma is not None:
            facts |= {"standard deviation": scale.sigma, "sensitivity in standard deviations (mu)": self.mu}
        else:
            facts["scale"] = math.inf if scale.rate is None else float(1 / (scale.rate * 2**16))
        return {"noise": facts}

    @property
    @abstractmethod
    def latent_model(self) -> LatentModel:
        """Load the model on this machine's device."""

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Encode, clip, add noise and decode; a null stays null."""
        record_keys, model = keys.of(texts), self.latent_model
        written: list[str | None] = [None] * len(texts)
        failed = np.zeros(len(texts), np.uint32)
        decode, progress = decoding(model), Progress(log, "records", len(texts) - texts.null_count)
        for rows, noisy, lost in self._noisy(model, texts, record_keys):
            for same, pieces, unread in zip(rows, self._pieces(decode, noisy), lost, strict=True):
                for row in same:
                    written[row] = _joined(pieces)
                failed[same] = unread or None in pieces
            progress.add(sum(map(len, rows)))
        return Released(pa.array(written, pa.large_string()), self.positions(texts), failed=pa.array(failed))

    def count_read_words(self, texts: pa.Array, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:  # noqa: ARG002
        """Count the words of each text within the model's constant length, shape (texts,)."""
        reads = getattr(self.latent_model, "reads", str)
        pieces = [piece for text in texts.to_pylist() for piece in cut(text or "", self.sentences)]
        for place, piece in enumerate(pieces):
            with suppress(Exception), without_panics():  # a text on which the tokenizer fails counts as read
                pieces[place] = reads(piece)
        counts = count_words(pa.array(pieces, pa.large_string()))
        return np.asarray(counts.reshape(-1, self.sentences).sum(axis=1, dtype=np.uint32))

    def probe(self) -> None:
        """Encode and decode public texts, a short one and one that is cut."""
        if not works(self.latent_model, [PROBE_TEXT, " ".join(PROBE_WORDS * LONG)]):
            refuse_model()

    def noisy(self, texts: pa.Array, keys: RecordKeys) -> pa.Array:
        """Return the noisy latent of every text before decoding, as float32 lists; a null stays null.

        It is the release: it costs as much as a text and may be stored or published in its place; `decode` writes
        texts from it as often as wanted, for nothing. Where keys and latents are the same, so is the noise. Where the
        same text has another latent (numbers of half the length, another device or library), it is another release
        with separate noise, at full cost: two of them differ by noise, and never by a function of only the raw text.
        """
        if self.releases != "latents":
            raise PolicyError(
                "noisy vectors leave only where the configuration says so",
                'set releases = "latents": their noise then differs wherever a text has another vector',
            )
        record_keys = keys.of(texts)
        model, places = self.latent_model, [-1] * len(texts)
        size = model.size * self.sentences
        parts = [np.empty((0, size), np.float32)]
        for rows, noisy, _ in self._noisy(model, texts, record_keys):
            first = sum(map(len, parts))
            for place, same in enumerate(rows, first):
                for row in same:
                    places[row] = place
            parts.append(noisy)
        listed = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(parts).ravel()), size)
        return listed.take(pa.array([None if place < 0 else place for place in places], pa.int64()))

    def _noisy(
        self, model: LatentModel, texts: pa.Array, record_keys: pa.Array
    ) -> Iterator[tuple[list[list[int]], Latents, npt.NDArray[np.bool_]]]:
        """Yield the rows of each record of a batch, its noisy latent, and whether the encoder failed on it.

        Rows with the same key are one record with one text (a join made copies); this record is released once.
        """
        rows_of: dict[bytes, list[int]] = {}
        for row, (valid, key) in enumerate(zip(texts.is_valid().to_pylist(), record_keys.to_pylist(), strict=True)):
            if valid:
                rows_of.setdefault(key, []).append(row)
        encode, listed, count = encoding(model), list(rows_of.values()), self.sentences
        for start in range(0, len(listed), model.rows):
            rows = listed[start : start + model.rows]
            pieces = [cut(texts[same[0]].as_py(), count) for same in rows]
            latents = np.stack(encode([piece for text in pieces for piece in text]))
            joint = latents.reshape(len(rows), -1)
            keys = record_keys.take(pa.array([same[0] for same in rows]))
            noise_keys = keys if self.releases == "texts" else latent_keys(keys, joint)
            noisy = self._divided(model, pieces, joint.reshape(len(rows), count, model.size), noise_keys)
            lost = ~np.isfinite(latents).any(axis=1)
            yield rows, noisy.reshape(joint.shape), lost.reshape(len(rows), count).any(axis=1)

    def _divided(
        self, model: LatentModel, pieces: Sequence[Sequence[str]], latents: npt.NDArray[np.floating], keys: pa.Array
    ) -> Latents:
        """Add noise to the latents of all sentences, shape (rows, sentences, size), as the budget is divided.

        Sentence j of pass p draws from the stream that lies 256 (p k + j) beyond the stream of latents.
        """
        count, size = latents.shape[1:]
        if self.allocation is None:
            passed = [self.add_noise(latents[:, 0], keys)]
            passed += [self.add_noise(latents[:, at], keys, purpose=LATENT + PASS * at) for at in range(1, count)]
            return np.stack(passed, axis=1)
        allocation, decode = self.allocation, decoding(model)

        def once(epsilons: Sequence[Epsilons], purpose: int) -> Latents:
            number = (purpose - TOKEN) // PASS
            budget = allocation.total if number or allocation.first is None else allocation.first
            parts = np.rint(np.stack(epsilons) * MICRO).astype(np.int64)
            noisy = np.empty(latents.shape, np.float32)
            for at in range(count):
                stream = LATENT + PASS * (number * count + at)
                for part in np.unique(parts[:, at]).tolist():
                    places = np.flatnonzero(parts[:, at] == part)
                    scale = self.scale_of(size, part, in_millionths(budget))
                    part_of_batch = latents[places, at], keys.take(pa.array(places))
                    noisy[places, at] = self.add_noise(*part_of_batch, scale, purpose=stream)
            return noisy

        def words(noisy: Latents) -> list[Marked]:
            return [marked([piece or "" for piece in text]) for text in self._pieces(decode, noisy)]

        marks = [marked(text) for text in pieces]
        return draw_in_passes(allocation, marks, keys, sampling, once=once, words=words)[-1]

    def add_noise(
        self,
        latents: npt.NDArray[np.floating],
        record_keys: pa.Array,
        scale: Scale | None = None,
        *,
        purpose: int = LATENT,
    ) -> Latents:
        """Clip latents, shape (rows, size), and add noise of each record's own stream to every coordinate."""
        scale = scale or self.scale(latents.shape[1])
        sigma, rate = scale.sigma, scale.rate
        clip, norm = self.clip, self.norm
        return noisy_latents(latents, record_keys, clip=clip, norm=norm, sigma=sigma, rate=rate, purpose=purpose)

    def _pieces(self, decode: Batches[Latents, str | None], noisy: Latents) -> list[list[str | None]]:
        """Decode noisy latents, shape (rows, sentences * size) or (rows, sentences, size), sentence by sentence."""
        if not len(noisy):
            return []
        count = self.sentences
        texts = decode(list(noisy.reshape(len(noisy) * count, -1)))
        return [texts[first : first + count] for first in range(0, len(texts), count)]

    def decode(self, noisy: pa.Array) -> pa.Array:
        """Write texts from the result of `noisy`; this is post-processing and costs nothing.

        A mechanism with other `num_beams`, or with a decoder that was trained further on public text, may decode
        latents of this one.
        """
        model, size = self.latent_model, getattr(noisy.type, "list_size", None)
        if size != model.size * self.sentences:
            several = f" in each of {self.sentences} sentences" if self.sentences > 1 else ""
            raise PolicyError(
                f"latents of this model have {model.size} numbers{several}, got {size}", "pass the result of noisy()"
            )
        rows = noisy.drop_null().flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, size)
        texts = iter(self._pieces(decoding(model), rows))
        return pa.array([_joined(next(texts)) if item.is_valid else None for item in noisy], pa.large_string())


def _joined(pieces: Sequence[str | None]) -> str:
    """Join the sentences that were written by single blanks; one that could not be decoded is nothing."""
    return " ".join(filter(None, pieces))
