"""Find and delete the files of versions that readers no longer see, in folders and in object stores alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dptext_etl.errors import InputError, seam
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest

_NAME = re.compile(r"v(\d+)(?:-[0-9a-f]{12})?")


def unlisted(layout: Layout, manifest: Manifest | None, *, newest: int | None = 0) -> list[str]:
    """Return the versions that hold no file of the current one, and are not among the newest.

    Call it alone at the sink: then a version that is not older than the current one was left by a publication that was
    killed or refused. No reader was pointed at it.
    """
    with seam("looking at the versions", InputError, "is the sink readable?"):
        if layout.remote_sink:
            found = {name.partition("/")[0] for name in layout.published.names() if "/" in name}
        else:
            found = {path.name for path in layout.local.versions.iterdir() if path.is_dir()}
    listed = set() if manifest is None else {part.path.partition("/")[0] for part in manifest.parts}
    numbers = {name: int(known[1]) for name in found - listed if (known := _NAME.fullmatch(name))}
    now = 0 if manifest is None else manifest.version
    last = 0 if newest is None else now - newest if newest else now
    old = (name for name, number in numbers.items() if number <= last or number >= now)
    return sorted(old, key=lambda name: (numbers[name], name))


def delete(layout: Layout, versions: Iterable[str]) -> None:
    """Delete the files of versions. Copies that a store keeps of deleted objects are out of reach."""
    with seam("deleting older versions", InputError, "call this again: it goes on from here"):
        for version in versions:
            layout.published.delete_folder(version)
