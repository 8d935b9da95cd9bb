"""Every name that is stored, hashed or drawn from: what a renaming in the code must leave as it is."""

import json
import re
import sqlite3
from pathlib import Path

import polars as pl
from safetensors import safe_open

from dptext_etl import catalog, extensions, guarantee
from dptext_etl.ledger import types
from dptext_etl.policy import Cap, ColumnPolicy, ColumnSpec, LedgerSpec, Policy

ROOT = Path(__file__).resolve().parents[2]
LABEL = re.compile(r"""["'](dptext/[a-z/]+/v[0-9]+|dptext-[a-z-]+/[0-9]+)(?:\\0|\0)?(?:/|["'])""")
NUMBER = re.compile(r"[0-9a-f]{12,}|[0-9]+")


def paths(value, before=""):
    """Every path of names in nested data: "columns[].name"."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from paths(item, f"{before}.{name}" if before else name)
    elif isinstance(value, list):
        for item in value:
            yield from paths(item, f"{before}[]")
        if not value:
            yield f"{before}[]"
    else:
        yield NUMBER.sub("#", before)


def of_ledger(path):
    """Tables, columns, keys of the meta table, events with their entries, segments."""
    with sqlite3.connect(path) as connection:
        ask = connection.execute
        tables = [row[0] for row in ask("select name from sqlite_schema where type='table' order by 1")]
        bodies, scopes = {}, set()
        for kind, body in ask("select kind, body from event"):
            facts = json.loads(body)
            bodies.setdefault(kind, set()).update(paths(facts))
            scopes |= {facts["name"].partition(":")[0]} if "scope" in facts else set()
        segments = {}
        for kind, name in ask("select distinct kind, name from event join segment on event.seq = segment.seq"):
            segments.setdefault(kind, set()).add(name)
        found = {
            "application and version": [
                ask(f"pragma {name}").fetchone()[0] for name in ("application_id", "user_version")
            ],
            "tables": {name: [row[1] for row in ask(f"pragma table_info({name})")] for name in tables},
            "meta": sorted(row[0] for row in ask("select name from meta")),
            "events": {kind: sorted(entries) for kind, entries in sorted(bodies.items())},
            "segments": {kind: sorted(names) for kind, names in sorted(segments.items())},
            "scopes": sorted(scopes),
        }
    connection.close()
    return found


def of_folder(folder):
    """Names of files, and of what stands in them."""
    folder, found = Path(folder), {}
    places = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    found["files"] = sorted({NUMBER.sub("#", str(path.relative_to(folder))) for path in places})
    for path in places:
        name = "manifest.json" if path.name.endswith(".manifest.json") else NUMBER.sub("#", path.name)
        if path.name == "unchanged.json":  # a summary: whoever cannot read it computes again
            continue
        if path.suffix == ".json":
            found.setdefault(name, set()).update(paths(json.loads(path.read_text())))
        elif path.suffix == ".draws":
            found.setdefault(name, set()).update(pl.read_ipc_schema(path))
        elif path.suffix in {".parquet", ".canaries"} and path.name.startswith(("shard", "quarantine")):
            found.setdefault(name, set()).update(pl.read_parquet_schema(path))
    return {name: sorted(entries) for name, entries in found.items()}


def of_cache(folder):
    """Names inside stored laws and facts, by their format."""
    found = {}
    for path in sorted(Path(folder).glob("*/about.json")):
        about = json.loads(path.read_text())
        (content,) = (item for item in path.parent.iterdir() if item != path)
        kind = about["description"]["format"]
        if kind == "dptext-example-model/1":  # its tensors are those of the library that made it
            continue
        held = found.setdefault(kind, set())
        held.update(f"about.{name}" for name in paths(about))
        if content.suffix == ".safetensors":
            with safe_open(content, "np") as file:
                held.update(f"tensor {name}" for name in file.keys())  # noqa: SIM118  (it is no mapping)
                for name, text in file.metadata().items():
                    held.update(f"metadata {name}: {entry}" for entry in _written(text))
    return {kind: sorted(entries) for kind, entries in sorted(found.items())}


def _written(text):
    try:
        return set(paths(json.loads(text)))
    except ValueError:
        return {text}


def labels():
    """Tags that keys, streams and hashes begin with, and names of formats, as they stand in the sources."""
    packages = ("dptext_etl", "models/dptext_etl_models", "eval/dptext_etl_eval")
    sources = [
        *(ROOT / "kernel" / "src").rglob("*.rs"),
        *(path for name in packages for path in (ROOT / name).rglob("*.py")),
    ]
    return sorted({label for path in sources for label in LABEL.findall(path.read_text(encoding="utf-8"))})


def enums():
    """Values of what is stored as a word or a number."""
    kinds = (
        types.Event,
        types.State,
        types.Outcome,
        types.CommitOutcome,
        guarantee.GuaranteeClass,
        guarantee.Disclosure,
    )
    return {kind.__name__: {item.name: item.value for item in kind} for kind in kinds}


def entries():
    """Entries of policies and parameters of mechanisms: users' files hold them, and configurations are hashed."""
    models = {model.__name__: model for model in (Policy, ColumnSpec, ColumnPolicy, Cap, LedgerSpec)}
    models |= {name: catalog.load(name) for name in catalog.available()}
    models |= {name: catalog.load_postprocess(name) for name in extensions.names("postprocesses")}
    return {
        name: sorted(field.alias or key for key, field in model.model_fields.items()) for name, model in models.items()
    }


def versions():
    """Versions of what mechanisms release."""
    made = {name: catalog.load(name).version for name in catalog.available()}
    return made | {name: catalog.load_postprocess(name).version for name in extensions.names("postprocesses")}


def observed(folder):
    """Names in the jobs and the ledger that were made in a folder, and in the code."""
    return {
        "ledger of reviews": of_ledger(folder / "reviews" / "ledger.db"),
        "ledger of events": of_ledger(folder / "events" / "ledger.db"),
        "ledger of rewriting": of_ledger(folder / "rewriting" / "ledger.db"),
        "folder of reviews": of_folder(folder / "reviews"),
        "folder of tickets": of_folder(folder / "tickets"),
        "cache": of_cache(folder / "cache"),
        "labels": labels(),
        "enums": enums(),
        "entries": entries(),
        "versions": {"mechanisms": versions()},
    }
