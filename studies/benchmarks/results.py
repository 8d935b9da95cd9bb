"""Results of parts: each keeps its own date and machine, so that one can be measured again and the others stay."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import Row


@dataclass
class Results:
    """What `results.json` holds, in the order in which parts are shown.

    Attributes:
        path: The file.
        order: Names of all parts.
        parts: What was measured of each: date, machine, rows.
    """

    path: Path
    order: tuple[str, ...]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, order: tuple[str, ...]) -> Results:
        """Read what was measured before; a file that knows no parts, or none at all, holds nothing."""
        parts = json.loads(path.read_text(encoding="utf-8")).get("parts", {}) if path.exists() else {}
        return cls(path, order, {name: part for name, part in parts.items() if name in order})

    def put(self, name: str, rows: list[Row], *, date: str, machine: str) -> None:
        """Replace what was measured of a part; a part that was left out keeps its older rows."""
        if rows:
            self.parts[name] = {"date": date, "machine": machine, "rows": [row.cells() for row in rows]}

    def write(self) -> None:
        """Write the file."""
        parts = {name: self.parts[name] for name in self.order if name in self.parts}
        self.path.write_text(json.dumps({"parts": parts}, indent=2) + "\n", encoding="utf-8")
