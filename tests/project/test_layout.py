"""Files of the core have room for one subject each, and names that tell them apart."""

from collections import Counter
from pathlib import Path

import dptext_etl

CORE = Path(dptext_etl.__file__).parent
FILES = [path for path in CORE.rglob("*.py") if path.name not in {"__init__.py", "__main__.py"}]


def test_files_have_names_of_their_own_and_at_most_600_lines():
    names = Counter(path.name for path in FILES)
    assert [name for name, count in names.items() if count > 1] == []
    lines = {path.relative_to(CORE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {name: count for name, count in lines.items() if count > 600} == {}
    assert len(lines) > 100, "these are the files of the core"
