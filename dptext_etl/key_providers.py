"""Get keys from where a plug-in keeps them: a vault, a key service of a cloud; `env:` and `file:` need none of this.

A distribution brings a provider by an entry point of the group `dptext_etl.keys`. The entry point's name is the scheme
of the references ("vault:NAME"), and its object is called with NAME and returns the 32 bytes of the key.
"""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points

from dptext_etl.errors import KeyReferenceError, seam

GROUP = "dptext_etl.keys"
BUILT_IN = ("env", "file")
SECRET_BYTES = 32
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_DIGITS = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


def installed() -> dict[str, EntryPoint]:
    """Return the installed providers of keys by their schemes; none replaces a built-in one."""
    points = entry_points(group=GROUP)
    return {point.name: point for point in points if point.name not in BUILT_IN and _SCHEME.fullmatch(point.name)}


def provided(reference: str) -> bytes:
    """Return the key that a provider holds under a reference; the kernel calls it, once per process and reference."""
    scheme, _, name = reference.partition(":")
    point = installed().get(scheme)
    if point is None:
        msg = 'a key reference is "env:NAME" or "file:PATH", or has the scheme of an installed plug-in; got another one'
        raise KeyReferenceError(
            msg, f"known: {', '.join([*BUILT_IN, *sorted(installed())])}; install it on workers, too"
        )
    with seam(
        f"the key provider {scheme!r}", KeyReferenceError, "call it yourself to see why; its words are not shown"
    ):
        key = point.load()(name)
    if isinstance(key, str) and _DIGITS.fullmatch(key.strip()):
        return bytes.fromhex(key.strip())
    if not isinstance(key, bytes) or len(key) != SECRET_BYTES:
        msg = f"the key provider {scheme!r} returned {type(key).__name__}, which is not a key"
        raise KeyReferenceError(msg, "a key is 32 bytes, or a string of 64 hex digits")
    return key
