"""Sixty films with their reviews, and the results of a function that charges a ledger."""

from types import SimpleNamespace

import pyarrow as pa

from dptext_etl import Ledger, privatize
from dptext_etl.engines.spark.worker_policy import WorkerPolicy
from dptext_etl.ledger import Scope
from dptext_etl.policy import LedgerSpec
from dptext_etl.spark import register as register_as

from .film_queries import FORMS  # and skips without Spark

FORM = FORMS[0]
ROWS = [(f"r{i}", f"a good film number {'again ' * (i % 3)}", f"u{i % 4}", i) for i in range(60)]
CLUSTER = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: "spark://head:7077"))
LOCAL = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: "local[2]"))


def register(spark, name, policy, **terms):
    return register_as(spark, name, policy, **{"form": FORM, **terms})


def texts(rows=ROWS):
    return pa.array([row[1] for row in rows])


def ids(rows=ROWS):
    return pa.array([row[0] for row in rows])


def expected(policy):
    return privatize(texts(), ids(), policy).to_pylist()


def counts(url):
    with Ledger.open(url, create=False) as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        return report.counts


def charged(url, people=("u0", "u1", "u2", "u3"), unit="subject"):
    """Millionths of epsilon that each person has been charged."""
    with Ledger.open(url, create=False) as ledger:
        return ledger.used(Scope("films", unit=unit), pa.array(people))["eps_pure"].tolist()


def epsilon_of(user):
    return sum(2_000_000 * len(text.split()) for _, text, owner, _ in ROWS if owner == user)


EVERYBODY = [epsilon_of(f"u{i}") for i in range(4)]
QUERY = "SELECT private_review(review, id, user) FROM films ORDER BY n"


def register_only(policy, ledger, session=LOCAL, **terms):
    """What `register` would carry, without a session."""
    from dptext_etl.engines.spark.worker_policy import ship
    from dptext_etl.spark.functions import ledger_of_workers

    asked = {"cap": None, "on_cap": "quarantine", "unit": "subject", **terms}
    spec = LedgerSpec(url=ledger) if isinstance(ledger, str) else ledger
    account = ledger_of_workers(session, policy, spec, **asked)
    return WorkerPolicy.of(policy, ship(session, policy.mechanism.artifacts()), ledger=account)
