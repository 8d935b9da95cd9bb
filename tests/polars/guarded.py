"""Sources, policies and releases for tests of the guard."""

import io

import polars as pl

import dptext_etl.polars
from dptext_etl import ColumnPolicy

RAW = ["review"]
FRAME = pl.DataFrame({"id": ["a", "b"], "review": ["good film", "bad plot"], "stars": [5, 1], "tags": [["x"], ["y"]]})


def _bytes(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


SOURCES = {
    "parquet": lambda folder: (FRAME.write_parquet(folder / "raw"), pl.scan_parquet(folder / "raw"))[1],
    "ipc": lambda folder: (FRAME.write_ipc(folder / "raw"), pl.scan_ipc(folder / "raw"))[1],
    "ndjson": lambda folder: (FRAME.write_ndjson(folder / "raw"), pl.scan_ndjson(folder / "raw"))[1],
    "bytes of parquet": lambda _: pl.scan_parquet(_bytes(FRAME.write_parquet)),
    "bytes of ipc": lambda _: pl.scan_ipc(_bytes(FRAME.write_ipc)),
    "memory": lambda _: FRAME.lazy(),
    "ipc, cached": lambda folder: (FRAME.write_ipc(folder / "raw"), pl.scan_ipc(folder / "raw").cache())[1],
    "ipc, by SQL": lambda folder: (
        FRAME.write_ipc(folder / "raw"),
        pl.SQLContext(t=pl.scan_ipc(folder / "raw")).execute("with u as (select * from t) select * from u"),
    )[1],
}


def make_policy(mechanism, **more):
    allow = mechanism.guarantee.disclosures
    entries = {"dataset": "d", "column": "review", "release": "r", "key": "env:DPTEXT_SECRET", "allow": allow}
    return ColumnPolicy(**{**entries, **more}, mechanism=mechanism)


col = pl.col


def release(policy, text=None, id="id", **options):  # noqa: A002
    text = col("review") if text is None else text
    return text.dptext.privatize(policy, id=col(id) if isinstance(id, str) else id, **options)


def guard(plan, policy):
    return dptext_etl.polars.guard(plan, policy=policy, id="id")
