"""Keep raw tables apart from what must be public: sources of a corpus, and stand-ins."""

from __future__ import annotations

import glob
import hashlib
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from dptext_etl.corpora.corpus import Corpus
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import is_remote
from dptext_etl.runner.source.table import READ_HINT


def refuse_raw(paths: Sequence[str], policies: Iterable[Path] = (), *, why: str) -> None:
    """Refuse files that a policy names as its source; no row is read."""
    folders = {Path.cwd(), *(Path(path).absolute().parent for path in paths if not is_remote(path))}
    for policy in (*policies, *sorted(found for folder in folders for found in folder.glob("*.toml"))):
        try:
            raw = tomllib.loads(policy.read_text("utf-8")).get("source")
        except (OSError, ValueError):
            raise PolicyError(f"the policy {policy} cannot be read", "repair it, or move it away") from None
        if isinstance(raw, str) and _named(raw, policy.absolute().parent, paths):
            msg = f"the policy {policy} names this table as raw; {why}"
            raise PolicyError(msg, "give a public table of the same kind of texts")


def _named(raw: str, folder: Path, paths: Sequence[str]) -> bool:
    pattern = raw.removeprefix("file://").replace("{partition}", "*")
    if is_remote(pattern):
        return any(path == raw or Path(path).match(pattern) for path in paths)
    held = [Path(name).resolve() for name in glob.glob(str(folder / pattern), recursive=True)]  # noqa: PTH207
    for path in (Path(path).resolve() for path in paths if not is_remote(path)):
        if any(path == one or one in path.parents or path.samefile(one) for one in held):
            return True
    return False


def refuse_own_corpus(policy: Policy, paths: Sequence[str]) -> None:
    """Refuse a source of which a corpus of the policy was made: such a corpus publishes the texts as they are.

    Files are compared by size and SHA-256, so a file that was written anew is not recognized.
    """
    known = {digest: size for corpus in _corpora(policy) for digest, size in corpus.files.items()}
    sizes = set(known.values())
    for path in paths if known else ():
        if is_remote(path) or not Path(path).is_file() or Path(path).stat().st_size not in sizes:
            continue
        with seam("reading the source", InputError, READ_HINT), Path(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest in known:
            msg = (
                "the corpus was built or calibrated from a file of the source: it is the private column, and not public"
            )
            raise PolicyError(msg, "build a corpus from published texts, or take one that ships; delete this one")


def _corpora(policy: Policy) -> list[Corpus]:
    found = (getattr(item.mechanism, "opened", None) for item in policy.charged_columns())
    return [one for one in found if isinstance(one, Corpus)]
