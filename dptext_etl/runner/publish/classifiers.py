"""Open the classifier that was published with a synthetic table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.families.aggregate import Classifier
from dptext_etl.runner.layout import Layout

EXPORTED = "classifier.safetensors"
"""Name of the classifier in an export."""
_CLASSIFIERS = (
    "name the folder or URL that `dptext run` published, a folder of `dptext export`, or the file of a classifier"
)


@bare
def open_classifier(place: str | Path, storage_options: Mapping[str, str] | None = None) -> Classifier:
    """Return the classifier of a release, after its file is compared with the manifest.

    Args:
        place: The published folder or URL, a folder of `dptext export`, or the file of a classifier.
        storage_options: Options for object stores, as a policy has them.

    Raises:
        InputError: There is no release, it has no classifier, or the file is another one than the manifest names.
    """
    path = Path(place)
    if path.suffix == ".safetensors" and path.is_file():
        return Classifier.read(path)
    manifest: Manifest | None
    content: bytes | None
    if (path / EXPORTED).is_file() or (path / "manifest.json").is_file():
        with seam("reading the export", InputError, _CLASSIFIERS):
            manifest = Manifest.parse((path / "manifest.json").read_text("ascii"))
            content = (path / EXPORTED).read_bytes() if (path / EXPORTED).is_file() else None
        if content is not None and hashlib.sha256(content).hexdigest() != manifest.classifier:
            content = None
    else:
        layout = Layout.of_sink(str(place), dict(storage_options or {}))
        manifest = Manifest.read(layout)
        content = None if manifest is None else manifest.read_classifier(layout)
    if manifest is None:
        raise InputError("nothing is published there", _CLASSIFIERS)
    if manifest.classifier is None:
        raise InputError("the release has no classifier: only synthetic tables with labels have one", _CLASSIFIERS)
    if content is None:
        raise InputError(
            "the file of the classifier is missing, or is not the one that the manifest names", _CLASSIFIERS
        )
    return Classifier.read(content)
