"""Bring a corpus from an object store to this machine, once for every state of the object.

The object's URL and the store's tag of its bytes name an entry of the artifact cache; the corpus itself is named by the
hash of its bytes, as everywhere. Anyone who replaces the object makes another corpus, with another hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from dptext_etl.artifacts import store
from dptext_etl.errors import ArtifactError, InputError
from dptext_etl.objects import Objects

CONTENT = "corpus.safetensors"
"""Name of a corpus' file in its folder."""


def is_remote(reference: str) -> bool:
    """Return True if a reference names an object, not a path or a name.

    >>> is_remote("s3://bucket/turns"), is_remote("corpora/turns"), is_remote("everyday-30k")
    (True, False, False)
    """
    return "://" in reference


def fetched(url: str, options: Mapping[str, str] | None = None) -> Path:
    """Return the file of a corpus on this machine; it is downloaded where the cache has no such state of the object."""
    where, _, name = url.rstrip("/").rpartition("/")
    if PurePosixPath(name).suffix != ".safetensors":
        where, name = url.rstrip("/"), CONTENT
    try:
        return _copied(where, name, options or {})
    except InputError as refused:
        problem, hint = refused.message, refused.hint
    raise ArtifactError(problem, hint)


def _copied(where: str, name: str, options: Mapping[str, str]) -> Path:
    objects = Objects.of(where, options)
    tag = objects.tag(name)
    if tag is None:
        raise ArtifactError(f"there is no corpus at {where}/{name}", "copy a corpus' folder there, or name another one")

    def download(out: Path) -> None:
        if not objects.download(name, out):
            raise InputError(f"{name} was deleted while it was read", "name a corpus that stays where it is")

    return store({"format": "object 1", "url": f"{where}/{name}", "tag": tag}, download, suffix=".safetensors").path
