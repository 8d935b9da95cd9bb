"""Release the demo's reviews as surrogates: a public text in the place of each, at epsilon 4 per text.

The corpus is made of our own sentences about the topics that such reviews have. That choice is public: it follows from
what the column is, not from what stands in it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl.cli.demo.folder import DemoFolder

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
    from dptext_etl.corpora.everyday import LICENCE, PROVENANCE, generate
    from dptext_etl.corpora.sources import Source

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
