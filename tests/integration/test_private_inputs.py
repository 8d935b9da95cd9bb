"""Public inputs that were made from the private table are refused: by commands, by plans, and by runs."""

import hashlib
import shutil

import polars as pl
import pytest

from dptext_etl import Policy
from dptext_etl.artifacts import MADE_FROM, canon, listed, made_from
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import write_grid
from dptext_etl.errors import PolicyError
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.export import export
from dptext_etl.runner.publish.forgetting import source_of
from dptext_etl.runner.source.roles import refuse_raw

from ..refusals import same_refusal

MADE = "was made from a file of the source"


def learned(path, vectors, *sources):
    """Vectors as `dptext train encoder` writes them, over sources and the vectors that it began with."""
    start = WordVectors.load(vectors)
    facts = {"scale": repr(start.scale), MADE_FROM: made_from([*sources, start.artifact.path])}
    write_grid(path, start.words, start.vectors, facts)
    return str(path)


def columns(**parameters):
    mechanism = {"name": "custext", "epsilon": 2.0, "k": 5, **parameters}
    return [{"name": "review", "mechanism": mechanism, "allow": ["cluster"]}]


def raw(job):
    return job.folder / "raw.parquet"


def test_vectors_that_learned_from_the_source_are_refused(job, tmp_path):
    public = tmp_path / "public.parquet"
    pl.DataFrame({"text": ["public"]}).write_parquet(public)
    fine = learned(tmp_path / "fine.safetensors", job.vectors, public)
    private = learned(tmp_path / "private.safetensors", job.vectors, public, raw(job))
    later = learned(tmp_path / "later.safetensors", private, public)  # made from vectors that were made from it
    names = {name for name, _ in listed(tmp_path / "later.safetensors").values()}
    assert names >= {"raw.parquet", "private.safetensors"}
    for vectors in (private, later):
        refused = same_refusal(job, {"column": columns(vectors=vectors)}, PolicyError)
        assert refused.message.startswith("vectors of custext was made from a file of the source")
        assert hashlib.sha256(raw(job).read_bytes()).hexdigest() not in str(refused)
    assert job.run(column=columns(vectors=fine)).published_rows == 240


def test_the_source_itself_is_refused_as_an_input(job, tmp_path):
    other = tmp_path / "list.txt"
    other.write_text("the\nof\n")
    shutil.copy(other, job.folder / "raw.csv")
    (column,) = columns(variant="plus", stopwords=str(other), vectors=job.vectors)
    allowed = [{**column, "allow": ["cluster", "stopwords"]}]
    with pytest.raises(PolicyError, match=f"stopwords of custext {MADE}"):
        job.run(source=str(job.folder / "raw.csv"), column=allowed)


def test_a_source_of_several_files_and_one_in_a_folder(job, tmp_path):
    folder = job.folder / "raw"
    folder.mkdir()
    frame = pl.read_parquet(raw(job))
    for number in range(2):
        frame.slice(number * 120, 120).write_parquet(folder / f"{number}.parquet")
    private = learned(tmp_path / "private.safetensors", job.vectors, folder / "1.parquet")
    for source in (folder, folder / "*.parquet"):
        with pytest.raises(PolicyError, match=MADE):
            job.run(source=str(source), column=columns(vectors=private))


def test_an_edited_copy_is_not_recognized(job, tmp_path):
    other = tmp_path / "edited.parquet"
    pl.read_parquet(raw(job)).reverse().write_parquet(other)
    vectors = learned(tmp_path / "vectors.safetensors", job.vectors, other)
    assert job.run(column=columns(vectors=vectors)).published_rows == 240


@pytest.mark.parametrize("where", ["path", "copy", "artifact", "folder"])
def test_commands_refuse_a_file_of_a_policy(job, tmp_path, monkeypatch, where):
    job.write_policy(staging=None)
    away = tmp_path / "away"
    away.mkdir()
    given = {"path": raw(job), "copy": away / "public.parquet"}
    given |= {"artifact": away / "model.json", "folder": away / "model"}
    shutil.copy(raw(job), given["copy"])
    given["artifact"].write_bytes(canon({MADE_FROM: made_from([raw(job)])}))
    given["folder"].mkdir()
    shutil.copy(given["artifact"], given["folder"] / "made_from.json")
    monkeypatch.chdir(job.folder)
    with pytest.raises(PolicyError, match="names this table as raw; never"):
        refuse_raw([str(given[where])], why="never")
    monkeypatch.chdir(away)
    if where == "path":  # the policy is next to the file
        with pytest.raises(PolicyError, match="names this table as raw"):
            refuse_raw([str(given[where])], why="never")
    other = away / "other.parquet"
    pl.DataFrame({"text": ["public"]}).write_parquet(other)
    refuse_raw([str(other)], why="never")


def test_names_of_folders_and_files_are_no_patterns(make_job, tmp_path, monkeypatch):
    """Provenance of artifacts, a request to forget, and a project of Dagster find a source whose name holds `[`."""
    from dptext_etl.orchestration.component import _proposals

    job = make_job("raw [1]")
    raw(job).rename(place := raw(job).with_name("[ab].parquet"))
    policy = job.write_policy(staging=None, source=str(place))
    copied = shutil.copy(place, tmp_path / "public.parquet")
    monkeypatch.chdir(job.folder)
    with pytest.raises(PolicyError, match="names this table as raw; never"):
        refuse_raw([str(copied)], why="never")
    policy = Policy.load(policy)
    assert source_of(policy, Layout.of(policy), with_subjects=True).height == 240
    assert _proposals(job.folder / "privacy.toml")["executor"] == "in_process"


def test_no_hash_of_a_private_file_leaves(job, tmp_path):
    job.run(column=columns(vectors=learned(tmp_path / "fine.safetensors", job.vectors)))
    out = tmp_path / "exported"
    export(job.policy(column=columns(vectors=str(tmp_path / "fine.safetensors"))), out)
    digest = hashlib.sha256(raw(job).read_bytes()).hexdigest().encode()
    public = [*job.files().values(), *(path.read_bytes() for path in out.rglob("*") if path.is_file())]
    assert len(public) > 3
    assert not [content for content in public if digest in content]
