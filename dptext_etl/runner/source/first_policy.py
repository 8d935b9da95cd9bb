"""Write a first policy for a file, with a comment for every guess (`dptext init`)."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from dptext_etl.data_types import kind_of
from dptext_etl.errors import InputError, UsageError, bare
from dptext_etl.parameters import validated
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import Labels
from dptext_etl.policy.terms import PLAIN_CSV, Encoding
from dptext_etl.runner.layout import is_remote
from dptext_etl.runner.shard.charging import VACUOUS, at_most
from dptext_etl.runner.source.guessing import Guess, guess
from dptext_etl.runner.table_check import kept_share

EPSILON = 4.0
"""Of one text, whatever its length."""
CORPUS = "everyday-30k-2"
CAP = 20.0
"""A written constant: five texts of a person. It never follows from the table."""
TABLE_EPSILON, TABLE_CAP = 1.0, 4.0
"""Of a whole synthetic table, and the cap of the forms that publish a column as a whole."""
ROWS = {"shuffled": 1_000, "synthetic": 10_000}
DELTA = 1e-8
"""Of a record in these forms; it allows a million records."""
FEW_LABELS = 5
"""Up to this number of labels are often opinions, which are a weak direction of word vectors."""
Form = Literal["rows", "shuffled", "synthetic"]


@dataclass(frozen=True)
class Choices:
    """The decisions of a person about a first policy; no default follows from a table."""

    form: Form = "rows"
    labels: Labels | None = None  # of a form without ids: a list that someone named as public
    keep: tuple[str, ...] = ()
    ids: str | None = None
    cap: float | None = None
    rows: int | None = None  # that are published, at least (shuffled) or exactly (synthetic)
    per_subject: int = 1  # records of a person that count in one table


ROWS_WITH_IDS = Choices()


@bare
def init(
    path: str | Path,
    *,
    dataset: str | None = None,
    key: str = "file:noise.key",
    id: str | None = None,  # noqa: A002
    subject: str | None = None,
    texts: Sequence[str] = (),
    encoding: Encoding | None = None,
    form: Form = "rows",
    labels: str | None = None,
) -> str:
    """Write a policy that works for a file, from the names, types and shapes of its columns.

    `labels` of the forms without ids are "COLUMN=A,B,C" or "none": values that are public without the table.
    """
    table = guess(str(path), id, subject, texts, encoding)
    choices = Choices(form, labels_of(labels, table, form))
    return policy_of(str(path), table, choices, dataset=dataset, key=key)


def labels_of(given: str | None, guess: Guess, form: Form) -> Labels | None:
    """Read public labels, "COLUMN=A,B,C" or "none"; their values never come from the table."""
    if form == "rows":
        if given is not None:
            msg = "labels are of synthetic tables and shuffled releases, and the form is rows"
            raise UsageError(msg, "give --form synthetic or --form shuffled too")
        return None
    if given is None and guess.label is not None and form == "synthetic":
        hint = f"give --labels {guess.label}=A,B,C, or --labels none. List values that are known without this table"
        raise UsageError(f"column {guess.label} looks like labels, and it is not known which values are public", hint)
    if given in {None, "none"}:
        return None
    column, sign, listed = str(given).partition("=")
    if not sign:
        raise UsageError("labels are a column and its public values", "give --labels COLUMN=A,B,C, or --labels none")
    return public_labels(column, split_labels(listed), guess)


def split_labels(listed: str) -> list[str]:
    """Split values at commas; a value with a comma has double quotes around it."""
    return [value.strip() for value in next(csv.reader([listed], skipinitialspace=True), [])]


def public_labels(column: str, values: Sequence[str], guess: Guess) -> Labels:
    """Return the labels of a column, by a list of values that someone named as public."""
    if column in {guess.id, guess.subject, *guess.texts}:
        raise UsageError(f"column {column} has another role", "labels have a separate column")
    if (dtype := guess.type_of(column)) != pl.String and guess.file_format != "csv":
        raise InputError(f"labels are strings, and {column} is a column of {kind_of(dtype)}", "cast the column")
    with validated("labels", Labels):
        return Labels.model_validate({"column": column, "values": values})


def policy_of(
    source: str,
    guess: Guess,
    choices: Choices = ROWS_WITH_IDS,
    *,
    dataset: str | None = None,
    key: str = "file:noise.key",
) -> str:
    """Write the policy of a table whose columns have roles."""
    if choices.form != "rows" and len(guess.texts) > 1:
        msg = f"the form {choices.form} has one text column, and there are {len(guess.texts)}: {', '.join(guess.texts)}"
        raise UsageError(msg, "name one with --text; each other column needs a separate policy")
    last = [_shuffled(guess, choices)] if choices.form == "shuffled" else []
    last += [_synthetic(guess, choices)] if choices.form == "synthetic" else [*map(_column, guess.texts)]
    sections = (
        [
            "# A policy for dptext. It was guessed from names, types and shapes of columns; check these first:",
            f"#   id       {guess.id}: it needs a different value in each row",
            f"#   subject  {guess.subject or 'none found: records stand for themselves'}",
            *(f"#   text     {name}" for name in guess.texts),
            "# Then `dptext plan` shows the cost, and `dptext run` releases the table.",
        ],
        _places(source, dataset or _name(source), guess),
        _roles(guess, choices),
        _spending(guess, key, choices),
        *last,
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _places(source: str, name: str, guess: Guess) -> list[str]:
    spec = guess.csv
    dialect = ("separator", spec.separator), ("encoding", spec.encoding), ("quote", spec.quote)
    folder = f"{source.rpartition('/')[0]}/" if is_remote(source) else ""
    lines = [
        "# The dataset is part of every key: never rename it. A release name pins these settings and one text per id:",
        "# changed data or settings need a new name, at full spend.",
        _pair("dataset", name),
        'release = "1"',
        _pair("source", source),
        *(f"# {line}" for line in encoding_of(guess)),
        *([] if spec == PLAIN_CSV else [f"csv = {{ {', '.join(_pair(*item) for item in dialect)} }}"]),
        "# Versioned folders and one manifest, which readers follow.",
        _pair("sink", f"{folder}published/{name}"),
    ]
    if is_remote(source):
        lines += ["# Rows that are not published yet: local, readable only by you.", 'staging = "staging"']
    return lines


def encoding_of(guess: Guess) -> list[str]:
    """Say for people which encoding is proposed for a file that is not in UTF-8, and why."""
    if guess.other_byte is None:
        return []
    reason = f"The file is not in UTF-8: the first other byte is in line {guess.other_byte}."
    return [f"{reason} The encoding {guess.csv.encoding} is a guess: check how that line reads."]


def _roles(guess: Guess, choices: Choices) -> list[str]:
    rows = choices.form == "rows"
    ids = [
        '# Published ids: "keep" as they are, "keyed" as a keyed hash that is the same within a release, or "drop".',
        "# Ids that others know (ticket numbers, e-mail addresses) show them whose row it is: use keyed or drop.",
        *(["# These ids look like ones that others know."] if guess.known_ids else []),
        _pair("ids", choices.ids or default_ids(guess)),
    ]
    hidden = ["# It is not published. Of all other columns, only public labels are."]
    lines = [_pair("id", guess.id), *(ids if rows else hidden)]
    if guess.subject is not None:
        lines += [
            "# The person whose budget a record uses: caps add up over all records of a subject.",
            _pair("subject", guess.subject),
            *_spelled(guess),
        ]
    else:
        lines += ["# No column names a person; one with k records has k times the loss.", 'unit = "record"']
    lines.append(
        "# Columns that pass unchanged; others are dropped unread (strict_columns = true refuses instead)."
        if rows
        else "# Other columns are dropped unread (strict_columns = true refuses instead)."
    )
    if others := [*filter(None, [guess.label]), *guess.others]:
        lines.append(f"# There are more: {', '.join(others)}.")
    return [*lines, *([_pair("keep", choices.keep)] if rows else []), "strict_columns = false"]


def default_ids(guess: Guess) -> str:
    return "keyed" if guess.known_ids else "keep"


def _spending(guess: Guess, key: str, choices: Choices) -> list[str]:
    cap, unit = proposed_cap(guess, choices)
    cost = "`dptext plan` shows the cost of a record" if choices.form == "shuffled" else None
    cost = cost or f"a {'row' if choices.form == 'rows' else 'record'} costs {cost_of(guess, choices.form):g}"
    return [
        "# The secret behind all draws: guard it like the raw texts, and keep a copy. `dptext key new` makes one.",
        _pair("key", key),
        "# Who was charged what. Its ids are hashed under a separate key, ledger.db.id.key: keep a copy of both.",
        'ledger = { url = "sqlite:///ledger.db" }',
        f"# The most that a {unit} may lose over all releases of the period; {cost}.",
        *(f"# {line}" for line in odds_of_cap(cap, unit)),
        "# Set it by your promise to people, never by the needs of the table.",
        "# Releases of all forms (rows, shuffled, synthetic tables) count under a cap of this measure.",
        f'cap = {{ measure = "approx", epsilon = {cap}, delta = 1e-6, period = "all" }}',
        *_limited(guess, choices),
        '# Records over the cap are left out; "refuse" stops the run instead.',
        'on_cap = "quarantine"',
        "# false leaves the result staged.",
        "publish = true",
        *(["# true releases only ids that are not published yet.", "incremental = false"] * (choices.form == "rows")),
    ]


def _spelled(guess: Guess) -> list[str]:
    """Write `normalize` where more than 1% of the persons have several spellings."""
    persons, alike = guess.spellings.get("persons", 0), guess.spellings.get("alike", 0)
    if persons - alike <= persons / 100:
        return []
    return [
        "# Some persons have several spellings here, which differ in case or blanks. Without this, each has a cap.",
        'normalize = ["nfc", "casefold", "strip"]',
    ]


def _limited(guess: Guess, choices: Choices) -> list[str]:
    """Write how many rows of a person fit the cap, a constant: the key chooses them, so that their order does not."""
    if guess.subject is None or choices.form != "rows":
        return []
    return [
        "# The rows of a person that fit the cap. The key chooses them, in any order of rows; others are left out.",
        f"per_subject = {_rows_that_fit(guess, choices)}",
    ]


def _rows_that_fit(guess: Guess, choices: Choices) -> int:
    if choices.form != "rows":
        return choices.per_subject
    return int(proposed_cap(guess, choices)[0] // cost_of(guess, choices.form))


def _excluded(guess: Guess, choices: Choices) -> list[str]:
    """Say for people which share of the rows stays, and what helps where few do."""
    said = (
        [f"persons: {guess.spellings['persons']:,} spellings of {guess.spellings['alike']:,}"]
        if _spelled(guess)
        else []
    )
    share = math.floor(100 * kept_share(guess.rows_of_persons, _rows_that_fit(guess, choices)))
    if not guess.rows_of_persons or share == 100:
        return said
    stays = f"{share}% of the rows that name a person stay: the others are beyond per_subject"
    few = share < 100 * Policy.model_fields["min_released"].default
    more = "; a smaller epsilon per text keeps more, and for readers who train or count, --form synthetic is enough"
    return [*said, stays + (more if few and choices.form == "rows" else "")]


def cap_of(guess: Guess, choices: Choices = ROWS_WITH_IDS) -> list[str]:
    """Say for people which cap is proposed, and its odds."""
    cap, unit = proposed_cap(guess, choices)
    said = [f"the cap that it proposes per {unit}: epsilon {cap:g}", *odds_of_cap(cap, unit)]
    return [*said, *_excluded(guess, choices)]


def proposed_cap(guess: Guess, choices: Choices) -> tuple[float, str]:
    """Return the cap that is chosen or proposed, and the unit whose losses it bounds."""
    cap = max(CAP if choices.form == "rows" else TABLE_CAP, cost_of(guess, choices.form))
    return choices.cap or cap, "subject" if guess.subject else "record"


def cost_of(guess: Guess, form: Form) -> float:
    """Return the cost of a record; of a shuffled release the most, because fewer others hide it."""
    return TABLE_EPSILON if form == "synthetic" else EPSILON * len(guess.texts)


def odds_of_cap(epsilon: float, unit: str) -> tuple[str, str]:
    """State the odds of one unit under an (epsilon, delta) cap, and whether they bound anything in practice."""
    power = at_most(epsilon / math.log(10), 3)
    vacuous = ": in practice it bounds nothing" if epsilon >= VACUOUS else ""
    return (
        f"Epsilon {epsilon:g}: an outcome is at most 10^{power} times as likely for some texts of one {unit} as for",
        f"others, plus delta{vacuous}. 8 is a factor of 3,000; from {VACUOUS} on (10^13) it says nothing in practice.",
    )


def _shuffled(guess: Guess, choices: Choices) -> list[str]:
    return [
        "# The drawn texts without ids and in no order: each record hides among the others.",
        "[shuffled]",
        "# At least this number are published. A public number, known without this table; more cost less.",
        f"rows = {choices.rows or ROWS[choices.form]}",
        *_of_one_table(guess, choices),
        "# Of each record. 0.01 / delta is at least the number of records.",
        f"delta = {DELTA}",
        '# "rows" has each drawn text once per draw, "counts" each distinct one with its count.',
        'form = "rows"',
        "# A label next to each text. With labels, rows is the least number of texts of each.",
        *_labels(choices),
    ]


def _labels(choices: Choices) -> list[str]:
    labels = choices.labels
    listed = [] if labels is None else [_pair("column", str(labels.column)), _pair("values", [*labels.cells])]
    return [
        '# Public values that someone listed, never read from the table. Others count as "other".',
        f"labels = {{ {', '.join(listed)} }}" if listed else '# labels = { column = "topic", values = ["billing"] }',
    ]


def _synthetic(guess: Guess, choices: Choices) -> list[str]:
    return [
        "# Public texts, drawn from one noisy statistic of the column. No row belongs to a record.",
        "[synthetic]",
        _pair("column", guess.texts[0]),
        *_labels(choices),
        "# Rows of the table: a public number, at no cost.",
        f"rows = {choices.rows or ROWS[choices.form]}",
        *_of_one_table(guess, choices),
        *(f"# {line}" for line in recipe_of(choices.labels)),
        "# Epsilon is for the whole table and one record. 0.01 / delta is at least the number of records.",
        f'mechanism = {{ name = "maxent", epsilon = {TABLE_EPSILON}, delta = {DELTA}, {_pair("corpus", CORPUS)} }}',
    ]


def recipe_of(labels: Labels | None) -> list[str]:
    """Return how to make a corpus with texts about the labels, by the number of labels."""
    if labels is None:
        return []
    few = len(labels.cells) <= FEW_LABELS
    guidance, task = (" --guidance 1.6", " --task written.parquet") if few else ("", "")
    return [
        "A corpus with texts about your labels keeps more. A model writes them; it reads these names, nothing private:",
        f'  dptext corpus write --model FOLDER --about "SENTENCE" --labels POLICY{guidance} --out written.parquet',
        f"  dptext corpus build {CORPUS} written.parquet{task} --out corpus --license TERMS --provenance WORDS",
        "Few labels are often opinions, a weak direction of word vectors, so --task strengthens it."
        if few
        else "Among many labels, --task would strengthen none, so the written texts are rows only.",
        'Then name it: corpus = "corpus". Compare both on public texts first (`dptext rehearse --corpus`).',
    ]


def _of_one_table(guess: Guess, choices: Choices) -> list[str]:
    if guess.subject is None:
        return []
    return ["# Records of one person that count, at most; each is paid.", f"per_subject = {choices.per_subject}"]


def _column(name: str) -> list[str]:
    return [
        "[[column]]",
        _pair("name", name),
        "# A public text replaces every text. Epsilon is per text: smaller is safer and keeps less.",
        "# A corpus of your domain reads like your texts: `dptext corpus build`.",
        f'mechanism = {{ name = "surrogate", epsilon = {EPSILON}, {_pair("corpus", CORPUS)} }}',
    ]


def _name(source: str) -> str:
    stem = source.rstrip("/").rpartition("/")[2].partition(".")[0]
    return stem if stem and not set(stem) & set("*?[") else "dataset"


def _pair(entry: str, value: str | Sequence[str]) -> str:
    """Write an entry whose value is a TOML basic string, or a list of these: JSON's escapes are among TOML's."""
    return f"{entry} = {json.dumps(value, ensure_ascii=False)}"
