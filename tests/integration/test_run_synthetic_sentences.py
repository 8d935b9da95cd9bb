"""A synthetic table over vectors of a sentence encoder: other floats of the same records buy no second noise."""

from types import SimpleNamespace

import numpy as np
import pytest

from dptext_etl.corpora import Corpus, corpus
from dptext_etl.errors import DPTextError, LedgerError
from dptext_etl.families.aggregate import statistic
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.publish.versions import clean
from tests.quick import quick

from ..synthetic_runs import SYNTHETIC, ref_of, used, verified


class Encoder:
    """The vectors of words in the place of a model; a machine with other floats moves some of them by a last bit."""

    def __init__(self):
        self.words, self.moved, self.texts, self.fails = Corpus.open("example").encoder, 0, [], None

    def encode(self, texts, n_max=0):
        vectors = self.words.encode(texts)
        public = len(texts) <= len(SYNTHETIC["labels"]["values"])  # a probe, or the names of labels
        if not public:
            self.texts += texts
        if self.fails is not None and not public and len(self.texts) > self.fails:
            raise RuntimeError("zzqsentinelqzz")
        at = np.arange(len(texts)), np.abs(vectors).argmin(axis=1)
        vectors[at] += np.where(vectors.any(axis=1) & (not public), self.moved, 0).astype(np.int8)
        return vectors


def use(monkeypatch, encoder):
    library = SimpleNamespace(loaded=lambda *_: encoder, version=lambda: "6")
    for user in (corpus, statistic):
        monkeypatch.setattr(user, "encoders", lambda: library)


@pytest.fixture
def encoder(monkeypatch):
    made = Encoder()
    use(monkeypatch, made)
    return made


@pytest.fixture
def make_encoded(make_synthetic, encoder, tmp_path):
    facts = {"licence": "CC0", "provenance": "tests", "name": "sentences"}
    facts["encoder"] = {"kind": "sentence-transformers", "name": "small", "files": "0" * 64, "dtype": "float32"}
    public = Corpus.open("example")
    place = str(Corpus.save(tmp_path / "sentences", public.texts, facts, vectors=public.vectors).path.parent)
    synthetic = {**SYNTHETIC, "mechanism": {**SYNTHETIC["mechanism"], "corpus": place}}
    return lambda name="job", **changes: make_synthetic(name, synthetic=synthetic, **changes)


def staged(job):
    return sorted((job.folder / "published.staging").rglob("vectors-*"))


def test_a_run_adds_up_the_vectors_of_the_encoder(make_encoded, make_synthetic):
    job, words = make_encoded(shard_rows=60), make_synthetic("words")
    words.run()
    summary = job.run()
    assert summary.published_rows == 50
    of_sentences, of_words = (
        np.linalg.norm(make.policy().statistic.projection.directions, axis=1) for make in (job, words)
    )
    assert np.allclose(of_words, 128, atol=2)
    assert of_sentences.max() > 1.5 * 128, "directions of a sentence encoder are balanced"
    assert len(staged(job)) == 4
    assert {path.stat().st_mode & 0o777 for path in staged(job)} == {0o600}
    assert verified(job) == []


@pytest.mark.parametrize("step", quick(["reserved", "pinned", "staged", "committed"], first=4))
def test_a_run_that_stopped_goes_on_with_staged_vectors(make_encoded, encoder, step):
    """Another machine would give other vectors, but staged vectors count."""
    job, whole = make_encoded(shard_rows=60), make_encoded("whole", shard_rows=60)
    expected = whole.run()
    assert job.stop(step, 2 if step == "reserved" else 1)
    first, encoder.texts, encoder.moved = len(staged(job)), [], int(step != "reserved")
    assert first == (1 if step == "reserved" else 4)
    again = job.run(shard_rows=60 if step == "reserved" else 100)  # record by record, in other shards, too
    assert again.manifest == expected.manifest
    assert bool(encoder.texts) == (step == "reserved")
    assert used(job) == used(whole)
    assert verified(job) == []


def test_other_vectors_of_a_pinned_table_are_refused_before_noise(make_encoded, encoder, monkeypatch):
    job = make_encoded()
    assert job.stop("pinned")
    for path in staged(job):
        path.unlink()
    encoder.moved = 1
    monkeypatch.setattr("dptext_etl.runner.shard.summing.noisy", None)
    with pytest.raises(LedgerError, match="is pinned to other sums of these records") as refused:
        job.run()
    assert "bring back the staged vectors" in refused.value.hint
    monkeypatch.undo()
    use(monkeypatch, encoder)
    for path in staged(job):
        path.unlink()
    encoder.moved = 0
    assert job.run().published_rows == 50
    assert verified(job) == []


def test_a_published_table_is_whole_without_vectors(make_encoded, encoder):
    job = make_encoded()
    first = job.run()
    job.forget_that_nothing_changed()
    for path in staged(job):
        path.unlink()
    encoder.texts, encoder.moved = [], 1
    again = job.run()
    assert (again.changed, again.manifest, encoder.texts) == (False, first.manifest, [])
    assert "all records are in the published table" in again.notes[0]
    assert verified(job) == []


def test_vectors_under_another_seal_are_not_used(make_encoded, encoder):
    job = make_encoded(shard_rows=300)
    assert job.stop("pinned")
    (path,) = staged(job)
    path.write_bytes(path.read_bytes().replace(b'"vectors": "', b'"vectors": "AAAA', 1))
    encoder.texts = []
    assert job.run().published_rows == 50
    assert len(encoder.texts) == 240


def test_a_failed_encoder_charges_nothing_and_shows_no_text(make_encoded, encoder):
    job = make_encoded(shard_rows=60)
    encoder.fails = 100
    with pytest.raises(DPTextError) as failed:
        job.run()
    assert "zzqsentinelqzz" not in str(failed.value) + repr(failed.value.__context__)
    with job.ledger() as ledger:
        assert not ledger.records(ref_of(job, ledger))
    encoder.fails, before = None, len(staged(job))
    assert before
    assert job.run().published_rows == 50


@pytest.mark.parametrize("how", ["forget", "clean"])
def test_forgetting_and_cleaning_remove_vectors(make_encoded, how):
    job = make_encoded()
    job.run()
    assert staged(job)
    if how == "forget":
        (job.folder / "raw.parquet").unlink()
        forget(job.policy(), subjects=["u001"])
    else:
        clean(job.policy(retention={"kept_days": 0}))
    assert not staged(job)
