"""Doors of synthetic tables: files, frames, commands, their words, and all others, which refuse by name."""

import json
import re

import polars as pl
import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.corpora.building import Options, Source, build
from dptext_etl.engines import run
from dptext_etl.errors import ArtifactError, DPTextError, InputError
from dptext_etl.families.aggregate import read_statistic
from dptext_etl.polars import run_frame
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner import plan
from dptext_etl.runner.shard.charging import at_most
from dptext_etl.runner.statement import facts, markdown

from ..corpus_texts import texts
from ..synthetic_runs import CAP, COLUMN, SCORED, SYNTHETIC, WITHOUT, labeled
from .bad_input import spent

REFUSED = [
    ({"column": COLUMN}, "either of them"),
    ({"synthetic": None}, "either of them"),
    ({"keep": ["stars"]}, "keep must be empty"),
    ({"incremental": True}, "a release is one table"),
    ({"source": "{partition}.parquet", "sink": "published/{partition}"}, "a release is one table"),
    ({"copy_gate_false_alarm": 1e-9}, "copy_gate_false_alarm"),
    ({"reports": ["copies"]}, "leave out reports"),
    ({"shuffled": {"rows": 200, "delta": 1e-9}}, "leave out .shuffled."),
    ({"cap": {"measure": "pure", "epsilon": 1.0, "period": "2026"}}, '"zcdp" or "approx" counts it'),
    ({"unit": "record", "subject": None}, "per_subject is for"),
    ({"id": "review"}, "two roles"),
    ({"id": "topic"}, "two roles"),
    ({"subject": "topic"}, "subject must be another column"),
    ({"synthetic": {**SYNTHETIC, "column": "topic"}}, "two roles"),
    ({"synthetic": {**SYNTHETIC, "postprocess": []}}, "synthetic.postprocess"),
    ({"synthetic": {**SYNTHETIC, "rows": 0}}, "synthetic.rows"),
    ({"synthetic": {**SYNTHETIC, "scores": True}}, "give one of them"),
    ({"synthetic": {**SYNTHETIC, "rows": None}}, "give one of them"),
    ({"synthetic": {**WITHOUT, "rows": None, "scores": True}}, "needs labels"),
    ({"synthetic": {**SYNTHETIC, "rows": None, "scores": True, "column": "scores"}}, "no other column"),
    ({"synthetic": {**SYNTHETIC, "labels": {"column": "topic", "values": ["a", "a"]}}}, "a label twice"),
    ({"synthetic": {**SYNTHETIC, "labels": {"column": "topic", "values": ["a"], "names": {"b": "x"}}}}, "names"),
    ({"synthetic": {**SYNTHETIC, "mechanism": {**SYNTHETIC["mechanism"], "delta": 1e-5}}}, "delta"),
    ({"synthetic": {**SYNTHETIC, "mechanism": {**SYNTHETIC["mechanism"], "name": "pe"}}}, "synthetic.mechanism.name"),
    ({"synthetic": {**SYNTHETIC, "mechanism": {**SYNTHETIC["mechanism"], "width": 0}}}, "width"),
    ({"synthetic": {**SYNTHETIC, "mechanism": {**SYNTHETIC["mechanism"], "epsilon": 1e-4}}}, "epsilon"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_bad_policies_are_refused_by_name(make_synthetic, changes, message):
    with pytest.raises(DPTextError, match=message):
        make_synthetic(**changes).policy()


def test_bad_tables_are_refused_before_any_charge(make_synthetic, reviews, save):
    job = make_synthetic()
    save(labeled(reviews()).drop("topic"), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="no column 'topic'"):
        job.run()
    save(labeled(reviews()).with_columns(topic=pl.lit(3.5)), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="'topic' is a column of Float64"):
        job.run()
    save(labeled(reviews()).with_columns(id=pl.lit("r1")), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="occurs more than once"):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_plan_states_what_a_record_and_a_person_pay(make_synthetic):
    job = make_synthetic(synthetic={**SYNTHETIC, "per_subject": 2})
    found, spend = plan(job.policy()), job.policy().statistic.charge(CLAIM)
    assert (found.rows, found.subjects, found.component) == (80, 40, "eps_approx")
    assert found.per_record["max"] == spend.eps_approx / 1e6
    assert found.per_subject["max"] == 2 * spend.eps_approx / 1e6
    assert found.over_cap == {"records": 0, "units": 0}
    said = " ".join(found.notes)
    assert "50 public texts" in said
    person = f"epsilon {at_most(2 * spend.eps_approx / 1e6)} at delta 1e-09 holds for the whole table and one subject"
    assert re.findall("epsilon .* and one subject", said) == [person], "no other epsilon of the table"
    assert found.together["epsilon"] == 2 * spend.eps_approx / 1e6 > 2 * 2.0
    alone = plan(job.policy(synthetic={**SYNTHETIC, "per_subject": 1}))
    assert f"epsilon {at_most(alone.together['epsilon'])} at delta 1e-09 holds for" in " ".join(alone.notes)
    assert 1.99 < alone.together["epsilon"] == alone.per_record["max"] <= 2
    assert not (job.folder / "ledger.db").exists()
    job.run()
    assert "holds 80 of these records" in " ".join(plan(job.policy()).notes)
    job.values["cap"] = {**CAP, "epsilon": spend.eps_approx / 1e6, "period": "2027"}
    job.values["release"] = "next"
    assert plan(job.policy(release="next")).over_cap["records"] == 40


def test_the_statement_says_whom_a_central_promise_trusts(make_synthetic):
    job = make_synthetic()
    job.run()
    text = markdown(facts(policy=job.policy()))
    assert "It relies on you" in text
    assert "CENTRAL_ZCDP" in text
    assert "50 rows" in text
    assert "pass unchanged" not in text
    assert "was rewritten" not in text


def test_a_frame_is_published_like_a_file(make_synthetic, reviews):
    job, other = make_synthetic(), make_synthetic("other")
    expected = job.run()
    frame = labeled(reviews()).with_columns(pl.col("topic").cast(pl.Categorical))
    assert run_frame(frame.lazy(), other.policy()).manifest == expected.manifest


def test_a_csv_file_is_published_like_a_parquet_file(make_job, make_synthetic, reviews):
    labels = {"column": "stars", "values": ["01", "02"]}
    frame = labeled(reviews()).with_columns(stars=pl.format("0{}", "stars")).drop("secret", "note")
    job = make_job("csv", frame, ".csv", column=None, keep=None, cap=CAP, synthetic={**SYNTHETIC, "labels": labels})
    job.run()
    files = {name: data for name, data in job.files().items() if name.endswith(".csv")}
    assert files
    assert all(data.startswith(b"review,stars\n") for data in files.values())
    found = read_statistic(job.folder / "published.manifest.json", "example")
    assert [topic.label for topic in found.topics()] == ["01", "02", "other"]
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


SHUFFLED = {"rows": 200, "delta": 1e-9, "per_subject": 6}
MECHANISM = {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}
KINDS = {
    "shuffled": {"column": [{"name": "review", "mechanism": MECHANISM}], "keep": [], "cap": CAP, "shuffled": SHUFFLED},
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
    if kind == "shuffled":
        return {"column": [{"name": "review", "mechanism": {**MECHANISM, "corpus": corpus}}]}
    return {"synthetic": {**SYNTHETIC, "per_subject": 30, "mechanism": {**SYNTHETIC["mechanism"], "corpus": corpus}}}


STATED = {"license": "none", "provenance": "the private table"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_corpus_that_is_the_private_column_is_refused(make, rows, tmp_path, kind):
    job, corpus = make(kind, frame=rows), tmp_path / "corpus"
    build([Source(job.folder / "raw.parquet", "review")], corpus, Options(name="own", texts=1_000, **STATED))
    for way in (_plan, _run):
        _refused(job, way, _of(kind, str(corpus)), "it holds the private column, and is not public")


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
        with pytest.raises(DPTextError, match="it holds the private column"):
            refused()
    assert spent(job) == 0


def test_rows_are_drawn_from_the_pool_and_an_unreadable_pool_is_refused_at_first(make_synthetic, tmp_path):
    from dptext_etl.corpora import Corpus

    public = [f"{text} {number}" for text in ("a new album", "money at the bank", "a bad cold") for number in range(40)]
    pool = Corpus.save(
        tmp_path / "pool", public, {"licence": "CC0", "provenance": "tests"}, encoder=Corpus.open("example").encoder
    )
    job = make_synthetic(synthetic={**SYNTHETIC, "pool": str(tmp_path / "pool")})
    job.run()
    assert set(job.published()["review"]) <= set(public)
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert manifest["columns"][0]["synthetic"]["pool_sha256"] == pool.sha256
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
    other = make_synthetic("other", synthetic={**SYNTHETIC, "pool": str(tmp_path / "nowhere")})
    with pytest.raises(ArtifactError, match="there is no corpus"):
        other.run()
    assert not (other.folder / "ledger.db").exists()


@pytest.mark.parametrize("way", [_plan, _run])
def test_a_pool_that_is_the_private_column_is_refused(make, rows, tmp_path, way):
    """Its texts would be published as they are."""
    job, pool = make("synthetic", frame=rows), tmp_path / "pool"
    build([Source(job.folder / "raw.parquet", "review")], pool, Options(name="own", texts=1_000, **STATED))
    _refused(
        job, way, {"synthetic": {**SYNTHETIC, "pool": str(pool)}}, "it holds the private column, and is not public"
    )


@pytest.mark.parametrize("sink", ["published", "published.ndjson"])
def test_a_table_with_scores_has_every_text_once_and_is_exported(make_synthetic, tmp_path, sink):
    from typer.testing import CliRunner

    from dptext_etl.cli.app import app
    from dptext_etl.corpora import Corpus
    from dptext_etl.runner import open_classifier
    from dptext_etl.runner.publish.export import verify

    corpus = Corpus.open("example")
    job = make_synthetic(synthetic=SCORED)
    job.values["sink"] = str(job.folder / sink)
    job.run()
    table = pl.read_ndjson(job.folder / sink / "*") if sink.endswith("json") else job.published()
    assert table.columns == ["review", "topic", "scores"]
    assert sorted(table["review"]) == sorted(corpus.texts)
    classifier = open_classifier(job.folder / sink)
    places = classifier.scores(classifier.encode(table["review"].to_list(), corpus))
    assert max(abs(table["scores"].explode().to_numpy() - places.ravel())) < 0.051
    assert all(verdict.passed for verdict in check_published(job.folder / sink, job.policy()))
    policy, place = job.write_policy(), tmp_path / "export"
    exported = CliRunner().invoke(app, ["export", str(policy), "--to", str(place)])
    assert exported.exit_code == 0, exported.output
    assert verify(tmp_path / "export")["rows"] == len(corpus)
    assert "regress words on `scores`" in (tmp_path / "export" / "README.md").read_text()


def test_a_csv_file_cannot_hold_scores_and_nothing_is_charged(make_synthetic):
    job = make_synthetic(synthetic=SCORED)
    job.values["sink"] = str(job.folder / "published.csv")
    with pytest.raises(InputError, match=r"column 'scores' of type List.* cannot be in a CSV file"):
        job.run()
    assert not (job.folder / "ledger.db").exists()
