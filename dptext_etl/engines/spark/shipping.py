"""Bring artifacts to Spark's workers by path, by URI, or among the session's files; workers verify their hashes.

Tables are built once on the driver and never on a worker, because exp, BLAS and ties differ from machine to machine.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from dptext_etl.artifacts import Artifact, cache_directory
from dptext_etl.errors import ArtifactError, seam

_LOCAL = re.compile(r"local(\[.*\]|-cluster\[.*\])?")
_HINT = 'give register(…, artifacts="s3://bucket/folder") or a folder that every machine of the cluster can read'


class Location(BaseModel):
    """Places of an artifact; a worker takes the first one with the right hash.

    Attributes:
        sha256: The artifact's identity.
        name: Its name among the session's files and in caches.
        path: Its path on the driver, and perhaps on this machine.
        uri: Its URI after an upload, or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    sha256: str
    name: str
    path: str
    uri: str | None = None

    def find(self) -> Artifact:
        """Find the artifact on this machine and verify its hash."""
        failure: ArtifactError | None = None
        for path in self._places():
            try:
                return Artifact.open(path, self.sha256)
            except ArtifactError as exc:
                failure = exc
        raise failure or ArtifactError(f"the artifact {self.name} did not reach this worker", _HINT)

    def _places(self) -> Iterator[Path]:
        yield from filter(Path.is_file, (Path(self.path), *_session_files(self.name)))
        if self.uri is not None:
            yield _downloaded(self.uri, self.name, self.sha256)


def _session_files(name: str) -> Iterator[Path]:
    with suppress(Exception):  # no Spark here, or no session files
        from pyspark import SparkFiles

        yield Path(SparkFiles.get(name))


def _downloaded(uri: str, name: str, sha256: str) -> Path:
    """Copy an uploaded artifact into this machine's cache once; it appears there complete and with its hash, or not."""
    final = cache_directory() / name
    if final.is_file():
        return final
    from pyarrow import fs

    with (
        seam(f"fetching the artifact {name}", ArtifactError, _HINT),
        tempfile.TemporaryDirectory(dir=final.parent) as aside,
    ):
        filesystem, path = fs.FileSystem.from_uri(uri)
        draft = Path(aside) / name
        fs.copy_files(path, str(draft), source_filesystem=filesystem, destination_filesystem=fs.LocalFileSystem())
        Artifact.open(draft, sha256)
        draft.chmod(0o400)
        draft.replace(final)
    return final


def is_local(spark: Any) -> bool:
    """Say whether the session's configuration puts all workers on one machine; this works over Spark Connect, too."""
    return _LOCAL.fullmatch(str(spark.conf.get("spark.master", None))) is not None


def ship(spark: Any, artifacts: Mapping[str, Artifact], to: str | None = None) -> dict[str, Location]:
    """Make artifacts reachable for the session's workers."""
    return {role: _shipped(spark, artifact.verify(), to) for role, artifact in artifacts.items()}


def _shipped(spark: Any, artifact: Artifact, to: str | None) -> Location:
    name = f"dptext-{artifact.sha256}{artifact.path.suffix}"
    uri = None if to is None else _uploaded(artifact, to, name)
    if uri is None and not is_local(spark):
        add_to_session(spark, artifact, name)
    return Location(sha256=artifact.sha256, name=name, path=str(artifact.path.absolute()), uri=uri)


def _uploaded(artifact: Artifact, to: str, name: str) -> str:
    from pyarrow import fs

    with seam(
        "uploading an artifact", ArtifactError, "the folder must exist or be writable, and its URI be known to pyarrow"
    ):
        filesystem, folder = fs.FileSystem.from_uri(to if "://" in to else str(Path(to).absolute()))
        target = f"{folder.rstrip('/')}/{name}"
        if filesystem.get_file_info(target).size != artifact.path.stat().st_size:
            filesystem.create_dir(folder, recursive=True)
            draft = f"{target}.{os.getpid()}"
            local = fs.LocalFileSystem()
            fs.copy_files(str(artifact.path), draft, source_filesystem=local, destination_filesystem=filesystem)
            filesystem.move(draft, target)
    return f"{to.rstrip('/')}/{name}" if "://" in to else target


def add_to_session(spark: Any, artifact: Artifact, name: str) -> None:
    """Add an artifact to the files that Spark gives every worker of a session, under a name of its own."""
    held = cache_directory() / name  # it stays there, because Spark serves some files from their first path
    with seam("adding an artifact to the Spark session", ArtifactError, _HINT):
        if not held.is_file():
            with tempfile.TemporaryDirectory(dir=held.parent) as aside:
                Path(shutil.copyfile(artifact.path, Path(aside) / name)).replace(held)
        try:
            spark.addArtifacts(str(held), file=True)
        except (AttributeError, RuntimeError):  # before Spark 4.0, classic sessions only have this command
            spark.sql(f"ADD FILE '{held}'")
