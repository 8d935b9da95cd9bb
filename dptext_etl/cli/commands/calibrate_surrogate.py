"""Choose the hit rates of a corpus on public texts, for `dptext calibrate surrogate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dptext_etl.cli.render import terminal


def calibrate_surrogate(
    corpus: str, public: list[Path], *, column: str, label: str | None, out: Path | None, as_json: bool
) -> None:
    """Choose the hit rates, write them into the corpus, and print them.

    Args:
        corpus: Folder or name of the corpus.
        public: Files of public texts.
        column: Their column of texts.
        label: Their column of public labels, or None.
        out: New folder of the corpus; None replaces its files.
        as_json: Whether to print JSON.

    Raises:
        PolicyError: No public texts are named.
        InputError: They cannot be read, or are too few.
    """
    from dptext_etl.corpora import Corpus, recalibrating
    from dptext_etl.corpora.sources import Source
    from dptext_etl.errors import PolicyError

    if not public:
        raise PolicyError("the hit rates of a corpus are chosen on public texts, and none are named", "use --public")
    terminal.note("this command assumes that the texts are public: never calibrate on texts that you privatise")
    before = Corpus.open(corpus)
    sources = [Source(path, column, label) for path in public]
    found = recalibrating.recalibrate(before, sources)
    after = recalibrating.write(before, found, sources, out)
    shown: dict[str, Any] = {"out": str(after.path.parent), "sha256": after.sha256, "replaces": before.sha256}
    shown["hits"] = {f"{hit.epsilon:g}": round(hit.hit, 4) for hit in found}
    if as_json:
        terminal.emit(shown)
        return
    terminal.pairs({name: shown[name] for name in ("out", "sha256", "replaces")})
    rows = [(f"{hit.epsilon:g}", f"{hit.hit:.2f}", hit.near, f"{100 * hit.kept:.0f} %") for hit in found]
    terminal.table(("epsilon", "hit rate", "near texts", "kept, of the nearest text's likeness"), rows)
