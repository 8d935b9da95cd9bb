"""Start without pandas: pyarrow imports it, a third of a second, when the first list becomes an array."""

from __future__ import annotations

import sys


class _NoPandas:
    """A finder of modules that finds no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def without_pandas() -> None:
    """Let pyarrow settle that no list or array of this process is one of pandas; `to_pandas` finds it all the same.

    Nothing changes where pandas is imported already, or where pyarrow no longer asks.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
