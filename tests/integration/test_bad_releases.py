"""Bad input of unlinked releases and synthetic tables is refused by name before anything is charged."""

import polars as pl
import pytest

from dptext_etl.corpora.building import Options, Source, build
from dptext_etl.engines import run
from dptext_etl.errors import DPTextError
from dptext_etl.runner import plan

from ..corpus_texts import texts
from ..synthetic_runs import CAP, SYNTHETIC
from .bad_input import spent

UNLINKED = {"rows": 200, "delta": 1e-9, "per_subject": 6}
MECHANISM = {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}
KINDS = {
    "unlinked": {"column": [{"name": "review", "mechanism": MECHANISM}], "keep": [], "cap": CAP, "unlinked": UNLINKED},
    "synthetic": {"column": None, "keep": None, "cap": CAP, "synthetic": SYNTHETIC},
}


def _run(job, changes):
    run(job.policy(**changes))


def _plan(job, changes):
    found = plan(job.policy(**changes))
    if found.refusal is not None:
        raise DPTextError(found.refusal["message"])


@pytest.fixture(scope="module")
def rows():
    """Rows whose texts suffice for a corpus; some labels are null, and some are in no list."""
    held = texts()[:1_200]
    number = pl.int_range(pl.len())
    return pl.DataFrame({"review": held}).select(
        pl.format("r{}", number).alias("id"),
        pl.format("u{}", number % 40).alias("user_id"),
        "review",
        pl.when(number % 3 == 0).then(pl.lit("music")).when(number % 3 == 1).then(pl.lit("sport")).alias("topic"),
    )


@pytest.fixture
def make(make_synthetic):
    """Make a job that publishes one kind of release."""

    def made(kind, frame=None, **changes):
        job = make_synthetic(frame=frame)
        job.values |= {"synthetic": None, **KINDS[kind], **changes}
        return job

    return made


def _refused(job, way, changes, message):
    with pytest.raises(DPTextError, match=message) as caught:
        way(job, changes)
    assert "zzqsentinelqzz" not in str(caught.value)
    assert not (job.folder / "published.manifest.json").exists()
    assert spent(job) == 0


def _of(kind, corpus):
    if kind == "unlinked":
        return {"column": [{"name": "review", "mechanism": {**MECHANISM, "corpus": corpus}}]}
    return {"synthetic": {**SYNTHETIC, "per_subject": 30, "mechanism": {**SYNTHETIC["mechanism"], "corpus": corpus}}}


STATED = {"licence": "none", "provenance": "the private table"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_corpus_that_is_the_private_column_is_refused(make, rows, tmp_path, kind):
    job, corpus = make(kind, frame=rows), tmp_path / "corpus"
    build([Source(job.folder / "raw.parquet", "review")], corpus, Options(name="own", texts=1_000, **STATED))
    for way in (_plan, _run):
        _refused(job, way, _of(kind, str(corpus)), "it is the private column, and not public")


def test_so_is_a_corpus_that_was_calibrated_on_it_and_the_command_on_spark(make, rows, tmp_path):
    from dptext_etl.corpora import building
    from dptext_etl.engines.spark.session import read_source

    job, corpus = make("synthetic", frame=rows), tmp_path / "corpus"
    public = tmp_path / "public.parquet"
    pl.DataFrame({"text": texts()[-1_500:]}).write_parquet(public)
    built = build([Source(public)], corpus, Options(name="public", texts=1_000, **STATED))
    assert plan(job.policy(**_of("synthetic", str(corpus)))).refusal is None
    own = [Source(job.folder / "raw.parquet", "review")]
    building.write_recalibrated(built, building.recalibrate(built, own), own)
    policy = job.policy(**_of("synthetic", str(corpus)))
    for refused in (lambda: run(policy), lambda: read_source(None, policy)):
        with pytest.raises(DPTextError, match="it is the private column"):
            refused()
    assert spent(job) == 0
