"""Recognize exceptions that say that memory ran out."""

from __future__ import annotations


def out_of_memory(exc: BaseException) -> bool:
    """Say whether an exception of Python or torch means that memory ran out, on the host or on a device."""
    if isinstance(exc, MemoryError) or type(exc).__name__ == "OutOfMemoryError":
        return True
    said = str(exc).lower()
    return isinstance(exc, RuntimeError) and ("out of memory" in said or "can't allocate" in said)
