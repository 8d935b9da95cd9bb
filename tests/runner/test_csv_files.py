"""CSV files as people export them: separators, encodings and quotes, found by `init` and read by every run."""

import itertools
import tomllib

import polars as pl
import pytest

from dptext_etl.errors import InputError, PolicyError
from dptext_etl.policy.terms import PLAIN_CSV, CsvSpec
from dptext_etl.runner import init
from dptext_etl.runner.source.guessing import sniff
from dptext_etl.runner.source.table import Files

ROWS = [
    ("id", "Kunde", "text"),
    ("007", "k1", "Größe passt nicht, leider; schade | oder"),
    ("008", "k2", "Über 20 € für\tnichts"),
    ("009", "k1", "zwei\nZeilen, ja"),
]


def test_a_line_that_names_a_separator_for_excel_is_not_a_header(tmp_path):
    (tmp_path / "raw.csv").write_text("sep=;\nid;text\n1;a\n")
    for separator in ";,":
        with pytest.raises(InputError, match=r"line 1 of .*raw.csv names a separator for Excel"):
            Files.at(str(tmp_path / "raw.csv"), csv=CsvSpec(separator=separator)).scan()


def written(path, separator, encoding, quote):
    lines = [separator.join(f"{quote}{cell}{quote}" for cell in row) for row in ROWS]
    encoding = "utf-16" if encoding == "utf-16" else encoding
    path.write_bytes("\n".join(lines).replace("€", "€" if encoding != "latin-1" else "EUR").encode(encoding))
    return str(path)


@pytest.mark.parametrize(
    ("separator", "encoding", "quote"),
    list(itertools.product(",;\t|", ["utf-8", "utf-16", "cp1252", "latin-1"], "\"'")),
)
def test_what_is_found_out_reads_the_file(tmp_path, separator, encoding, quote):
    place = written(tmp_path / "raw.csv", separator, encoding, quote)
    found, other_byte = sniff(place)
    assert other_byte == (2 if encoding in {"cp1252", "latin-1"} else None)
    assert found == CsvSpec(separator=separator, encoding=encoding, quote=quote)
    read = Files.at(place, csv=found).scan(all_text=True).collect()
    assert (read.columns, read["id"].to_list()) == (["id", "Kunde", "text"], ["007", "008", "009"])
    assert read["text"].to_list()[2] == "zwei\nZeilen, ja"
    assert read["text"].to_list()[0] == "Größe passt nicht, leider; schade | oder"


def test_a_first_policy_has_the_entry_only_where_it_is_needed(tmp_path):
    plain = tomllib.loads(init(written(tmp_path / "plain.csv", ",", "utf-8", '"')))
    assert "csv" not in plain
    other = tomllib.loads(init(written(tmp_path / "other.csv", ";", "cp1252", '"')))
    assert other["csv"] == {"separator": ";", "encoding": "cp1252", "quote": '"'}
    assert (other["id"], other["shuffled"]["rows"]) == ("id", 1_000)


def test_unquoted_fields_may_hold_quotes(tmp_path):
    (tmp_path / "raw.csv").write_text('id,text\na,5" wide\nb,7" wide\n')
    read = Files.at(str(tmp_path / "raw.csv"), csv=CsvSpec(quote="")).scan().collect()
    assert read["text"].to_list() == ['5" wide', '7" wide']


def test_another_encoding_than_the_policy_says_is_refused_by_the_entry(tmp_path):
    place = written(tmp_path / "raw.csv", ",", "latin-1", '"')
    with pytest.raises(
        InputError, match=r"csv\.encoding: the file .*raw\.csv is not in utf-16: .* in line 1\n"
    ) as caught:
        Files.at(place, csv=CsvSpec(encoding="utf-16")).scan()
    assert caught.value.fields == {"entry": "csv.encoding", "line": 1}
    assert "Größe" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"separator": ";;"}, "separator"),
        ({"separator": "a"}, "separator"),
        ({"separator": "\n"}, "separator"),
        ({"quote": "«"}, "quote"),
        ({"quote": ","}, "separator and quote must differ"),
        ({"encoding": "ebcdic"}, "encoding"),
        ({"sep": ";"}, "sep"),
    ],
)
def test_wrong_entries_are_refused_by_name(policy_file, entries, said):
    with pytest.raises(PolicyError, match=said):
        policy_file(csv=entries)


@pytest.fixture
def policy_file(small_vectors):
    from dptext_etl import Policy

    def make(**values):
        facts = {
            "dataset": "d",
            "release": "r",
            "source": "raw.csv",
            "sink": "out",
            "staging": "s",
            "id": "id",
            "unit": "record",
        }
        mechanism = {"name": "custext", "epsilon": 2.0, "k": 3, "vectors": str(small_vectors)}
        column = {"name": "text", "mechanism": mechanism, "allow": ["cluster"]}
        return Policy(**facts, key="env:DPTEXT_SUITE_SECRET", ledger={"url": "l.db"}, column=[column], **values)

    return make


def test_a_policy_without_the_entry_is_dumped_without_it(policy_file):
    assert "csv" not in policy_file().model_dump(by_alias=True)
    assert policy_file(csv={"separator": ";"}).csv == CsvSpec(separator=";") != PLAIN_CSV


def test_the_entry_is_for_csv_files(policy_file, tmp_path):
    from dptext_etl.runner.layout import Layout

    pl.DataFrame({"id": ["a"]}).write_parquet(tmp_path / "raw.parquet")
    policy = policy_file(csv={"separator": ";"}).model_copy(update={"source": str(tmp_path / "raw.parquet")})
    with pytest.raises(InputError, match="entry csv, and the source holds parquet files"):
        Files.find(Layout.of(policy))


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"\xef\xbb\xbfid,text\nr1,abc\nr2,\xff\n", 3), ("id,text\nr1,é\nr2,ü\n".encode() + b"r3,\xe9\n", 4)],
)
def test_a_file_that_is_mostly_in_utf_8_is_not_read_in_another_encoding(tmp_path, content, line):
    (tmp_path / "raw.csv").write_bytes(content)
    with pytest.raises(InputError, match=f"mostly in UTF-8, and line {line} holds") as caught:
        init(tmp_path / "raw.csv")
    assert caught.value.fields == {"line": line}


def test_the_first_policy_says_that_an_encoding_is_a_guess(tmp_path):
    place = written(tmp_path / "raw.csv", ",", "cp1252", '"')
    assert "the first other byte is in line 2. The encoding cp1252 is a guess" in init(place)
    chosen = init(place, encoding="latin-1")
    assert "is a guess" not in chosen
    assert tomllib.loads(chosen)["csv"]["encoding"] == "latin-1"


def test_files_of_tabs_are_read_by_their_suffix(tmp_path, policy_file):
    from dptext_etl.runner.layout import Layout

    place = tmp_path / "raw.tsv"
    place.write_text("id\ttext\n007\ta, b\n")
    assert Files.at(str(place)).scan(all_text=True).collect().rows() == [("007", "a, b")]
    policy = policy_file().model_copy(update={"source": str(place), "sink": str(tmp_path / "out")})
    assert (Files.find(Layout.of(policy)).csv.separator, Layout.of(policy).sink_format) == ("\t", "csv")
    place.write_text("id;text\n007;a\tb\n")
    assert Files.at(str(place), csv=CsvSpec(separator=";")).scan().collect().width == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raw.csv.gz", "is compressed"),
        ("raw.ndjson.zst", "is compressed"),
        ("raw.json", "may be one JSON array"),
        ("raw.json.gz", "is compressed"),
    ],
)
@pytest.mark.parametrize("source", ["{}/raw/{}", "{}/raw", "{}/raw/*"])
def test_other_files_get_a_message_that_says_how_to_convert_them(tmp_path, name, said, source):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / name).write_bytes(b"[]")
    with pytest.raises(InputError, match=said) as caught:
        Files.at(source.format(tmp_path, name))
    assert "decompress it" in caught.value.hint or "rename it to .ndjson" in caught.value.hint


def test_a_folder_with_a_compressed_file_is_not_read_without_it(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "schema.json").write_text("{}")
    assert Files.at(str(tmp_path)).paths == (str(tmp_path / "a.csv"),)
    (tmp_path / "b.csv.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"b\.csv\.gz is compressed"):
        Files.at(str(tmp_path))


def test_files_with_their_columns_in_another_order_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "b.csv").write_text("text,id\nb,2\n")
    with pytest.raises(InputError, match=r"b\.csv has other columns than .*a\.csv, or has them in another order"):
        Files.at(str(tmp_path)).scan()
