"""Answer a prompt that holds the text with a language model, and draw every token of the answer exactly.

Papers: Mattern et al. 2022 (DP-Paraphrase) and Utpala et al. 2023 (DP-Prompt), as compared in Meisenbacher et al. 2024.
Every token, the end of the answer included, is a draw of the exponential mechanism over one fixed set of tokens, from
scores clipped to a public range. The following holds here (docs/spec/privacy.md#generative,
docs/spec/privacy.md#model-scores, docs/spec/privacy.md#fail-closed, docs/spec/privacy.md#batch-independence):

* Both published codes bound the answer by the length of the text, which discloses that length. Strict mode uses a
  constant, `l_max`: all texts then have the same possible answers, and the claim holds between any two texts, for
  `l_max` draws. Empty texts and blanks are texts like all others and cost as much. Faithful mode uses the codes' bound.
* The answer itself shows the number of draws, so a pure cap may be charged only for these draws.
* Nothing filters, reranks or cuts scores after the clip; before the clip, any change is allowed.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, field_validator

from dptext_etl import device, sampling
from dptext_etl.accounting import Event
from dptext_etl.allocation import Epsilons, Marked, draw_in_passes
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl.guarantee import SCORES_LOCAL, Disclosure, Guarantee, GuaranteeClass, exact
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PROBE_TEXT, PROBE_WORDS, Released, count_words, refuse_model
from dptext_etl.parameters import PositiveInt
from dptext_etl.sampling import Sampler
from dptext_etl_models.families.score import ScoreMechanism
from dptext_etl_models.inference import device_draws, language_model, server
from dptext_etl_models.inference.generation import Generation, Generator, probe_scores
from dptext_etl_models.inference.masked.script import marked_along
from dptext_etl_models.inference.prompts import FIELD, SPARE, Prompts
from dptext_etl_models.inference.running import Listener
from dptext_etl_models.inference.server import ModelServer

LONGEST = 4096
"""Largest allowed value of `l_max`."""


class GenerativeMechanism(ScoreMechanism):
    """A mechanism whose release is a language model's answer, drawn token by token.

    Attributes:
        epsilon: Epsilon per drawn token.
        l_max: Number of draws of every text, the end included.
        template: The prompt, which holds "{text}" once. It is configuration, never data.
        input_limit: Largest number of tokens of a prompt; longer texts are cut. None uses the room next to the answer,
            at most `default_limit`.
        allow_list: A public JSON list of token ids that can be drawn next to the end; None allows all that the model
            scores.
    """

    artifact_fields: ClassVar[frozenset[str]] = ScoreMechanism.artifact_fields | {"allow_list"}
    model_place: ClassVar[str] = "generator"
    continues: ClassVar[bool]
    """True if the model continues the prompt (a causal model); False if it reads it (an encoder-decoder)."""
    default_limit: ClassVar[int]
    """Largest number of tokens of a prompt by default."""

    l_max: Annotated[PositiveInt, Field(le=LONGEST)] = 150
    template: str
    input_limit: PositiveInt | None = None
    allow_list: str | None = None

    @field_validator("template")
    @classmethod
    def _holds_the_text_once(cls, template: str) -> str:
        if template.count(FIELD) != 1:
            raise ValueError(f"a template holds {FIELD} once")
        return template

    @classmethod
    def from_temperature(cls, temperature: float, **parameters: Any) -> Self:
        """Return the mechanism that samples at the papers' temperature T: epsilon = 2 (high - low) / T."""
        low, high = cls(epsilon=1.0, **parameters).clip_range
        return cls(epsilon=2 * (high - low) / temperature, **parameters)

    @property
    def temperature(self) -> float:
        """Return the divisor of clipped scores: 2 (high - low) / epsilon; the least one, where a budget is divided."""
        low, high = self.clip_range
        return 2 * (high - low) / self.largest_epsilon

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between any two texts; in faithful mode, their prompts must have equally many tokens."""
        faithful = self.mode == "faithful"
        disclosures = {Disclosure.NULLNESS} | ({Disclosure.LENGTH} if faithful else set())
        stated = Guarantee(
            guarantee_class=GuaranteeClass.COND_PURE if faithful else GuaranteeClass.PURE_LDP,
            disclosures=frozenset(disclosures),
            neighbors="any two texts of one record" + (" whose prompts have equally many tokens" if faithful else ""),
            unit=self._unit("token"),
        )
        return replace(stated, assumptions=stated.assumptions | {SCORES_LOCAL})

    @property
    def refundable(self) -> bool:
        """Return True: the answer itself shows the number of its draws (docs/spec/privacy.md#generative-expost).

        A divided budget is charged whole: no one knows how much of it the draws used.
        """
        return self.allocation is None

    def text_units(self, text: str) -> tuple[list[str], Marked]:
        """Return for each step of an answer the word that it represents."""
        marks = marked_along(text, self.most_draws, self.n_max)
        return [marks.tokens[place] if isinstance(place, int) else "" for place in marks.places], marks

    @property
    def most_draws(self) -> int:
        """Return the largest number of draws of any answer."""
        return self.l_max if self.mode == "strict" else self.input_limit or self.default_limit

    @property
    def most_positions(self) -> int:
        """Return `l_max`, or in faithful mode the length of the longest prompt."""
        return self.l_max if self.mode == "strict" else self.prompt_limit

    def event(self, positions: int) -> Event:
        """Return that many draws; every text has `l_max` draws, a null has none."""
        return self._draws(positions)

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors of `l_max` draws per text; in faithful mode, of one draw per token of its prompt."""
        if self.allocation is not None:
            return super().cost_factors(positions)
        count = "l_max" if self.mode == "strict" else "n"
        return {count: positions, "ε": exact(self.epsilon)}

    def positions(self, texts: pa.Array) -> pa.Array:
        """Return `l_max` for every text, in faithful mode the number of its prompt's tokens, and 0 for a null."""
        return self._lengths(texts, () if self.mode == "strict" else self.prompts.encode(_filled(texts)))

    def count_read_words(self, texts: pa.Array, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:  # noqa: ARG002
        """Count the words of each text that its prompt holds, shape (texts,)."""
        return count_words(pa.array([self.prompts.reads(text) for text in _filled(texts)], pa.large_string()))

    def artifacts(self) -> dict[str, Artifact]:
        """Return the model's files, and the files of the clip range and the allow-list if they are given, by role."""
        listed = self._allowed
        return super().artifacts() if listed is None else {**super().artifacts(), "allow_list": listed}

    @cached_property
    def _allowed(self) -> Artifact | None:
        return None if self.allow_list is None else Artifact.open(self.allow_list)

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw an answer for every text; a null stays null."""
        return self.release_with(self.generator, texts, keys.of(texts))

    def release_with(
        self,
        generator: Generator | ModelServer,
        texts: pa.Array,
        record_keys: pa.Array,
        *,
        sampler: Sampler = device_draws,
        listener: Listener | None = None,
    ) -> Released:
        """Release with a given scorer and given record keys, for tests; everything else calls `release`."""
        present = texts.is_valid().to_numpy(zero_copy_only=False)
        prompts = generator.prompts(_filled(texts))
        positions = self._lengths(texts, prompts)
        longest = positions.to_numpy()
        limits: dict[str, Any] = {"most": self.most_positions, "epsilon": self.epsilon, "clip": self.clip_range}

        def once(epsilons: Sequence[Epsilons] | None = None, purpose: int = sampling.TOKEN) -> Generation:
            how = {**limits, "epsilons": epsilons, "purpose": purpose}
            generation = Generation(generator, sampler, record_keys, longest, **how)
            generation.run(prompts, listener)
            return generation

        def words(generation: Generation) -> list[Marked]:
            answers = [generator.text(generation.outputs(row)) for row in range(len(texts))]
            return [marked_along(text, int(steps), self.n_max) for text, steps in zip(answers, longest, strict=True)]

        if self.allocation is None:
            passes = [once()]
        else:
            of_texts = zip(_filled(texts), longest, strict=True)
            given = [marked_along(text, int(steps), self.n_max) for text, steps in of_texts]
            passes = draw_in_passes(self.allocation, given, record_keys, sampler, once=once, words=words)
        last, failed = passes[-1], sum(generation.failed for generation in passes)
        written = [generator.text(last.outputs(row)) if present[row] else None for row in range(len(texts))]
        text = pa.array(written, pa.large_string())
        steps = pa.array(last.steps) if self.refundable else None
        return Released(text, positions, steps, pa.array(failed, pa.uint32()))

    def probe(self) -> None:
        """Score two steps of the answer to a short public text, and of that to one that fills the longest prompt."""
        texts = [PROBE_TEXT, " ".join(PROBE_WORDS * (LONGEST // len(PROBE_WORDS)))]
        if not all(probe_scores(self.generator, self.generator.prompts(texts), self.most_positions)):
            refuse_model()

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """Return the model's own configuration."""
        read = language_model.config(self.model_files)
        if "vocab_size" not in read and isinstance(read.get("text_config"), dict):
            read = {**read, **read["text_config"]}
        if not isinstance(read.get("vocab_size"), int):
            raise PolicyError(
                "the model's configuration cannot be read, or names no vocab_size", "check its config.json"
            )
        return read

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Return the token ids that end an answer."""
        named = self._settings.get("eos_token_id")
        if named is None:
            named = language_model.tokenizer(self.model_files).eos_token_id
        ends = frozenset([named] if isinstance(named, int) else named or [])
        if not ends or not all(0 <= end < self._settings["vocab_size"] for end in ends):
            raise PolicyError("the model names no token that ends an answer", "add eos_token_id to its config.json")
        return ends

    @cached_property
    def columns(self) -> npt.NDArray[np.int64]:
        """Return the token ids that can be drawn, increasing: all scored ones, or the allow-list and the ends."""
        size = self._settings["vocab_size"]
        if self._allowed is None:
            return np.arange(size, dtype=np.int64)
        try:
            listed = json.loads(self._allowed.read_bytes())
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(type(item) is int and 0 <= item < size for item in listed):
            raise ArtifactError("the allow-list is not a JSON list of token numbers", "write it as [0, 1, …]")
        return np.array(sorted({*listed, *self.end_tokens}), np.int64)

    @property
    def outputs(self) -> int:
        """Return the size of the output set."""
        return len(self.columns)

    @cached_property
    def prompt_limit(self) -> int:
        """Return the largest number of tokens of a prompt: the model's limit, less the answer if both share it."""
        taken = next((self._settings[name] for name in _PLACES if isinstance(self._settings.get(name), int)), None)
        if self.mode == "faithful":
            most = None if taken is None else taken // 2 if self.continues else taken
        else:
            most = None if taken is None else taken - self.l_max if self.continues else taken
            if taken is not None and self.l_max >= taken:
                raise PolicyError(f"l_max is {self.l_max}; this model accepts {taken} tokens in all", "lower l_max")
        if most is not None and not self.continues and isinstance(self._settings.get(_TABLE), int):
            most -= SPARE  # a padded prompt needs a place for each of its tokens
        if self.input_limit is None:
            return self.default_limit if most is None else min(self.default_limit, most)
        if most is not None and self.input_limit > most:
            raise PolicyError(
                f"input_limit is {self.input_limit}; this model accepts {most} next to the answer", "lower input_limit"
            )
        return self.input_limit

    @cached_property
    def prompts(self) -> Prompts:
        """Return the encoder of texts to token ids and back."""
        tokenizer = language_model.tokenizer(self.model_files)
        return Prompts(tokenizer, self.template, self.prompt_limit, self.n_max, continued=self.continues)

    @cached_property
    def generator(self) -> Generator | ModelServer:
        """Load the model on this machine's device, once per process."""
        if server.model_server() == "vllm":
            return self._on_vllm()
        from dptext_etl_models.inference.model_generator import ModelGenerator

        load = language_model.causal_model if self.continues else language_model.sequence_model
        model = load(self.model_files, self.computing.device, self.computing.dtype)
        return ModelGenerator(model, self.prompts, self.columns, self.end_tokens, self.most_positions)

    def _on_vllm(self) -> ModelServer:
        """Load the model with vLLM, once per process."""
        if not self.continues:
            raise PolicyError(
                "vLLM runs causal models, and this mechanism needs an encoder-decoder",
                f"use dp_paraphrase with your template, or leave {server.SERVER_SETTING} unset",
            )
        if importlib.util.find_spec("vllm") is None:
            raise PolicyError(f"{server.SERVER_SETTING} is vllm, which is not installed", "pip install vllm")
        if device.place("cuda") != "cuda:0":
            raise PolicyError(
                "vLLM computes on the first GPU that its process sees, and this task was given another",
                "set spark.python.worker.reuse=false",
            )
        from dptext_etl_models.inference import vllm_server

        dtype, length = self.computing.dtype, self.prompt_limit + self.most_positions
        load = partial(vllm_server.load, dtype=dtype, length=length)
        engine = language_model.once("vllm", (dtype, str(length)), self.model_files, load)
        return vllm_server.VLLMServer(engine, self.prompts, self.columns, self.end_tokens)

    def _lengths(self, texts: pa.Array, prompts: Sequence[Any]) -> pa.Array:
        """Return the bounds of the answers: `l_max`, or in faithful mode the number of tokens of each prompt."""
        present = texts.is_valid().to_numpy(zero_copy_only=False)
        if self.mode == "strict":
            return pa.array(np.where(present, self.l_max, 0).astype(np.uint32))
        counts = [max(1, len(prompt or [])) if here else 0 for prompt, here in zip(prompts, present, strict=True)]
        return pa.array(counts, pa.uint32())


_TABLE = "max_position_embeddings"
_PLACES = ("n_positions", _TABLE, "n_ctx")
"""Names in model configurations for the largest number of tokens."""


def _filled(texts: pa.Array) -> list[str]:
    return ["" if text is None else text for text in texts.to_pylist()]
