"""Public ranges of scores: the papers', and the files'."""

import json

import pytest

from dptext_etl.artifacts import Artifact
from dptext_etl.errors import ArtifactError
from dptext_etl_models.inference.clipping import CLIP_FILE, default_clip, read_clip, write_clip


@pytest.fixture
def files(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.json").write_bytes(b"{}")
    return {f"model/{name}": Artifact.open(tmp_path / name) for name in ("config.json", "model.safetensors")}


def with_clip(files, path):
    return {**files, f"model/{CLIP_FILE}": Artifact.open(path)}


@pytest.mark.parametrize(("name", "low", "high"), [
    ("FacebookAI/roberta-base", -3.2093127, 16.304797887802124), ("roberta-base", -3.2093127, 16.304797887802124),
    ("answerdotai/ModernBERT-base", -1.207156, 14.831477403640747),
    ("google/flan-t5-base", -19.22705113016047, 7.48324937989716), ("google/flan-t5-large", -95.0, 8.0),
    ("somebody/gpt2-paraphraser", -96.85249956065758, -8.747697966442914),
])  # fmt: skip
def test_the_papers_ranges(name, low, high):
    assert default_clip(name, {}) == (low, high)


@pytest.mark.parametrize("name", ["gpt2", "roberta-large", "somebody/roberta-base-finetuned", "", "."])
def test_other_models_have_none(name):
    assert default_clip(name, {}) is None


def test_a_folders_own_range_wins_over_the_papers(files, tmp_path):
    write_clip(tmp_path / CLIP_FILE, -1.5, 2.25, files, {"method": "by hand"})
    assert default_clip("roberta-base", with_clip(files, tmp_path / CLIP_FILE)) == (-1.5, 2.25)
    assert read_clip(tmp_path / CLIP_FILE) == (-1.5, 2.25)


def test_a_range_of_other_weights_is_refused(files, tmp_path):
    write_clip(tmp_path / CLIP_FILE, -1.5, 2.25, files, {})
    found = with_clip(files, tmp_path / CLIP_FILE)
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    other = {**found, "model/model.safetensors": Artifact.open(tmp_path / "model.safetensors")}
    with pytest.raises(ArtifactError, match=r"other weights(.|\n)*dptext calibrate"):
        default_clip("roberta-base", other)


def test_equal_ranges_give_equal_bytes(files, tmp_path):
    write_clip(tmp_path / "one.json", 0.1, 0.2, files, {"b": 1, "a": {"y": 2.5, "x": [1, 2]}})
    write_clip(tmp_path / "two.json", 0.1, 0.2, dict(reversed(files.items())), {"a": {"x": [1, 2], "y": 2.5}, "b": 1})
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@pytest.mark.parametrize("content", [
    b"", b"not json", b"[1, 2]", b'{"low": 0.0, "high": 1.0}',
    json.dumps({"format": "dptext-clip/1", "low": 1.0, "high": 1.0}).encode(),
    json.dumps({"format": "dptext-clip/1", "low": 1.0}).encode(),
    json.dumps({"format": "dptext-clip/1", "low": "0", "high": "1"}).encode(),
    b'{"format": "dptext-clip/1", "low": NaN, "high": 1.0}',
    b'{"format": "dptext-clip/1", "low": 0.0, "high": Infinity}', None,
])  # fmt: skip
def test_files_that_hold_no_range_and_missing_ones_are_refused(content, tmp_path):
    path = tmp_path / "clip.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"no (finite )?range"):
        read_clip(path)
