"""Export a published version as a folder for readers elsewhere, and verify such a folder.

An export holds only published facts: the parts, the manifest, the public statement, a data contract (Open Data
Contract Standard 3.1), a page for readers, checksums, and, if one is given, a rehearsal on public texts. The same
version under the same caps with the same rehearsal gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dptext_etl import files, markup
from dptext_etl.checks import require
from dptext_etl.checks.published import check_published
from dptext_etl.checks.sink_files import Manifest, Part, part_name
from dptext_etl.data_types import kind_of, plain_type
from dptext_etl.errors import GateError, InputError, bare, seam
from dptext_etl.file_formats import FORMATS, READERS, Reading
from dptext_etl.guarantee import GuaranteeClass
from dptext_etl.policy import Policy
from dptext_etl.runner import statement
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import EXPORTED, published_manifest, stated
from dptext_etl.runner.publish.parts import id_finder
from dptext_etl.storage import Storage

FORMAT = "dptext-export/1"
CONTRACT, MANIFEST, README, SUMS = "contract.odcs.yaml", "manifest.json", "README.md", "SHA256SUMS"
REHEARSAL = "rehearsal.json"
STATEMENTS = "statement.md", "statement.html"
_LOGICAL = {
    "integer": r"U?Int\d+",
    "number": r"Float\d+|Decimal.*",
    "boolean": "Boolean",
    "date": "Date",
    "timestamp": r"Datetime.*",
    "time": "Time",
    "array": r"(List|Array\(\d+\)) of .*",
    "object": r"(Struct|Map) of .*",
}
"""Types of the contract, by the types of the manifest; all others are strings."""
_HINT = "ask for a new copy of the export: `dptext export POLICY --to FOLDER` makes it"
_FORMS = "synthetic", "shuffled"  # of a release; all others are rows
Share = Annotated[float, Field(ge=0, le=1)]


class _Public(BaseModel):
    """Facts that `dptext rehearse` measured on public texts; others that it prints, such as counts, are dropped."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Measured(_Public):
    """The macro-F1 that one form kept in a rehearsal."""

    form: str
    corpus: str  # another corpus than the one of all forms; "" for that one
    asked: float  # epsilon per record
    macro_f1: Share
    entries: Annotated[list[str], Field(min_length=1)]  # lines of a policy that publishes this form

    def publishes(self, form: str, mechanism: object, name: str) -> bool:
        """Return whether the policy lines publish this form of release with `mechanism`, which is called `name`."""
        lines = tomllib.loads("\n".join(self.entries))
        given = dict((lines.get("synthetic") or lines["column"][0])["mechanism"])
        same = given.pop("name") == name and all(getattr(mechanism, key) == value for key, value in given.items())
        return same and form == next((form for form in _FORMS if form in lines), "rows")


class Rehearsal(_Public):
    """The public half of `dptext rehearse --json`."""

    verdict: str
    tested: int  # public texts that no learner saw
    labels: int  # number of labels
    raw: Share
    baselines: dict[str, Share]
    figures: list[Measured]


@bare
def export(policy: Policy, target: Path, partition: str | None = None, rehearsal: Path | None = None) -> dict[str, Any]:
    """Write the current published version into a new folder if `dptext check` passes.

    Args:
        policy: The policy of the release.
        target: A new folder.
        partition: The partition, if the table has partitions.
        rehearsal: A file with the output of `dptext rehearse --json` for this release. Its verdict and macro-F1 are
            exported.

    Raises:
        InputError: The target exists, nothing of this release is published, or the file holds no rehearsal of it.
        GateError: A gate fails for the published table.
    """
    if os.path.lexists(target):
        raise InputError("the target of an export exists", "name a folder that does not exist")
    layout = Layout.of(policy, partition)
    manifest = published_manifest(layout)
    manifest.require_of(policy, layout.partition)
    require(check_published(layout.sink, policy, own_ids=id_finder(layout.staging, policy.ledger)))
    rehearsed = None if rehearsal is None else _rehearsed(rehearsal, policy, manifest)
    facts = statement.facts(policy=policy, partition=partition, public=True)
    if facts["manifest_sha256"] != manifest.digest:
        raise InputError("a run published to this sink meanwhile", "export again")
    facts["sink"] = PurePosixPath(facts["sink"]).name
    sums, action = b"", "writing the export"
    with seam(action, InputError, "give a place that can be written: --to FOLDER"):
        files.make_folders(target.parent)
        with files.temporary_folder(target.parent) as draft:  # all files and their checksums, or none
            for name, content in _contents(layout, manifest, facts, rehearsed):
                sums += f"{_digest(content)}  {name}\n".encode()
                files.make_folders((draft / name).parent)
                files.write(draft / name, content, mode=files.PUBLIC_FILE, action=action)
            files.write(draft / SUMS, sums, mode=files.PUBLIC_FILE, action=action)
            draft.replace(target)
    return _summary(target, manifest, sums)


def _summary(place: Path, manifest: Manifest, sums: bytes) -> dict[str, Any]:
    named = {name: getattr(manifest, name) for name in ("dataset", "release", "partition", "version", "rows")}
    classes = sorted({column["class"] for column in manifest.columns})
    return {"export": str(place), **named, "files": len(manifest.parts), "classes": classes,
            "manifest_sha256": manifest.digest, "sums_sha256": _digest(sums)}  # fmt: skip


def _rehearsed(file: Path, policy: Policy, manifest: Manifest) -> Rehearsal:
    """Read a rehearsal, and keep the figures of the mechanism that the manifest states."""
    hint = "write it with `dptext rehearse PUBLIC.parquet --policy POLICY --json > FILE`"
    with seam("reading the rehearsal", InputError, hint):
        text = file.read_text("utf-8")
    synthetic = policy.synthetic
    mechanisms = [column.mechanism for column in policy.columns] if synthetic is None else [synthetic.mechanism]
    names = [column["mechanism"] for column in manifest.columns]
    own, form = [*zip(mechanisms, names, strict=True)], _form(manifest)
    try:
        facts = Rehearsal.model_validate_json(text)
        same = [figure for figure in facts.figures if any(figure.publishes(form, *pair) for pair in own)]
    except (ValidationError, LookupError, AttributeError, TypeError, ValueError):
        raise InputError("the file of --rehearsal is not the output of `dptext rehearse --json`", hint) from None
    if not same:
        raise InputError("the rehearsal did not measure this release: form, epsilon, or corpus differ", hint)
    return facts.model_copy(update={"figures": same})


def _contents(
    layout: Layout, manifest: Manifest, facts: dict[str, Any], rehearsal: Rehearsal | None
) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes of all files but the checksums, in the order in which the checksums list them."""
    yield README, _readme(manifest, rehearsal).encode()
    yield CONTRACT, contract_text(manifest).encode()
    yield MANIFEST, manifest.text().encode()
    for name, text in zip(STATEMENTS, (statement.markdown(facts), statement.page(facts)), strict=True):
        yield name, text.encode()
    if manifest.classifier is not None:
        classifier = manifest.read_classifier(layout)
        if classifier is None:
            raise InputError("the classifier changed during the export", "export again; `dptext check` says more")
        yield EXPORTED, classifier
    if rehearsal is not None:
        yield REHEARSAL, (rehearsal.model_dump_json(indent=1) + "\n").encode()
    storage = layout.published if layout.remote_sink else Storage("")
    for name, part in _data(manifest).items():
        content = storage.read(part.path if layout.remote_sink else layout.part(part.path))
        if content is None or _digest(content) != part.sha256:
            raise InputError("a published file changed during the export", "export again; `dptext check` says more")
        yield name, content


def _data(manifest: Manifest) -> dict[str, Part]:
    return {
        f"data/{part_name(number, part.sha256, manifest.file_format)}": part
        for number, part in enumerate(manifest.parts)
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def contract(manifest: Manifest) -> dict[str, Any]:
    """Return the data contract of a version (ODCS 3.1), which follows from its manifest."""
    facts = stated(manifest)
    texts, gates = facts.pop("columns"), facts.pop("gates")

    def column(name: str, kind: str) -> dict[str, Any]:
        logical = next((name for name, pattern in _LOGICAL.items() if re.fullmatch(pattern, kind)), "string")
        keys = dict.fromkeys(("required", "unique", "primaryKey"), name == manifest.id)
        described = {"name": name, "logicalType": logical, "physicalType": kind, **keys}
        claims = {f"dptext_{claim}": value for claim, value in texts.get(name, {}).items()}
        return described | {"customProperties": _properties(claims)} if claims else described

    where = "" if manifest.partition is None else f":{manifest.partition}"
    rows = {"name": "rows", "type": "library", "metric": "rowCount", "mustBe": manifest.rows}
    checks = [{"name": gate, "type": "custom", "engine": "dptext_etl", "implementation": gate} for gate in gates]
    return {
        "apiVersion": "v3.1.0",
        "kind": "DataContract",
        "id": f"{manifest.dataset}:{manifest.release}{where}",
        "name": manifest.dataset,
        "version": str(manifest.version),
        "status": "active",
        "description": {
            "purpose": _PURPOSES[_form(manifest)],
            "limitations": "README.md lists the limits, statement.md the promise",
        },
        "servers": [{"server": "export", "type": "local", "path": "data", "format": manifest.file_format}],
        "schema": [
            {
                "name": manifest.dataset,
                "logicalType": "object",
                "physicalType": "table",
                "properties": [column(*entry) for entry in manifest.schema.items()],
                "quality": [rows, *checks],
            }
        ],
        "customProperties": _properties({"format": FORMAT, **facts}),
    }


def contract_text(manifest: Manifest) -> str:
    """Write the contract as JSON, which is YAML: a reader of either finds the same."""
    return json.dumps(contract(manifest), indent=1, ensure_ascii=False) + "\n"


def _properties(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"property": name, "value": value} for name, value in values.items()]


_PURPOSES = {
    "rows": "Rows whose texts were rewritten under differential privacy",
    "shuffled": "Public texts, each drawn near a private one under differential privacy, without ids and order",
    "synthetic": "Public texts that follow one noisy statistic of private texts, under differential privacy",
}


def _form(manifest: Manifest) -> str:
    """Return the form of a release: synthetic, shuffled, or rows."""
    return next((form for form in _FORMS if any(form in column for column in manifest.columns)), "rows")


_FEW_LABELS = 5
"""Beyond this number of labels, vectors of texts keep more of them than words."""


def _readme(manifest: Manifest, rehearsal: Rehearsal | None) -> str:
    from jinja2 import Template

    form, (column, *_) = _form(manifest), manifest.columns
    labels = statement.labels_of(column) or [column.get("shuffled", {}).get("labels", {}).get("column", "")]
    most = {**column.get("shuffled", {}), **column.get("statistic", {})}.get("per_subject")
    persons = "One record of each person counts" if most == 1 else f"At most {most} records of each person count"
    named = {
        "dataset": manifest.dataset,
        "release": manifest.release,
        "texts": ", ".join(column["name"] for column in manifest.columns),
        "labels": ", ".join(filter(None, labels)),
        "audience": manifest.audience or "",
    }
    shares = dict[str, float]()
    if rehearsal is not None:
        released = {figure.form.replace("_", " "): figure.macro_f1 for figure in rehearsal.figures}
        shares = {**released, **rehearsal.baselines, "raw texts": rehearsal.raw}
    template = Template(Path(__file__).with_name("export_readme.md.jinja").read_text("utf-8"), trim_blocks=True)
    page: str = template.render(
        {name: markup.markdown(value) for name, value in named.items()},
        **dict(zip(READERS, FORMATS[manifest.file_format].readers, strict=True)),
        form=form,
        surrogate=any(column["mechanism"] == "surrogate" for column in manifest.columns),
        version=manifest.version,
        rows=f"{manifest.rows:,}",
        contribution=persons if most else None,
        scores="scores" in column.get("synthetic", {}),
        rehearsal=rehearsal,
        verdict=rehearsal and markup.markdown(rehearsal.verdict),
        bars=[
            f"{share:.2f} {'█' * round(40 * share):40} {markup.one_line_each(name)}"
            for name, share in sorted(shares.items(), key=lambda item: item[1])
        ],
        many=len(column.get("statistic", {}).get("labels", ())) > _FEW_LABELS,
    )
    return page


@bare
def verify(place: Path) -> dict[str, Any]:
    """Check an export without policy, key, or ledger: checksums, manifest, contract, types, rows, and guarantee class.

    Raises:
        InputError: There is no export that can be read.
        GateError: A file is missing, surplus, or a link, or differs from its description in the export.
    """
    with seam("reading the export", InputError, _HINT):
        if not place.is_dir():
            raise InputError("an export is a folder, and this is not one", _HINT)
        paths = sorted(place.rglob("*"))
        links = [path for path in paths if path.is_symlink() or not (path.is_file() or path.is_dir())]
        _require(not links, "the export holds a link")
        paths = [path for path in paths if path.is_file() or not any(path.iterdir())]  # files, and empty folders
        names = [path.relative_to(place).as_posix() for path in paths]
        manifest, sums = _verified(names, lambda name: (place / name).read_bytes())
    return _summary(place, manifest, sums)


def _verified(names: list[str], read: Any) -> tuple[Manifest, bytes]:
    """Return manifest and checksums of an export whose files agree with them and with each other."""
    _require({MANIFEST, CONTRACT, SUMS} <= {*names}, "not an export: manifest, contract, or checksums are missing")
    text = read(MANIFEST).decode("ascii")
    manifest = Manifest.parse(text)
    classifier = [] if manifest.classifier is None else [EXPORTED]
    rehearsal = [REHEARSAL] if REHEARSAL in names else []
    expected = [README, CONTRACT, MANIFEST, *STATEMENTS, *classifier, *rehearsal, *_data(manifest)]
    _require(sorted(names) == sorted([*expected, SUMS]), "the files do not match the manifest")
    lines = [f"{_digest(read(name))}  {name}" for name in expected]
    sums = read(SUMS)
    _require(sums == "".join(f"{line}\n" for line in lines).encode(), f"the files do not match {SUMS}")
    _require(manifest.text() == text, "the manifest is not written as a run writes it")
    _require(manifest.digest in read(STATEMENTS[0]).decode(), "the statement belongs to another manifest")
    classes = {kind.value for kind in GuaranteeClass}
    _require(all(column["class"] in classes for column in manifest.columns), "a guarantee class is unknown")
    # bytes, because JSON of repeated keys says one thing to one reader and another to the next
    _require(read(CONTRACT) == contract_text(manifest).encode(), "the contract does not match the manifest")
    if manifest.classifier is not None:
        _require(_digest(read(EXPORTED)) == manifest.classifier, "the classifier does not match the manifest")
    for name, part in _data(manifest).items():
        content = read(name)
        _require(_digest(content) == part.sha256, "a data file does not match the manifest")
        _require(_table(content, manifest) == part.rows, "a data file holds another number of rows")
    return manifest, sums


def _require(agrees: bool, problem: str) -> None:
    if not agrees:
        raise GateError(problem, _HINT)


def _table(content: bytes, manifest: Manifest) -> int:
    """Return the number of rows of a data file, whose columns must match the manifest."""
    kinds, kind = manifest.schema, FORMATS[manifest.file_format]
    rows, typed = kind.scan([io.BytesIO(content)], Reading(all_text=True, infer=None)), kind.holds == "all"
    schema = rows.collect_schema().items()
    columns = [(name, kind_of(plain_type(dtype, rename=True)) if typed else kinds.get(name)) for name, dtype in schema]
    _require(columns == [*kinds.items()], "a data file has other columns than the manifest")
    return int(rows.select(pl.len()).collect(engine="streaming").item())
