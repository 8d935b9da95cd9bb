"""Read raw texts once more for reports: inside the boundary, over a staged run, as counts, and logged.

The reports are exact statistics of raw text. They decide, drop and change nothing, and are never published: two such
reports over data that differ in one record reveal that record (docs/spec/privacy.md#seal).

A seal counts which values a release shares with a raw column, by keyed fingerprints. It holds distinct values only,
under a key that follows from the noise key for this column and nothing else: no record, order or multiplicity, and
without the key no one can extend or search it. Anyone who may compare chosen texts with it can still test whether a
text is in the column, so a seal is made only here, over a staged run, and the request is logged.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import polars as pl

from dptext_etl import _kernel
from dptext_etl._kernel import Secret
from dptext_etl.artifacts import canon
from dptext_etl.checks.canaries import CANARY
from dptext_etl.corpora.building import normalized
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.policy import Policy
from dptext_etl.runner.shard.staging import StagedRun, StagedShard, Staging
from dptext_etl.runner.source.roles import open_table
from dptext_etl.storage import Storage
from dptext_etl_eval.personal_data import Finder, SurvivorCount, by_patterns, count_survivors

NGRAM = 5
"""Words of the n-grams that are sealed next to whole texts."""
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Seal:
    """Holds keyed hashes of the distinct texts and n-grams of a raw column.

    Attributes:
        size: How many distinct values there are.
    """

    _key: bytes = field(repr=False)
    _marks: frozenset[bytes] = field(repr=False)

    @classmethod
    def of(cls, texts: Iterable[Iterable[str]], secret: Secret, dataset: str, column: str) -> Seal:
        """Seal the texts of a column."""
        key = secret.derive("seal", canon([dataset, column]))
        return cls(key, frozenset(_mark(key, value) for text in texts for value in _fingerprinted(list(text))))

    @property
    def size(self) -> int:
        """Number of distinct values."""
        return len(self._marks)

    def shared(self, texts: Iterable[Iterable[str]]) -> dict[str, int]:
        """Count the released texts that the raw column holds, too."""
        counts = {"rows": 0, "texts": 0, "with_runs": 0}
        for text in texts:
            whole, *ngrams = _fingerprinted(list(text)) or [""]
            counts["rows"] += 1
            counts["texts"] += bool(whole) and _mark(self._key, whole) in self._marks
            counts["with_runs"] += any(_mark(self._key, ngram) in self._marks for ngram in ngrams)
        return counts

    def __reduce__(self) -> str:
        raise TypeError("a seal stays in the process that made it")


def _fingerprinted(words: list[str]) -> list[str]:
    """Return the text itself, then its n-grams; nothing for an empty text."""
    if not words:
        return []
    ngrams = (words[at : at + NGRAM] for at in range(len(words) - NGRAM + 1))
    return [_SEPARATOR.join(["text", "", *words]), *(_SEPARATOR.join(["run", *ngram]) for ngram in ngrams)]


def _mark(key: bytes, value: str) -> bytes:
    return hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


QUERIES = "queries.jsonl"
"""The log of these reports in the staging folder."""

log = logging.getLogger("dptext_etl.runner")


@bare
def survivors(staged: StagedRun, find: Finder = by_patterns) -> dict[str, SurvivorCount]:
    """Count the personal data of the raw texts that is left in the output of a staged run, by published text column.

    A column with post-processing is judged as it is published, and as `NAME_intermediate` too where that is published.
    """
    _log(staged, "survivors")
    total: dict[str, SurvivorCount] = {}
    for frame in _beside(staged):
        for name, source in _published(staged.policy).items():
            here = count_survivors(frame[f"raw {source}"], frame[name], find)
            total[name] = total.get(name, SurvivorCount()) + here
    return total


@bare
def sealed(staged: StagedRun) -> dict[str, dict[str, int]]:
    """Count the texts that a staged run publishes and that are, in full or as shared n-grams, in the raw table.

    Unlike a count row by row this also finds texts of other records. The seal lasts as long as the call. Columns are
    as in `survivors`.
    """
    _log(staged, "seal")
    policy, secret = staged.policy, staged.policy.column_policies()[0].secret
    raw, parts = _raw(staged), [_released(staged, shard) for shard in staged.shards]
    counts = {}
    for item in policy.columns:
        with seam("sealing a column", InputError, "the source must be there while its report is made"):
            texts = raw.select(item.name).collect(engine="streaming")[item.name]
        seal = Seal.of(map(_words, texts), secret, policy.dataset, item.name)
        for name, source in _published(policy).items():
            if source == item.name:
                released = (_words(text) for part in parts for text in part[name])
                counts[name] = {"sealed": seal.size, **seal.shared(released)}
    return counts


@bare
def in_corpus(staged: StagedRun) -> dict[str, dict[str, int]]:
    """Count the texts that are both in the raw table and in the public corpus that a column is released from.

    A text of the corpus is public no matter who wrote it, so a find refuses nothing. Many finds say that the corpus was
    made from the table, or both from one source: then it must not be called public. Releases are not looked at, so it
    is the same whatever post-processing makes of them.
    """
    _log(staged, "corpus")
    raw, counts = _raw(staged), {}
    for item in staged.policy.columns:
        if not isinstance(item.mechanism, ChoiceMechanism):
            continue
        public = frozenset(item.mechanism.opened.texts)
        with seam(
            "comparing a column with its corpus", InputError, "the source must be there while its report is made"
        ):
            texts = raw.select(item.name).collect(engine="streaming")[item.name]
        lines = [line for text in texts if (line := normalized(text or "")) in public]
        counts[item.name] = {"corpus": len(public), "standing": len(set(lines)), "rows": len(lines)}
    return counts


def _beside(staged: StagedRun) -> Iterator[pl.DataFrame]:
    """Yield the rows as they are to be published, shard by shard, joined to their raw texts ("raw NAME")."""
    policy, raw = staged.policy, _raw(staged)
    named = raw.rename({item.name: f"raw {item.name}" for item in policy.columns})
    for shard in staged.shards:
        released = _released(staged, shard)
        with seam("reading raw texts next to their releases", InputError, "the source must be there for its report"):
            yield named.join(released.lazy(), on=policy.id, how="inner").collect(engine="streaming")


def _raw(staged: StagedRun) -> pl.LazyFrame:
    names = [item.name for item in staged.policy.columns]
    return open_table(staged.policy, staged.layout).frame.select(staged.policy.id, *names)


def _released(staged: StagedRun, shard: StagedShard) -> pl.DataFrame:
    """Return the rows of a shard as they are to be published: after post-processing, where a column has any."""
    with seam("reading the staged rows", InputError, "report before the run is published"):
        return Staging(staged.layout.staging).outcome(shard).filter(~pl.col(CANARY)).drop(CANARY)


def _published(policy: Policy) -> dict[str, str]:
    """Return the raw column of every published text column; also of a column that is kept unprocessed."""
    kept = {item.intermediate: item.name for item in policy.columns if item.intermediate is not None}
    return {item.name: item.name for item in policy.columns} | kept


def _words(text: str | None) -> list[str]:
    return [word.lower() for word, is_word in _kernel.split(text or "") if is_word]


def _log(staged: StagedRun, what: str) -> None:
    """Log the request before it is answered."""
    if not staged.shards:
        raise InputError(
            "nothing is staged, so there is nothing to report on",
            "ask for the report after staging and before publishing",
        )
    log_request(staged.policy, staged.layout.staging, what)


def log_request(policy: Policy, staging: Storage, what: str) -> None:
    """Log a request for exact figures of raw texts next to the staged rows."""
    request = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "query": what}
    request |= {"dataset": policy.dataset, "release": policy.release}
    with seam("logging a report", InputError):
        staging.append(QUERIES, json.dumps(request).encode())
    log.warning("a report inside the boundary was asked for: %s", what)
