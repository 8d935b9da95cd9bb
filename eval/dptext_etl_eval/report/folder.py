"""Write a report: a page and a JSON file in a folder that its owner alone can read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dptext_etl.errors import InputError, seam
from dptext_etl_eval.evidence import Evidence
from dptext_etl_eval.report.page import page

PAGE, FACTS = "evidence.html", "evidence.json"
WRITABLE = "give a folder that can be written: --out FOLDER"


def write(found: Sequence[Evidence], folder: Path) -> tuple[Path, Path]:
    """Write the page and the JSON file of some columns."""
    facts = json.dumps({"columns": [_finite(item.as_dict()) for item in found]}, indent=1, ensure_ascii=False)
    with seam("writing the report", InputError, WRITABLE):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in ((PAGE, page(found)), (FACTS, facts + "\n")):
            draft = folder / f".{name}.draft"
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(folder / name)
    return folder / PAGE, folder / FACTS


def refuse_published(folder: Path, sink: str) -> None:
    """Refuse a report in the folder of a published table: figures of raw texts stay inside the boundary.

    A path that is a file, or below one, is refused too, before anything is measured.
    """
    if not next(path for path in (folder, *folder.absolute().parents) if path.exists()).is_dir():
        raise InputError("the report's folder is a file, or lies below one", WRITABLE)
    published = {Path(f"{sink.rstrip('/')}{suffix}").resolve() for suffix in ("", ".versions")}
    if published & {folder.resolve(), *folder.resolve().parents}:
        raise InputError("the report would lie in the published table", "give another folder: --out FOLDER")


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value
