"""Run policies of synthetic tables over a small table with labels."""

import polars as pl

from dptext_etl.ledger import Scope

SYNTHETIC = {
    "column": "review", "labels": {"column": "topic", "values": ["music", "money", "other"]}, "rows": 50,
    "per_subject": 6, "mechanism": {"name": "maxent", "epsilon": 2.0, "delta": 1e-9, "corpus": "example"},
}  # fmt: skip
CELLS = [["music", "5"], ["money", "5"], ["music", "4|"], ["other", "other"]]
CELLED = {**SYNTHETIC, "labels": {"columns": ["topic", "grade"], "values": CELLS}}
COLUMN = [{"name": "review", "mechanism": {"name": "surrogate", "epsilon": 1.0, "corpus": "example"}}]
SCORED = {**{name: entry for name, entry in SYNTHETIC.items() if name != "rows"}, "scores": True}
WITHOUT = {name: entry for name, entry in SYNTHETIC.items() if name != "labels"}
CAP = {"measure": "approx", "epsilon": 1000.0, "delta": 1e-5, "period": "2026"}
TEXTS = {"music": "play the new album", "money": "the bank closed my account", "health": "pain in my back"}


def labeled(reviews):
    """Reviews of three topics, one of which no policy lists; every seventh text and every fifth label is null."""
    number = pl.int_range(pl.len())
    topic = pl.Series([["music", "money", "health"][place % 3] for place in range(reviews.height)])
    return reviews.with_columns(
        pl.when(number % 7 > 0).then(topic.replace_strict(TEXTS)).alias("review"),
        pl.when(number % 5 > 0).then(topic).alias("topic"),
    )


def graded(reviews):
    """Reviews of three topics with one of two grades, or none."""
    grade = pl.Series([("5", "4|", None, "5")[place % 4] for place in range(reviews.height)])
    return labeled(reviews).with_columns(grade=grade)


def ref_of(job, ledger):
    return ledger.releases.find_all(job.policy())["review"]


def verified(job):
    with job.ledger() as ledger:
        report = ledger.verify()
    return report.problems


def used(job):
    with job.ledger() as ledger:
        return ledger.remaining(Scope.of(job.policy())).as_dict()["used"]
