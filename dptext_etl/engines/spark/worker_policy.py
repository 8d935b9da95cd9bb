"""Bring a policy to Spark's workers: configuration, artifacts, hashes, key references, and the ledger.

A plan holds no key, no table and no pickled object of ours. A worker reads JSON, finds artifacts by path, by URI, or
among the session's files, verifies their hashes, and resolves the references on its machine. It refuses to release
anything if its configuration hash differs. Tables are built once on the driver and never on a worker, because exp, BLAS
and ties differ from machine to machine.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from dptext_etl import catalog
from dptext_etl.artifacts import Artifact, cache_directory, canon, placed
from dptext_etl.errors import ArtifactError, LedgerError, PolicyError, seam
from dptext_etl.extensions import distribution, require
from dptext_etl.id_forms import Normalization
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.storage.store import POSTGRES, PREFIX, resolve_url, sqlite_path
from dptext_etl.policy import Cap, ColumnPolicy, LedgerSpec
from dptext_etl.postprocessing import PostProcess

_LOCAL = re.compile(r"local(\[.*\]|-cluster\[.*\])?")
_HINT = 'give register(…, artifacts="s3://bucket/folder") or a folder that every machine of the cluster can read'


class Location(BaseModel):
    """Places of an artifact; a worker takes the first one with the right hash."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    sha256: str  # the artifact's identity
    name: str  # its name among the session's files and in caches
    path: str  # its path on the driver, and perhaps on this machine
    uri: str | None = None  # its URI after an upload, or None

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


_KEY_FILE = "file:"


def is_file(url: str) -> bool:
    """Say whether a URL names a SQLite file, which belongs to one machine."""
    return not url.startswith(POSTGRES)


def require_reach(spark: Any, url: str) -> None:
    """Refuse a ledger that a session's workers do not share."""
    if is_file(resolve_url(url)) and not is_local(spark):
        raise LedgerError(
            "a SQLite ledger is a file of one machine, and this session's workers are not known to run on it",
            "use a local master, or a PostgreSQL ledger",
        )


def for_workers(spec: LedgerSpec) -> LedgerSpec:
    """Return the ledger for workers: references stay, and paths become absolute, since workers use other folders."""
    url, key = spec.url, spec.id_key
    if url == resolve_url(url) and is_file(url):
        url = PREFIX + str(sqlite_path(url).absolute())
    if key is not None and key.startswith(_KEY_FILE):
        key = _KEY_FILE + str(Path(key.removeprefix(_KEY_FILE)).absolute())
    anchors = spec.anchors and str(Path(spec.anchors).absolute())
    return spec.model_copy(update={"url": url, "id_key": key, "anchors": anchors})


def opened(spark: Any, spec: LedgerSpec) -> tuple[LedgerSpec, str]:
    """Open or make the ledger on the driver, so that workers find it."""
    require_reach(spark, spec.url)
    with Ledger.open(spec.url, spec.id_key) as ledger:
        return for_workers(spec), ledger.ledger_id


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class WorkerLedger(_Plain):
    """Name the ledger that a function charges for its rows."""

    url: str  # the ledger's URL, or a reference to it ("env:NAME")
    id_key: str | None  # reference to the key of its ids; None takes the file next to a SQLite ledger
    # folder that remembers the head of the ledger (`dptext_etl.ledger.anchor_files`); None takes the worker's
    anchors: str | None
    ledger_id: str  # name that the ledger got when it was made; a worker refuses a ledger of another name
    cap: Cap | None  # the cap of the scope, or None
    on_cap: Literal["quarantine", "refuse"]  # treatment of rows over the cap: null, or an error
    unit: Literal["subject", "record"]  # unit whose budget is charged
    normalize: tuple[Normalization, ...] = ()  # how subjects are spelled before they are hashed
    # the names of the columns of ids, by "record" and "subject", where they are known
    id_columns: dict[str, str] = Field(default_factory=dict)

    def scope(self, dataset: str) -> Scope:
        """Return the scope in which the spends of a dataset's rows add up."""
        if self.cap is None:
            return Scope(dataset, unit=self.unit)
        return Scope(dataset, self.cap.period, self.cap.group, self.unit)


class WorkerStep(_Plain):
    """A post-processing in the form that a worker gets."""

    step: dict[str, Any]  # name and parameters, plain data
    cfg: str  # configuration hash that the worker must compute as well
    package: str  # distribution that brings it
    artifacts: dict[str, Location]  # locations of its public inputs, by role

    @classmethod
    def of(cls, step: PostProcess, artifacts: dict[str, Location]) -> Self:
        """Make the form of a post-processing for workers."""
        parameters = {"name": step.name, **step.model_dump(mode="json")}
        return cls(step=parameters, cfg=step.cfg(), artifacts=artifacts, package=distribution(step))


class WorkerPolicy(_Plain):
    """The policy of one column in the form that a worker gets."""

    policy: dict[str, Any]  # the policy's fields as plain data, without its mechanism
    mechanism: dict[str, Any]  # name and parameters of the mechanism, plain data
    package: str  # distribution that brings the mechanism
    cfg: str  # configuration hash that the worker must compute as well
    artifacts: dict[str, Location]  # locations of the mechanism's public inputs, by role
    spend: bool = False  # return the struct of text, positions, epsilon and delta
    ledger: WorkerLedger | None = None  # ledger that is charged for rows, or None
    # its post-processings in order, each with name, parameters, hash and locations; runs alone have any
    postprocess: tuple[WorkerStep, ...] = ()

    @classmethod
    def of(cls, policy: ColumnPolicy, artifacts: dict[str, Location], **more: Any) -> Self:
        """Make the form of a policy for workers."""
        fields = policy.model_dump(mode="json", exclude={"mechanism", "postprocess"})
        mechanism = policy.mechanism
        return cls(
            policy={name: sorted(value) if isinstance(value, list) else value for name, value in fields.items()},
            mechanism={"name": mechanism.name, **mechanism.model_dump(mode="json")},
            package=distribution(mechanism),
            cfg=mechanism.cfg(),
            artifacts=artifacts,
            **more,
        )

    def written(self) -> str:
        """Return the JSON for the workers; equal policies give equal JSON."""
        return canon(self.model_dump(mode="json")).decode()

    def column_policy(self) -> ColumnPolicy:
        """Make the policy again on this machine."""
        found = {role: location.find() for role, location in self.artifacts.items()}
        require("mechanisms", self.mechanism["name"], self.package)
        mechanism = placed(catalog.build(self.mechanism), found)
        if mechanism.cfg() != self.cfg:
            column = f"{self.policy['dataset']}.{self.policy['column']}"
            msg = f"the configuration of {column} has another hash here than where it was registered"
            raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")
        return ColumnPolicy(**self.policy, mechanism=mechanism, postprocess=tuple(map(_made, self.postprocess)))


def _made(carried: WorkerStep) -> PostProcess:
    found = {role: location.find() for role, location in carried.artifacts.items()}
    require("postprocesses", carried.step["name"], carried.package)
    step = placed(catalog.build_postprocess(carried.step), found)
    if step.cfg() != carried.cfg:
        msg = f"the post-processing {step.name} has another hash here than on the driver"
        raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")
    return step


def worker_columns(spark: Any, columns: Iterable[ColumnPolicy]) -> tuple[str, ...]:
    """Make the artifacts of text columns reachable for the workers of a session, and write their policies."""
    found = []
    for item in columns:
        steps = tuple(WorkerStep.of(step, ship(spark, step.artifacts())) for step in item.postprocess)
        carried = WorkerPolicy.of(item, ship(spark, item.mechanism.artifacts()), postprocess=steps)
        found.append(carried.written())
    return tuple(found)
