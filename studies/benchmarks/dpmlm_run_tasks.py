"""A run of DP-MLM over sentences and the same run again, each decoding in a separate process as in `tasks.py`."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import SKIPPED
from tasks import data

EPSILON = 50.0


def run(rows: int, decoding: str, model: str) -> dict[str, Any]:
    """Run over the first sentences of SST-2's test and validation splits, verify the ledger, run again.

    Returns seconds of both runs, words drawn, gates, whether the ledger verified, the words that the second run scored,
    charged and replayed, and whether what readers see is the same bytes.
    """
    import polars as pl

    from dptext_etl import Ledger, _kernel
    from dptext_etl import run as dptext_run
    from dptext_etl_models.mechanisms.dpmlm import DPMLM

    if not shipped(model):
        print(f"skipped: {model} is not installed (dptext-etl-models)", file=sys.stderr)
        sys.exit(SKIPPED)
    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    frame = pl.read_parquet(data("sst2/sst2.parquet")).filter(pl.col("split") != "train").head(rows)
    frame.select("id", "text").write_parquet(folder / "raw.parquet")
    _kernel.Secret().write(str(folder / "noise.key"))
    plan = policy(folder, {"name": "dpmlm", "epsilon": EPSILON, "model": model, "decoding": decoding})
    url = f"sqlite:///{folder / 'ledger.db'}"
    try:
        began = time.perf_counter()
        first = dptext_run(plan)
        seconds = time.perf_counter() - began
        published, committed = digests(folder / "published"), charges(Ledger, url)
        scored: list[int] = []
        DPMLM.release = noting(DPMLM.release, scored)  # type: ignore[method-assign]
        began = time.perf_counter()
        second = dptext_run(plan)
        again = time.perf_counter() - began
        with Ledger.open(url, read_only=True, create=False) as ledger:
            verified = ledger.verify().ok
        return {
            "first": seconds,
            "second": again,
            "words": first.draws,
            "gates": sum(1 for gate in first.gates if gate["passed"]),
            "verified": verified,
            "same": digests(folder / "published") == published,
            "charged": charges(Ledger, url) != committed,
            "replayed": second.rows["replayed"],
            "scored": sum(scored),
        }
    finally:
        shutil.rmtree(folder)


def policy(folder: Path, mechanism: dict[str, Any]) -> Any:
    """Return the policy of the run: one column, one record per unit, a cap that the longest sentence fits."""
    from dptext_etl import Policy

    return Policy.parse(
        {
            "dataset": "bench",
            "release": "1",
            "source": str(folder / "raw.parquet"),
            "sink": str(folder / "published"),
            "staging": str(folder / "inside"),
            "id": "id",
            "unit": "record",
            "key": f"file:{folder / 'noise.key'}",
            "ledger": {"url": f"sqlite:///{folder / 'ledger.db'}"},
            "column": [{"name": "text", "mechanism": mechanism, "allow": ["length"]}],
        }
    )


def shipped(model: str) -> bool:
    """Whether a model is a folder or ships in dptext-etl-models."""
    try:
        import dptext_etl_models
    except ImportError:
        return Path(model).is_dir()
    return Path(model).is_dir() or model in dptext_etl_models.names()


def charges(ledger: Any, url: str) -> list[tuple[int, int]]:
    """Return reserved and committed records."""
    with ledger.open(url, read_only=True, create=False) as opened:
        return [(row["records"], row["committed"]) for row in opened.reports.show()]


def digests(folder: Path) -> dict[str, str]:
    """Return the hash of every published file."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def noting(method: Callable[..., Any], scored: list[int]) -> Callable[..., Any]:
    """Return a method that notes how many texts it was given."""

    def noted(self: Any, texts: Any, keys: Any) -> Any:
        scored.append(len(texts))
        return method(self, texts, keys)

    return noted


TASKS: dict[str, Callable[..., dict[str, Any]]] = {"run": run}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
