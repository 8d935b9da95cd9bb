"""Three small jobs: the rows of their tables, their policies, and how far each was run when it was frozen.

Every path is relative, so that a copy works wherever it lies: tests change into its folder. The keys are for tests.
"""

import hashlib
from contextlib import chdir
from pathlib import Path

import polars as pl

from dptext_etl import Policy, _kernel, catalog, run
from dptext_etl.engines import stage

from . import rows

LEDGER_SECRET = hashlib.sha256(b"dptext frozen fixtures: a ledger's id key for tests alone").digest()
LEDGER = {"url": "sqlite:///ledger.db", "id_key": "file:ledger.key"}
WORDS = (
    "the", "of", "and", "to", "a", "in", "is", "it", "you", "that", "he", "was", "for", "on", "are", "with",
    "as", "his", "they", "be", "at", "one", "have", "this", "from", "or", "had", "by", "film", "good",
)  # fmt: skip
SUBJECTS, ROWS, MORE, LATER = 9, 40, 52, 60

GEOMETRIC = {"name": "diffractor", "epsilon": 0.5, "limit": 60, "variant": "geometric", "unknown_words": "drop"}
REVIEWS = {
    "dataset": "reviews",
    "release": "2026-11",
    "source": "raw.parquet",
    "sink": "published",
    "staging": "staging",
    "id": "id",
    "subject": "user_id",
    "keep": ["stars", "day"],
    "keep_unique": "accepted",
    "key": "file:noise.key",
    "ledger": LEDGER,
    "cap": {"measure": "pure", "epsilon": 150.0, "period": "2026"},
    "shard_rows": 16,
    "incremental": True,
    "column": [
        {"name": "review", "mechanism": {"name": "custext", "epsilon": 2.0, "k": 5, "limit": 43}, "allow": ["cluster"]},
        {"name": "note", "mechanism": GEOMETRIC | {"epsilon": 2.0}, "allow": ["oov_flag"]},
    ],
}
NOISY = {"name": "diffractor", "epsilon": 0.5, "limit": 60, "length": "noisy", "n_max": 6, "epsilon_length": 0.25}
STAGED = {
    "release": "2026-12",
    "sink": "published-12",
    "incremental": False,
    "cap": {"measure": "pure", "epsilon": 150.0, "period": "2026"},
    "column": [{"name": "review", "mechanism": NOISY}],
}
TICKETS = {
    "dataset": "tickets",
    "release": "Q4 é",
    "source": "in/{partition}.csv",
    "sink": "out/{partition}",
    "staging": "staging",
    "id": "number",
    "unit": "record",
    "keep": ["state"],
    "key": "file:noise.key",
    "ledger": LEDGER,
    "shard_rows": 10,
    "column": [
        {
            "name": "text",
            "mechanism": {"name": "santext", "epsilon": 1.5, "variant": "plus", "limit": 40},
            "allow": ["sens_class", "stopwords"],
            "accept_unbounded": ["UMLDP"],
        }
    ],
}
FILMS = {
    "dataset": "films",
    "release": "2026-11",
    "source": "raw.ndjson",
    "sink": "published",
    "staging": "staging",
    "id": "id",
    "subject": "user_id",
    "key": "file:noise.key",
    "ledger": LEDGER,
    "cap": {"measure": "pure", "epsilon": 2000.0, "period": "2026"},
    "column": [
        {
            "name": "review",
            "mechanism": {
                "name": "dpmlm", "epsilon": 5.0, "model": "model", "variant": "plusminus", "addition": 0.25, "n_max": 8,
                "clip": [-6.0, 10.0],
            },
        }
    ],
}  # fmt: skip


TABLES = {
    "custext": {"name": "custext", "epsilon": 0.125, "k": 5, "limit": 43},
    "custext plus": {"name": "custext", "epsilon": 1.5, "variant": "plus", "k": 4, "limit": 40},
    "tem": {"name": "diffractor", "epsilon": 2.0, "limit": 60},
    "tem, padded": {"name": "diffractor", "epsilon": 2.0, "limit": 60, "length": "fixed", "n_max": 7},
    "geometric": GEOMETRIC,
}
"""Mechanisms whose stored laws were frozen."""


def mechanism(label):
    return catalog.build(TABLES[label])


def policy(values, **changes):
    return Policy.parse({**values, **changes})


def write_keys(folder):
    """The two keys that every job names, for their owner alone."""
    for name, secret in (("noise.key", rows.SECRET), ("ledger.key", LEDGER_SECRET)):
        path = Path(folder) / name
        if not path.exists():
            _kernel.Secret.from_bytes(secret).write(str(path))


def texts(count, first=0):
    """Words in and out of the vocabulary, empty and null texts."""
    odd = {3: "", 7: None, 11: "Unknown zebra 42, naïve café!", 13: "GOOD film 😀"}
    return [
        odd.get(i % 17, " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(2 + i % 5)))
        for i in range(first, first + count)
    ]


def reviews(count):
    numbers = range(count)
    return pl.DataFrame(
        {
            "id": [f"r{i:03d}" for i in numbers],
            "user_id": [f"u{i % SUBJECTS}" for i in numbers],
            "stars": [i % 5 + 1 for i in numbers],
            "day": pl.date_range(pl.date(2026, 1, 1), pl.date(2026, 1, 1).dt.offset_by(f"{count - 1}d"), eager=True),
            "review": texts(count),
            "note": [None if i % 3 else WORDS[i % len(WORDS)] for i in numbers],
            "secret": [f"never read {i}" for i in numbers],
        }
    )


def tickets(count, first):
    numbers = range(first, first + count)
    state = ["open" if i % 2 else "closed" for i in numbers]
    return pl.DataFrame({"number": numbers, "state": state, "text": texts(count, first)})


def films(count):
    numbers = range(count)
    return pl.DataFrame(
        {"id": [f"f{i}" for i in numbers], "user_id": [f"u{i % 3}" for i in numbers], "review": texts(count)}
    )


class StoppedError(Exception):
    """Stands for a process that dies."""


def stopping_at(step):
    def checkpoint(name):
        if name == step:
            raise StoppedError

    return checkpoint


def make_reviews(folder):
    """A release of two versions, the second one incremental; another release staged and committed, not published."""
    with chdir(folder):
        for name, count in (("raw", ROWS), ("more", MORE), ("later", LATER)):
            reviews(count).write_parquet(f"{name}.parquet")
        run(policy(REVIEWS))
        run(policy(REVIEWS, source="more.parquet"))
        stage(policy(REVIEWS, **STAGED))


def make_tickets(folder):
    """Two partitions: one published, one whose run died after the ledger knew and before readers could see."""
    with chdir(folder):
        Path("in").mkdir()
        tickets(25, 0).write_csv("in/2026-01.csv")
        tickets(15, 25).write_csv("in/2026-02.csv")
        run(policy(TICKETS), partition="2026-01")
        try:
            run(policy(TICKETS), partition="2026-02", checkpoint=stopping_at("recorded"))
        except StoppedError:
            return
    raise AssertionError("the run was to be stopped")


def make_films(folder):
    """A release of a language model, whose draws are settled; its bytes are kept next to the published ones."""
    from dptext_etl_models.inference.example_model import example_model

    with chdir(folder):
        Path("model").mkdir()
        for name, artifact in example_model("masked").items():
            (Path("model") / name).write_bytes(artifact.path.read_bytes())
        films(12).write_ndjson("raw.ndjson")
        run(policy(FILMS))


JOBS = {"reviews": make_reviews, "tickets": make_tickets, "films": make_films}


def make(name, folder):
    """Make a job from nothing in a folder."""
    Path(folder).mkdir(mode=0o700, parents=True)
    write_keys(folder)
    JOBS[name](folder)
