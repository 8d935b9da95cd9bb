"""Name the columns of the plain tables of a ledger (`tables`); docs/ledger.md#tables says what each holds."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dptext_etl.guarantee import ADDITIVE, PURE

_TIME = pa.timestamp("ms", tz="UTC")
_NAMES = (("release_id", pa.int64()), ("nonce", pa.int64()))
_RELEASE = (*_NAMES, ("dataset", pa.string()), ("text_column", pa.string()), ("release", pa.string()))
_SCOPE = (("scope", pa.string()), ("period", pa.string()))
COUNTS = ("records", "canaries", "committed", "expired", "aborted", "diverged")

SCHEMAS: Mapping[str, pa.Schema] = {
    "record": pa.schema(
        [
            ("batch", pa.int64()),
            ("batch_row", pa.int64()),
            ("reserved_at", _TIME),
            ("job", pa.string()),
            *_RELEASE,
            *_SCOPE,
            ("record_hash", pa.string()),
            ("unit_hash", pa.string()),
            ("canary", pa.bool_()),
            ("state", pa.string()),
            ("reserved_positions", pa.int64()),
            ("positions", pa.int64()),
            ("digest", pa.string()),
            (f"reserved_{PURE}", pa.float64()),
            *((name, pa.float64()) for name in ADDITIVE),
        ]
    ),
    "balance": pa.schema(
        [
            *_SCOPE,
            ("unit", pa.string()),
            ("unit_hash", pa.string()),
            ("component", pa.string()),
            ("used", pa.float64()),
            ("cap", pa.float64()),
            ("remaining", pa.float64()),
        ]
    ),
    "event": pa.schema(
        [
            ("event", pa.int64()),
            ("kind", pa.string()),
            ("written_at", _TIME),
            ("writer", pa.string()),
            ("dataset", pa.string()),
            ("release", pa.string()),
            ("job", pa.string()),
            ("rows", pa.int64()),
            ("reason", pa.string()),
            ("body", pa.string()),
            ("event_hash", pa.string()),
        ]
    ),
    "release": pa.schema(
        [
            *_RELEASE,
            ("mechanism", pa.string()),
            ("guarantee", pa.string()),
            ("protects", pa.string()),
            ("disclosures", pa.string()),
            ("assumptions", pa.string()),
            ("cfg", pa.string()),
            ("publishable", pa.bool_()),
            ("revoked_by", pa.int64()),
            *((name, pa.int64()) for name in COUNTS),
            (f"largest_{PURE}", pa.float64()),
        ]
    ),
    "publication": pa.schema(
        [
            *_RELEASE,
            ("version", pa.string()),
            ("manifest", pa.string()),
            ("rows", pa.int64()),
            ("retired", pa.bool_()),
            ("event", pa.int64()),
            ("published_at", _TIME),
        ]
    ),
}
"""The columns of each table."""
