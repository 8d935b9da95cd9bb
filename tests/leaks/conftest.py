"""A staged run to plant bugs into: real runner, real ledger, canary rows included."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dptext_etl import Ledger, Policy, _kernel
from dptext_etl.checks import CANARY, Candidate, evaluate
from dptext_etl.embeddings import WordVectors
from dptext_etl.engines import stage
from dptext_etl.runner import StagedRun
from tests.policy_files import custext_column, policy_in

SENTINEL = "Zqxsentinelword"
"""Stands in every raw text and nowhere else."""


@dataclass(frozen=True)
class Bench:
    """A staged run, its raw rows with canaries in the order of the parts, and an open ledger."""

    policy: Policy
    run: StagedRun
    raw: pl.DataFrame
    ledger: Ledger
    sentinel: str = SENTINEL

    @property
    def released(self) -> list[pl.DataFrame]:
        return [pl.read_parquet(part) for part in self.run.parts]

    @property
    def published(self) -> pl.DataFrame:
        return pl.concat(self.released).filter(~pl.col(CANARY)).drop(CANARY)

    def candidate(self, parts: tuple[Path, ...], **changes) -> Candidate:
        facts = {
            "policy": self.policy,
            "parts": parts,
            "canaries": self.run.canaries,
            "ledger": self.ledger,
            "refs": self.run.refs,
        }
        return Candidate(**{**facts, **changes})

    def raw_texts(self, part: pl.DataFrame, column: str) -> pl.Series:
        """The raw texts of a part's rows."""
        return part.select("id").join(self.raw.select("id", column), on="id", how="left", maintain_order="left")[column]

    def judge(self, bug, folder: Path, **changes):
        """Evaluate the gates after `bug` has changed every part; verdicts by name."""
        parts = []
        for number, frame in enumerate(self.released):
            parts.append(folder / f"part-{number}.parquet")
            bug(frame).write_parquet(parts[-1])
        return {verdict.name: verdict for verdict in evaluate(self.candidate(tuple(parts), **changes))}


@pytest.fixture(scope="session")
def bench(tmp_path_factory, small_vectors):
    """Two text columns, three shards, texts with unknown words, numbers, case, punctuation, nulls and blanks."""
    folder = tmp_path_factory.mktemp("bench")
    _kernel.Secret().write(str(folder / "noise.key"))
    words = [word for word in WordVectors.load(small_vectors).words if word.isalpha()]
    random = np.random.default_rng(3)
    texts = [f"{' '.join(random.choice(words, 12))}, {SENTINEL} {n}!" for n in range(250)]
    texts[::31] = [None] * len(texts[::31])
    texts[7::40] = ["  "] * len(texts[7::40])
    notes = [" ".join(random.choice(words, 6)).title() for _ in range(250)]
    raw = pl.DataFrame({"id": range(1000, 1250), "stars": [n % 5 for n in range(250)], "review": texts, "note": notes})
    raw.write_parquet(folder / "raw.parquet")
    columns = [custext_column(small_vectors, name) for name in ("review", "note")]
    policy = policy_in(folder, *columns, dataset="reviews", keep=["stars"], shard_rows=100)
    run = stage(policy)
    planted = [{"id": row.id, "stars": None, **row.texts} for plan in run.canaries for row in plan.rows]
    raw = pl.concat([raw, pl.DataFrame(planted, schema=raw.schema)])
    with Ledger.open(policy.ledger.url, create=False) as ledger:
        yield Bench(policy, run, raw, ledger)


@pytest.fixture(scope="session")
def leaking(bench):
    """A release in which every text passed through, canary rows included."""
    return bench.raw.with_columns(pl.col("review").fill_null("none")).with_columns(pl.col("review").alias("stars"))


@pytest.fixture(scope="session")
def forbidden(bench):
    """Whatever must not be said: words of raw and released texts, ids, canary words."""
    texts = [*bench.raw["review"].drop_nulls(), *bench.published["review"].drop_nulls()]
    words = {word.strip("!,.").lower() for text in texts for word in text.split()}
    canaries = {str(row.id) for plan in bench.run.canaries for row in plan.rows}
    return {word for word in words if len(word) > 5} | canaries | {str(n) for n in range(1000, 1250)}


@pytest.fixture(scope="session")
def long_forbidden(forbidden):
    """Those that no time, size, or number of a process looks like."""
    return {word for word in forbidden if len(word) > 5}
