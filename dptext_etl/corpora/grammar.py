"""Expand templates with slots into sentences, by draws that depend on a label alone.

A source is lines of plain text. `# …` is a comment. `[praise]` says of which kind the templates below it are; each line
below it is one template. `name = a | b | c` is a list; a line that begins with two blanks goes on with the list above.
Templates and entries of lists hold `(this|that|)`, one of several phrases, and `{name}`, an entry of a list; they nest.
Spelling follows: write "a" before a slot, and "an" stands where the next word wants it; write "{story}s" for stories.
The first letter becomes a capital, and a full stop or a question mark is added where the end has none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"[(|)]|\{\w+\}|[^(|){}]+")
_LIST = re.compile(r"(\w+) = (.*)")
_ARTICLE = re.compile(r"\b([Aa])n? (?=(['\"]?)(\w+))")
_VOWEL = re.compile(r"(?!uni(?![nm])|us[aeiu]|eu|one\b|once\b)[aeiou]|hour|honest|honou?r|heir", re.IGNORECASE)
_NO_ARTICLE = (
    "my|your|our|this|the|no|any|some|common|mild|severe|slight|minor|occasional|strong|terrible|constant|little"
)
_SPELLING = (
    (re.compile(r" (?=[,.?!;:])"), ""),
    (re.compile(r"(?<=[b-df-hj-np-tv-z])ys\b"), "ies"),  # {story}s
    (re.compile(r"(?<=ch|sh|ss)s\b"), "es"),  # {watch}s
    (re.compile(r"\bfor (?=(?:in|on|at) (?!least))"), ""),  # for {on Monday}
    (re.compile(rf"\b({_NO_ARTICLE}) an? ", re.IGNORECASE), r"\1 "),  # my {an infection}
)
_ASKED = re.compile("(can|could|would|will) you", re.IGNORECASE)
_BLOCK = 256


@dataclass(frozen=True)
class Slot:
    """One entry of the list of this name."""

    name: str


Phrase = tuple["str | Slot | Choice", ...]


@dataclass(frozen=True)
class Choice:
    """One of several phrases."""

    phrases: tuple[Phrase, ...]


@dataclass(frozen=True)
class Source:
    """Hold the lists and the templates of one file."""

    lists: Mapping[str, tuple[Phrase, ...]]  # the entries by the name of the list
    templates: Mapping[str, tuple[Phrase, ...]]  # the templates by their kind, in the order of the file


@dataclass
class Draws:
    """Draw integers that a label fixes: the blocks SHA-256(label, counter), read as digits of mixed radix."""

    label: str
    _block: int = 0
    _value: int = 0
    _room: int = 1

    def below(self, bound: int) -> int:
        """Return an integer from 0 to bound - 1; its bias is below 2**-64."""
        if self._room < bound << 64:
            digest = hashlib.sha256(f"{self.label}\n{self._block}".encode()).digest()
            self._block, self._value, self._room = self._block + 1, int.from_bytes(digest, "big"), 1 << _BLOCK
        self._value, drawn = divmod(self._value, bound)
        self._room //= bound
        return drawn


def parse(text: str) -> Source:
    r"""Read a source.

    Args:
        text: The content of a file, as the module says.

    Raises:
        ValueError: A bracket stays open, a template has no kind, or a name stands twice; the line is named.

    >>> [expand(t, {}, Draws("x")) for t in parse("[plain]\nit is a (old|old) dog").templates["plain"]]
    ['It is an old dog.']
    """
    lists: dict[str, str] = {}
    templates: dict[str, list[Phrase]] = {}
    kind = name = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("  ") and name:
            lists[name] += " " + line.strip()
        elif line.startswith("[") and line.endswith("]"):
            kind, name = line[1:-1], ""
            templates.setdefault(kind, [])
        elif found := _LIST.fullmatch(line):
            name = found[1]
            _refuse(name in lists, number, f"the list {name} stands twice")
            lists[name] = found[2]
        else:
            _refuse(not kind, number, "a template has no kind")
            templates[kind].append(_phrase(line, number))
    return Source(
        {key: _alternatives(re.sub(r" +\| +", "|", value.strip()), key) for key, value in lists.items()},
        {key: tuple(value) for key, value in templates.items()},
    )


def expand(template: Phrase, lists: Mapping[str, tuple[Phrase, ...]], draws: Draws, end: str = ".") -> str:
    """Return the sentence of a template.

    Two slots of the same list get different entries, as long as there are any.
    """
    words = " ".join("".join(_Expansion(lists, draws).parts(template)).split())
    for pattern, replacement in _SPELLING:
        words = pattern.sub(replacement, words)
    words = _ARTICLE.sub(lambda found: f"{found[1]}{'n' if _VOWEL.match(found[3]) else ''} ", words)
    if words[-1] not in ".?!":
        words += "?" if _ASKED.match(words) else end
    return words[0].upper() + words[1:]


@dataclass
class _Expansion:
    lists: Mapping[str, tuple[Phrase, ...]]
    draws: Draws
    used: dict[str, set[int]] = field(default_factory=dict)

    def parts(self, phrase: Phrase) -> list[str]:
        found: list[str] = []
        for part in phrase:
            if isinstance(part, str):
                found.append(part)
            elif isinstance(part, Slot):
                found += self.parts(self._entry(part.name))
            else:
                found += self.parts(part.phrases[self.draws.below(len(part.phrases))])
        return found

    def _entry(self, name: str) -> Phrase:
        entries = self.lists[name]
        used = self.used.setdefault(name, set())
        if len(used) == len(entries):
            used.clear()
        free = [row for row in range(len(entries)) if row not in used]
        row = free[self.draws.below(len(free))]
        used.add(row)
        return entries[row]


def _refuse(wrong: bool, number: int | str, reason: str) -> None:
    if wrong:
        raise ValueError(f"line {number}: {reason}")


def _phrase(text: str, number: int | str) -> Phrase:
    phrases = _alternatives(text, number)
    _refuse(len(phrases) != 1, number, "a bar stands outside of brackets")
    return phrases[0]


def _alternatives(text: str, number: int | str) -> tuple[Phrase, ...]:
    pieces = _TOKEN.findall(text)
    _refuse("".join(pieces) != text, number, "a brace stays open")
    stack: list[list[list[str | Slot | Choice]]] = [[[]]]
    for piece in pieces:
        if piece == "(":
            stack.append([[]])
        elif piece == "|":
            stack[-1].append([])
        elif piece == ")":
            _refuse(len(stack) == 1, number, "a bracket closes that was not open")
            inner = stack.pop()
            stack[-1][-1].append(Choice(tuple(map(tuple, inner))))
        else:
            stack[-1][-1].append(Slot(piece[1:-1]) if piece[0] == "{" else piece)
    _refuse(len(stack) != 1, number, "a bracket stays open")
    return tuple(map(tuple, stack[0]))
