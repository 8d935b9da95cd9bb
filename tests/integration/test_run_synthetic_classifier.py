"""The classifier of a synthetic table is published with it, checked, exported, and labels texts of its readers."""

import json

import polars as pl
import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.errors import GateError, InputError
from dptext_etl.families.aggregate import linear_discriminant, read_statistic
from dptext_etl.runner import open_classifier
from dptext_etl.runner.publish.export import export, verify

from .. import command_line
from ..object_store import remote
from ..review_jobs import make_reviews
from ..synthetic_runs import CAP, SYNTHETIC, TEXTS, WITHOUT, labeled


@pytest.fixture(scope="module")
def released(make_shared):
    """A job whose table is published, to look at."""
    job = make_shared("classifier", labeled(make_reviews()))
    job.values |= {"column": None, "keep": None, "synthetic": SYNTHETIC, "cap": CAP}
    summary = job.run()
    assert summary.notes[1].startswith("label texts with the classifier of the release"), "it comes first"
    return job


def files_of(job):
    return sorted(path.name for path in job.folder.glob("published.classifier-*"))


def test_the_published_file_is_the_classifier_of_the_published_statistic(released):
    manifest = json.loads((released.folder / "published.manifest.json").read_text())
    assert files_of(released) == [f"published.classifier-{manifest['classifier'][:16]}.safetensors"]
    assert (released.folder / files_of(released)[0]).stat().st_mode & 0o777 == 0o644
    found = open_classifier(released.folder / "published")
    statistic = read_statistic(released.folder / "published.manifest.json", "example")
    assert found.content() == linear_discriminant(statistic).content()
    assert found.labels == ("music", "money", "other")


def test_an_export_holds_it_and_a_changed_one_is_found(released, tmp_path):
    export(released.policy(), tmp_path / "out")
    verify(tmp_path / "out")
    found = open_classifier(tmp_path / "out")
    assert found.content() == (tmp_path / "out" / "classifier.safetensors").read_bytes()
    assert found.content() == open_classifier(tmp_path / "out" / "classifier.safetensors").content()
    (tmp_path / "out" / "classifier.safetensors").write_bytes(b"another")
    with pytest.raises(InputError, match="not the one that the manifest names"):
        open_classifier(tmp_path / "out")
    with pytest.raises(GateError):
        verify(tmp_path / "out")


def test_a_reader_labels_a_table_by_the_command(released, tmp_path):
    texts = pl.DataFrame({"n": [1, 2, 3], "text": [TEXTS["money"], None, TEXTS["music"]]})
    texts.write_parquet(tmp_path / "texts.parquet")
    out = tmp_path / "labeled.parquet"
    place = str(released.folder / "published")
    facts = command_line.facts("label", place, str(tmp_path / "texts.parquet"), "--out", str(out))
    assert facts == {"out": str(out), "rows": 3, "labels": 3}
    labels = open_classifier(place).label(texts["text"].to_arrow()).to_pylist()
    assert pl.read_parquet(out).equals(texts.with_columns(pl.Series("label", labels)))
    assert labels[1] is None
    assert out.stat().st_mode & 0o777 == 0o600


def test_a_lost_or_changed_file_fails_the_check_and_the_next_run_restores_it(make_synthetic):
    job = make_synthetic()
    job.run()
    (name,) = files_of(job)
    content = (job.folder / name).read_bytes()
    for damaged in (None, b"another"):
        (job.folder / name).unlink()
        if damaged is not None:
            (job.folder / name).write_bytes(damaged)
        verdicts = {verdict.name: verdict for verdict in check_published(job.folder / "published", job.policy())}
        assert not verdicts["published_files"].passed
        assert "changed classifier: 1" in verdicts["published_files"].message
        with pytest.raises(InputError, match="not the one that the manifest names"):
            open_classifier(job.folder / "published")
        job.run()
        assert (job.folder / name).read_bytes() == content
        assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


def test_a_table_without_labels_has_no_classifier(make_synthetic):
    job = make_synthetic(synthetic=WITHOUT)
    job.run()
    assert "classifier" not in json.loads((job.folder / "published.manifest.json").read_text())
    with pytest.raises(InputError, match="has no classifier"):
        open_classifier(job.folder / "published")
    with pytest.raises(InputError, match="nothing is published there"):
        open_classifier(job.folder / "nowhere")


def test_an_object_store_holds_it_next_to_the_manifest(make_synthetic, store):
    pytest.importorskip("obstore", reason="obstore is not installed (extra: objects)")
    job = make_synthetic()
    changes = remote(job, store, source=str(job.folder / "raw.parquet"))
    names = []
    for release in ("first", "second", "third"):
        job.run(**changes, release=release)
        manifest = json.loads(store.objects["published/reviews/manifest.json"])
        names.append(f"published/reviews/classifier-{manifest['classifier'][:16]}.safetensors")
    assert sorted(name for name in store.objects if "classifier" in name) == sorted(names[1:])
    policy = job.policy(**changes, release="third")
    assert all(verdict.passed for verdict in check_published(policy.sink, policy))
    found = open_classifier(policy.sink, policy.storage_options)
    assert found.content() == store.objects[names[-1]]
    store.objects[names[-1]] = b"another"
    verdicts = {verdict.name: verdict.passed for verdict in check_published(policy.sink, policy)}
    assert not verdicts["published_files"]


def test_a_table_with_a_log_holds_it_next_to_the_manifest(make_synthetic):
    pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
    job = make_synthetic(table={"format": "delta"})
    job.run()
    (path,) = (job.folder / "published" / "_dptext").glob("classifier-*.safetensors")
    assert open_classifier(job.folder / "published").content() == path.read_bytes()
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
