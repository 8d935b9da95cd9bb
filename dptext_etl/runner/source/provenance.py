"""Refuse public inputs that were made from a private table: vectors, ranges, models, and corpora.

Every artifact that a command makes lists the files from which it was made (`artifacts.made_from`). Files are compared
by their SHA-256, so a copy that was edited or written anew is not recognized.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel

import dptext_etl
from dptext_etl.artifacts import Lineage, made_from, sha256_file
from dptext_etl.errors import PolicyError
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import is_remote
from dptext_etl.runner.source.table import existing_paths

_OURS = Path(dptext_etl.__file__).parent
"""What comes with the library was made from public files."""


def refuse_raw(paths: Sequence[str], policies: Iterable[Path] = (), *, why: str) -> None:
    """Refuse files that a policy names as its source, copies of them, and artifacts that were made from them.

    Args:
        paths: Files, folders, and URLs; policies in their folders and in the working folder are read.
        policies: Policies in other folders.
        why: The reason, for the message.

    Raises:
        PolicyError: A policy names a file, or cannot be read; no row is read.
    """
    folders = {Path.cwd(), *(Path(path).absolute().parent for path in paths if not is_remote(path))}
    for policy in (*policies, *sorted(file for folder in folders for file in folder.glob("*.toml"))):
        try:
            raw = tomllib.loads(policy.read_text("utf-8-sig")).get("source")
        except (OSError, ValueError):
            raise PolicyError(f"the policy {policy} cannot be read", "repair it, or move it away") from None
        if not isinstance(raw, str):
            continue
        folder = policy.absolute().parent
        local = [path for path in paths if not is_remote(path)]
        copied = any(_holds(made_from(local), file) for place in _matches(raw, folder) for file in _inside(place))
        if copied or _named(raw, folder, paths):
            msg = f"the policy {policy} names this table as raw; {why}"
            raise PolicyError(msg, "give a public table of the same kind of texts")


def _named(raw: str, folder: Path, paths: Sequence[str]) -> bool:
    pattern = raw.removeprefix("file://").replace("{partition}", "*")
    if is_remote(pattern):
        return any(path == raw or Path(path).match(pattern) for path in paths)
    matches = [place.resolve() for place in _matches(raw, folder)]
    for path in (Path(path).resolve() for path in paths if not is_remote(path)):
        if any(path == place or place in path.parents or path.samefile(place) for place in matches):
            return True
    return False


def _matches(raw: str, folder: Path) -> list[Path]:
    pattern = raw.removeprefix("file://").replace("{partition}", "*")
    return [] if is_remote(pattern) else existing_paths(str(folder / pattern))


def _inside(path: Path) -> Iterator[Path]:
    yield from sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _holds(lineage: Lineage, file: Path) -> bool:
    """Return whether a lineage holds a file, whose bytes are only read if its size fits."""
    sizes = {size for _, size in lineage.values()}
    return bool(sizes & {None, file.stat().st_size}) and sha256_file(file) in lineage


def refuse_own_inputs(policy: Policy, paths: Sequence[str]) -> None:
    """Refuse a source from which a public input of the policy was made, or that is one itself.

    Args:
        policy: The policy of a run.
        paths: Files and folders of its source; objects of a store are not compared.

    Raises:
        PolicyError: An input was made from a file of the source.
    """
    inputs = [*dict.fromkeys(inputs_of_policy(policy))]
    lineage = {name: made_from([path]) for name, path in inputs}
    for file in (file for path in paths if lineage and not is_remote(path) for file in _inside(Path(path))):
        for name, files in lineage.items():
            if file.is_file() and _holds(files, file):
                msg = f"{name} was made from a file of the source: it holds the private column, and is not public"
                hint = "make it from published or public texts, or use one that comes with the library"
                raise PolicyError(msg, f"{hint}; delete this one")


def inputs_of_policy(policy: Policy) -> Iterator[tuple[str, Path]]:
    """Yield the names and the places of the files and folders that are public inputs of a policy."""
    parts = list[tuple[str, BaseModel]]()
    if policy.synthetic is not None:
        parts.append(("synthetic", policy.synthetic.mechanism))
        if policy.synthetic.pool is not None:
            yield "the pool", Path(policy.pool.path)  # its texts are published as they are
    for column in policy.charged_columns():
        opened = getattr(getattr(column.mechanism, "opened", None), "path", None)
        if opened is not None:  # also a corpus that came from a store
            yield "the corpus", Path(opened)
        parts += [(step.name, step) for step in (column.mechanism, *column.postprocess)]
    for name, part in parts:
        yield from _inputs_of(name, part)


def _inputs_of(name: str, part: BaseModel) -> Iterator[tuple[str, Path]]:
    fields: frozenset[str] = getattr(part, "artifact_fields", frozenset())
    for field in type(part).model_fields:
        value = getattr(part, field)
        if isinstance(value, BaseModel):
            yield from _inputs_of(name, value)
        for text in (value if isinstance(value, tuple) else (value,)) if field in fields else ():
            for place in {str(text or ""), str(text or "").partition(":")[2]}:  # such as "nltk:FOLDER"
                if place and Path(place).exists() and _OURS not in Path(place).absolute().parents:
                    yield f"{field} of {name}", Path(place)
