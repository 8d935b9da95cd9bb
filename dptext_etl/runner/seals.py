"""Seal what one attempt leaves in staging for the next, under the noise key (docs/spec/stream.md#staging-seal).

Anyone who can write to a staging folder can replace a file and every hash next to it, but cannot seal the result.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Any

from dptext_etl._kernel import Secret
from dptext_etl.artifacts import canon
from dptext_etl.storage import Storage

_LABEL = b"dptext/staging/v1\0"
_TAIL = len(', "seal": "') + 64 + len('"}')


def staging_key(secret: Secret, dataset: str, storage: Storage) -> bytes:
    """Return the key that seals the files of one release and partition, whose folders `storage` names."""
    return secret.derive("seal", _LABEL + canon([dataset, storage.parent.name, storage.name]))


def sealed(key: bytes, kind: str, facts: Mapping[str, Any]) -> bytes:
    """Write facts as one line of JSON that ends with a seal over everything before it."""
    return _sealed(key, kind, json.dumps(facts).encode())  # in one line: long records are written by C code alone


def opened(key: bytes, kind: str, content: bytes | None) -> dict[str, Any] | None:
    """Read what `sealed` wrote; None if there is nothing, or if no holder of the key wrote it for this use."""
    body = (content or b"")[:-_TAIL] + b"}"
    if content is None or not hmac.compare_digest(content, _sealed(key, kind, body)):
        return None
    facts: dict[str, Any] = json.loads(body)
    return facts


def _sealed(key: bytes, kind: str, body: bytes) -> bytes:
    if not key:
        msg = "files of staging are sealed under a key"
        raise ValueError(msg)
    seal = hmac.digest(key, canon([kind]) + body, "sha256").hex()
    return body[:-1] + f', "seal": "{seal}"}}'.encode()
