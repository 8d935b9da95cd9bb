"""A stand-in for the part of vLLM that `vllm_server` uses: a batch that admits, ends, and moves requests between steps.

The interface follows vLLM 0.33 with `VLLM_USE_V2_MODEL_RUNNER=0`. Scores come from transformers, one text at a time.
"""

import sys
import types
from dataclasses import dataclass, field
from enum import Enum, auto
from types import SimpleNamespace

import torch
import transformers

from dptext_etl_models import inference


class MoveDirectionality(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()


class LogitsProcessor:
    @classmethod
    def validate_params(cls, sampling_params):
        """Accept every request."""


@dataclass(frozen=True)
class BatchUpdate:
    batch_size: int
    removed: list
    added: list
    moved: list


@dataclass
class SamplingParams:
    temperature: float = 1.0
    max_tokens: int = 16
    stop_token_ids: list = field(default_factory=list)
    ignore_eos: bool = False
    detokenize: bool = True
    extra_args: dict | None = None


@dataclass
class Running:
    parameters: SamplingParams
    tokens: list
    output: list = field(default_factory=list)


class Engine:
    """Runs at most `SLOTS` requests at once, and swaps the first two rows in every other step."""

    SLOTS = 3
    fails = staticmethod(lambda step: None)

    def __init__(self, model, logits_processors, max_model_len, **options):
        self.options = options
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.processors = [kind(SimpleNamespace(), torch.device("cpu"), False) for kind in logits_processors]
        self.longest, self.waiting, self.rows, self.steps = max_model_len, {}, [], 0

    def add_request(self, request_id, prompt, params):
        for processor in self.processors:
            processor.validate_params(params)
        assert len(prompt["prompt_token_ids"]) + params.max_tokens <= self.longest
        self.waiting[request_id] = Running(params, list(prompt["prompt_token_ids"]))

    def has_unfinished_requests(self):
        return bool(self.waiting) or any(self.rows)

    def abort_request(self, request_ids):
        for request_id in request_ids:
            self.waiting.pop(request_id, None)
        self.rows = [None if item is None or item[0] in request_ids else item for item in self.rows]

    def step(self):
        self.steps += 1
        self.fails(self.steps)
        update = self._schedule()
        with torch.inference_mode():
            logits = torch.stack([self.logits(running.tokens + running.output) for _, running in self.rows])
        for processor in self.processors:
            processor.update_state(update)
            logits = processor.apply(logits)
        for (_, running), token in zip(self.rows, logits.argmax(1).tolist(), strict=True):
            running.output.append(token)
        self.rows = [None if self._done(item[1]) else item for item in self.rows]

    def _schedule(self):
        """Fill the rows of ended requests with new ones, or else with the last ones, as vLLM does."""
        removed, added, moved = [row for row, item in enumerate(self.rows) if item is None], [], []
        rows = self.rows
        while self.waiting and (None in rows or len(rows) < self.SLOTS):
            at = rows.index(None) if None in rows else len(rows)
            request_id = next(iter(self.waiting))
            running = self.waiting.pop(request_id)
            rows[at : at + 1] = [(request_id, running)]
            added.append((at, running.parameters, running.tokens, running.output))
        while None in rows:
            if rows[-1] is not None:
                hole = rows.index(None)
                moved.append((len(rows) - 1, hole, MoveDirectionality.UNIDIRECTIONAL))
                rows[hole] = rows[-1]
            rows.pop()
        if self.steps % 2 and len(rows) > 1:
            rows[0], rows[1] = rows[1], rows[0]
            moved.append((0, 1, MoveDirectionality.SWAP))
        return BatchUpdate(len(rows), removed, added, moved) if removed or added or moved else None

    def logits(self, tokens):
        """Return the scores of the token that follows, float32."""
        return self.model(input_ids=torch.tensor([tokens])).logits[0, -1].float()

    def _done(self, running):
        return running.output[-1] in running.parameters.stop_token_ids or len(running.output) == (
            running.parameters.max_tokens
        )


class LLM:
    def __init__(self, **options):
        self.llm_engine = Engine(**options)


def install(monkeypatch):
    """Put the stand-in where `import vllm` finds it; `vllm_server` is imported anew."""
    modules = {
        "vllm": {"LLM": LLM, "SamplingParams": SamplingParams},
        "vllm.v1": {},
        "vllm.v1.sample": {},
        "vllm.v1.sample.logits_processor": {
            "LogitsProcessor": LogitsProcessor,
            "MoveDirectionality": MoveDirectionality,
        },
    }
    for name, contents in modules.items():
        module = types.ModuleType(name)
        module.__spec__ = SimpleNamespace(name=name, parent="vllm")
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, f"{inference.__name__}.vllm_server", raising=False)
    monkeypatch.delattr(inference, "vllm_server", raising=False)
