"""The peers' bugs, planted one by one: each changes a release, or a statement about it, as the bug of a peer did.

`BUGS` change the output of a mechanism, inside a real run: it is charged, staged and committed as if it were right.
`LEAKS` change the table that would be published. `WORDS` says of both where the bug was seen.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
import polars as pl


@dataclass(frozen=True)
class Shard:
    """The view of a planted bug on a shard: mechanism, raw texts, right releases, and its memory in a run."""

    mechanism: object
    raw: list[str | None]
    released: list[str | None]
    kept: dict = field(default_factory=dict)

    def words(self) -> Iterator[tuple[list[str], list[str]]]:
        """Words of every raw text as they are written, and of its release; nothing of nulls and blanks."""
        for text, out in zip(self.raw, self.released, strict=True):
            yield _bare(text or "").split(), (out or "").split()

    @cache  # noqa: B019
    def known(self) -> frozenset[str]:
        return frozenset(self.mechanism.input_words())

    def draw(self, random: np.random.Generator, text: str | None) -> str | None:
        """Draw a text by the mechanism's own law, with a generator of one's own."""
        if text is None:
            return None
        drawn = []
        for word in _bare(text).lower().split():
            outputs, chances = _law(self.mechanism, word)
            drawn.append(outputs[int(np.searchsorted(chances, random.random()))])
        return " ".join(drawn)

    def __hash__(self) -> int:
        return id(self)


def _bare(text):
    return text.translate({ord(mark): None for mark in ",.!"})


@lru_cache(maxsize=512)
def _law(mechanism, word):
    outputs, chances = mechanism.transition(word)
    running = np.cumsum(np.array(chances, dtype=float))
    running[-1] = 1.0
    return outputs, running


def seeded(seed: str) -> np.random.Generator:
    """Return a generator that follows from a text: a drill sees the same every time it runs."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little"))


def joined(pairs, choose) -> list[str]:
    """Write releases again, word by word: `choose(place, raw word, released word)`."""
    return [" ".join(choose(at, *pair) for at, pair in enumerate(zip(*both, strict=False))) for both in pairs]


def original_on_failure(shard: Shard) -> list[str | None]:
    """A text with an unknown word raises inside, and the fallback is the text."""
    return [
        text if any(word.lower() not in shard.known() for word in words) else out
        for text, out, (words, _) in zip(shard.raw, shard.released, shard.words(), strict=True)
    ]


def lost_mask(shard: Shard) -> list[str | None]:
    """Beyond a window of 12 words the mask is cut off, and the word stays."""
    return joined(shard.words(), lambda at, raw, out: raw.lower() if at >= 12 and raw.lower() in shard.known() else out)


def unknown_in_clear(shard: Shard) -> list[str | None]:
    return joined(shard.words(), lambda _, raw, out: out if raw.lower() in shard.known() else raw.lower())


def case_copied(shard: Shard) -> list[str | None]:
    return joined(shard.words(), lambda _, raw, out: out.capitalize() if raw[0].isupper() else out)


def one_seed_per_row(shard: Shard) -> list[str | None]:
    return [shard.draw(np.random.default_rng(42), text) for text in shard.raw]


def one_generator_per_worker(shard: Shard) -> list[str | None]:
    """Every worker is forked with the same generator, and computes one shard after the other."""
    random = np.random.default_rng(7)
    return [shard.draw(random, text) for text in shard.raw]


def memoized_words(shard: Shard) -> list[str | None]:
    """Every word is drawn once: its generator follows from the word, so that all shards draw the same."""

    def once(word):
        return shard.draw(seeded(word), word)

    return [None if text is None else " ".join(map(once, text.split())) for text in shard.raw]


def memoized_inside_a_record(shard: Shard) -> list[str | None]:
    found = []
    for text, out in zip(shard.raw, shard.released, strict=True):
        random, memo = seeded(f"{text} {out}"), {}
        words = [] if text is None else text.split()
        found.append(" ".join(memo.setdefault(word, shard.draw(random, word)) for word in words))
    return found


def duplicates_dropped_before(shard: Shard) -> list[str | None]:
    return [shard.kept.setdefault(text, out) for text, out in zip(shard.raw, shard.released, strict=True)]


def key_without_the_record(shard: Shard) -> list[str | None]:
    """The generator of a row follows only from its text."""
    return [shard.draw(seeded(text or ""), text) for text in shard.raw]


def noise_of_no_size(shard: Shard) -> list[str | None]:
    """Epsilon is read in another unit: 19 of 20 known words stay."""
    random = seeded(str(shard.released))
    keep = lambda raw: raw in shard.known() and random.random() < 0.95
    return joined(shard.words(), lambda _, raw, out: raw.lower() if keep(raw.lower()) else out)


def padding_left_in(shard: Shard) -> list[str | None]:
    return [out if out is None else f"{out} <PAD>".strip() for out in shard.released]


def where_a_text_begins_with_a_capital(changed: Callable[[str | None], str | None]) -> Callable:
    """Change a release where the raw text begins with a capital."""
    return lambda shard: [
        changed(out) if text and text[0].isupper() else out for text, out in zip(shard.raw, shard.released, strict=True)
    ]


def cut_to_what_the_text_says(shard: Shard) -> list[str | None]:
    """As many words as the text has letters "e", at most."""
    both = zip(shard.raw, shard.released, strict=True)
    return [out and " ".join(out.split()[: max(1, (text or "").count("e"))]) for text, out in both]


def shifted_by_one_row(shard: Shard) -> list[str | None]:
    """Rows are sorted by length for a batch, and put back one place too far."""
    return [*shard.released[-1:], *shard.released[:-1]]


def one_draw_for_two_rows(shard: Shard) -> list[str | None]:
    """Two neighbors share a generator: each text is drawn by its own law, with the same random numbers."""
    seeds = [out for out in shard.released[::2] for _ in range(2)]
    return [shard.draw(seeded(str(seed)), text) for seed, text in zip(seeds, shard.raw, strict=False)]


def one_row_alone(shard: Shard) -> list[str | None]:
    """A rare fallback: for one real row, whose words are all known, and for no canary row, which are longer."""
    done = shard.kept.setdefault("done", [])
    found = []
    for text, out, (words, _) in zip(shard.raw, shard.released, shard.words(), strict=True):
        rare = not done and len(words) < 20 and shard.known().issuperset(words)
        found.append(text if rare else out)
        done += [1] if rare else []
    return found


@dataclass(frozen=True)
class Drill:
    """A planted bug.

    Attributes:
        planted: The bug, as the page says it.
        seen: Where such a bug was seen, or how it comes about.
        bug: What does it.
        stops: The gates that must stop it; none where nothing can, and then `why` says why.
        why: See `stops`.
        changes: Entries of the policy that the drill changes.
    """

    planted: str
    seen: str
    bug: Callable
    stops: frozenset[str]
    why: str = ""
    changes: dict = field(default_factory=dict)


def drill(planted, seen, bug, *stops, **more):
    return Drill(planted, seen, bug, frozenset(stops), **more)


FOREIGN, NATIVE, TWINS = "canary_text_absent", "canary_words_replaced", "duplicates_within_chance"
INSIDE, LEDGERED, ONCE = "words_in_output_set", "rows_ledgered", "one_text_per_record"
COLUMNS, PRESENT = "raw_column_absent", "canary_rows_complete"
COPIES, AGAIN = "copies_within_chance", "canary_rows_reproducible"
PAID = {"copy_gate_false_alarm": 1e-6, "cap": {"measure": "approx", "epsilon": 1_000.0, "delta": 1e-3}}

BUGS = [
    drill("the original on failure", "DP-MLM's batches, 1-Diffractor", original_on_failure, FOREIGN, INSIDE),
    drill("the original where the mask is lost", "DP-MLM beyond its window", lost_mask, NATIVE),
    drill("unknown words in clear", "CusText, 1-Diffractor", unknown_in_clear, FOREIGN, INSIDE),
    drill("case copied from the original", "DP-MLM", case_copied, INSIDE),
    drill("one seed for every row", "SanText's seed 42", one_seed_per_row, TWINS),
    drill("one generator copied into all workers", "numpy's generator after a fork", one_generator_per_worker, TWINS),
    drill("samples kept by word", '"same token, same replacement"', memoized_words, TWINS),
    drill("samples kept by word inside a record", "consistent replacement", memoized_inside_a_record, TWINS),
    drill("duplicates dropped, privatized, joined back", "`dropDuplicates`", duplicates_dropped_before, TWINS),
    drill("a key without the record id", "a hash of the text as seed", key_without_the_record, TWINS),
    drill("epsilon in another unit", "ε per list place or per distance", noise_of_no_size, NATIVE),
    drill("padding left in the release", "decoders that keep special tokens", padding_left_in, INSIDE),
    drill(
        "null where the text begins with a capital",
        "a moderation filter after the mechanism",
        where_a_text_begins_with_a_capital(lambda _: None),
        LEDGERED,
    ),
    drill(
        "empty where the text begins with a capital",
        "a blank instead of a refusal",
        where_a_text_begins_with_a_capital(lambda _: ""),
        LEDGERED,
    ),
    drill("cut to a number that the text reveals", "summaries by importance", cut_to_what_the_text_says, LEDGERED),
    drill(
        "one word more where the text begins with a capital",
        "a marker for links",
        where_a_text_begins_with_a_capital(lambda out: out and f"{out.split()[0]} {out}"),
        LEDGERED,
    ),
    drill("releases shifted by one row", "a batch that is sorted, and sorted back", shifted_by_one_row, AGAIN),
    drill("one draw for two rows", "a generator per pair of rows", one_draw_for_two_rows, AGAIN),
    drill(
        "a fallback for one real row, of known words",
        "an error that no canary row meets",
        one_row_alone,
        why="Whether one row equals its original is what a release keeps secret: a gate that looked would disclose it. "
        "The report of copies, inside the boundary, says that there is one beyond chance.",
    ),
    drill("the same, and the policy sets `copy_gate_false_alarm`", "the same", one_row_alone, COPIES, changes=PAID),
]
"""Bugs of mechanisms, in a run that charges, stages and commits them."""


def column(name, made):
    """Write a function of the raw texts into a column."""
    return lambda bench, part: part.with_columns(made(bench.raw_texts(part, "review")).alias(name))


def written(function):
    return column("stars", lambda raw: raw.map_elements(function, pl.String))


def without_canaries(_, part):
    return part.filter(~pl.col("__dptext_canary"))


def appended(made):
    """Append the rows of a second attempt."""
    return lambda _, part: pl.concat([part, without_canaries(_, part).with_columns(made)])


RAW = lambda raw: raw
LENGTH = lambda raw: raw.str.len_chars().cast(pl.Int64)
BEHIND = column("note", lambda raw: pl.col("note") + " " + raw)
BASE64 = written(lambda text: base64.b64encode(text.encode()).decode())
URL_ENCODED = written(lambda text: "".join(f"%{byte:02X}" for byte in text.encode()))
ENCRYPTED = written(lambda text: bytes(letter ^ 0x5A for letter in text.encode()).hex())
REVERSED = pl.col("note").str.split(" ").list.reverse().list.join(" ")

LEAKS = [
    drill("a raw column under another name", "a forgotten `drop`", column("comment", RAW), COLUMNS, FOREIGN),
    drill(
        "raw text in another column, as it is",
        "`select *` after a join",
        written("{}".format),
        *(FOREIGN, PRESENT, LEDGERED),
    ),
    drill("raw text behind a released one", "a template that quotes the input", BEHIND, FOREIGN, INSIDE, LEDGERED),
    drill("raw text reversed", "a debug column", written(lambda text: text[::-1]), FOREIGN, PRESENT),
    drill("raw text in base64", "a serialized payload", BASE64, FOREIGN, PRESENT),
    drill("raw text in hexadecimal", "a dump of bytes", written(lambda text: text.encode().hex()), FOREIGN, PRESENT),
    drill("raw text URL-encoded", "a link to the record", URL_ENCODED, FOREIGN, PRESENT),
    drill(
        "the released column left raw",
        "a mechanism that never ran",
        column("review", RAW),
        *(FOREIGN, NATIVE, INSIDE, LEDGERED),
    ),
    drill("a number computed from the text", "its length next to the release", column("stars", LENGTH), PRESENT),
    drill("two attempts published side by side", "a retried task that appends", appended(REVERSED), ONCE, LEDGERED),
    drill("a batch appended twice", "a backfill without a key", appended([]), ONCE),
    drill("canary rows filtered away", "a filter before the release", without_canaries, PRESENT),
    drill("raw text encrypted into another column", "a pseudonym that can be undone", ENCRYPTED, PRESENT),
]
"""Changes to a table on its way to publication."""


@dataclass(frozen=True)
class Broken:
    """A model that fails.

    Attributes:
        seen: How it comes about.
        bug: Makes a forward pass that fails of one that works, and of the steps of the run so far.
        free: Whether it is stopped before anything is charged.
        stopper: What stops it, as the page says it.
    """

    seen: str
    bug: Callable
    free: bool
    stopper: str


def _raises(*_):
    raise RuntimeError("the model is broken")


def _broken_after(step):
    return lambda forward, steps: lambda *given: _raises() if step in steps else forward(*given)


MODELS = {
    "a model whose every forward pass fails": Broken(
        "a wrong checkpoint or library: DP-MLM published random words, all gates passed",
        lambda forward, steps: _raises,
        True,
        "`Mechanism.probe`, before anything is charged",
    ),
    "a model that scores nothing but NaN": Broken(
        "an overflow in numbers of half the length",
        lambda forward, steps: lambda *given: forward(*given) * float("nan"),
        True,
        "`Mechanism.probe`, before anything is charged",
    ),
    "a model that breaks while a shard is computed": Broken(
        "a device that falls off the bus",
        _broken_after("reserved"),
        False,
        "`Mechanism.probe`, after that shard: nothing of it is staged, and no other is charged",
    ),
    "a model that breaks between two shards": Broken(
        "the same", _broken_after("committed"), False, "`Mechanism.probe`, before the next shard is charged"
    ),
}
"""Models that fail, under a run of DP-MLM."""
