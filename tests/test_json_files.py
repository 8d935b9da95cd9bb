"""NDJSON files that are not one object per line, or whose values a reader changes, are refused by line and kind."""

import json

import polars as pl
import pytest

from dptext_etl.errors import InputError
from dptext_etl.runner.source.table import Files
from dptext_etl.text_files import refuse_mixed, require_lines
from tests.refusals import same_refusal

from .review_jobs import job, make_job, make_reviews  # noqa: F401  (fixtures)

MARK = b"\xef\xbb\xbf"
BIG = 2**53 + 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"id":1},\n{"id":2}]\n', "line 1 of begins a JSON array"),
        (b'{"id":1}\n[2]\n', "line 2 of holds another value than an object"),
        (b'{"id":1}\n{"id":NaN}\n', "line 2 of holds NaN or Infinity"),
        (b'{"id":1}\n{"id":-Infinity}\n', "line 2 of holds NaN or Infinity"),
        (b'{"id":1}\n\n{"id":"a\\ud800"}\n', "line 3 of holds half of a surrogate pair"),
        (b'{"id":"\\udc00"}\n', "line 1 of holds half of a surrogate pair"),
        (b'{"id":1}\n{"id":', "line 2 of is cut"),
        (b'{"id":1}\n{"id" 1}\n{"id":2}\n', "line 2 of is not one JSON object"),
        (b'{"id":1,"id":2}\n', "line 1 of holds an object with one field twice"),
        (b'{"id":1e999}\n', "line 1 of holds a number that no type holds"),
        (b'{"id":"\xff"}\n', "line 1 of is not in UTF-8"),
        (b"", "of is empty"),
        (b"\n \n", "of is empty"),
    ],
)
def test_a_line_that_is_not_an_object_is_named_with_its_kind(tmp_path, content, said):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.ndjson").write_bytes(b'{"id":0}\n')
    (tmp_path / "raw" / "b.ndjson").write_bytes(content)
    with pytest.raises(InputError, match=said.replace("of", "(of )?the file .*b.ndjson", 1)):
        Files.at(str(tmp_path / "raw")).scan()


def test_a_byte_order_mark_is_not_a_part_of_the_first_line(tmp_path):
    (tmp_path / "a.ndjson").write_bytes(MARK + b'{"id":"a"}\n{"id":"b"}\n')
    (tmp_path / "b.ndjson").write_bytes(b'{"id":"c"}\n')
    assert Files.at(str(tmp_path)).scan().collect()["id"].to_list() == ["a", "b", "c"]
    with pytest.raises(InputError, match="begins with the byte-order mark"):
        require_lines([MARK + b"{}\n"], "s3://bucket/a.ndjson", marked=False)
    with pytest.raises(InputError, match="folder names hold columns"):
        Files.at(str(tmp_path)).scan(paths_as="path")


def kinds(*lines):
    return require_lines(["\n".join(lines).encode()], "it")


def test_digits_that_a_float_would_change_are_refused_also_across_files():
    digits, rest = f'{{"a": {BIG}, "b": {{"c": [1.5]}}}}', '{"a": 1, "b": {"c": [0]}}'
    refuse_mixed([kinds(digits, rest)], ["a", "b"])
    for other, column in (('{"a": 1.5}', "a"), ('{"a": 1e3}', "a"), (f'{{"b": {{"c": [{-BIG}]}}}}', "b")):
        with pytest.raises(InputError, match=f"column '{column}' holds integers beyond 2"):
            refuse_mixed([kinds(digits), kinds(other)], ["a", "b"])
        refuse_mixed([kinds(digits), kinds(other)], ["z"])
    with pytest.raises(InputError, match="column 'a' holds strings next to numbers with a fraction"):
        refuse_mixed([kinds('{"a": "x"}', '{"a": 1.10}')], ["a"])


@pytest.mark.parametrize("column", ["id", "user_id", "stars"])
def test_a_run_refuses_them_before_anything_is_charged_and_keeps_other_digits(make_job, column):  # noqa: F811
    rows = make_reviews(40).with_columns(pl.int_range(BIG, BIG + 40).alias(column), ratio=0.5)
    job = make_job(frame=rows, suffix=".ndjson")  # noqa: F811
    assert job.run().rows["released"] == 40
    if column != "user_id":
        assert job.published()[column].to_list() == rows[column].to_list()
    path = job.folder / "raw.ndjson"
    path.write_text(path.read_text().replace(f":{BIG + 3},", f":{BIG + 3}.5,"))
    refused = same_refusal(job, {"release": "2026-12"}, InputError)
    assert f"column {column!r} holds integers beyond 2^53 next to numbers" in refused.message


def test_the_columns_of_a_folder_are_those_of_all_its_files(tmp_path):
    (tmp_path / "a.ndjson").write_bytes(b'{"id":1,"note":null,"at":1}\n')
    (tmp_path / "b.ndjson").write_bytes(b'{"id":2,"note":"x","more":true,"at":1.5}\n')
    rows = [(1, None, 1.0, None), (2, "x", 1.5, True)]
    assert Files.at(str(tmp_path)).scan().collect().select("id", "note", "at", "more").rows() == rows


def test_types_come_from_all_rows_of_a_file(tmp_path):
    """A column is null, or holds integers, in more rows than a reader looks at by default."""
    rows = [
        {"id": f"r{n}", "late": "x" if n > 11_000 else None, "mixed": "x" if n > 11_000 else n} for n in range(11_050)
    ]
    path = tmp_path / "rows.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = Files.at(str(path)).scan().collect()
    assert (frame["late"].drop_nulls().len(), frame["mixed"].dtype) == (49, pl.String)
