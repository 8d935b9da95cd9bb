"""Turn texts into prompts, and drawn tokens into texts.

A prompt is a template with the text in it. Special tokens that a text spells out ("</s>", "<pad>") are ordinary text,
also where a tokenizer has pieces of the same spelling (T5).
What is too long for the model is cut out of the text by token numbers, never out of the template and never by looking
for a string (docs/spec/privacy.md#special-tokens, docs/spec/privacy.md#generative-defects). A released text is a
function of the drawn tokens alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from dptext_etl.errors import PolicyError
from dptext_etl.inference.generative.steps import Prompt

FIELD = "{text}"
"""Where the text stands in a template."""
_LEAST_TEXT = 8  # tokens of a text that a prompt has room for at least
_WORD = re.compile(r"\S+")


class Prompts:
    """A tokenizer and a template.

    Args:
        tokenizer: A fast tokenizer of transformers.
        template: Holds `FIELD` once.
        limit: Most tokens of a prompt.
        n_max: Most words of a text; what follows them is cut off first.
        continued: Whether the model continues the prompt: then no end token follows it.

    Raises:
        PolicyError: The template alone takes nearly all of the limit.
    """

    def __init__(self, tokenizer: Any, template: str, limit: int, n_max: int, *, continued: bool) -> None:
        from tokenizers import Tokenizer

        self._tokens = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())  # a copy: the original is shared
        self._tokens.no_truncation()
        self._tokens.no_padding()
        self._tokens.encode_special_tokens = True
        self._unseen = frozenset(tokenizer.all_special_ids)
        self._known = len(tokenizer)
        self._spelt = self._spellings(tokenizer)
        self._before, _, self._after = template.partition(FIELD)
        self.limit = limit
        """Most tokens of a prompt."""
        self._n_max, self._continued = n_max, continued
        own = len(self._ids(self._tokens.encode(self._before + self._after), 0))
        if own + _LEAST_TEXT > limit:
            raise PolicyError(
                f"the template takes {own} tokens of a prompt, which has {limit} at most",
                "shorten the template, lower l_max, or raise input_limit",
            )

    def encode(self, texts: Sequence[str]) -> list[Prompt]:
        """Return the token numbers of every text's prompt; None where a text cannot be turned into any."""
        cut = [self._first_words(text) for text in texts]
        try:
            encodings = self._tokens.encode_batch([self._before + text + self._after for text in cut])
        except Exception:  # noqa: BLE001  (for one text; the others do not depend on it)
            return [self._alone(text) for text in cut]
        return [self._ids(encoding, len(text)) for encoding, text in zip(encodings, cut, strict=True)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of drawn tokens: special and unused token numbers stand for nothing."""
        shown = [number for number in tokens if number < self._known and number not in self._unseen]
        text: str = self._tokens.decode(shown, skip_special_tokens=True)
        return text.strip()

    def _alone(self, text: str) -> Prompt:
        try:
            return self._ids(self._tokens.encode(self._before + text + self._after), len(text))
        except Exception:  # noqa: BLE001  (drawn uniformly then)
            return None

    def _first_words(self, text: str) -> str:
        rest = islice(_WORD.finditer(text), self._n_max - 1, None)
        last, more = next(rest, None), next(rest, None)
        return text if last is None or more is None else text[: last.end()]

    def _ids(self, encoding: Any, length: int) -> list[int]:
        """Return a prompt's token numbers: what the template ends with stays, what is too long goes before it."""
        ids, added = encoding.ids, encoding.special_tokens_mask
        ends = [end for _, end in encoding.offsets]
        if any(number in self._spelt and not own for number, own in zip(ids, added, strict=True)):
            ids, added, ends = self._spell(ids, added, ends)
        if self._continued:  # an end token would end what is to be continued
            while added and added[-1]:
                ids, added, ends = ids[:-1], added[:-1], ends[:-1]
        if len(ids) <= self.limit:
            return list(ids)
        text_ends, tail = len(self._before) + length, 0
        while tail < len(ids) and (added[-1 - tail] or ends[-1 - tail] > text_ends):
            tail += 1
        return [*ids[: max(0, self.limit - tail)], *ids[len(ids) - tail :]][: self.limit]

    def _spell(self, ids: list[int], added: list[int], ends: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Write special tokens that stand in a text as the tokens of their characters."""
        written = [
            (number, own, end)
            for first, own, end in zip(ids, added, ends, strict=True)
            for number in (self._spelt.get(first, [first]) if not own else [first])
        ]
        return [item[0] for item in written], [item[1] for item in written], [item[2] for item in written]

    def _spellings(self, tokenizer: Any) -> dict[int, list[int]]:
        """Return special tokens, but the one for what is unknown, as the tokens of their characters."""
        special = {number: tokenizer.convert_ids_to_tokens(number) for number in tokenizer.all_special_ids}
        special.pop(tokenizer.unk_token_id, None)
        return {
            number: [
                part
                for character in token
                for part in self._tokens.encode(character, add_special_tokens=False).ids
                if part not in special
            ]
            for number, token in special.items()
        }
