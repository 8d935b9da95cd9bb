"""Every module of the studies imports: what they take from the library is still there under that name."""

import importlib
import sys
from pathlib import Path

STUDIES = Path(__file__).resolve().parents[2] / "studies"


def test_every_module_imports(monkeypatch):
    for folder in (STUDIES, STUDIES / "benchmarks"):
        monkeypatch.syspath_prepend(str(folder))
    before, missing = set(sys.modules), dict[str, str]()
    for path in sorted(STUDIES.rglob("*.py")):
        name = ".".join(path.relative_to(STUDIES).with_suffix("").parts)
        if path.stem.startswith("__"):
            continue
        try:
            importlib.import_module(name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] in {"", "dptext_etl", "dptext_etl_eval", "dptext_etl_models"}:
                missing[name] = str(error)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {path.stem for path in STUDIES.iterdir()}:
            del sys.modules[name]
    assert not missing
