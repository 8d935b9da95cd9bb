"""The files of a source: a folder and a pattern over it name the same files, and a run leaves out none in silence."""

import ast
import os
import re
from pathlib import Path

import polars as pl
import pytest

import dptext_etl
from dptext_etl import Policy
from dptext_etl.errors import InputError
from dptext_etl.runner.source import table as listing
from dptext_etl.runner.source.table import Files, partitions_of_source

ROOT = Path(dptext_etl.__file__).parent.parent


def save(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"id": [path.name]}).write_parquet(path)


@pytest.fixture
def folder(tmp_path):
    """A folder of a file, a linked file, and a linked folder as partition."""
    for name in ("raw/a.parquet", "raw/day=1/b.parquet", "else/c.parquet", "else/day=2/d.parquet", "raw/_x/e.parquet"):
        save(tmp_path / name)
    (tmp_path / "raw" / "day=2").symlink_to(tmp_path / "else" / "day=2")
    (tmp_path / "raw" / "c.parquet").symlink_to(tmp_path / "else" / "c.parquet")
    return tmp_path / "raw"


def names(source):
    return [Path(path).name for path in Files.at(str(source)).paths]


def test_a_folder_and_a_pattern_name_the_same_files(folder):
    everything = ["a.parquet", "c.parquet", "b.parquet", "d.parquet"]
    for source in (folder, f"{folder}/**", f"{folder}/**/*.parquet", f"{folder.parent}/r*/**/*.par[q]uet"):
        assert sorted(names(source)) == sorted(everything)
    assert names(f"{folder}/*/*.parquet") == ["b.parquet", "d.parquet"]
    assert names(f"{folder}/_*/*") == ["e.parquet"]


def sources(folder):
    return [folder, f"{folder}/**/*.parquet", f"{folder}/**"]


def test_links_to_nothing_and_in_circles_are_refused_by_path(folder):
    for name, target, said in (
        ("gone", "/nowhere", "cannot be opened: No such file"),
        ("round", folder, "back to a folder above"),
    ):
        (folder / "day=1" / name).symlink_to(target)
        for source in sources(folder):
            with pytest.raises(InputError, match=f"day=1/{name}.* {said}"):
                Files.at(str(source))
        (folder / "day=1" / name).unlink()
    (folder / "gone.parquet").symlink_to("/nowhere")
    with pytest.raises(InputError, match=r"the link .*gone.parquet cannot be opened: No such file"):
        Files.at(f"{folder}/*.parquet")
    assert names(f"{folder}/day=1/*.parquet") == ["b.parquet"], "no pattern names the link"


def test_what_cannot_be_listed_or_opened_is_refused_by_path(folder, monkeypatch):
    iterdir, access = Path.iterdir, os.access

    def forbidden(path):
        if path.name == "day=1":
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", forbidden)
    for source in sources(folder):
        with pytest.raises(InputError, match=r"the folder .*/raw/day=1 cannot be listed: Permission denied"):
            Files.at(str(source))
    monkeypatch.setattr(Path, "iterdir", iterdir)
    monkeypatch.setattr(listing.os, "access", lambda path, mode: Path(path).name != "b.parquet" and access(path, mode))
    os.mkfifo(folder / "f.parquet")
    for name, said in (("day=1/b.parquet", "you have no permission"), ("f.parquet", "neither a file nor a folder")):
        with pytest.raises(InputError, match=f"{name} .*{said}"):
            Files.at(f"{folder}/{name}")


def test_partitions_follow_links_and_name_a_link_to_nothing(folder):
    policy = Policy.parse(
        {
            "dataset": "a",
            "release": "1",
            "source": f"{folder}/day={{partition}}",
            "sink": "out/{partition}",
            "id": "id",
            "unit": "record",
            "key": "file:k",
            "ledger": {"url": "sqlite:///l.db"},
            "column": [{"name": "t", "mechanism": {"name": "custext", "epsilon": 1.0}, "allow": ["cluster"]}],
        }
    )
    assert partitions_of_source(policy) == ["1", "2"]
    (folder / "day=3").symlink_to("/nowhere")
    with pytest.raises(InputError, match=r"the link .*day=3 cannot be opened: No such file"):
        partitions_of_source(policy)


@pytest.mark.parametrize("name", ["what?", "[ab]", "*"])
def test_names_of_folders_may_hold_the_signs_of_patterns(tmp_path, name):
    save(tmp_path / name / "raw" / "a.parquet")
    save(tmp_path / "whats" / "raw" / "b.parquet")
    save(tmp_path / "a" / "raw" / "c.parquet")
    for source in (tmp_path / name / "raw", f"{tmp_path}/{name}/raw/*.parquet", f"{tmp_path}/{name}/*/*"):
        assert names(source) == ["a.parquet"]


def test_a_file_whose_name_is_a_pattern_of_others_is_refused(tmp_path):
    save(tmp_path / "*.parquet")
    assert names(tmp_path / "*.parquet") == ["*.parquet"]
    save(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="also a pattern that names other files"):
        Files.at(f"{tmp_path}/*.parquet")
    assert names(tmp_path) == ["*.parquet", "a.parquet"]


def test_no_path_is_a_pattern():
    """`glob` reads a folder whose name holds `[` as a pattern, and `listing` does not."""
    patterns = set()
    for package in ("dptext_etl", "eval/dptext_etl_eval", "models/dptext_etl_models"):
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text()
            for node in ast.walk(ast.parse(source)) if re.search("glob|fnmatch", source) else ():
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("glob", "fnmatch", "fnmatchcase")):
                    assert not ast.unparse(node.func).startswith("glob."), path
                    patterns |= {(path.name, ast.unparse(arg)) for arg in node.args if "path" in ast.unparse(arg)}
    assert patterns == {(name, "f'.{escape(path.name)}-*.draft'") for name in ("anchor_files.py",)}


def test_a_source_is_found_whatever_its_name_holds(tmp_path):
    for name in ("plain", "[ab]", "what?"):
        save(tmp_path / name / "x[1].parquet")
        for source in (tmp_path / name, tmp_path / name / "x[1].parquet", tmp_path / name / "*.parquet"):
            assert [path.name for path in listing.existing_paths(str(source))] == [source.name.replace("*", "x[1]")]
    assert listing.existing_paths(str(tmp_path / "none" / "*")) == []


READERS = re.compile(r"(read|scan)_(parquet|parquet_schema|csv|ipc|ndjson)")


def test_every_reader_of_polars_takes_a_path_as_it_is_written():
    """Polars reads a name that holds `?`, `*`, or `[` as a pattern, and so other files, too."""
    found = []
    for path in sorted(Path(dptext_etl.__file__).parent.rglob("*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if READERS.search(source) else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and READERS.fullmatch(node.func.attr)
            ):
                argument = ast.unparse(node.args[0])
                if "literal(" not in argument and "BytesIO(" not in argument:
                    found.append((path.name, argument))
    places = {
        ("file_formats.py", ("list[Any](sources)", "source", "sources")),
        ("table_opening.py", ("old_paths", "new_paths")),
    }
    assert {*found} == {(file, name) for file, names in places for name in names}, "they hold literal names, or bytes"
