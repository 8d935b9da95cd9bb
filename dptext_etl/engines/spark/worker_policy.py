"""Bring a policy to Spark's workers: configuration, artifacts, hashes, key references, the ledger, and a GPU.

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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from dptext_etl import catalog, device
from dptext_etl.artifacts import Artifact, cache_directory, canon, placed
from dptext_etl.errors import ArtifactError, LedgerError, PolicyError, seam
from dptext_etl.extensions import Group, distribution, require
from dptext_etl.guarantee import GuaranteeClass
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.account import AccountTerms
from dptext_etl.ledger.storage.store import POSTGRES, PREFIX, resolve_url, sqlite_path
from dptext_etl.mechanism import Mechanism, PostProcess
from dptext_etl.policy import ColumnPolicy, LedgerSpec


def take_gpu() -> None:
    """Compute on the first GPU that Spark gave the running task; without one, change nothing."""
    try:
        from pyspark import TaskContext
    except ImportError:  # this process is not a worker; tests call this function, too
        return
    context = TaskContext.get()
    gpu = context.resources().get("gpu") if context is not None else None
    if gpu is not None and gpu.addresses:
        device.take_gpu(gpu.addresses[0])


_LOCAL = re.compile(r"local(\[.*\]|-cluster\[.*\])?")
_HINT = 'give register(…, artifacts="s3://bucket/folder") or a folder that every machine of the cluster can read'


class Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Location(Plain):
    """Places of an artifact; a worker uses the first one with the right hash."""

    sha256: str  # the artifact's identity
    name: str  # its name among the session's files and in caches
    path: str  # its path on the driver, and perhaps on this machine
    uri: str | None = None  # its URI after an upload, or None

    def find(self) -> Artifact:
        failure, paths = ArtifactError(f"the artifact {self.name} did not reach this worker", _HINT), [Path(self.path)]
        with suppress(Exception):  # no Spark here, or no session files
            from pyspark import SparkFiles

            paths.append(Path(SparkFiles.get(self.name)))
        for path in filter(Path.is_file, paths):
            try:
                return Artifact.open(path, self.sha256)
            except ArtifactError as exc:
                failure = exc
        if self.uri is not None:
            return Artifact.open(_downloaded(self.uri, self.name, self.sha256), self.sha256)
        raise failure


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
    locations = {}
    for role, artifact in artifacts.items():
        artifact.verify()
        name = f"dptext-{artifact.sha256}{artifact.path.suffix}"
        uri = None if to is None else _uploaded(artifact, to, name)
        if uri is None and not is_local(spark):
            add_to_session(spark, artifact, name)
        path = str(artifact.path.absolute())
        locations[role] = Location(sha256=artifact.sha256, name=name, path=path, uri=uri)
    return locations


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
    """Add an artifact to the files that Spark gives every worker of a session, under a unique name."""
    copy = cache_directory() / name  # it stays there, because Spark serves some files from their first path
    with seam("adding an artifact to the Spark session", ArtifactError, _HINT):
        if not copy.is_file():
            with tempfile.TemporaryDirectory(dir=copy.parent) as aside:
                Path(shutil.copyfile(artifact.path, Path(aside) / name)).replace(copy)
        try:
            spark.addArtifacts(str(copy), file=True)
        except (AttributeError, RuntimeError):  # before Spark 4.0, classic sessions only have this command
            spark.sql(f"ADD FILE '{copy}'")


_KEY_FILE = "file:"


def is_file(url: str) -> bool:
    return not url.startswith(POSTGRES)


def require_reach(spark: Any, url: str) -> None:
    """Refuse a ledger that a session's workers do not share."""
    if is_file(resolve_url(url)) and not is_local(spark):
        msg = "a SQLite ledger is a file of one machine, and this session's workers are not known to run on it"
        raise LedgerError(msg, "use a local master, or a PostgreSQL ledger")


def for_workers(spec: LedgerSpec) -> LedgerSpec:
    """Return the ledger for workers: references stay, and paths become absolute, since workers use other folders."""
    url, key = spec.url, spec.id_key
    if url == resolve_url(url) and is_file(url):
        url = PREFIX + str(sqlite_path(url).absolute())
    if key is not None and key.startswith(_KEY_FILE):
        key = _KEY_FILE + str(Path(key.removeprefix(_KEY_FILE)).absolute())
    anchors = spec.anchors and (spec.anchors if "://" in spec.anchors else str(Path(spec.anchors).absolute()))
    return spec.model_copy(update={"url": url, "id_key": key, "anchors": anchors})


def opened(spark: Any, spec: LedgerSpec) -> tuple[LedgerSpec, str]:
    """Open or make the ledger on the driver, so that workers find it."""
    require_reach(spark, spec.url)
    with Ledger.open(spec.url, spec.id_key) as ledger:
        return for_workers(spec), ledger.ledger_id


class WorkerPart(Plain):
    """A mechanism or a post-processing in the form that a worker gets."""

    parameters: dict[str, Any]  # its name and parameters, plain data
    package: str  # distribution that brings it
    cfg: str  # configuration hash that the worker must compute as well
    artifacts: dict[str, Location]  # locations of its public inputs, by role

    @classmethod
    def of(cls, part: Mechanism | PostProcess, artifacts: dict[str, Location]) -> Self:
        parameters = {"name": part.name, **part.model_dump(mode="json")}
        return cls(parameters=parameters, package=distribution(part), cfg=part.cfg(), artifacts=artifacts)

    def make(self, kind: Group, build: Callable[[dict[str, Any]], Any]) -> Any:
        """Make the part again on this machine, and refuse one of another configuration."""
        artifacts, name = {role: location.find() for role, location in self.artifacts.items()}, self.parameters["name"]
        require(kind, name, self.package)
        part = placed(build(self.parameters), artifacts)
        require_cfg(name, part.cfg(), self.cfg)
        return part


class WorkerStatistic(Plain):
    """The statistic of a synthetic table in the form that a worker gets, next to the policy that describes it."""

    corpus: Location
    cfg: str  # configuration hash that the worker must compute as well


def require_cfg(name: str, here: str, driver: str) -> None:
    """Refuse a part that has another configuration on this machine."""
    if here != driver:
        msg = f"the configuration of {name} has another hash here than on the driver"
        raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")


class WorkerPolicy(Plain):
    """The policy of one column in the form that a worker gets."""

    policy: dict[str, Any]  # the policy's fields as plain data, without its mechanism
    mechanism: WorkerPart
    spend: bool = False  # return the struct of text, positions, epsilon and delta
    ledger: AccountTerms | None = None  # ledger that is charged for rows, or None
    postprocess: tuple[WorkerPart, ...] = ()  # in order; only runs have any

    @classmethod
    def of(cls, policy: ColumnPolicy, artifacts: dict[str, Location], **more: Any) -> Self:
        fields = policy.model_dump(mode="json", exclude={"mechanism", "postprocess"})
        return cls(
            policy={name: sorted(value) if isinstance(value, list) else value for name, value in fields.items()},
            mechanism=WorkerPart.of(policy.mechanism, artifacts),
            **more,
        )

    def written(self) -> str:
        """Return the JSON for the workers; equal policies give equal JSON."""
        return canon(self.model_dump(mode="json")).decode()

    def column_policy(self) -> ColumnPolicy:
        """Make the policy again on this machine."""
        mechanism = self.mechanism.make("mechanisms", catalog.build)
        steps = tuple(step.make("postprocesses", catalog.build_postprocess) for step in self.postprocess)
        return ColumnPolicy(**self.policy, mechanism=mechanism, postprocess=steps)


def worker_columns(spark: Any, columns: Iterable[ColumnPolicy]) -> tuple[str, ...]:
    """Make the artifacts of text columns reachable for the workers of a session, and write their policies."""

    def written(column: ColumnPolicy) -> str:
        if column.mechanism.guarantee.guarantee_class is GuaranteeClass.CENTRAL_ZCDP:
            corpus = ship(spark, column.mechanism.artifacts())["corpus"]
            return WorkerStatistic(corpus=corpus, cfg=column.mechanism.cfg()).model_dump_json()
        steps = tuple(WorkerPart.of(step, ship(spark, step.artifacts())) for step in column.postprocess)
        return WorkerPolicy.of(column, ship(spark, column.mechanism.artifacts()), postprocess=steps).written()

    return tuple(map(written, columns))
