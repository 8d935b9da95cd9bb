"""Sign caps and check their signatures (Ed25519), so that who runs a policy cannot change its cap or its period."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dptext_etl import extensions, keys
from dptext_etl.artifacts import canon
from dptext_etl.errors import PolicyError

_TAG = b"dptext/cap/v1\0"


def read(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a cap that a policy takes from a file."""
    if others := sorted(entries.keys() - {"file", "public_key"}):
        msg = f"{' and '.join(others)}: not signed; a cap from a file has `file` and `public_key`, and no other entry"
        raise ValueError(msg)
    try:
        stated = tomllib.loads(Path(entries["file"]).read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        raise PolicyError("the file of the cap is missing, or is not TOML") from None
    return {**stated, "public_key": entries.get("public_key")}


def sign(stated: Mapping[str, Any], key: str) -> tuple[str, str]:
    """Sign the entries of a cap under a key reference, and return the public key and the signature, both in hex."""
    private = _library().Ed25519PrivateKey.from_private_bytes(keys.resolve(key).derive("seal", _TAG))
    return private.public_key().public_bytes_raw().hex(), private.sign(_TAG + canon(dict(stated))).hex()


def is_signed(stated: Mapping[str, Any], public_key: str, signature: str) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key = _library().Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), _TAG + canon(dict(stated)))
    except (InvalidSignature, ValueError):
        return False
    return True


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        msg = f"a signed cap needs cryptography: {extensions.pip_install('signing')}"
        raise ValueError(msg) from None
    return ed25519
