"""Writes the golden bytes: `python -m tests.frozen.make_bytes`. Kept for the record; see README.md before running it.

What is written is compared with what today's code gives by `test_bytes.py`. It was run once, at the commit that
README.md names, and is run again only for what a raised version of a mechanism is meant to change.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def written(value):
    """JSON that people can compare line by line."""
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in value.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(names):
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPTEXT_CACHE"] = f"{folder}/cache"
        from . import golden

        for name, observe in golden.PARTS.items():
            if not names or name in names:
                (HERE / f"{name}.json").write_text(written(observe(Path(folder))))


if __name__ == "__main__":
    main(sys.argv[1:])
