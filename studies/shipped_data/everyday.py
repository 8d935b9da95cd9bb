"""Make the sentences of `everyday-30k`, and of the stand-in that ships, from templates and word lists that we wrote.

`python studies/shipped_data/everyday.py` writes `dptext_etl/data/everyday/sentences.parquet` and
`eval/dptext_etl_eval/everyday.parquet`: further sentences of the same templates, which no corpus holds.

The source is `studies/shipped_data/everyday/`: `words.txt` holds lists for all domains, every other file is one domain.
The sentences are a function of these files only: SHA-256 of a public constant, the domain, the kind, and a counter
chooses the words, so every machine makes the same texts.

A source is lines of plain text. `# …` is a comment. `[praise]` says of which kind the templates below it are; each line
below it is one template. `name = a | b | c` is a list; a line that begins with two blanks continues the list above.
Templates and entries of lists hold `(this|that|)`, one of several phrases, and `{name}`, an entry of a list; they nest.
Spelling follows: write "a" before a slot, and it becomes "an" where the next word needs it, and "{story}s" for stories.
The first letter becomes a capital, and a full stop or a question mark is added where the end has none.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("everyday")
CORPUS = ROOT / "dptext_etl" / "data" / "everyday" / "sentences.parquet"
STAND_IN = ROOT / "eval" / "dptext_etl_eval" / "everyday.parquet"
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


@dataclass(frozen=True)
class Slot:
    name: str


Phrase = tuple["str | Slot | Choice", ...]


@dataclass(frozen=True)
class Choice:
    phrases: tuple[Phrase, ...]


class Source(NamedTuple):
    """The lists and the templates of one file, by name and by kind."""

    lists: Mapping[str, tuple[Phrase, ...]]
    templates: Mapping[str, tuple[Phrase, ...]]


@dataclass
class Draws:
    """Draw integers that a label fixes: the blocks SHA-256(label, counter), read as digits of mixed radix."""

    label: str
    _block: int = 0
    _value: int = 0
    _range: int = 1  # one more than the largest value

    def below(self, bound: int) -> int:
        """Return an integer from 0 to bound - 1; its bias is below 2**-64."""
        if self._range < bound << 64:
            digest = hashlib.sha256(f"{self.label}\n{self._block}".encode()).digest()
            self._block, self._value, self._range = self._block + 1, int.from_bytes(digest, "big"), 1 << 256
        self._value, drawn = divmod(self._value, bound)
        self._range //= bound
        return drawn


def parse(text: str) -> Source:
    r"""Read a source.

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
        elif match := _LIST.fullmatch(line):
            name = match[1]
            _refuse(name in lists, number, f"the list {name} occurs twice")
            lists[name] = match[2]
        else:
            _refuse(not kind, number, "a template has no kind")
            phrases = _alternatives(line, number)
            _refuse(len(phrases) != 1, number, "a bar is outside of brackets")
            templates[kind].append(phrases[0])
    return Source(
        {key: _alternatives(re.sub(r" +\| +", "|", value.strip()), key) for key, value in lists.items()},
        {key: tuple(value) for key, value in templates.items()},
    )


def expand(template: Phrase, lists: Mapping[str, tuple[Phrase, ...]], draws: Draws, end: str = ".") -> str:
    """Return the sentence of a template; slots of the same list get different entries, as long as there are any."""
    words = " ".join("".join(_pieces(template, lists, draws, {})).split())
    for pattern, replacement in _SPELLING:
        words = pattern.sub(replacement, words)
    words = _ARTICLE.sub(lambda match: f"{match[1]}{'n' if _VOWEL.match(match[3]) else ''} ", words)
    if words[-1] not in ".?!":
        words += "?" if _ASKED.match(words) else end
    return words[0].upper() + words[1:]


def _pieces(
    phrase: Phrase, lists: Mapping[str, tuple[Phrase, ...]], draws: Draws, used: dict[str, set[int]]
) -> Iterator[str]:
    for part in phrase:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Choice):
            yield from _pieces(part.phrases[draws.below(len(part.phrases))], lists, draws, used)
        else:
            entries, rows = lists[part.name], used.setdefault(part.name, set())
            if len(rows) == len(entries):
                rows.clear()
            free = [row for row in range(len(entries)) if row not in rows]
            row = free[draws.below(len(free))]
            rows.add(row)
            yield from _pieces(entries[row], lists, draws, used)


def _refuse(wrong: bool, number: int | str, reason: str) -> None:
    if wrong:
        raise ValueError(f"line {number}: {reason}")


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


_NOT = ("do", "does", "did", "is", "are", "was", "were", "could", "would", "should", "has", "have", "had")
_DONE = ("been", "never", "tried", "seen", "read", "had", "lost", "used", "worked", "taken", "waited", "called")
_SPOKEN = {
    **{f"{verb} not": f"{verb}n't" for verb in _NOT},
    **{f"{who} are": f"{who}'re" for who in ("you", "we", "they")},
    **{f"{who} will": f"{who}'ll" for who in ("I", "you", "we", "it", "they")},
    **{f"{who} is": f"{who}'s" for who in ("it", "that", "there", "he", "she", "what", "where", "who", "nobody")},
    **{f"{who} have {done}": f"{who}'ve {done}" for who in ("I", "we", "they") for done in _DONE},
    "I am": "I'm",
    "I would": "I'd",
    "cannot": "can't",
    "will not": "won't",
    "let us": "let's",
    "until": "till",
    "television": "TV",
}
_AMERICAN: dict[str, str] = tomllib.loads((SOURCE / "american.toml").read_text("ascii"))
_LOWER = {word.lower(): new for word, new in (_SPOKEN | _AMERICAN).items()}


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


_SPEAK = re.compile(rf"(?<!what )(?<!how )(?<!where )\b({_any_of(_SPOKEN)})(?= \w)", re.IGNORECASE)
_SPELL = re.compile(rf"\b({_any_of(_AMERICAN)})(?=s?\b)", re.IGNORECASE)


def spoken(text: str) -> str:
    """Contract words that are contracted in speech, where another word follows."""
    return _SPEAK.sub(_other, text)


def american(text: str) -> str:
    """Spell words as in the United States, and use the words of that country."""
    return _SPELL.sub(_other, text)


def _other(match: re.Match[str]) -> str:
    word = _LOWER[match[1].lower()]
    return word[0].upper() + word[1:] if match[1][0].isupper() else word


EVERYDAY = "everyday-30k"
KINDS = ("praise", "complaint", "question", "request", "plain")
SIZE = 30_000
SHORTEST, LONGEST = 5, 25
_ENDS = {kind: "?" if kind == "question" else "." for kind in KINDS}
_TWICE = re.compile(r"\b(\w+) \1\b", re.IGNORECASE)
_TRIES = 200  # per sentence that is wanted


class Sentence(NamedTuple):
    text: str
    domain: str
    kind: str


def generate(size: int = SIZE) -> tuple[Sentence, ...]:
    """Make sentences from the source, evenly over domains and kinds, and within these evenly over templates."""
    shared, domains = sources()
    cells = [(domain, kind) for domain in domains for kind in KINDS]
    made: dict[str, Sentence] = {}
    for number, (domain, kind) in enumerate(cells):
        wanted = size // len(cells) + (number < size % len(cells))
        lists = {**shared.lists, **domains[domain].lists}
        templates = domains[domain].templates[kind]
        full = len(made) + wanted
        for attempt in range(_TRIES * wanted):
            if len(made) == full:
                break
            draws = Draws(f"{EVERYDAY}\n{domain}\n{kind}\n{attempt}")
            template = templates[attempt % len(templates)]
            text = expand(template, lists, draws, _ENDS[kind])
            if draws.below(2):
                text = spoken(text)
            if draws.below(2):
                text = american(text)
            if text in made:  # say it again with a tag: "…, please."
                text = expand((text[:-1], Slot(f"after_{kind}")), lists, draws, text[-1])
            if SHORTEST <= len(text.split()) <= LONGEST and not _TWICE.search(text):
                made.setdefault(text, Sentence(text, domain, kind))
        if len(made) < full:
            raise ValueError(f"{domain}, {kind}: the templates yield fewer than {wanted} distinct sentences")
    return tuple(sorted(made.values(), key=lambda made: hashlib.sha256(made.text.encode()).digest()))


def sources() -> tuple[Source, dict[str, Source]]:
    read = {}
    for path in sorted(SOURCE.glob("*.txt")):
        try:
            read[path.stem] = parse(path.read_text("ascii"))
        except ValueError as exc:
            raise ValueError(f"{path.name}: {exc}") from None
    return read.pop("words"), read


def main() -> None:
    """Write both files."""
    corpus = generate()
    texts = {sentence.text for sentence in corpus}
    further = [sentence for sentence in generate(2 * SIZE) if sentence.text not in texts]
    for path, rows in ((CORPUS, corpus), (STAND_IN, further)):
        frame = pl.DataFrame(rows, schema=Sentence._fields, orient="row")
        frame.write_parquet(path, compression="zstd", compression_level=19, statistics=False)


if __name__ == "__main__":
    main()
