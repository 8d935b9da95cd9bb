"""Rewrite released texts again with an encoder-decoder that learned, from public texts, to undo a mechanism's damage.

Meisenbacher and Matthes 2024, "Just Rewrite It Again: A Post-Processing Method for
Enhanced Semantic Similarity and Privacy Preservation of Differentially Private Rewritten Text". The model learns from
pairs of a public text's release and the public text itself (`dptext train rewriter`). It spends nothing, because it
sees released texts only (docs/spec/privacy.md#rewrite-again):

* Every text may become up to `l_max` tokens long: a public constant, as are prompt and temperature. Nothing looks at
  the raw text, at its length, or at how similar a result is to it, and nothing chooses among results.
* Each token is the best one, or a draw from the model's own distribution at `temperature`, from streams of purpose 8
  under keys that follow from the released text.
* A text on which the model fails stays as it was released.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from dptext_etl import device
from dptext_etl.artifacts import Artifact, canon
from dptext_etl.errors import PolicyError
from dptext_etl.mechanism import PROBE_TEXT, PROBE_WORDS, PostProcess, Provenance, Rewritten, Training, refuse_model
from dptext_etl.parameters import PositiveInt
from dptext_etl.sampling import Choices, Slots
from dptext_etl_models.inference import device_draws, language_model
from dptext_etl_models.inference.generation import Generation, Generator, probe_scores
from dptext_etl_models.inference.prompts import FIELD, SPARE, Prompts

FACTS = "training.json"
"""A model's statement of its training, which is next to the weights."""
TRAINING = "training"
"""The role of that file."""
RANGE = (-200.0, 200.0)
"""Public range of the scores of a sampled token: no model of this kind leaves it."""
PURPOSE = 8  # purpose number of sampled post-processing (docs/spec/stream.md#purposes)
LONGEST = 4096
_USUAL = 512


class RewriteAgain(PostProcess):
    """Rewriting again (Meisenbacher and Matthes 2024) by an encoder-decoder that was trained on public texts.

    Attributes:
        model: A folder, the name of a model in dptext-etl-models, or a name on the Hugging Face hub: T5 or alike.
        revision: The hub's revision; only for hub names.
        l_max: The most tokens of a rewritten text: a constant for all texts.
        temperature: Divisor of the scores of sampled tokens; None uses the best token each time.
        template: The prompt, which holds "{text}" once; None uses the template of training.json, else only the text.
        input_limit: Largest number of tokens of a prompt; longer texts are cut. None uses training.json's, else
            512, or the number of the model's places.
        training_provenance: The source of the model's training texts, where no training.json next to it says so:
            "public", or "disjoint-records".

    Example:
        >>> RewriteAgain.example().provenance
        'public'
    """

    accelerated: ClassVar[bool] = True
    artifact_fields: ClassVar[frozenset[str]] = frozenset({"model", "revision"})
    hub_fields: ClassVar[frozenset[str]] = frozenset({"model", "revision"})

    model: str
    revision: str | None = None
    l_max: Annotated[PositiveInt, Field(le=LONGEST)] = 150
    temperature: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = None
    template: str | None = None
    input_limit: Annotated[PositiveInt, Field(le=LONGEST)] | None = None
    training_provenance: Provenance | None = None

    @field_validator("template")
    @classmethod
    def _holds_the_text_once(cls, template: str | None) -> str | None:
        if template is not None and template.count(FIELD) != 1:
            raise ValueError(f"a template holds {FIELD} once")
        return template

    @classmethod
    def example(cls) -> Self:
        """Return four tokens of a tiny random T5, which writes random words; no text was used to make it."""
        return cls(model="example-seq2seq", l_max=4, training_provenance="public")

    @cached_property
    def model_files(self) -> dict[str, Artifact]:
        """Return the model's files by role; find them by name unless a worker got them."""
        return language_model.placed_files(self.__dict__) or language_model.model_files(self.model, self.revision)

    @cached_property
    def training_file(self) -> Artifact | None:
        """Return the file next to the model that says how it was trained; None if there is none."""
        facts_path = self.model_files[language_model.ROLE + language_model.CONFIG].path.with_name(FACTS)
        return Artifact.open(facts_path) if facts_path.is_file() else None

    def artifacts(self) -> dict[str, Artifact]:
        """Return the model's files, and its statement of its training, by role."""
        stated = self.training_file
        return {**self.model_files, **({} if stated is None else {TRAINING: stated})}

    def configuration(self) -> dict[str, Any]:
        """Return the settings that determine the output: all but the declared provenance; their hash is `cfg`."""
        return {name: value for name, value in super().configuration().items() if name != "training_provenance"}

    @cached_property
    def provenance(self) -> Provenance | None:
        """Return what training.json says, or the policy's entry where there is none."""
        if self.training_file is None:
            return self.training_provenance
        stated = self._facts.get("training_provenance")
        if self.training_provenance not in {None, stated}:
            msg = f"the policy declares training_provenance {self.training_provenance!r}, and {FACTS} another one"
            raise PolicyError(msg, "leave training_provenance out of the policy: the file decides")
        provenance: Provenance | None = stated if stated in {"public", "disjoint-records"} else None
        return provenance

    @property
    def training(self) -> Training:
        """Return the training of the model, as training.json states it."""
        mechanism = self._facts.get("mechanism")
        configuration = mechanism.get("configuration") if isinstance(mechanism, dict) else None
        files = canon([list(item) for item in language_model.identity(self.model_files)])
        learned_from = configuration if isinstance(configuration, str) else None
        return Training(self.provenance, hashlib.sha256(files).hexdigest(), learned_from)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Return what training.json says; nothing where there is none."""
        try:
            facts = {} if self.training_file is None else json.loads(self.training_file.read_bytes())
        except ValueError:
            facts = None
        if not isinstance(facts, dict):
            raise PolicyError(f"{FACTS} next to the model cannot be read", "train the model again")
        return facts

    def _setting(self, name: str, default: Any) -> Any:
        """Return a setting of the training, where it is of the same type as the default."""
        settings = self._facts.get("settings")
        value = settings.get(name) if isinstance(settings, dict) else None
        return value if type(value) is type(default) else default

    @cached_property
    def computing(self) -> device.Computing:
        """Return device and number type of the settings at the first call; the model stays where it was loaded."""
        return device.computing()

    @cached_property
    def prompts(self) -> Prompts:
        """Return the encoder of texts to token ids and back."""
        tokenizer = language_model.tokenizer(self.model_files)
        template = self.template or self._setting("template", FIELD)
        limit = self.prompt_limit
        return Prompts(tokenizer, template, limit, limit, continued=False)

    @cached_property
    def prompt_limit(self) -> int:
        """Return the largest number of tokens of a prompt."""
        places = language_model.config(self.model_files).get("max_position_embeddings")
        most = places - SPARE if isinstance(places, int) else LONGEST
        if self.l_max > most or (self.input_limit or 0) > most:
            raise PolicyError(f"the model has places for {most} tokens", "lower l_max and input_limit")
        return min(self.input_limit or self._setting("longest", _USUAL), most)

    @cached_property
    def generator(self) -> Generator:
        """Load the model on this machine's device, once per process."""
        from dptext_etl_models.inference.model_generator import ModelGenerator

        model = language_model.sequence_model(self.model_files, self.computing.device, self.computing.dtype)
        named = model.config.eos_token_id
        ends = frozenset([named] if isinstance(named, int) else named or [])
        size = model.config.get_text_config(decoder=True).vocab_size
        if not ends or not all(0 <= end < size for end in ends):
            raise PolicyError("the model names no token that ends a text", "add eos_token_id to its config.json")
        return ModelGenerator(model, self.prompts, np.arange(size, dtype=np.int64), ends, self.l_max)

    def rewrite(self, texts: pa.Array, keys: pa.Array, step: int = 0) -> Rewritten:
        """Rewrite released texts; a null stays null, and an empty text stays empty."""
        return self.rewrite_with(self.generator, texts, keys, step)

    def rewrite_with(self, generator: Generator, texts: pa.Array, keys: pa.Array, step: int = 0) -> Rewritten:
        """Rewrite with a given scorer, for tests; everything else calls `rewrite`."""
        written: list[str | None] = texts.to_pylist()
        longest = np.array([self.l_max if text else 0 for text in written], np.uint32)
        law: dict[str, Any] = {"most": self.l_max, "epsilon": self._sharpness, "clip": RANGE}
        sampler = Best() if self.temperature is None else device_draws
        generation = Generation(generator, sampler, keys, longest, purpose=PURPOSE + 256 * step, **law)
        generation.run(generator.prompts([text or "" for text in written]))
        failed = generation.failed > 0
        again = [
            text if not text or failed[row] else generator.text(generation.outputs(row))
            for row, text in enumerate(written)
        ]
        return Rewritten(pa.array(again, pa.large_string()), pa.array(failed))

    @property
    def _sharpness(self) -> float:
        """Return the epsilon at which the exact sampler draws from the model's own distribution at the temperature."""
        low, high = RANGE
        return 1.0 if self.temperature is None else 2 * (high - low) / self.temperature

    def foreign_word_chance(self) -> float:
        """Bound the places of a text where 20 given letters can begin by its tokens, times the longest token."""
        longest = max(map(len, language_model.tokenizer(self.model_files).get_vocab()))
        return self.l_max * longest * 26.0**-20

    def probe(self) -> None:
        """Score two tokens for a short public text, and for one that fills the longest prompt."""
        texts = [PROBE_TEXT, " ".join(PROBE_WORDS * (self.prompt_limit // len(PROBE_WORDS) + 1))]
        if not all(probe_scores(self.generator, self.generator.prompts(texts), self.l_max)):
            refuse_model()


class Best:
    """Take the output of the highest score, the first one of several; nothing is drawn."""

    def choose(self, scores: Any, slots: Slots, **_: Any) -> Choices:  # noqa: ARG002
        """Return the best output per row; NaN is never the best."""
        if isinstance(scores, np.ndarray):
            usable = np.where(np.isnan(scores), -np.inf, scores)
            return np.asarray(usable.argmax(axis=1), np.uint32)
        usable = scores.float().nan_to_num(nan=float("-inf"))
        return np.asarray(usable.argmax(dim=1).cpu().numpy(), np.uint32)

    def choose_uniform(self, slots: Slots, m: int, **_: Any) -> Choices:  # noqa: ARG002  (such rows stay as they were)
        """Return the first output per row."""
        return np.zeros(len(slots), np.uint32)
