"""Prepare the folder of `dptext demo`: raw tables, key, policy, ledger; the demo changes nothing outside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from dptext_etl.cli.demo import requests
from dptext_etl.errors import PolicyError, seam

if TYPE_CHECKING:
    import polars as pl


_MARK = ".dptext-demo"
_POLICY = """\
# The policy of `dptext demo`, for a dataset of invented requests with one text column. Paths are relative to this file.
dataset = "{dataset}"
release = "2026-11"                       # pins one configuration; partitions are no part of it
source  = "{up}raw/months/{{partition}}.parquet"
sink    = "published/{{partition}}"
id      = "id"
subject = "user_id"                       # caps are per user
keep    = ["date"]                        # "topic" is dropped
key     = "file:{up}noise.key"
ledger  = {{ url = "sqlite:///ledger.db" }}
cap     = {{ measure = "pure", epsilon = 120, period = "2026" }}
on_cap  = "quarantine"

[[column]]
name = "request"
mechanism = {{ name = "custext", epsilon = 2.0, k = 20 }}
allow = ["cluster"]                       # consent: CusText shows the output set of every word
"""

_FORMS = {
    "rows": """\
# Row by row: a public text in place of each request. Ids, dates, and topics stay as they are.
keep    = ["date", "topic"]
cap     = { measure = "pure", epsilon = 1 }

[[column]]
name = "request"
mechanism = { name = "surrogate", epsilon = 1.0, corpus = "corpus" }        # epsilon per text
""",
    "unlinked": """\
# Unlinked: the drawn texts with their counts, without ids, order, and other columns. Each record hides among 10,000.
cap     = { measure = "approx", epsilon = 1, delta = 1e-6 }

[unlinked]
rows = 10_000
delta = 1e-8
form = "counts"

[[column]]
name = "request"
mechanism = { name = "surrogate", epsilon = 5.7, corpus = "corpus" }        # epsilon per draw
""",
    "synthetic": """\
# Synthetic: public texts with labels, drawn from one noisy statistic of the table. Texts and topics are both protected.
cap     = { measure = "approx", epsilon = 1, delta = 1e-6 }

[synthetic]
column = "request"
labels = { column = "topic", values = TOPICS }
rows = 10_000
mechanism = { name = "maxent", epsilon = 1.0, delta = 1e-8, corpus = "corpus" }   # epsilon for the whole table
""",
}
_FORM = """\
# Paths are relative to this file.
dataset = "demo-{form}"
release = "2026-11"
source  = "../raw/requests.parquet"
sink    = "{form}"
id      = "id"
subject = "user_id"
key     = "file:../noise.key"
ledger  = {{ url = "sqlite:///../ledger.db" }}
"""


class DemoFolder:
    """The folder of the demo and the paths of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policy = path / "privacy.toml"
        self.ledger = path / "ledger.db"
        self.home = path / "dagster"  # the Dagster instance of the demo
        # the policy file of the planted bug, with a ledger and a sink of its own
        self.faulty = path / "planted-bug" / "privacy.toml"
        self.forms = path / "three-forms"  # policies and tables of the three forms
        self.corpus = self.forms / "corpus"

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
            self.forms.mkdir()
            requests.write(self.path / "raw")
            _kernel.Secret().write(str(self.path / "noise.key"))
            for form, text in _FORMS.items():
                policy = _FORM.format(form=form) + text.replace("TOPICS", json.dumps(list(requests.TOPICS)))
                (self.forms / f"{form}.toml").write_text(policy, encoding="utf-8")
            self.policy.write_text(_POLICY.format(dataset="demo-words", up=""), encoding="utf-8")
            self.faulty.write_text(_POLICY.format(dataset="planted-bug", up="../"), encoding="utf-8")

    def requests(self) -> pl.DataFrame:
        """Read the raw table of all requests, which the demo may do because they are public."""
        import polars as pl

        return pl.read_parquet(self.path / "raw" / "requests.parquet")

    def published(self, form: str) -> pl.DataFrame:
        """Read the table that was published in one of the three forms."""
        from dptext_etl.runner import scan_published

        return scan_published(str(self.forms / form)).collect()

    def months(self) -> pl.DataFrame:
        """Read the tables that were published word by word."""
        import polars as pl

        from dptext_etl.runner import scan_published

        tables = [scan_published(str(self.path / "published" / month)).collect() for month in requests.MONTHS]
        return pl.concat(tables)
