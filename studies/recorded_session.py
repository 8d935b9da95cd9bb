"""Run the three commands of README in a new folder, and keep the lines of their output that the picture of it shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SESSION = Path(__file__).with_name("recorded_session.json")
SHOWN = re.compile(r"^(?:form: |cap per subject|wrote (?:noise|privacy)|\d.* subjects|published v)")
"""Lines that the picture shows; it marks others by dots."""


def commands() -> list[str]:
    """Return the commands of README's first block on a sample, without comments."""
    page = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Three commands")[2]
    block = page.partition("```sh\n")[2].partition("```")[0]
    return [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]


def main() -> None:
    """Record the commands and their lines in `recorded_session.json`."""
    record = []
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "DPTEXT_ANCHORS": f"{folder}/anchors"}
        for command in commands():
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=env, check=True, capture_output=True, text=True
            )
            record.append({"command": command, "lines": shown(done.stdout.splitlines())})
    SESSION.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def shown(lines: list[str]) -> list[str]:
    """Return the lines of an output that match `SHOWN`, and dots for others."""
    found = list[str]()
    for line in lines:
        kept = " ".join(line.split())[:60] if SHOWN.match(line) else "…"
        found += [kept] if kept != "…" or found[-1:] != ["…"] else []
    return found


if __name__ == "__main__":
    main()
