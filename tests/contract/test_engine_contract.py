"""One contract for every engine: the same rows are refused, released, charged, and published in the same way.

Each scenario runs on the local engine and on Spark, there over a shuffled frame of three partitions. Counts are stated
here; the files and charges of Spark are compared with a second job, which this process runs.
"""

import datetime as dt
import json
from decimal import Decimal
from functools import partial

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from dptext_etl import Ledger
from dptext_etl.checks import find
from dptext_etl.checks.canaries import policy_tokens
from dptext_etl.engines import run
from dptext_etl.errors import BudgetError, GateError, InputError, LedgerError, PolicyError
from dptext_etl.families.aggregate import read_statistic
from dptext_etl.keys import resolve
from dptext_etl.ledger import Scope
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner import plan, scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import nothing
from dptext_etl.runner.source.table import Files

from .. import synthetic_runs
from ..object_store import remote
from ..refusals import head, same_refusal


class Local:
    """Runs and plans of this process, which has no second job to compare."""

    def jobs(self, make, *args, **terms):
        job = make("job", *args, **terms)
        return job, job

    def both(self, job, _, **changes):
        summary = self.run(job, **changes)
        return summary, summary

    def run(self, job, checkpoint=nothing, **changes):
        return run(job.policy(**changes), checkpoint=checkpoint)

    def plan(self, policy):
        return plan(policy)


class OnSpark:
    """The same over the frame that `dptext run --engine spark` reads, shuffled."""

    def __init__(self, spark):
        self.spark = spark

    def jobs(self, make, *args, **terms):
        """Return the job that Spark runs, and the one that this process runs."""
        return make("job", *args, **terms), make("other", *args, **terms)

    def both(self, job, other, **changes):
        """Return the summaries of this process and of Spark."""
        return other.run(**changes), self.run(job, **changes)

    def engine(self, policy):
        from dptext_etl.engines.spark.session import read_source
        from dptext_etl.engines.spark.spark_engine import SparkEngine

        source = Files.find(Layout.of(policy))
        return SparkEngine(read_source(self.spark, policy, None, source).repartition(3), source=source)

    def run(self, job, checkpoint=nothing, **changes):
        policy = job.policy(**changes)
        return run(policy, engine=self.engine(policy), checkpoint=checkpoint)

    def plan(self, policy):
        return plan(policy, require=self.engine(policy).open)


@pytest.fixture
def engine(request):
    return Local() if request.param == "local" else OnSpark(request.getfixturevalue("spark"))


LATER = pytest.param("spark", marks=pytest.mark.thorough)
everywhere = pytest.mark.parametrize("engine", ["local", "spark"], indirect=True)
later_on_spark = pytest.mark.parametrize("engine", ["local", LATER], indirect=True)


def on(cases, *first):
    """Run every case on the local engine, and in `make test` only the first ones on Spark."""
    both = [(name, engine) for name in cases for engine in ("local", "spark")]
    marks = {("spark", False): pytest.mark.thorough}
    rows = [pytest.param(*row, marks=marks.get((row[1], row[0] in first), ())) for row in both]
    return pytest.mark.parametrize(("case", "engine"), rows, indirect=["engine"])


def published(job, by="id"):
    return scan_published(str(job.folder / "published")).collect().sort(by, nulls_last=True)


def used(job):
    with job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        return ledger.remaining(Scope.of(job.policy())).used


def each(job, other):
    return [job] if other is job else [job, other]


def require_same(job, other, by="id"):
    """Compare the published rows and the charges of two jobs."""
    mine, theirs = published(job, by), published(other, by)
    assert mine.schema == theirs.schema
    assert_frame_equal(mine, theirs)
    assert used(job) == used(other)


def refused(engine, job, kind, words, **entries):
    """Require a refusal that a plan foretells and that changes no ledger; return its message and hint."""
    error = same_refusal(job, entries, kind, running=partial(engine.run, job), planning=engine.plan)
    assert words in error.message
    assert "zzqsentinelqzz" not in str(error)
    return error


def untouched(job):
    return not any((job.folder / name).exists() for name in ("ledger.db", "published.manifest.json"))


def edit(job, **changes):
    path = job.folder / "raw.parquet"
    pl.read_parquet(path).with_columns(**changes).write_parquet(path)


def capped(epsilon, **more):
    return {"cap": {"measure": "pure", "epsilon": epsilon, "period": "2026"}, **more}


@everywhere
def test_a_run_publishes_charges_and_leaves_nothing_raw(engine, make_job, sentinel, capfd, caplog):
    caplog.set_level("DEBUG", logger="dptext_etl")
    job, other = engine.jobs(make_job)
    expected, summary = engine.both(job, other)
    require_same(job, other)
    assert (summary.rows, summary.draws, summary.spend) == (expected.rows, expected.draws, expected.spend)
    assert [gate["name"] for gate in summary.gates] == [gate["name"] for gate in expected.gates]
    assert json.loads(json.dumps(summary.as_dict(), allow_nan=False)) == summary.as_dict()
    everything = {**job.files(), **{path.name: path.read_bytes() for path in job.folder.glob("ledger*")}}
    everything |= job.files("published.staging")
    everything["output"] = "\n".join([caplog.text, repr(summary), *capfd.readouterr()]).encode()
    policy = job.policy()
    tokens = [word for words in policy_tokens(policy, resolve(policy.key)).values() for word in words]
    for name, content in everything.items():
        assert not sum(find([sentinel, *tokens], content).values()), name
    charged, spent = job.charged(), used(other)
    job.forget_that_nothing_changed()
    again = engine.run(job)
    assert (again.rows["new"], again.rows["replayed"], again.changed, again.manifest) == (
        0, 240, False, summary.manifest,
    )  # fmt: skip
    assert (job.charged(), used(job)) == (charged, spent)


DEFECTS = {
    "repeated ids": (InputError, "occurs more than once", pl.lit("same").alias("id"), {}),
    "null ids": (InputError, "null", pl.when(pl.col("id") > "r00100").then("id"), {}),
    "null persons": (InputError, "no subject", pl.when(pl.col("stars") > 1).then("user_id"), {}),
    "ids that are floats": (InputError, "id", (pl.int_range(pl.len()) / 3).alias("id"), {}),
    "texts that are numbers": (InputError, "review", pl.col("stars").alias("review"), {}),
    "no id column": (InputError, "number", pl.lit(0).alias("other"), {"id": "number"}),
    "no text column": (InputError, "review", pl.lit(0).alias("other"), {"drop": ["review", "note"]}),
    "undeclared columns": (InputError, "secret", pl.lit(0).alias("other"), {"strict_columns": True}),
    "no rows": (InputError, "", pl.lit(0).alias("other"), {"drop": "rows"}),
    "over the cap": (BudgetError, "exceed the cap", pl.lit(0).alias("other"), capped(100.0, on_cap="refuse")),
    "below min_released": (BudgetError, "min_released", pl.lit(0).alias("other"), capped(60.0)),
    "rows that are singled out": (
        PolicyError, "single out 240 of 240 rows", pl.format("{}", "id").alias("own"),
        {"keep": ["own"], "keep_unique": None},
    ),
}  # fmt: skip


@on(DEFECTS, "over the cap")
def test_a_table_is_refused_before_it_is_charged(engine, make_job, reviews, case):
    kind, words, change, entries = DEFECTS[case]
    entries = dict(entries)
    frame, dropped = reviews().with_columns(change), entries.pop("drop", [])
    job = make_job(frame=frame.clear() if dropped == "rows" else frame.drop(dropped))
    refused(engine, job, kind, words, **entries)
    assert untouched(job)
    assert not list((job.folder / "published.staging").rglob("shard-*"))


@everywhere
def test_records_over_the_cap_are_excluded_person_by_person(engine, make_job, reviews):
    """Spellings of one person share a budget; their records are judged in the order of ids, in one shard or several."""
    spelled = ["Zo\u00eb@x", "zoe\u0308@X ", "STRASSE", "stra\u00dfe", "STRASSE", "strasse"] * 20
    frame = reviews(120).with_columns(user_id=pl.Series(spelled))
    terms = capped(200.0, normalize=["nfc", "casefold", "strip"], min_released=0.0, shard_rows=40)
    job, other = engine.jobs(make_job, frame=frame, **terms)
    expected, summary = engine.both(job, other)
    assert 0 < summary.rows["quarantined"] < 120
    assert summary.rows == expected.rows
    require_same(job, other)
    (one, two) = (next((made.folder / "published.staging").rglob("texts.txt")).read_text() for made in (job, other))
    assert one == two != ""
    listed = pl.concat([pl.read_parquet(path) for path in (job.folder / "published.staging").rglob("quarantine-*")])
    assert set(listed["id"]) == set(frame["id"]) - set(published(job)["id"])
    with job.ledger() as ledger:
        remaining = ledger.remaining(Scope.of(job.policy()))
    assert remaining.units == 2
    assert max(remaining.used["eps_pure"].values()) <= 200 * 10**6


CHANGED = ["r00003", "r00150", "r00239"]


@pytest.mark.parametrize("engine", [LATER], indirect=True)  # `integration/test_run_changes.py` runs the local one
@pytest.mark.parametrize("case", ["release_again", "quarantine", "keep"])
def test_changed_texts_are_refused_or_treated_as_the_policy_says(engine, make_job, case):
    job, other = engine.jobs(make_job)
    columns = [
        {**column, "allow": ["cluster", "changed"]} for column in job.policy().model_dump(by_alias=True)["column"]
    ]
    terms = {"column": columns} if case != "keep" else {}
    for one in each(job, other):
        one.run(**terms, **({"on_changed": case} if terms else {}))
        edit(one, review=pl.when(pl.col("id").is_in(CHANGED)).then(pl.lit("word anew")).otherwise("review"))
    before = published(job)
    refused(engine, job, InputError, "texts of 3 records changed", **terms)
    lists = (job.folder / "published.staging").rglob("changed-*")
    assert sorted(pl.concat([pl.read_parquet(path)["id"] for path in lists])) == CHANGED
    terms["on_changed"] = case
    expected, summary = engine.both(job, other, **terms)
    assert summary.rows == expected.rows
    require_same(job, other)
    assert published(job).equals(before) == (case == "keep")


@on(["keyed", "keep", "drop"])
def test_rows_that_are_added_are_released_and_the_others_stay(engine, make_job, reviews, save, case):
    """Together they are what one run over all rows would have released."""
    job, other = (make_job(name, frame=reviews(180), ids=case, incremental=True) for name in ("job", "other"))
    assert engine.run(job).rows["new"] == 180
    parts = set((job.folder / "published").iterdir())
    for one in (job, other):
        save(reviews(), one.folder / "raw.parquet")
    summary = engine.run(job)
    other.run()
    assert (summary.version, summary.rows["already_published"], summary.rows["new"]) == (2, 180, 60)
    assert {path.name for path in parts} < {path.name for path in (job.folder / "published").iterdir()}
    require_same(job, other, by=["stars", "review", "note"] if case == "drop" else "id")
    assert not any(path.name.endswith(".ids") for path in (job.folder / "published").rglob("*"))


@later_on_spark
def test_forgotten_people_and_records_are_excluded(engine, job):
    job.run()
    records, people = (pa.array(names, pa.large_string()) for names in (["r00007", "r00047"], ["u008"]))
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:
        ledger.people.forget("reviews", records, people)
    refused(engine, job, LedgerError, "8 rows of the published table are of people or records", incremental=True)
    table = pl.read_parquet(job.folder / "raw.parquet")
    late = table.filter(pl.col("user_id") == "u008").with_columns(id=pl.lit("late-") + pl.col("id"))
    pl.concat([table, late]).write_parquet(job.folder / "raw.parquet")
    again = engine.run(job, release="2026-12")
    assert (again.rows["forgotten"], again.published_rows) == (14, 232), "records that were never charged, too"


@on(["own", "quarantine"])
def test_a_person_has_some_records_and_rows_without_a_person_are_treated_alike(engine, make_job, reviews, case):
    """Records that were released before stay, and the key fills the rest."""
    frame = reviews().with_columns(user_id=pl.when(pl.int_range(pl.len()) % 2 > 0).then("user_id"))
    terms = {"per_subject": 4, "on_null_subject": case, "min_released": 0.0, **capped(1e4)}
    job, other = (make_job(name, frame=frame.head(90), **terms) for name in ("job", "other"))
    for one, rows in ((job, frame), (other, frame.reverse())):
        one.run()
        rows.write_parquet(one.folder / "raw.parquet")
    early = set(published(job)["id"])
    expected, summary = other.run(), engine.run(job)
    assert (summary.rows, summary.published_rows) == (expected.rows, (120 if case == "own" else 0) + 20 * 4)
    require_same(job, other)
    assert early < set(published(job)["id"])
    people = dict(frame.select("id", "user_id").iter_rows())
    per_person = pl.Series([people[one] for one in published(job)["id"]]).drop_nulls().value_counts()
    assert set(per_person["count"]) == {4}
    parts = [pl.read_parquet(path)["id"] for path in (job.folder / "published").glob("part-*")]
    nameless = [sum(people[one] is None for one in part) / len(part) for part in parts if len(part) >= 30]
    assert len(nameless) > (case == "own")
    assert max(nameless) < 0.95, f"one part shows who has no person: {nameless}"


@everywhere
def test_types_are_kept_and_carry_nothing_out_of_a_run(engine, make_job, reviews, sentinel):
    odd = "st.ars `x`"
    frame = reviews(120).with_columns(
        id=pl.struct(pl.lit("x").alias(sentinel), "id"),
        level=pl.lit("low").cast(pl.Enum(["low", sentinel])),
        named=pl.struct(pl.col("stars").alias(sentinel)),
        inner=pl.concat_list(pl.struct("stars", pl.col("user_id").alias(sentinel))),
        nothing=pl.lit(None),
        note=pl.lit(None),
        **{odd: pl.col("stars")},
    )
    kept = ["level", "named", "inner", "nothing", odd]
    job, other = engine.jobs(make_job, frame=frame, keep=kept)
    _, summary = engine.both(job, other)
    assert summary.rows["released"] == 120
    assert not any(sentinel.encode() in content for content in job.files().values())
    schema = json.loads((job.folder / "published.manifest.json").read_text())["schema"]
    assert {name: schema[name] for name in ("id", *kept)} == {
        "id": "Struct of 2 fields (String, String)", "level": "String", "named": "Struct of 1 field (Int64)",
        "inner": "List of Struct of 2 fields (Int64, String)", "nothing": "String", odd: "Int64",
    }  # fmt: skip
    require_same(job, other, by=pl.col("id").struct.field("field_2"))


IDS = {
    "int": lambda i: i - 5,
    "decimal": lambda i: Decimal(i) / 4,
    "date": lambda i: dt.date(2020, 1, 1) + dt.timedelta(days=i),
    "timestamp": lambda i: dt.datetime(2020, 1, 1, 0, 0, 0, 250 + i, dt.UTC),
    "binary": lambda i: i.to_bytes(2, "big"),
}


@on(IDS)
def test_ids_of_every_type(engine, make_job, reviews, case):
    raw = reviews().with_columns(pl.Series("id", [IDS[case](i) for i in range(240)]))
    job, other = engine.jobs(make_job, raw)
    _, summary = engine.both(job, other, shard_rows=200)
    assert summary.rows["released"] == 240
    require_same(job, other)


ODD = ['"quoted", and a comma', "two\nlines", " blanks ", "back\\slash", "", None, "ümlaut 漢字"]
CELLS = {"zip": "0{}", "count": "{}", "share": "{}.5", "price": "{}.10", "code": "{}E5"}
COARSE = [
    {"column": "opened", "as": "month"}, {"column": "closed", "as": "year"}, {"column": "age", "bins": [18, 65]},
    {"column": "shop", "top": ["a"]},
]  # fmt: skip


def of_files(reviews, suffix):
    """Rows with texts that are hard to write, columns to coarsen, and numbers that CSV could change."""
    number = pl.int_range(pl.len())
    opened = pl.datetime(2026, 1, 31, 20) + pl.duration(hours=number)
    zoned = opened.dt.replace_time_zone("UTC") if suffix == ".parquet" else opened.dt.strftime("%Y-%m-%d %H:%M:%S")
    return reviews().with_columns(
        review=pl.Series([ODD[i % len(ODD)] if i % 3 else f"worda{chr(97 + i % 26)} {i}" for i in range(240)]),
        opened=zoned,
        closed=opened.dt.strftime("%Y-%m-%d %H:%M:%S") if suffix != ".parquet" else opened,
        age=pl.when(number % 7 > 0).then(number % 90),
        shop=pl.when(number % 5 > 0).then(pl.lit("a")).otherwise(pl.lit("b")),
        **{name: pl.format(form, "stars") for name, form in CELLS.items()},
    )


@on([".csv", ".parquet", ".ndjson"], ".csv")
def test_files_of_every_format_keep_cells_types_and_counts(engine, request, make_job, reviews, save, case):
    types = {"csv": {"types": {"opened": "Datetime", "closed": "Datetime"}}} if case == ".csv" else {}
    keep = [*(COARSE if case != ".ndjson" else COARSE[2:]), "stars", *CELLS]
    terms = {"suffix": case, "frame": of_files(reviews, case), "keep": keep, "incremental": True, **types}
    job, other = engine.jobs(make_job, **terms)
    if isinstance(engine, OnSpark):
        engine.spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
        request.addfinalizer(lambda: engine.spark.conf.set("spark.sql.session.timeZone", "UTC"))
    expected, summary = engine.both(job, other)
    assert expected.table["spellings"]["persons"] == 40
    assert (summary.rows, summary.table) == (expected.rows, expected.table)
    require_same(job, other)
    assert set(published(job)["age"]) == {None, "<18", "18 to <65", "65+"}
    assert {path.suffix for path in (job.folder / "published").iterdir()} == {case}
    if case == ".csv":
        charged = job.charged()
        more = pl.concat([terms["frame"], reviews(60, 240)], how="diagonal")
        save(more.with_columns(count=pl.lit("007")), job.folder / "raw.csv")
        with pytest.raises(InputError, match=r"\('count'\) is published as Int64, and 300 values do not keep"):
            engine.run(job)
        assert job.charged() == charged


LEAKS = ("passing through for some rows", "passing through", "another column's text")


@on(LEAKS, LEAKS[0])
def test_a_leak_where_texts_are_computed_is_stopped_by_the_gates(engine, job, case, sentinel):
    def checkpoint(name):
        import pyarrow as pa

        from dptext_etl.families.stored_distributions import MappedMechanism
        from dptext_etl.mechanism import Released

        if name == "reserved" and not hasattr(MappedMechanism, "right_release"):
            real = MappedMechanism.right_release = MappedMechanism.release

            def leaking(self, texts, keys):
                released = real(self, texts, keys)
                raw = texts.cast(pa.large_string())
                if case == "passing through for some rows":
                    raw = pa.concat_arrays([raw[: len(raw) // 2], released.text[len(raw) // 2 :]])
                elif case == "another column's text":
                    raw = pa.array([f"{a} {b}" for a, b in zip(released.text, raw, strict=True)], pa.large_string())
                return Released(raw, released.positions)

            MappedMechanism.release = leaking
        elif name == "staged" and hasattr(MappedMechanism, "right_release"):
            MappedMechanism.release = MappedMechanism.right_release
            del MappedMechanism.right_release

    with pytest.raises(GateError) as caught:
        engine.run(job, checkpoint=checkpoint)
    assert {"canary_text_absent", "words_in_output_set"} <= set(caught.value.fields["failed"])
    assert sentinel not in str(caught.value)
    assert not (job.folder / "published.manifest.json").exists()
    refused(Local(), job, LedgerError, "revoked")


def corpus_in_a_folder(job):
    from dptext_etl.corpora import Corpus

    (job.folder / "corpus").mkdir(exist_ok=True)
    (job.folder / "corpus" / "corpus.safetensors").write_bytes(Corpus.open("example").path.read_bytes())
    return str(job.folder / "corpus")


@everywhere
def test_a_synthetic_table_has_the_bytes_and_the_charges_of_one_process(engine, make_synthetic):
    """Among the rows are null texts, null and unlisted labels, and persons with more records than count."""
    terms = {"synthetic": {**synthetic_runs.SYNTHETIC, "per_subject": 2}, "shard_rows": 80, "normalize": ["strip"]}
    job, other = engine.jobs(make_synthetic, **terms)
    expected, summary = engine.both(job, other)
    assert job.files() == other.files()
    assert (summary.rows, summary.manifest, summary.gates) == (expected.rows, expected.manifest, expected.gates)
    assert (summary.rows["over_contribution"], summary.rows["released"]) == (160, 80)
    assert used(job) == used(other)
    here, there = (read_statistic(one.folder / "published.manifest.json", "example") for one in (job, other))
    assert (here.sums == there.sums).all()
    assert (here.moments == there.moments).all()
    with job.ledger() as ledger:
        ref = synthetic_runs.ref_of(job, ledger)
        assert ledger.releases.pinned_table(ref) is not None
        assert ledger.records(ref) == 80
    before, files = head(job), job.files()
    edit(job, topic=pl.lit("money"))
    with pytest.raises((InputError, LedgerError), match=r"one table as a whole|one complete table"):
        Local().run(job)
    assert (head(job), job.files()) == (before, files)


@later_on_spark
def test_cells_a_corpus_in_a_folder_and_no_persons(engine, make_synthetic, reviews):
    terms = {"frame": synthetic_runs.graded(reviews()), "unit": "record", "subject": None, "cap": None}
    job, other = engine.jobs(make_synthetic, **terms)
    mechanism = {**synthetic_runs.SYNTHETIC["mechanism"], "corpus": corpus_in_a_folder(job)}
    for one in each(job, other):
        one.values["synthetic"] = {**synthetic_runs.CELLED, "per_subject": 1, "mechanism": mechanism}
    expected, summary = engine.both(job, other)
    assert (summary.manifest, summary.rows["released"]) == (expected.manifest, 240)
    assert job.files() == other.files()


@later_on_spark
def test_records_over_the_cap_do_not_count_in_a_synthetic_table(engine, make_synthetic):
    job = make_synthetic(on_cap="refuse", shard_rows=100)
    epsilon = job.policy().statistic.charge(CLAIM).eps_approx * 3 / 1e6
    job.values["cap"] = {**synthetic_runs.CAP, "epsilon": epsilon}
    refused(engine, job, BudgetError, "120 records would exceed the cap")
    assert untouched(job)
    summary = engine.run(job, on_cap="quarantine")
    assert (summary.rows["quarantined"], summary.rows["released"]) == (120, 120)
    lists = [pl.read_parquet(path) for path in (job.folder / "published.staging").rglob("quarantine-*")]
    assert pl.concat(lists)["__dptext_unit"].n_unique() == 40, "lists say whose records they hold"
    assert used(job)["eps_approx"]["max"] == 3 * job.policy().statistic.charge(CLAIM).eps_approx
    again = Local().run(job, on_cap="quarantine")
    assert (again.changed, again.rows["new"], again.manifest) == (False, 0, summary.manifest)


SHUFFLED = {
    "labeled": ({"rows": 10, "labels": {"column": "topic", "values": ["1", "2"]}}, 60),
    "plain": ({"rows": 70}, 80),
}


@on(SHUFFLED, "labeled")
def test_a_shuffled_release_has_the_bytes_and_the_charges_of_one_process(engine, make_shuffled, case):
    entry, rows = SHUFFLED[case]
    entry = {"delta": 1e-9, "per_subject": 2, **entry}
    job, other = engine.jobs(make_shuffled, normalize=["strip"], shuffled=entry)
    number = pl.int_range(pl.len()) % 8  # labels are numbers; some are null, and some are in no list
    topic = pl.when(number != 6).then(number.replace_strict({0: 1, 3: 9, 4: 2}, default=1))
    for one in each(job, other):
        edit(one, topic=topic)
    expected, summary = engine.both(job, other)
    mine, theirs = ({name.rsplit("/")[-1]: data for name, data in one.files().items()} for one in (job, other))
    assert (mine, summary.rows, summary.published_rows) == (theirs, expected.rows, rows)
    assert (summary.rows["over_contribution"], used(job)) == (160, used(other))
    with job.ledger() as ledger:
        assert ledger.releases.pinned_table(ledger.releases.find(job.policy().column_policy())) is not None
    path = job.folder / "raw.parquet"
    pl.read_parquet(path).filter(pl.col("user_id") != "u007").write_parquet(path)
    refused(Local(), job, LedgerError, "holds one complete table")
    if case == "plain":
        few = {**entry, "rows": 79}
        refused(engine, job, InputError, "78 texts would be published", release="few", shuffled=few)


@later_on_spark
def test_staging_and_sink_may_be_object_stores(engine, make_job, reviews, save, store):
    options = {**store.options, "aws_secret_access_key": "env:DPTEXT_STORE_SECRET", "max_retries": "3"}
    job, other = make_job("job", incremental=True), make_job("other", incremental=True)
    places = {"source": job.values["source"], "staging": "s3://bucket/inside"}
    job.values.update(remote(job, store, **places) | {"storage_options": options})
    assert engine.run(job).version == 1
    for one in (job, other):
        save(reviews(300), one.folder / "raw.parquet")
    summary = engine.run(job)
    other.run()
    assert (summary.version, summary.rows["already_published"], summary.rows["new"]) == (2, 240, 60)
    found = scan_published(job.policy().sink, store.options).collect().sort("id")
    assert_frame_equal(found, published(other))
    assert used(job) == used(other)
    assert not [name for name in store.objects if "/shard-" in name]
    assert "not-to-be-printed" not in repr(summary.as_dict())
