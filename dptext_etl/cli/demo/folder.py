"""Prepare the folder of `dptext demo`: raw tables, key, policy, ledger; the demo changes nothing outside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from dptext_etl.cli.demo import reviews
from dptext_etl.errors import PolicyError, seam

if TYPE_CHECKING:
    import polars as pl

_MARK = ".dptext-demo"
_POLICY = """\
# The policy of `dptext demo`, for a dataset of invented reviews with one text column. Paths are relative to this file.
dataset = "{dataset}"
release = "2026-11"                       # pins one configuration; partitions are no part of it
source  = "{up}raw/{{partition}}.parquet"
sink    = "published/{{partition}}"
id      = "id"
subject = "user_id"                       # caps are per user
keep    = ["stars", "date"]               # "channel" is dropped
key     = "file:{up}noise.key"
ledger  = {{ url = "sqlite:///ledger.db" }}
cap     = {{ measure = "pure", epsilon = 160, period = "2026" }}
on_cap  = "quarantine"

[[column]]
name = "review"
mechanism = {{ name = "custext", epsilon = 2.0, k = 20 }}
allow = ["cluster"]                       # consent: CusText shows the output set of every word
"""

_SURROGATE = """\
# The same reviews as surrogates: a public text in the place of each. Paths are relative to this file.
dataset = "demo-surrogate"
release = "2026-11"
source  = "raw/{partition}.parquet"
sink    = "surrogate/{partition}"
id      = "id"
subject = "user_id"
keep    = ["stars", "date"]
key     = "file:noise.key"
ledger  = { url = "sqlite:///ledger.db" }
cap     = { measure = "pure", epsilon = 40, period = "2026" }       # ten texts of a user per year

[[column]]
name = "review"
mechanism = { name = "surrogate", epsilon = 4.0, corpus = "corpus" }   # epsilon per text; nothing of it is disclosed
"""


class DemoFolder:
    """The folder of the demo and the paths of its files.

    Attributes:
        path: The folder.
        policy: The policy file.
        ledger: The ledger that the policy names.
        home: The Dagster instance of the demo.
        faulty: The policy file of the planted bug, with a ledger and a sink of its own.
        surrogate: The policy file of the release as surrogates.
        corpus: The folder of its corpus.
        surrogates: The folder of its published tables.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policy = path / "privacy.toml"
        self.ledger = path / "ledger.db"
        self.home = path / "dagster"
        self.faulty = path / "planted-bug" / "privacy.toml"
        self.surrogate = path / "surrogate.toml"
        self.corpus = path / "corpus"
        self.surrogates = path / "surrogate"

    def prepare(self) -> None:
        """Remove an earlier demo from this folder, and write the files of a new one."""
        from dptext_etl import _kernel

        mark = self.path / _MARK
        if self.path.exists() and not mark.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise PolicyError(
                f"{self.path} holds something that is not a demo", "name another folder: dptext demo FOLDER"
            )
        with seam(f"writing the demo into {self.path}", hint="name a folder that you can write to: dptext demo FOLDER"):
            shutil.rmtree(self.path, ignore_errors=True)
            self.faulty.parent.mkdir(parents=True)
            mark.touch()
            reviews.write(self.path / "raw")
            _kernel.Secret().write(str(self.path / "noise.key"))
            self.surrogate.write_text(_SURROGATE, encoding="utf-8")
            self.policy.write_text(_POLICY.format(dataset="demo-reviews", up=""), encoding="utf-8")
            self.faulty.write_text(_POLICY.format(dataset="planted-bug", up="../"), encoding="utf-8")

    def published(self, folder: Path) -> pl.DataFrame:
        """Read the published tables of all months below a folder."""
        import polars as pl

        from dptext_etl.runner import scan_published

        return pl.concat([scan_published(str(folder / partition)).collect() for partition in reviews.PARTITIONS])
