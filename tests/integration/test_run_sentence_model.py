"""Synthetic tables over a model of sentence-transformers that the test builds, on two number types and on Spark."""

import numpy as np
import polars as pl
import pytest

from dptext_etl.corpora.building import Options, Source, build
from dptext_etl.device import DTYPE_SETTING
from dptext_etl.engines import run
from dptext_etl.errors import LedgerError
from tests.corpus_texts import texts

from ..synthetic_runs import SYNTHETIC, used, verified
from .spark_runs import frame_of

pytest.importorskip("dptext_etl_models")
pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra: semantic)")

from dptext_etl_models.sentence_transformers import SentenceModel
from models.tests.model_makers import make


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def corpus(request, tmp_path_factory):
    from sentence_transformers import SentenceTransformer

    room = tmp_path_factory.mktemp("sentences")
    SentenceTransformer(make("bert", room / "bert"), device="cpu").save(str(room / "model"))
    pl.DataFrame({"text": texts()[::7]}).write_parquet(room / "public.parquet")
    stated = {"license": "CC0", "provenance": "tests", "encoder": "sentence-transformers", "model": str(room / "model")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DTYPE_SETTING, request.param)
        build([Source(room / "public.parquet")], room / "corpus", Options(name="sentences", **stated))
    return str(room / "corpus")


@pytest.fixture
def make_encoded(make_synthetic, corpus):
    synthetic = {**SYNTHETIC, "mechanism": {**SYNTHETIC["mechanism"], "corpus": corpus}}
    return lambda name, **changes: make_synthetic(name, synthetic=synthetic, **changes)


def staged(job):
    return sorted((job.folder / "published.staging").rglob("vectors-*"))


def test_a_retry_takes_staged_vectors_and_computes_equal_ones_but_no_other(make_encoded, monkeypatch):
    job, whole = make_encoded("job", shard_rows=60), make_encoded("whole")
    expected, encode = whole.run(), SentenceModel.encode
    assert job.stop("pinned")
    for path in staged(job)[:2]:
        path.unlink()

    def moved(self, some, **given):
        vectors = encode(self, some, **given)
        vectors[-1, np.abs(vectors[-1]).argmin()] += 1
        return vectors

    with monkeypatch.context() as other:
        other.setattr(SentenceModel, "encode", moved)
        other.setattr("dptext_etl.runner.shard.summing.noisy", None)
        with pytest.raises(LedgerError, match="is pinned to other sums of these records"):
            job.run()
    for path in staged(job):
        path.unlink()
    assert job.run().manifest == expected.manifest
    assert used(job) == used(whole)
    assert verified(job) == []


@pytest.mark.thorough
def test_spark_goes_on_with_the_vectors_that_this_process_staged(spark, make_encoded):
    from dptext_etl.engines.spark.spark_engine import SparkEngine

    job, whole = make_encoded("job", shard_rows=60), make_encoded("whole")
    expected = whole.run()
    assert job.stop("reserved", 3)
    before = {path: path.read_bytes() for path in staged(job)}
    assert len(before) == 2
    summary = run(job.policy(), engine=SparkEngine(frame_of(spark, job)))
    assert summary.manifest == expected.manifest
    assert {path: path.read_bytes() for path in before} == before
    assert (used(job), verified(job)) == (used(whole), [])
