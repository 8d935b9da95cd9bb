"""Release one table in three forms at equal epsilon per person, and measure what each keeps, for `dptext demo`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dptext_etl.cli.demo import requests
from dptext_etl.cli.demo.folder import DemoFolder

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from dptext_etl.corpora.corpus import Corpus

FORMS = ("rows", "unlinked", "synthetic")
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
"""Topics of the requests, and the domains of `everyday-30k` that the corpus takes for each."""


def release(place: DemoFolder) -> dict[str, Any]:
    """Run the three policies, and return what each form costs a person and what it keeps."""
    from dptext_etl import engines
    from dptext_etl.policy import Policy

    topics = _build_corpus(place)
    policies = {form: Policy.load(place.forms / f"{form}.toml") for form in FORMS}
    summaries = {form: engines.run(policy).as_dict() for form, policy in policies.items()}
    facts = _figures(place, topics, policies)
    for form in FORMS:
        facts["forms"][form]["gates_passed"] = all(gate["passed"] for gate in summaries[form]["gates"])
    return facts


def _build_corpus(place: DemoFolder) -> dict[str, str]:
    """Build the corpus of the demo, and return the topic of each of its texts."""
    import polars as pl

    from dptext_etl.corpora import building
    from dptext_etl.corpora.cleaning import Source
    from dptext_etl.corpora.everyday import LICENCE, PROVENANCE, generate

    topic_of = {domain: topic for topic, domains in DOMAINS.items() for domain in domains}
    topics = {made.text: topic_of[made.domain] for made in generate() if made.domain in topic_of}
    source = place.forms / "public-texts.parquet"
    pl.DataFrame({"text": list(topics)}).write_parquet(source)
    building.build(
        [Source(source, "text")],
        place.corpus,
        building.Options(name="demo", licence=LICENCE, provenance=PROVENANCE),
    )
    return topics


def _figures(place: DemoFolder, topics: dict[str, str], policies: dict[str, Any]) -> dict[str, Any]:
    """Compare classifiers and shares of topics; the demo may read the raw table because it is public."""
    from dptext_etl.corpora.frequencies import estimate_frequencies
    from dptext_etl.families.aggregate import nearest_mean, read_statistic

    raw = place.requests()
    rows, unlinked, synthetic = (place.published(form) for form in FORMS)
    statistic = read_statistic(place.forms / "synthetic.manifest.json", str(place.corpus))
    f1 = _Comparison(statistic.statistic.corpus, set(raw["request"]))
    row_wise, (draw,) = policies["rows"].column_policies()[0].mechanism, policies["unlinked"].column_policies()
    near = {
        found.topic: found.near_share
        for found in estimate_frequencies(
            dict(unlinked.iter_rows()), topics, epsilon=draw.mechanism.epsilon, near=draw.mechanism.near
        )
    }
    noisy = {topic.label: topic.count for topic in statistic.topics()}
    shares = Counter(raw["topic"])
    release, maxent = draw.mechanism.unlinked, policies["synthetic"].synthetic.mechanism
    return {
        "rows": raw.height,
        "corpus": len(topics),
        "f1_raw": f1.of_table(raw),
        "f1_label_names": f1.of(list(requests.TOPICS), list(requests.TOPICS)),
        "forms": {
            "rows": {"epsilon": row_wise.epsilon, "delta": 0.0, "columns": rows.columns, "f1": f1.of_table(rows)},
            "unlinked": {
                "epsilon": float(release.epsilon(draw.mechanism.law)),
                "epsilon_of_draw": draw.mechanism.epsilon,
                "delta": release.delta,
                "columns": unlinked.columns,
            },
            "synthetic": {
                "epsilon": maxent.epsilon,
                "delta": maxent.delta,
                "columns": synthetic.columns,
                "f1": f1.of_table(synthetic),
                "f1_nearest_mean": f1.of_answers(nearest_mean(statistic).predict(f1.texts)),
            },
        },
        "topics": [
            {"topic": topic, "raw": count, "near_share": near[topic] * raw.height, "synthetic": noisy[topic]}
            for topic, count in shares.most_common()
        ],
    }


class _Comparison:
    """Macro-F1 of a classifier by nearest means of vectors, on further requests that are in no table."""

    def __init__(self, corpus: Corpus, seen: set[str]) -> None:
        found = {text: topic for topic, text in map(requests.labeled, requests.TEST_NUMBERS) if text not in seen}
        self._corpus = corpus
        self.texts, self._topics = list(found), np.array(list(found.values()))
        self._vectors = self._units(self.texts)

    def of(self, texts: Sequence[str], topics: Sequence[str]) -> float:
        """Return the F1 of a classifier that learned from texts with topics."""
        vectors, labels = self._units(texts), np.array(topics)
        means = np.stack([vectors[labels == topic].mean(axis=0) for topic in requests.TOPICS])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        best = (self._vectors @ means.T).argmax(axis=1)
        return self.of_answers(np.array(list(requests.TOPICS))[best])

    def of_table(self, table: pl.DataFrame) -> float:
        """Return the F1 of a classifier that learned from a table with the columns request and topic."""
        return self.of(table["request"].to_list(), table["topic"].to_list())

    def of_answers(self, answers: Sequence[str] | npt.NDArray[np.str_]) -> float:
        """Return the F1 of answers, one per text."""
        given = np.array(answers)
        scores = []
        for topic in requests.TOPICS:
            hits = int(((given == topic) & (self._topics == topic)).sum())
            scores.append(2 * hits / max(1, int((given == topic).sum() + (self._topics == topic).sum())))
        return float(np.mean(scores))

    def _units(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        from dptext_etl.corpora.building import encoded

        vectors = encoded(self._corpus, texts) - self._corpus.vectors.mean(axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units: npt.NDArray[np.float64] = vectors / np.where(lengths > 0, lengths, 1.0)
        return units
