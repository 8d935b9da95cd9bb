"""Start without pandas, which pyarrow would import when the first list becomes an array (a third of a second)."""

from __future__ import annotations

import sys


class _NoPandas:
    """Refuse the import of pandas, as a finder of modules."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        """Raise `ModuleNotFoundError` for pandas; find nothing for other names."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def without_pandas() -> None:
    """Let pyarrow conclude that this process has no pandas objects; `to_pandas` still works.

    Nothing changes if pandas is imported already, or if pyarrow has concluded it before.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
