"""The check of CSV files before a run: rows that do not fit the header, and files that readers read differently."""

import csv
import io
import random

import polars as pl
import pytest

from dptext_etl.errors import InputError
from dptext_etl.text_files import require_local_rows, require_rows
from tests.quick import quick

SECRET = "Okafor"
"""A word of the cells and of the names of columns."""


def refusal(content, *dialect):
    with pytest.raises(InputError) as caught:
        require_rows([content], "raw.csv", *dialect)
    assert SECRET not in f"{caught.value}{caught.value.fields}"
    return caught.value


@pytest.mark.parametrize(
    ("content", "said", "fields"),
    [
        pytest.param(
            b"id,review,stars,note\nr1,good,5,\nr7,my doctor is Okafor, 555-0134 is her number,4,x\nr8,a,1\n",
            "2 rows have another number of fields than the header of raw.csv: the first, in line 3, has 5, and "
            "the header has 4",
            {"rows": 2, "line": 3, "fields": 5, "columns": 4},
            id="a separator without quotes",
        ),
        pytest.param(
            b"ticket_id,message\nt1,\"two\nlines\"\nt2,my doctor\nis Okafor\n",
            "1 row has another number of fields than the header of raw.csv: the first, in line 5, has 1, and "
            "the header has 2",
            {"rows": 1, "line": 5, "fields": 1, "columns": 2},
            id="a line break without quotes",
        ),
        pytest.param(
            b"ticket_id,message\r\nt2,my doctor\nis Okafor, she said\r\n",
            "line 2 of raw.csv ends otherwise than the first line",
            {"line": 2},
            id="a line break without quotes that makes a whole row",
        ),
        pytest.param(
            b"id,review,stars\nr1,good,5\nr2,Okaf",
            "1 row has another number of fields than the header of raw.csv: the first, in line 3, has 2, and "
            "the header has 3",
            {"rows": 1, "line": 3, "fields": 2, "columns": 3},
            id="a file that is cut off",
        ),
        pytest.param(
            b'id,review\nr1,"good"\nr2,"Okafor\nr3,bad\n', "line 3 of raw.csv opens a quote that never closes",
            {"line": 3}, id="a quote that never closes",
        ),
        pytest.param(
            b'id,review\nr1,"she said \\"Okafor\\" twice"\n', "line 2 of raw.csv holds text behind a closing quote",
            {"line": 2}, id="quotes escaped by backslashes",
        ),
        pytest.param(
            b'id,review\nr1,Okafor is 6" taller\nr2,b\n',
            "line 2 of raw.csv holds a quote inside a field that does not begin with one",
            {"line": 2}, id="one quote in the middle",
        ),
        pytest.param(
            b"id,review\nr1,a\n\n\nr2,Okafor\n", "2 lines are blank in raw.csv: the first is line 3",
            {"rows": 2, "line": 3}, id="blank lines in the middle",
        ),
        pytest.param(
            b"id,review\r\nr1,a\r\n\r\n", "1 line is blank in raw.csv: the first is line 3",
            {"rows": 1, "line": 3}, id="a blank line at the end",
        ),
        pytest.param(
            b"id,review,\nr1,Okafor,\n", "column 3 of 3 of raw.csv has no name",
            {"column": 3, "columns": 3}, id="separators at the ends of lines",
        ),
        pytest.param(
            b"id,Okafor,n,OKAFOR\n1,2,3,4\n", "columns 2, 4 of raw.csv have the same name",
            {"columns": [2, 4]}, id="names that differ in case",
        ),
        pytest.param(
            b"id,review\nr1,Okafor\rr2,b\n", "line 2 of raw.csv holds a carriage return that ends no line",
            {"line": 2}, id="lines that end with a carriage return",
        ),
        pytest.param(
            b"id,review\nr1,Okafor\nr2,G\xf6\xdfe\n", "raw.csv is not in utf-8: the first other byte is in line 3",
            {"entry": "csv.encoding", "line": 3}, id="another encoding",
        ),
        pytest.param(
            b"id,review\nr1,Okafor\nr2,\xc3", "raw.csv is not in utf-8: the first other byte is in line 3",
            {"entry": "csv.encoding", "line": 3}, id="half a character at the end",
        ),
        pytest.param(
            b"id,review\nr1,Okafor,x\nr2,\"a\n", "1 row has another number of fields",
            {"rows": 1, "line": 2, "fields": 3, "columns": 2}, id="the first of several",
        ),
        pytest.param(b"\x1f\x8b\x08\x00", "raw.csv is compressed", {}, id="a compressed file"),
    ],
)  # fmt: skip
def test_a_file_is_refused_by_counts_and_lines(content, said, fields):
    caught = refusal(content)
    assert said in caught.message
    assert caught.fields == fields
    assert caught.hint


@pytest.mark.parametrize(
    ("content", "dialect"),
    [
        ("id;t\n1;a,b\n", (";", '"')), ("id|t\n1|'a|b'\n", ("|", "'")), ('id\tt\n1\t5" wide\n', ("\t", "")),
        ("id,t\n1,it's\n", (",", '"')), ("id,Größe\n1,ü\n", (",", '"')),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252", "latin-1"])
def test_other_dialects_pass(content, dialect, encoding):
    assert require_rows([content.encode(encoding)], "x", *dialect, encoding)[0] == "id"
    wider = content.rstrip("\n") + dialect[0] + "x\n"
    assert refusal(wider.encode(encoding), *dialect, encoding).fields == {
        "rows": 1, "line": 2, "fields": 3, "columns": 2,
    }  # fmt: skip


def test_byte_order_marks_undecodable_characters_and_changes_are_seen(tmp_path):
    said = refusal("\ufeffid,text\n1,é\n".encode(), ",", '"', "latin-1").message
    assert said == "raw.csv begins with the byte-order mark of UTF-8"
    assert require_rows(['\ufeff"id",text\n1,é\n'.encode()], "x") == ("id", "text")
    content = "id,text\n1,ab\n2,cd\n".encode("utf-16") + b"\x00\xdc" + "\n".encode("utf-16-le")
    for size in (1, 2, 7, 1000):
        with pytest.raises(InputError) as caught:
            require_rows([content[at : at + size] for at in range(0, len(content), size)], "x", encoding="utf-16")
        assert caught.value.fields["line"] == 4
    path = tmp_path / "raw.csv"
    path.write_text("a,b\n1,2\n")
    dialect = (",", '"', "utf-8")
    assert require_local_rows(str(path), *dialect) == ("a", "b")
    path.write_text("a,b\n1,2,3\n")
    with pytest.raises(InputError):
        require_local_rows(str(path), *dialect)


@pytest.mark.parametrize(("separator", "quote"), quick([("|", "'"), (",", '"'), ("\t", "")]))
def test_what_passes_is_read_alike(tmp_path, separator, quote):
    """A file that passes has the rows that Python's reader finds, and Polars finds the same in any part of them."""
    draw, path, passed = random.Random(7), tmp_path / "raw.csv", 0
    pieces = ["a", "b", ",", ",", '"', '""', "\n", "\r\n", "\r", " ", "\\", "é", '"x"', '"y,\n"', "1"]
    dialect = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    for _ in range(3000):
        content = "a,b\n" + "".join(draw.choices(pieces, k=draw.randint(1, 14)))
        if draw.random() < 0.3:
            content = content.replace("\r\n", "\n").replace("\n", "\r\n")
        content = content.replace(",", separator).replace('"', quote or '"')
        path.write_bytes(content.encode())
        try:
            names = require_local_rows(str(path), separator, quote, "utf-8")
        except InputError:
            continue
        passed += 1
        wanted = list(csv.reader(io.StringIO(content, newline=""), delimiter=separator, **dialect))
        assert list(names) == wanted[0]
        assert {len(row) for row in wanted} == {2}, content
        table = pl.scan_csv(path, infer_schema=False, separator=separator, quote_char=quote or None)
        assert [[cell or "" for cell in row] for row in table.collect().rows()] == wanted[1:], content
        assert [cell or "" for cell in table.select("b").collect()["b"]] == [row[1] for row in wanted[1:]], content
    assert passed > 100
