"""The statistic of a toy column of texts, its keys, and its sums."""

import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.families.aggregate import describe, partial_sum

SECRET = bytes(range(1, 33))
LABELS = ("billing", "delivery")


def toy_statistic():
    return describe("example", epsilon=1.0, delta=1e-6, labels=LABELS)


def key(statistic, release="2025-01"):
    return _kernel.ReleaseKey(_kernel.Secret.from_bytes(SECRET), "demo", "text", release, statistic.cfg())


def strings(values):
    return pa.array(values, pa.large_string())


def summed(statistic, rows, release="2025-01"):
    """Sums over (id, text, label) rows."""
    ids, texts, labels = zip(*rows, strict=True) if rows else ((), (), ())
    columns = strings(ids), strings(texts), strings(labels)
    return partial_sum(statistic, key(statistic, release), *columns[:2], columns[2] if statistic.labels else None)
