"""Answer SQL over the tables of a ledger (`tables`), by the SQL of Polars."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from dptext_etl.errors import DPTextError, InputError
from dptext_etl.id_forms import IdForm, normalized
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.identities import PINNED_FORMS
from dptext_etl.ledger.tables import HASH_BYTES, SCHEMAS

if TYPE_CHECKING:
    import polars as pl

ASKED = "asked"
"""The table of the keyed hashes of the ids that a question is about."""
_PLACE = re.compile(r"Line: \d+, Column: \d+")


def named(sql: str) -> list[str]:
    return [name for name in SCHEMAS if name in sql.lower()]


def answer(sql: str, folder: Path, hashes: Sequence[str] = ()) -> pl.DataFrame:
    """Answer a query over the tables in a folder."""
    import polars as pl

    found = {name: pl.scan_parquet(path) for name in SCHEMAS if (path := folder / f"{name}.parquet").is_file()}
    if missing := [name for name in named(sql) if name not in found]:
        raise InputError(f"the folder has no table {' and '.join(missing)}", "`dptext ledger export DIR` writes them")
    asked = pl.LazyFrame({"hash": list(hashes)}, schema={"hash": pl.String})
    context = pl.SQLContext({**found, ASKED: asked})
    try:
        return context.execute(sql).collect(engine="streaming")
    except (pl.exceptions.PolarsError, ValueError, TypeError) as exc:
        failure = _meaning(exc)
    except BaseException as exc:
        if type(exc).__module__ != "pyo3_runtime":  # a panic of the library is no Exception
            raise
        failure = _meaning(exc)
    raise failure from None


def hashes(db: Database, ids: Sequence[str]) -> list[str]:
    if not ids:
        return []
    texts = pa.array(ids, pa.large_string())
    forms = db.store.metas(f'{PINNED_FORMS}["scope",').values()
    spellings = {(), *(IdForm.parse(json.loads(form)).normalize for form in forms)}
    hashed = [db.id_key.records(texts).hashes, *(db.id_key.subjects(normalized(texts, how)) for how in spellings)]
    return sorted({row[:HASH_BYTES].tobytes().hex() for each in hashed for row in each})


def _meaning(exc: BaseException) -> DPTextError:
    place = _PLACE.search(str(exc))
    where = f" at {place[0].lower()}" if place else ""
    tables = "; ".join(f"{name}({', '.join(schema.names)})" for name, schema in SCHEMAS.items())
    return InputError(
        f"the query cannot be answered ({type(exc).__name__}{where})",
        f"one SELECT in the SQL of Polars over these tables: {tables}; {ASKED}(hash)",
    )
