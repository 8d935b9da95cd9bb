"""`dptext init`: a policy for a file, with every guess said in a comment."""

from __future__ import annotations

import json
import math
from pathlib import Path

from dptext_etl.runner.guessing import Guess, guess
from dptext_etl.runner.layout import is_remote

EPSILON = 2.0


def init(path: str | Path) -> str:
    """Write a policy (TOML) that works for a file, after one pass that counts words and distinct values.

    Args:
        path: Parquet, CSV or NDJSON file, folder, glob or URL.

    Returns:
        TOML text, paths relative to the folder that it is saved in if `path` is.

    Raises:
        InputError: The file cannot be read, or has no texts or ids.
    """
    source = str(path)
    found = guess(source)
    return "\n".join([*_head(source, found), *_roles(found), *_spending(found), *_columns(found)]) + "\n"


def _head(source: str, found: Guess) -> list[str]:
    name = _name(source)
    guesses = [
        f"#   id       {found.id}: a value of its own in each of {found.rows:,} rows",
        f"#   subject  {found.subject or 'none found: records stand for themselves'}",
        *(f"#   text     {item}: {found.words[item]:.0f} words on average" for item in found.texts),
    ]
    staging = (
        ['staging = "staging"                  # what is not published yet: local, readable by you alone']
        if is_remote(source)
        else []
    )
    return [
        "# A policy for dptext. Guessed from the file; check these first:",
        *guesses,
        "# Then: dptext key new dptext.key && dptext plan POLICY && dptext run POLICY",
        "",
        f"dataset = {_quoted(name)}               # part of every key: never change it for the same data",
        'release = "1"                         # pins one configuration; changed data or settings take a new name and full spend',
        f"source = {_quoted(source)}",
        f"sink = {_quoted(_sink(source, name))}          # versioned folders and a manifest; readers follow the manifest",
        *staging,
    ]


def _roles(found: Guess) -> list[str]:
    others = ", ".join(_quoted(name) for name in found.others)
    hint = f"   # could pass in clear, if that is meant: {others}" if others else ""
    unit = (
        [
            f"subject = {_quoted(found.subject)}       # whose budget a record takes: caps add up over all records of a subject"
        ]
        if found.subject
        else [
            'unit = "record"                       # no column names a person: one with k records has k times the loss'
        ]
    )
    return [
        f"id = {_quoted(found.id)}",
        *unit,
        f"keep = []{hint}",
        "strict_columns = false                # true refuses, instead of dropping, columns that nothing names",
    ]


def _spending(found: Guess) -> list[str]:
    need = found.most_words * EPSILON
    unit = "subject" if found.subject else "record"
    return [
        "",
        'key = "file:dptext.key"               # the secret behind all draws: back it up; without it nothing can be resumed',
        'ledger = { url = "sqlite:///ledger.db" }   # who was charged what; its ids are hashed under ledger.db.id.key',
        f"# The largest {unit} of this file needs about {need:,.0f}; lower the cap to leave such out, or raise epsilon never.",
        f'cap = {{ measure = "pure", epsilon = {_round_up(need)}, period = "all" }}   # the most a {unit} may lose over all releases',
        'on_cap = "quarantine"                 # leave records over the cap out; "refuse" stops the run instead',
        "publish = true",
        "incremental = false                   # true takes only ids that are not published yet",
    ]


def _columns(found: Guess) -> list[str]:
    lines = []
    for name in found.texts:
        lines += [
            "",
            "[[column]]",
            f"name = {_quoted(name)}",
            f'mechanism = {{ name = "custext", epsilon = {EPSILON} }}   # epsilon per word: smaller is safer and reads worse',
            'allow = ["cluster"]                   # CusText discloses the output set of every word: about 10 bits of it',
        ]
    return lines


def _round_up(amount: float) -> str:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(1.0, amount)))
    best = next(step * power for step in (1, 2, 5, 10) if step * power >= amount)
    return f"{best:.1f}"


def _name(source: str) -> str:
    stem = source.rstrip("/").rpartition("/")[2].partition(".")[0]
    return stem if stem and "*" not in stem else "dataset"


def _sink(source: str, name: str) -> str:
    if is_remote(source):
        return f"{source.rpartition('/')[0]}/published/{name}"
    return f"published/{name}"


def _quoted(text: str) -> str:
    """Write a TOML basic string (JSON's escapes are among TOML's)."""
    return json.dumps(text, ensure_ascii=False)
