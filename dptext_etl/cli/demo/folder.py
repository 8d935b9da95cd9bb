"""Prepare the folder of `dptext demo`: raw tables, key, policy, ledger; the demo changes nothing outside it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """The folder of the demo and the paths of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policy = path / "privacy.toml"
        self.ledger = path / "ledger.db"
        self.home = path / "dagster"  # the Dagster instance of the demo
        # the policy file of the planted bug, with a ledger and a sink of its own
        self.faulty = path / "planted-bug" / "privacy.toml"
        self.surrogate = path / "surrogate.toml"  # the policy file of the release as surrogates
        self.corpus = path / "corpus"
        self.surrogates = path / "surrogate"  # the folder of its published tables

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


DOMAINS = {
    "hotels": ("hotels",),
    "films": ("films", "cinema"),
    "deliveries": ("deliveries", "online_shops"),
    "health": ("doctor", "medicines", "side_effects"),
    "food": ("restaurants",),
    "phones": ("phones", "telephone"),
    "money": ("cards", "payments", "transfers"),
    "trains": ("transport",),
}
"""Topics of the reviews, and the domains of `everyday-30k` that the corpus takes for each."""


def build_corpus(place: DemoFolder) -> dict[str, str]:
    """Build the corpus of the demo, and return the topic of each of its texts."""
    import polars as pl

    from dptext_etl.corpora import building
    from dptext_etl.corpora.cleaning import Source
    from dptext_etl.corpora.everyday import LICENCE, PROVENANCE, generate

    topic_of = {domain: topic for topic, domains in DOMAINS.items() for domain in domains}
    topics = {made.text: topic_of[made.domain] for made in generate() if made.domain in topic_of}
    source = place.path / "public-texts.parquet"
    pl.DataFrame({"text": list(topics)}).write_parquet(source)
    options = building.Options(name="demo", licence=LICENCE, provenance=PROVENANCE)
    building.build([Source(source, "text")], place.corpus, options)
    return topics


def release(place: DemoFolder) -> dict[str, Any]:
    """Release both months as surrogates, and collect what analysts see: rows, topics, cost."""
    from dptext_etl import engines
    from dptext_etl.cli.demo.reviews import PARTITIONS
    from dptext_etl.policy import Policy

    topics = build_corpus(place)
    policy = Policy.load(place.surrogate)
    summaries = [engines.run(policy, partition=partition).as_dict() for partition in PARTITIONS]
    gates = [gate for summary in summaries for gate in summary["gates"]]
    (column,) = policy.column_policies()
    return {
        "epsilon": column.mechanism.epsilon,
        "class": column.mechanism.guarantee.guarantee_class.value,
        "disclosures": sorted(item.value for item in column.mechanism.guarantee.disclosures),
        "corpus": len(topics),
        "gates_passed": all(gate["passed"] for gate in gates),
        "topics": _topics(place, topics, column.mechanism),
    }


def _topics(place: DemoFolder, topics: dict[str, str], mechanism: Any) -> list[dict[str, Any]]:
    """Compare shares of topics: in the raw reviews (which the demo may show), in the release, and near shares."""
    from dptext_etl.cli.demo.reviews import topic
    from dptext_etl.corpora.frequencies import estimate_frequencies

    released = place.published(place.surrogates)
    texts = [text for text in released["review"] if text is not None]
    raw = Counter(topic(int(record[1:])) for record in released["id"])
    seen = Counter(topics[text] for text in texts)
    found = estimate_frequencies(texts, topics, epsilon=mechanism.epsilon, near=mechanism.near)
    return [
        {
            "topic": item.topic,
            "raw": raw[item.topic] / released.height,
            "released": seen[item.topic] / len(texts),
            "near_share": item.near_share,
            "standard_error": item.standard_error,
        }
        for item in sorted(found, key=lambda item: -raw[item.topic])
    ]
