"""Describe one staged file of a shard in counts and hashes, as JSON holds it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

import polars as pl

from dptext_etl.runner.computed import Places

_VERSION = 4


@dataclass(frozen=True)
class StagedShard:
    """The record of one staged file.

    Attributes:
        index: Number of the shard in its run.
        sha256: Hash of the file.
        inputs: Hash of what the file was computed from (keyed hashes of texts, kept values); a resumed run compares it.
        counts: Whole numbers: rows by kind, words.
        spends: Sums and maxima in millionths, by name.
        copies: Texts that equal their originals, by column (`checks.leaks`); stays inside the boundary.
        computed: Where and in what the texts' models computed, by column (`runner.computed`); none without a model.
        failures: What models failed on, by column: `texts`, and `draws` that were uniform; none where none failed, and
            inside the boundary.
        recomputed: Canary rows that were computed twice (`rows`), that agree (`equal`), and that got the release of
            another text (`moved`), by column.
        tag: What names the files of one attempt; empty where attempts cannot meet.
        post: What post-processing made of it: `sha256` of the file next to it, `chains` by column, how many texts
            a model `failed` on, by column, and `copies` among its results, as above; none where nothing is
            post-processed, or before it was.
    """

    index: int
    sha256: str
    inputs: str
    counts: Mapping[str, int]
    spends: Mapping[str, int | float]
    copies: Mapping[str, Mapping[str, Any]]
    computed: Places = field(default_factory=dict)
    failures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    recomputed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tag: str = ""
    post: Mapping[str, Any] = field(default_factory=dict)

    @property
    def by_ids(self) -> bool:
        """Whether ids and counts alone decided which rows it holds, as on Spark; else raw texts filled it."""
        return bool(self.tag)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a record that `save` wrote."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote."""
        values = dict(facts)
        if values.pop("version") != _VERSION:
            msg = "another version of the record"
            raise ValueError(msg)
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON holds it."""
        facts = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("computed", "failures", "recomputed", "post"):  # older records lack them
            if not facts[name]:
                del facts[name]
        return {"version": _VERSION, **facts}


class WholeTable(NamedTuple):
    """The records of a table that a release takes, in numbers (docs/spec/unlinked.md#one-batch).

    Attributes:
        records: Records, those without a text included.
        draws: Records with a draw.
        digest: Sum of their identities modulo 2^256, 64 hex digits.
    """

    records: int
    draws: int
    digest: str


class Facts(NamedTuple):
    """The counts of a computed shard (see `StagedShard`)."""

    counts: Mapping[str, int]
    spends: Mapping[str, int | float]
    copies: Mapping[str, Mapping[str, Any]]
    computed: Places
    failures: Mapping[str, Mapping[str, int]]
    recomputed: Mapping[str, Mapping[str, int]]


class KeptShard(NamedTuple):
    """What was set aside of a shard.

    Attributes:
        frame: Its rows, canary rows included.
        draws: Draws made, one column per text column.
        computed: Where and in what the texts' models computed, by column.
        posts: What post-processing made of its rows, a frame for each time.
    """

    frame: pl.DataFrame
    draws: pl.DataFrame
    computed: Places
    posts: tuple[pl.DataFrame, ...] = ()


def recorded(content: bytes | None) -> StagedShard | None:
    """Read a record, or None if it is gone, damaged, or of another version."""
    try:
        return StagedShard.from_dict(json.loads(content or b"{}"))
    except (ValueError, KeyError, TypeError):
        return None


def digest_of(*parts: bytes) -> str:
    """Hash byte strings unambiguously, 64 hex digits."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.hexdigest()
