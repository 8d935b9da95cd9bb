"""Turn texts into prompts, and drawn tokens into texts.

A prompt is a template with the text in it. Special tokens that a text spells out ("</s>", "<pad>") are ordinary text,
even if a tokenizer has pieces of the same spelling (T5). If a prompt is too long for the model, tokens of the text are
cut by their position, never tokens of the template, and never by a search for a string
(docs/spec/privacy.md#special-tokens, docs/spec/privacy.md#generative-defects). A released text is a function of the
drawn tokens only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from dptext_etl.errors import PolicyError, without_panics
from dptext_etl_models.inference.server import Prompt

FIELD = "{text}"
"""Place of the text in a template."""
SPARE = 8
"""Padding tokens of the longest prompts."""
CHARACTERS = 128
"""Characters that are read per token of the longest prompt; longer texts are cut before anything else."""
_LEAST_TEXT = 8  # smallest number of a text's tokens that must fit into a prompt
_WORD = re.compile(r"\S+")


class Prompts:
    """Encode texts with a template to token ids, and decode drawn tokens.

    A tokenizer may panic, or run for minutes, for a text of millions of blanks, so texts are cut by characters first.
    """

    def __init__(self, tokenizer: Any, template: str, limit: int, n_max: int, *, continued: bool) -> None:
        from tokenizers import Tokenizer

        self._tokens = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())  # a copy: the original is shared
        self._tokens.no_truncation()
        self._tokens.no_padding()
        self._tokens.encode_special_tokens = True
        self._unseen = frozenset(tokenizer.all_special_ids)
        self._known = len(tokenizer)
        special = {number: tokenizer.convert_ids_to_tokens(number) for number in tokenizer.all_special_ids}
        special.pop(tokenizer.unk_token_id, None)
        self._spelt = {
            number: [
                part
                for character in token
                for part in self._tokens.encode(character, add_special_tokens=False).ids
                if part not in special
            ]
            for number, token in special.items()
        }
        self._before, _, self._after = template.partition(FIELD)
        self.limit = limit
        """Largest number of tokens of a prompt."""
        self._n_max, self._continued = n_max, continued
        template_tokens = len(self._ids(self._tokens.encode(self._before + self._after), 0))
        if template_tokens + _LEAST_TEXT > limit:
            raise PolicyError(
                f"the template uses {template_tokens} tokens of a prompt, which has at most {limit}",
                "shorten the template, lower l_max, or raise input_limit",
            )

    def encode(self, texts: Sequence[str]) -> list[Prompt]:
        """Return the token ids of every text's prompt; None for a text that cannot be encoded."""
        cut = [self._first_words(text) for text in texts]
        try:
            with without_panics():
                encodings = self._tokens.encode_batch([self._before + text + self._after for text in cut])
        except Exception:  # noqa: BLE001  (one text failed; the others do not depend on it)
            return [self._alone(text) for text in cut]
        return [self._ids(encoding, len(text)) for encoding, text in zip(encodings, cut, strict=True)]

    def reads(self, text: str) -> str:
        """Return the part of a text that its prompt holds."""
        cut = self._first_words(text)
        with suppress(Exception), without_panics():  # such a text is drawn uniformly
            encoding = self._tokens.encode(self._before + cut + self._after)
            places = encoding.offsets
            if len(places) > self.limit:
                ends = len(self._before) + len(cut)
                kept = self.limit - self._tokens_after(ends, encoding.special_tokens_mask, places)
                return cut[: max(0, places[kept - 1][1] - len(self._before))]
        return cut

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of drawn tokens; special and unused token ids give nothing."""
        visible = [number for number in tokens if number < self._known and number not in self._unseen]
        with suppress(Exception), without_panics():  # its tokens are drawn, so a failure follows from them
            text: str = self._tokens.decode(visible, skip_special_tokens=True)
            return text.strip()
        return ""

    def _alone(self, text: str) -> Prompt:
        with suppress(Exception), without_panics():
            return self._ids(self._tokens.encode(self._before + text + self._after), len(text))
        return None  # its tokens are drawn uniformly then

    def _first_words(self, text: str) -> str:
        text = text[: CHARACTERS * self.limit]
        rest = islice(_WORD.finditer(text), self._n_max - 1, None)
        last, more = next(rest, None), next(rest, None)
        return text if last is None or more is None else text[: last.end()]

    def _ids(self, encoding: Any, length: int) -> list[int]:
        """Return a prompt's token ids; the end of the template stays, and excess tokens before it are cut."""
        ids, added, places = encoding.ids, encoding.special_tokens_mask, encoding.offsets
        if any(number in self._spelt and not is_ours for number, is_ours in zip(ids, added, strict=True)):
            ids, added, places = self._spell(ids, added, places)
        if self._continued:  # the model would not continue after an end token
            while added and added[-1]:
                ids, added, places = ids[:-1], added[:-1], places[:-1]
        if len(ids) <= self.limit:
            return list(ids)
        tail = self._tokens_after(len(self._before) + length, added, places)
        return [*ids[: max(0, self.limit - tail)], *ids[len(ids) - tail :]][: self.limit]

    def _tokens_after(self, text_ends: int, added: list[int], places: list[tuple[int, int]]) -> int:
        """Return how many tokens at the end of a prompt belong to its template."""
        tail = 0
        while tail < len(places) and (added[-1 - tail] or places[-1 - tail][0] >= text_ends):
            tail += 1
        both = 0  # byte fallback gives all bytes of unknown characters one place, on both sides of the text's end
        while tail + both < len(places) and places[-1 - tail - both][1] > text_ends:
            both += 1
        if both:
            both = min(both, len(self._after[: places[-1 - tail][1] - text_ends].encode()))
        return tail + both

    def _spell(
        self, ids: list[int], added: list[int], places: list[tuple[int, int]]
    ) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """Replace special tokens in a text by the tokens of their characters."""
        written = [
            (number, is_ours, place)
            for first, is_ours, place in zip(ids, added, places, strict=True)
            for number in (self._spelt.get(first, [first]) if not is_ours else [first])
        ]
        return [item[0] for item in written], [item[1] for item in written], [item[2] for item in written]
