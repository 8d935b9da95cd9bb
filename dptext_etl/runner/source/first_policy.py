"""Write a first policy for a file, with a comment for every guess (`dptext init`)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from dptext_etl.errors import bare
from dptext_etl.policy import Policy
from dptext_etl.policy.terms import PLAIN_CSV, Encoding
from dptext_etl.runner.amounts import VACUOUS, at_most
from dptext_etl.runner.layout import is_remote
from dptext_etl.runner.source.guessing import Guess, guess
from dptext_etl.runner.table_check.selection import kept_share

EPSILON = 4.0
"""Of one text, whatever its length."""
CORPUS = "everyday-30k"
CAP = 20.0
"""A written constant: five texts of a person. It never follows from the table."""


@bare
def init(
    path: str | Path,
    *,
    dataset: str | None = None,
    key: str = "file:dptext.key",
    id: str | None = None,  # noqa: A002
    subject: str | None = None,
    texts: Sequence[str] = (),
    encoding: Encoding | None = None,
) -> str:
    """Write a policy that works for a file, from the names, types and shapes of its columns."""
    return policy_of(str(path), guess(str(path), id, subject, texts, encoding), dataset=dataset, key=key)


def policy_of(source: str, found: Guess, *, dataset: str | None = None, key: str = "file:dptext.key") -> str:
    """Write the policy of a table whose columns have roles."""
    sections = (
        [
            "# A policy for dptext. It was guessed from names, types and shapes of columns; check these first:",
            f"#   id       {found.id}: it needs a value of its own in each row",
            f"#   subject  {found.subject or 'none found: records stand for themselves'}",
            *(f"#   text     {name}" for name in found.texts),
            "# Then `dptext plan` says what it would cost, and `dptext run` does it.",
        ],
        _places(source, dataset or _name(source), found),
        _roles(found),
        _spending(found, key),
        *map(_column, found.texts),
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _places(source: str, name: str, found: Guess) -> list[str]:
    csv = found.csv
    dialect = ("separator", csv.separator), ("encoding", csv.encoding), ("quote", csv.quote)
    folder = f"{source.rpartition('/')[0]}/" if is_remote(source) else ""
    lines = [
        "# The dataset is part of every key: never rename it. A release name pins these settings and one text per id:",
        "# changed data or settings take a new name, at full spend.",
        _pair("dataset", name),
        'release = "1"',
        _pair("source", source),
        *(f"# {line}" for line in encoding_of(found)),
        *([] if csv == PLAIN_CSV else [f"csv = {{ {', '.join(_pair(*item) for item in dialect)} }}"]),
        "# Versioned folders and one manifest, which readers follow.",
        _pair("sink", f"{folder}published/{name}"),
    ]
    if is_remote(source):
        lines += ["# What is not published yet: local, readable by you alone.", 'staging = "staging"']
    return lines


def encoding_of(found: Guess) -> list[str]:
    """Say for people which encoding is proposed for a file that is not in UTF-8, and why."""
    if found.other_byte is None:
        return []
    reason = f"The file is not in UTF-8: the first other byte is in line {found.other_byte}."
    return [f"{reason} The encoding {found.csv.encoding} is a guess: check how that line reads."]


def _roles(found: Guess) -> list[str]:
    lines = [
        _pair("id", found.id),
        '# Published ids: "keep" as they are, "keyed" as a keyed hash that is the same within a release, or "drop".',
        "# Ids that others know (ticket numbers, e-mail addresses) show them whose row it is: take keyed or drop.",
        *(["# These ids look like ones that others know."] if found.known_ids else []),
        f'ids = "{"keyed" if found.known_ids else "keep"}"',
    ]
    if found.subject is not None:
        lines += [
            "# Whose budget a record takes: caps add up over all records of a subject.",
            _pair("subject", found.subject),
            *_spelled(found),
        ]
    else:
        lines += ["# No column names a person; one with k records has k times the loss.", 'unit = "record"']
    lines.append(
        "# Columns that pass in clear; what is not listed is dropped unread (strict_columns = true refuses instead)."
    )
    if found.others:
        lines.append(f"# There are more, which are not named here: {', '.join(found.others)}.")
    return [*lines, "keep = []", "strict_columns = false"]


def _spending(found: Guess, key: str) -> list[str]:
    (cap, unit), row = _proposed_cap(found), EPSILON * len(found.texts)
    return [
        "# The secret behind all draws: guard it like the raw texts, and keep a copy. `dptext key new` makes one.",
        _pair("key", key),
        "# Who was charged what. Its ids are hashed under a key of its own, ledger.db.id.key: keep a copy of both.",
        'ledger = { url = "sqlite:///ledger.db" }',
        f"# The most that a {unit} may lose over all releases of the period; a row costs {row:g}.",
        *(f"# {line}" for line in odds_of_cap(cap, unit)),
        "# Set it by what you promise to people, never by what the table needs.",
        "# Releases of all forms (rows, unlinked, synthetic tables) count under a cap of this measure.",
        f'cap = {{ measure = "approx", epsilon = {cap}, delta = 1e-6, period = "all" }}',
        *_limited(found),
        '# Records over the cap are left out; "refuse" stops the run instead.',
        'on_cap = "quarantine"',
        "# false leaves the result staged.",
        "publish = true",
        "# true takes only ids that are not published yet.",
        "incremental = false",
    ]


def _spelled(found: Guess) -> list[str]:
    """Write `normalize` where more than 1% of the persons have several spellings."""
    persons, alike = found.spellings.get("persons", 0), found.spellings.get("alike", 0)
    if persons - alike <= persons / 100:
        return []
    return [
        "# Some persons have several spellings here, which differ in case or blanks. Without this, each has a cap.",
        'normalize = ["nfc", "casefold", "strip"]',
    ]


def _limited(found: Guess) -> list[str]:
    """Write how many rows of a person fit the cap, a constant: the key chooses them, so that their order does not."""
    if found.subject is None:
        return []
    return [
        "# The rows of a person that fit the cap. The key chooses them, in any order of rows; others are left out.",
        f"per_subject = {_rows_that_fit(found)}",
    ]


def _rows_that_fit(found: Guess) -> int:
    return int(_proposed_cap(found)[0] // (EPSILON * len(found.texts)))


def _left_out(found: Guess) -> list[str]:
    """Say for people which share of the rows stays, and what helps where few do."""
    said = (
        [f"persons: {found.spellings['persons']:,} spellings of {found.spellings['alike']:,}"]
        if _spelled(found)
        else []
    )
    share = math.floor(100 * kept_share(found.rows_of_persons, _rows_that_fit(found)))
    if not found.rows_of_persons or share == 100:
        return said
    stays = f"{share}% of the rows that name a person stay: the others are beyond per_subject"
    few = share < 100 * Policy.model_fields["min_released"].default
    more = "; a smaller epsilon per text keeps more, and readers who train or count need a [synthetic] table only"
    return [*said, stays + (more if few else "")]


def cap_of(found: Guess) -> list[str]:
    """Say for people which cap is proposed, and what it allows."""
    cap, unit = _proposed_cap(found)
    return [f"the cap that it proposes per {unit}: epsilon {cap:g}", *odds_of_cap(cap, unit), *_left_out(found)]


def _proposed_cap(found: Guess) -> tuple[float, str]:
    return max(CAP, EPSILON * len(found.texts)), "subject" if found.subject else "record"


def odds_of_cap(epsilon: float, unit: str) -> tuple[str, str]:
    """Say what an (epsilon, delta) cap allows readers to learn of one unit, and from where on it says nothing."""
    power = at_most(epsilon / math.log(10), 3)
    vacuous = ": in practice it bounds nothing" if epsilon >= VACUOUS else ""
    return (
        f"Epsilon {epsilon:g}: an outcome is at most 10^{power} times as likely for some texts of one {unit} as for",
        f"others, plus delta{vacuous}. 8 is a factor of 3,000; from {VACUOUS} on (10^13) it says nothing in practice.",
    )


def _column(name: str) -> list[str]:
    return [
        "[[column]]",
        _pair("name", name),
        "# A public text takes the place of every text. Epsilon is per text: smaller is safer and keeps less.",
        "# A corpus of your own domain reads like your texts: `dptext corpus build`.",
        f'mechanism = {{ name = "surrogate", epsilon = {EPSILON}, {_pair("corpus", CORPUS)} }}',
    ]


def _name(source: str) -> str:
    stem = source.rstrip("/").rpartition("/")[2].partition(".")[0]
    return stem if stem and not set(stem) & set("*?[") else "dataset"


def _pair(entry: str, value: str) -> str:
    """Write an entry whose value is a TOML basic string: JSON's escapes are among TOML's."""
    return f"{entry} = {json.dumps(value, ensure_ascii=False)}"
