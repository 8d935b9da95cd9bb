"""Skip the import of pandas, which pyarrow makes with its first array; else commands start half a second later."""

from __future__ import annotations

import sys


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def skip_pandas() -> None:
    """Let pyarrow conclude that this process has no pandas objects; `to_pandas` still works."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
