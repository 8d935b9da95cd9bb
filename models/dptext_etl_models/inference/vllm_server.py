"""Run a causal model with vLLM in this process, and draw every token from its full scores.

vLLM hands the scores of a step, float32 and one per token of the vocabulary, to a custom logits processor. `ExactDraws`
draws from them as every other release does, and leaves only the drawn token for vLLM to choose. The settings that the
guarantee needs are set here, and a setting that contradicts it is refused:

* Scores of a text depend on no other text (docs/spec/privacy.md#batch-independence): `VLLM_BATCH_INVARIANT=1`, which
  needs hardware that vLLM supports for it. Prefixes are not shared between texts.
* One draw per step and text: no chunked prefill, no asynchronous scheduling, no speculative decoding. They compute
  scores of steps that vLLM then discards.
* Logs hold nothing of a text. After a step that fails vLLM would write the lengths of its prompts: that is excluded.
* Draws need the record keys, so the engine runs in this process, on one GPU: `VLLM_ENABLE_V1_MULTIPROCESSING=0`.

Scores differ in their last digits between machines and versions, so a run's first commit is the release.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import PolicyError
from dptext_etl_models.inference import language_model

if TYPE_CHECKING:
    from dptext_etl_models.inference.prompts import Prompts
    from dptext_etl_models.inference.server import Draw, Prompt, Request

_ENVIRONMENT = {
    "VLLM_BATCH_INVARIANT": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the other one needs processors of another kind
    "VLLM_NO_USAGE_STATS": "1",
}
for _name, _value in _ENVIRONMENT.items():
    if os.environ.setdefault(_name, _value) != _value:
        raise PolicyError(f"with vLLM, {_name} must be {_value}", f"leave {_name} unset")

from vllm import LLM, SamplingParams  # noqa: E402  (reads the environment)
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality  # noqa: E402

logging.getLogger("vllm.logging_utils.dump_input").addFilter(lambda _: False)

_ANSWERING = Lock()  # held by a call to the engine: `ExactDraws` has one draw function per process
_TOKENS = 8192  # largest number of tokens of a step, if no text is longer
_RECORD = "dptext_record"
"""Name of a request's extra argument: the number of its text in the batch, never its id."""


class ExactDraws(LogitsProcessor):
    """Draw the next token of every text of a step from its record's stream."""

    draw: Draw
    columns: npt.NDArray[np.int64]

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse a request that does not come from `VLLMServer`."""
        if _RECORD not in (sampling_params.extra_args or {}):
            raise ValueError("every request of this engine belongs to a release")

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:  # noqa: ARG002  (vLLM's signature)
        self._records: dict[int, int] = {}

    def is_argmax_invariant(self) -> bool:
        """Return False: vLLM must call it before it chooses the token with the largest score."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow the rows of the batch: first those removed, then added, then moved."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._records.pop(row, None)
        for row, parameters, *_ in batch_update.added:
            self._records[row] = parameters.extra_args[_RECORD]
        for source, other, direction in batch_update.moved:
            moved, replaced = self._records.pop(source, None), self._records.pop(other, None)
            if moved is not None:
                self._records[other] = moved
            if direction == MoveDirectionality.SWAP and replaced is not None:
                self._records[source] = replaced

    def apply(self, logits: Any) -> Any:
        """Draw for every row, and leave only the drawn token above minus infinity."""
        import torch

        rows = range(len(logits))
        if sorted(self._records) != list(rows):
            raise ValueError("a row of the batch belongs to no text")
        records = np.array([self._records[row] for row in rows], np.int64)
        scores = logits[:, torch.as_tensor(self.columns, device=logits.device)]
        tokens = self.columns[type(self).draw(scores, records)]
        only = torch.full_like(logits, float("-inf"))
        return only.scatter_(1, torch.as_tensor(tokens, device=logits.device)[:, None], 0.0)


def load(folder: Path, dtype: str, length: int) -> Any:
    """Return vLLM's engine for a causal model and prompts with answers of at most that many tokens."""
    language_model.without_code(folder)
    return LLM(
        model=str(folder),
        dtype=dtype,
        load_format="safetensors",
        trust_remote_code=False,
        skip_tokenizer_init=True,
        generation_config="vllm",
        max_model_len=length,
        max_num_batched_tokens=max(_TOKENS, length),
        logits_processors=[ExactDraws],
        tensor_parallel_size=1,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        async_scheduling=False,
        seed=0,
    ).llm_engine


class VLLMServer:
    """Continue prompts with vLLM (see `server.ModelServer`)."""

    def __init__(self, engine: Any, prompts: Prompts, columns: npt.NDArray[np.int64], ends: frozenset[int]) -> None:
        self._engine, self._prompts, self._columns = engine, prompts, columns
        self._end_tokens = sorted(ends)
        self.outputs = len(columns)
        self.ends = frozenset(np.flatnonzero(np.isin(columns, self._end_tokens)).tolist())

    def prompts(self, texts: Sequence[str]) -> list[Prompt]:
        """Return the prompt of every text; a prompt without tokens becomes one end token."""
        return [self._end_tokens[:1] if prompt == [] else prompt for prompt in self._prompts.encode(texts)]

    def answer(self, requests: Sequence[Request], draw: Draw) -> None:
        """Continue every text until it draws an end or its most draws are done."""
        ids = [str(request.record) for request in requests]
        with _ANSWERING:
            ExactDraws.draw, ExactDraws.columns = staticmethod(draw), self._columns
            try:
                for request in requests:
                    tokens = [*request.prompt, *self._columns[list(request.drawn)].tolist()]
                    self._engine.add_request(
                        str(request.record), {"prompt_token_ids": tokens}, self._parameters(request)
                    )
                while self._engine.has_unfinished_requests():
                    self._engine.step()
            finally:
                self._engine.abort_request(ids)

    def text(self, outputs: Sequence[int]) -> str:
        """Return the text of a sequence of outputs."""
        return self._prompts.decode([int(self._columns[number]) for number in outputs])

    def _parameters(self, request: Request) -> Any:
        return SamplingParams(
            temperature=0.0,  # the drawn token is the only one left
            max_tokens=request.most,
            stop_token_ids=self._end_tokens,
            ignore_eos=True,
            detokenize=False,
            extra_args={_RECORD: request.record},
        )
