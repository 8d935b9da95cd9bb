"""Policies over one folder, and as TOML files for tests that start commands."""

import json
from pathlib import Path

from dptext_etl import Policy


def policy_in(folder, *columns, **changes):
    """Return a policy whose table, key, ledger, and outputs lie in one folder, and whose records are the units."""
    names = {"dataset": "d", "release": "r1", "id": "id", "unit": "record", "key": f"file:{folder / 'noise.key'}"}
    places = {"source": str(folder / "raw.parquet"), "sink": str(folder / "out"), "staging": str(folder / "inside")}
    ledger = {"url": f"sqlite:///{folder / 'ledger.db'}"}
    return Policy.parse(names | places | {"ledger": ledger, "column": list(columns)} | changes)


def custext_column(vectors, name="text", **changes):
    """Return the entry of a text column that CusText releases."""
    mechanism = {"name": "custext", "epsilon": 2.0, "k": 10, "vectors": vectors, **changes}
    return {"name": name, "mechanism": mechanism, "allow": ["cluster"]}


def write_policy(path, values):
    """Write a policy's values as a file, tables in one line each, and return its path."""
    Path(path).write_text("".join(f"{name} = {toml(value)}\n" for name, value in values.items() if value is not None))
    return Path(path)


def toml(value):
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {toml(item)}' for name, item in value.items())} }}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list | tuple) else json.dumps(value)
