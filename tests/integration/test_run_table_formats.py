"""Runs that publish a table of Delta Lake or Iceberg: one commit of the table is the publication, in both."""

import json

import polars as pl
import pytest

from dptext_etl.engines import stage
from dptext_etl.errors import InputError
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.publish.versions import clean
from dptext_etl.storage import Storage
from dptext_etl.table_formats import rewrites
from tests.quick import quick

from ..refusals import same_refusal
from ..synthetic_runs import SCORED
from .table_kinds import KINDS, THEIRS, failing, place, recorded


@pytest.fixture(scope="module", params=quick(KINDS), ids=lambda kind: kind.format)  # test_run_iceberg.py has the rest
def kind(request):
    pytest.importorskip(request.param.library, reason=f"{request.param.library} is not installed (extra: tables)")
    return request.param


@pytest.fixture(scope="module")
def released_with(kind):
    return lambda folder: {"table": kind.entry(folder)}


@pytest.fixture
def job(make_job, kind):
    made = make_job()
    made.values["table"] = kind.entry(made.folder)
    return made


@pytest.fixture(params=["append", "delete"])
def change(request, kind):
    """What another writer does to the table."""
    if request.param not in kind.strangers:
        pytest.skip(f"the library of {kind.called} cannot {request.param}")
    return kind.strangers[request.param]


def test_the_table_holds_the_rows_that_a_folder_would(make_job, job, kind):
    plain = make_job("plain")
    plain.run()
    summary = job.run()
    assert (summary.version, summary.published_rows, summary.changed) == (1, 240, True)
    expected = scan_published(str(plain.folder / "published")).collect()
    assert kind.rows(job).equals(expected)
    assert scan_published(place(job)).collect().equals(expected)
    assert json.loads((job.folder / "published/_dptext/manifest.json").read_text())["rows"] == 240
    assert not failing(job)
    assert not job.run().changed
    (version,) = kind.versions(job)
    first, named = recorded(job)
    assert named == f"{first}@{version}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.format, indirect=True)
def test_a_synthetic_table_with_scores_keeps_its_lists(make_synthetic, kind):
    plain, job = make_synthetic("plain", synthetic=SCORED), make_synthetic("table", synthetic=SCORED)
    job.values["table"] = kind.entry(job.folder)
    plain.run()
    assert job.run().changed
    order = ["topic", "review"]
    expected = plain.published().sort(order)
    assert expected.schema["scores"] == pl.List(pl.Float32)
    assert kind.rows(job).sort(order).equals(expected)
    assert scan_published(place(job)).collect().sort(order).equals(expected)
    assert not failing(job)
    assert not job.run().changed


def test_an_incremental_run_adds_files_in_one_commit(job, kind, reviews, save):
    changes = {"incremental": True}
    job.run(**changes)
    before = kind.files(job)
    save(reviews(300), job.folder / "raw.parquet")
    summary = job.run(**changes)
    assert (summary.version, summary.rows["already_published"], summary.published_rows) == (2, 240, 300)
    assert kind.rows(job)["id"].sort().to_list() == reviews(300)["id"].to_list()
    assert before < kind.files(job)
    assert len(kind.versions(job)) == 2
    assert not failing(job, **changes)


@pytest.mark.parametrize(
    "step", quick(["version written", "manifest written", "recorded", "shown", "cleared"], first=2)
)
def test_a_run_that_died_settles_without_a_second_version(job, kind, step):
    assert job.stop(step)
    assert kind.is_shown(job) == (step in {"shown", "cleared"})
    assert len(recorded(job)) == 1, "the table's version is not yet named"
    summary = job.run()
    assert (summary.version, summary.rows["new"]) == (1, 0)
    (version,) = kind.versions(job)
    assert [name.partition("@")[2] for name in recorded(job)] == ["", version]
    assert kind.rows(job).height == 240
    assert not failing(job)


def test_a_table_that_another_writer_changed_is_refused_before_anything_is_charged(released, kind, change):
    change(released)
    assert "shown otherwise" in failing(released)["published_files"]
    before, charged = kind.rows(released), released.charged()
    refused = "another writer has changed the rows of the table"
    assert refused in same_refusal(released, {"release": "2026-12"}, InputError).message
    with pytest.raises(InputError, match=refused):
        forget(released.policy(), subjects=["u007"])
    assert kind.rows(released).equals(before)
    assert released.charged() == charged


def test_the_same_rows_in_other_files_are_accepted_and_recorded(released, kind, reviews, save):
    """OPTIMIZE and the like: the table is the release, also for `check`, `forget`, and a run that died."""
    before = kind.rows(released).sort("id")
    kind.rewrite(released)
    assert len(kind.files(released)) == 1
    assert not failing(released)
    assert not plan(released.policy()).refusals
    released.forget_that_nothing_changed()
    assert released.run().version == 1
    rewritten = kind.versions(released)[-1]
    assert rewritten in {name.partition("@")[2] for name in recorded(released)}
    save(reviews(rows=300), released.folder / "raw.parquet")
    assert released.stop("manifest written")
    summary = released.run()
    assert (summary.version, kind.rows(released).height) == (2, 300)
    assert kind.rows(released).filter(pl.col("id").is_in(before["id"].to_list())).sort("id").equals(before)
    kind.rewrite(released)
    save(reviews(rows=300).filter(pl.col("user_id") != "u007"), released.folder / "raw.parquet")
    forget(released.policy(), subjects=["u007"])
    assert not set(kind.rows(released)["id"]) & set(THEIRS)
    files = [
        pl.read_parquet(path) for path in (released.folder / "published").rglob("*.parquet") if "log" not in str(path)
    ]
    assert not {*pl.concat(files)["id"]} & set(THEIRS)
    assert not failing(released)


def test_the_table_says_what_it_promises(released, kind):
    each = {"guarantee": "COND_PURE", "unit": "word", "epsilon": "2.0", "delta": "0.0"}
    stated = {f"dptext.{column}.{name}": value for column in ("review", "note") for name, value in each.items()}
    stated["dptext.release_name"] = "2026-11"
    assert kind.properties(released) == stated
    versions = len(kind.versions(released))
    released.forget_that_nothing_changed()
    released.run()
    assert len(kind.versions(released)) == versions
    released.run(release="2026-12")
    assert kind.properties(released) == {**stated, "dptext.release_name": "2026-12"}
    assert kind.rows(released).height == 240
    assert not failing(released, release="2026-12")


def test_other_rows_in_other_files_are_refused(tmp_path):
    rows = pl.DataFrame({"id": ["a", "b", "b", None], "tags": [["x"], [], None, ["y"]], "n": [1, 2, 2, 3]})
    files = Storage(str(tmp_path))
    for name, frame in {
        "own": rows,
        "turned": rows.reverse(),
        "first": rows[:2],
        "last": rows[2:],
        "twice": pl.concat([rows, rows[:1]]),
        "other": rows.with_columns(n=pl.lit(2, pl.Int64)),
        "named": rows.rename({"n": "m"}),
        "more": rows.with_columns(m=1),
        "wide": rows.select("n", "tags", "id").with_columns(pl.col("n").cast(pl.Int32)),
    }.items():
        frame.write_parquet(tmp_path / name)
    (tmp_path / "broken").write_bytes(b"PAR1")
    for after in (["turned"], ["first", "last"], ["wide"]):
        assert rewrites(files, ["own"], after)
    for after in ([], ["first"], ["twice"], ["other"], ["named"], ["more"], ["missing"], ["broken"], ["own", "last"]):
        assert not rewrites(files, ["own"], after)
    assert not rewrites(files, ["missing"], ["own"])


def test_another_writer_between_staging_and_publication_is_refused(released, kind, change):
    staged = stage(released.policy(release="2026-12"))
    verdicts = check(staged)
    change(released)
    before = kind.rows(released)
    with pytest.raises(InputError, match="another writer has changed"):
        publish(staged, verdicts)
    assert kind.rows(released).equals(before)


def test_who_is_forgotten_is_in_no_file_and_in_no_older_version(released, kind, reviews, save):
    save(reviews().filter(pl.col("user_id") != "u007"), released.folder / "raw.parquet")
    before = kind.rows(released)
    done = forget(released.policy(), subjects=["u007"])
    assert (done.version, done.removed, done.rows, done.versions) == (2, 6, 234, ["v1"])
    assert kind.rows(released).equals(before.filter(~pl.col("id").is_in(THEIRS)))
    left = [path for path in (released.folder / "published").rglob("*.parquet") if "_delta_log" not in path.parts]
    assert {path.parent.name for path in left} == {"v2"}
    assert not any(set(pl.read_parquet(path)["id"]) & set(THEIRS) for path in left)
    assert recorded(released)[-1].partition("@")[2] in kind.versions(released)
    assert not failing(released)
    assert released.run().published_rows == 234


def test_clean_leaves_the_version_that_the_table_still_shows(released, kind):
    """The run that was to replace it died before its commit."""
    released.values["release"] = "2026-12"
    assert released.stop("manifest written")
    assert clean(released.policy(retention={"versions": 1})).versions == []
    assert kind.rows(released).height == 240
    released.run()
    assert clean(released.policy(retention={"versions": 1})).versions == ["v1"]
    assert kind.rows(released).height == 240


def test_a_table_of_someone_else_is_refused(job, kind, reviews):
    kind.make_foreign(job, reviews(10).select("id", "stars", "review", "note"))
    with pytest.raises(InputError, match="is a table that no run of dptext made"):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_without_the_extra_nothing_is_charged(job, kind, monkeypatch):
    monkeypatch.setattr("dptext_etl.table_formats.table_opening.find_spec", lambda name: None)
    for attempt in (job.run, lambda: plan(job.policy())):
        with pytest.raises(InputError, match=f"publishing a table of {kind.called} needs {kind.library}") as caught:
            attempt()
        assert "pip install 'dptext-etl[tables]'" in caught.value.hint
    assert not (job.folder / "ledger.db").exists()
    assert not (job.folder / "published").exists()


def test_a_column_that_the_format_does_not_have_is_named(job, kind, reviews, save):
    for dtype in kind.unknown:
        save(reviews().with_columns(stars=pl.lit(1).cast(dtype)), job.folder / "raw.parquet")
        with pytest.raises(InputError, match=f"column 'stars' of type .* cannot be stored in a table of {kind.called}"):
            job.run()
    assert not (job.folder / "ledger.db").exists()


TYPES = {
    "good": pl.col("stars") > 3,
    "day": pl.date(2026, 1, "stars"),
    "moment": pl.datetime(2026, 1, "stars"),
    "price": pl.col("stars").cast(pl.Decimal(10, 2)),
    "raw": pl.lit(b"x"),
    "several": pl.concat_list("stars", "stars"),
    "both": pl.struct("stars", half=pl.col("stars") / 2),
}


def test_columns_of_other_types_come_back_as_they_were(job, kind, reviews, save):
    types = {**TYPES, **kind.types}
    source = reviews().with_columns(**types)
    save(source, job.folder / "raw.parquet")
    for release in ("1", "2"):
        job.run(keep=["stars", *types], release=release)
    zone = source.schema["zoned"].time_zone
    found = kind.rows(job).with_columns(
        pl.col("zoned").dt.convert_time_zone(zone), pl.col("both").struct.rename_fields(["stars", "half"])
    )
    assert found.select("id", *types).equals(source.select("id", *types))
