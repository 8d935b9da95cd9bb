"""Bound delta in strict mode, per record and over all records (docs/spec/privacy.md#delta-policy).

Of two texts of a record, any outcome is at most e^epsilon times as likely under one as under the other, plus delta. So
delta is bounded per record, and over the public bound on the number of records, which a release then never exceeds.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dptext_etl.errors import InputError, counted
from dptext_etl.guarantee import exact

LARGEST_DELTA = 1e-6  # delta of one record in strict mode, at most
LARGEST_SUM = Fraction(1, 100)  # delta summed over the public bound on records, at most


def problem(delta: float, n_rec: int | None) -> str | None:
    """Return why strict mode refuses a delta, or None if it takes it."""
    if not delta:
        return None
    if n_rec is None:
        return (
            "a delta needs a public bound on the number of records: write n_rec = 10_000 for at most 10,000 of them "
            "(delta is then 1e-6), or a larger number; never take it from the private table"
        )
    if delta > LARGEST_DELTA or exact(delta) * n_rec > LARGEST_SUM:
        return (
            f"delta is at most {LARGEST_DELTA} and n_rec * delta at most {float(LARGEST_SUM)} in strict mode; "
            f"for n_rec = {n_rec} give delta = {largest(n_rec):g}, or a smaller one"
        )
    return None


def largest(n_rec: int) -> float:
    """Return the largest delta that strict mode takes under a public bound on the number of records."""
    bound = LARGEST_SUM / n_rec
    found = float(bound)
    while exact(found) > bound:
        found = math.nextafter(found, 0.0)
    return min(LARGEST_DELTA, found)


def refuse_more_records(records: int, n_rec: int | None, where: str) -> None:
    """Refuse more records than the delta of a release was stated for."""
    if n_rec is not None and records > n_rec:
        msg = (
            f"{where} would hold {counted(records, 'record')} over all partitions; "
            f"its delta was stated for n_rec = {n_rec}"
        )
        raise InputError(msg, "state a public bound that holds, under a new release name; the noise grows with it")
