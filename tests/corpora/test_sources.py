"""Public texts are read from Parquet, CSV and text files; what is wrong is named without a cell."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from dptext_etl.corpora.building import Source
from dptext_etl.errors import InputError

ROWS = [("a room, by the river", "hotel"), (None, "hotel"), ('a "song"', None)]


def written(folder: Path, kind: str) -> Path:
    frame = pl.DataFrame(ROWS, schema={"said": pl.String, "topic": pl.String}, orient="row")
    path = folder / f"turns.{kind}"
    frame.write_parquet(path) if kind == "parquet" else frame.write_csv(path)
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables_give_texts_and_labels(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    assert [text for text, _ in Source(path, "said").rows()] == [ROWS[0][0], ROWS[2][0]]
    assert list(Source(path, "said", "topic").rows()) == [ROWS[0], ROWS[2]]


def test_a_text_file_has_one_text_a_line(tmp_path: Path) -> None:
    path = tmp_path / "turns.txt"
    path.write_text("a room\n\na song é\n", "utf-8")
    assert [text for text, _ in Source(path).rows()] == ["a room", "", "a song é"]


def test_refusals_name_what_is_there_and_never_a_cell(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet")
    with pytest.raises(InputError, match="has no column 'text', and 2 others"):
        list(Source(path).rows())
    with pytest.raises(InputError, match="there is no file"):
        list(Source(tmp_path / "nothing.parquet").rows())
    (tmp_path / "turns.docx").write_bytes(b"secret words")
    with pytest.raises(InputError, match=r"its suffix is \.docx") as caught:
        list(Source(tmp_path / "turns.docx").rows())
    assert "secret" not in str(caught.value)
    (tmp_path / "broken.parquet").write_bytes(b"secret words")
    with pytest.raises(InputError) as caught:
        list(Source(tmp_path / "broken.parquet", "said").rows())
    assert "secret" not in str(caught.value)
    pl.DataFrame({"text": [1, 2]}).write_parquet(tmp_path / "numbers.parquet")
    with pytest.raises(InputError, match="is Int64; allowed: strings"):
        list(Source(tmp_path / "numbers.parquet").rows())
