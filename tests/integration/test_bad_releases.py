"""Bad input of unlinked releases and synthetic tables is refused by name before anything is charged."""

import polars as pl
import pytest

from dptext_etl.corpora.building import Options, Source, build
from dptext_etl.engines import run
from dptext_etl.errors import DPTextError
from dptext_etl.polars import run_frame
from dptext_etl.runner import plan

from ..corpus_texts import texts
from ..synthetic_runs import CAP, COLUMN, SYNTHETIC
from .bad_input import spent

UNLINKED = {"rows": 200, "delta": 1e-9, "per_subject": 6}
MECHANISM = {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}
KINDS = {
    "unlinked": {"column": [{"name": "review", "mechanism": MECHANISM}], "keep": [], "cap": CAP, "unlinked": UNLINKED},
    "synthetic": {"column": None, "keep": None, "cap": CAP, "synthetic": SYNTHETIC},
}
PURE = {"measure": "pure", "epsilon": 1.0, "period": "2026"}
BAD = {
    "a small pure cap": ("unlinked", {"cap": PURE, "on_cap": "refuse"}, "205 records would exceed the cap"),
    "a pure cap leaves too few": ("unlinked", {"cap": PURE, "on_cap": "quarantine"}, "0 texts would be published"),
    "nulls": ("unlinked", {"unlinked": {**UNLINKED, "rows": 206}}, "205 texts would be published"),
    "fewer rows": ("synthetic", {"min_released": 241}, "min_released"),
}


def _run(job, changes):
    run(job.policy(**changes))


def _plan(job, changes):
    found = plan(job.policy(**changes))
    if found.refusal is not None:
        raise DPTextError(found.refusal["message"])


def _frame(job, changes):
    run_frame(pl.read_parquet(job.folder / "raw.parquet"), job.policy(**changes))


WAYS = {"plan": _plan, "run": _run, "frame": _frame}


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


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_refused_and_nothing_is_charged(make, bad):
    """By a plan, which meets the refusals of a run; one of each kind by every way."""
    kind, changes, message = BAD[bad]
    job = make(kind)
    for way in WAYS.values() if bad in {"a small pure cap", "fewer rows"} else [_plan]:
        _refused(job, way, changes, message)


LINKED = {"synthetic": None, "unlinked": None, "column": COLUMN, "keep": None, "cap": None}


@pytest.mark.parametrize("kind", KINDS)
def test_a_linked_release_of_the_same_name_is_refused(make, kind):
    job = make(kind, cap=None)
    run(job.policy(**LINKED))
    before, charged = job.files(), job.charged()
    for way in WAYS.values():
        with pytest.raises(DPTextError, match="pinned to another configuration"):
            way(job, {})
    assert (job.files(), job.charged()) == (before, charged)


def _of(kind, corpus):
    if kind == "unlinked":
        return {"column": [{"name": "review", "mechanism": {**MECHANISM, "corpus": corpus}}]}
    return {"synthetic": {**SYNTHETIC, "per_subject": 30, "mechanism": {**SYNTHETIC["mechanism"], "corpus": corpus}}}


STATED = {"license": "none", "provenance": "the private table"}


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
