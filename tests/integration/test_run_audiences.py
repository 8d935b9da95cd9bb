"""Tables for audiences: other columns and ids of the same draws, in one run, for one charge."""

from dataclasses import replace

import polars as pl
import pytest

from dptext_etl.checks import Verdict
from dptext_etl.engines import run, stage
from dptext_etl.errors import GateError, InputError, LedgerError, PolicyError
from dptext_etl.policy import Policy
from dptext_etl.policy.policy_like import EQUAL_TEXTS, table_of, together
from dptext_etl.runner import Manifest, plan, scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import publication
from dptext_etl.runner.publish.forgetting import erase, forget
from dptext_etl.runner.publish.versions import clean
from dptext_etl.runner.shard.staging import Staging
from tests.command_line import dptext, facts
from tests.quick import quick

from ..review_jobs import StopError

TABLES = ("published", "analysts", "partners")


def entries(job, **changes):
    first = {"name": "analysts", "sink": str(job.folder / "analysts"), "keep": ["stars"]}
    return [first | changes, {"name": "partners", "sink": str(job.folder / "partners"), "ids": "drop"}]


@pytest.fixture
def shared(make_job):
    job = make_job(ids="keyed", keep=[])
    job.values["audience"] = entries(job)
    return job


def table(job, name):
    return scan_published(str(job.folder / name)).collect()


def texts(frame):
    return frame.select("review", "note").sort("review", "note")


def test_one_run_and_one_charge_publish_all_tables(shared, make_job):
    plain = make_job("plain", ids="keyed", keep=[])
    plain.run()
    summary = shared.run()
    assert [item["audience"] for item in summary.audiences] == ["analysts", "partners"]
    assert all(item["version"] == 1 and item["gates"] for item in summary.audiences)
    assert EQUAL_TEXTS in summary.notes
    own, analysts, partners = (table(shared, name) for name in TABLES)
    assert own.equals(plain.published()), "the policy's own table is as without audiences"
    assert analysts.columns == ["id", "stars", "review", "note"]
    assert partners.columns == ["review", "note"]
    assert not {*own["id"]} & {*analysts["id"]}, "ids of an audience are under a key of their own"
    assert texts(own).equals(texts(analysts)), "the texts are the same draws"
    assert texts(own).equals(texts(partners))
    assert analysts["review"].to_list() != own["review"].to_list(), "rows of two tables are in different orders"
    assert shared.charged() == plain.charged()
    manifests = [Manifest.read(Layout.of(table_of(shared.policy(), name))) for name in (None, "analysts", "partners")]
    assert [item.audience for item in manifests] == [None, "analysts", "partners"]
    assert all(item.gates for item in manifests)


FIRST = [("manifest written", 1), ("recorded", 2), ("manifest written", 3)]
STOPS = [(step, times) for step in ("manifest written", "recorded", "staged", "gated") for times in (1, 2, 3)]


@pytest.mark.parametrize(("step", "times"), quick(sorted(STOPS, key=lambda stop: stop not in FIRST), first=3))
def test_a_run_that_was_killed_between_the_tables_continues(shared, step, times):
    assert shared.stop(step, times)
    before = [(shared.folder / f"{name}.manifest.json").exists() for name in TABLES]
    published = {"manifest written": times, "recorded": times - 1}.get(step, 0)
    assert before == [at < published for at in range(3)]
    charged = shared.charged()
    summary = shared.run()
    assert [table(shared, name).height for name in TABLES] == [240] * 3
    assert step == "staged" or (shared.charged() == charged and summary.rows["new"] == 0)


def test_a_run_is_recognized_only_if_every_table_is_intact(shared):
    shared.run()
    again = shared.run()
    assert "byte for byte" in again.notes[0]
    assert [item["audience"] for item in again.audiences] == ["analysts", "partners"]
    (part,) = (shared.folder / "partners").glob("part-00000-*")
    part.chmod(0o600)
    part.write_bytes(b"damaged")
    third = shared.run()
    assert "byte for byte" not in third.notes[0]
    assert table(shared, "partners").height == 240
    shared.values["audience"][0]["name"] = "others"
    with pytest.raises(LedgerError, match="audiences that the policy does not name: analysts"):
        shared.run()


def test_a_gate_that_fires_for_an_audience_stops_every_table(shared, monkeypatch):
    judged, evaluate = [], publication.evaluate

    def firing(candidate, count):
        judged.append(candidate.policy.audience)
        verdicts = evaluate(candidate, count)
        return (
            *verdicts,
            Verdict("invented", passed=candidate.policy.audience is None, message="", counts={}, catches=""),
        )

    monkeypatch.setattr(publication, "evaluate", firing)
    with pytest.raises(GateError, match="invented"):
        shared.run()
    assert judged == [None, "analysts"]
    assert not any((shared.folder / f"{name}.manifest.json").exists() for name in TABLES)
    assert not [*(shared.folder / "published.staging").rglob("shard-*")], "no staged text stays"
    assert len([*(shared.folder / "published.staging").rglob("fired.txt")]) == 2


def test_a_table_of_an_audience_is_checked_before_anything_is_charged(shared):
    shared.values["audience"] = entries(shared, keep=["absent"])
    with pytest.raises(PolicyError, match="absent"):
        shared.run()
    foreign = shared.folder / "analysts"
    foreign.mkdir()
    (foreign / "theirs.txt").write_text("")
    shared.values["audience"] = entries(shared)
    with pytest.raises(InputError, match="that no run of dptext wrote"):
        shared.run()
    assert plan(shared.policy()).refusal["message"].count("that no run of dptext wrote")
    assert not (shared.folder / "ledger.db").exists()


def test_the_columns_of_all_tables_are_judged_together(make_job, reviews):
    frame = reviews().with_columns(a=pl.int_range(pl.len()) // 15, b=pl.int_range(pl.len()) % 15)
    job = make_job(frame=frame, ids="keyed", keep=["a"], keep_unique=None)
    sink = str(job.folder / "analysts")
    job.run()
    job.values["audience"] = [{"name": "analysts", "sink": sink, "keep": ["b"]}]
    with pytest.raises(PolicyError, match=r"single out 240 of 240 rows"):
        job.run()
    assert "single out 240 of 240 rows" in plan(job.policy()).refusal["message"]
    assert not (job.folder / "analysts.manifest.json").exists()
    job.values["audience"][0]["keep"] = [{"column": "b", "bins": [5]}]
    assert job.run().audiences[0]["version"] == 1
    assert job.run(keep=["a", "b"], keep_unique="accepted").table["traceable"]["single"] == 240


def test_two_forms_of_a_column_show_what_their_union_shows():
    def kept(*forms):
        values = {"dataset": "d", "release": "1", "source": "in", "sink": "out", "id": "id", "unit": "record"}
        column = {"name": "t", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}
        values |= {"key": "env:DPTEXT_SECRET", "ledger": {"url": "ledger.db"}, "column": [column]}
        return together([Policy.parse(values | {"keep": [{"column": "x", **form}]}) for form in forms]).kept[0].rule

    assert kept({"bins": [1, 5]}, {"bins": [3, 5]}) == {"bins": [1, 3, 5]}
    assert kept({"top": ["a", "b"]}, {"top": ["c", "a"]}) == {"top": ["a", "b", "c"]}
    assert kept({"as": "year"}, {"as": "month"}) == {"as": "month"}
    assert kept({"as": "year"}, {"as": "year"}) == {"as": "year"}
    assert kept({"bins": [1]}, {}) == {}


def test_the_forgotten_go_from_every_table(shared, reviews, save):
    shared.run()
    save(reviews().filter(pl.col("user_id") != "u007"), shared.folder / "raw.parquet")
    with pytest.raises(LedgerError, match="audiences that the policy does not name: analysts, partners"):
        forget(shared.policy(audience=None), subjects=["u007"])
    foretold = forget(shared.policy(), subjects=["u007"], dry_run=True)
    done = forget(shared.policy(), subjects=["u007"])
    assert (done.removed, [item.removed for item in done.audiences.values()]) == (6, [6, 6])
    assert [replace(item, staged=0, noted=0) for item in done.audiences.values()] == [
        replace(item, noted=0) for item in foretold.audiences.values()
    ]
    assert [table(shared, name).height for name in TABLES] == [234] * 3
    assert facts("check", shared.write_policy())["passed"]
    assert clean(shared.policy()).removed == []
    assert shared.run().rows["new"] == 0


@pytest.mark.parametrize(("step", "times"), quick([("recorded", 2), ("shown", 1), ("forgotten", 3)]))
def test_the_same_call_completes_a_removal_that_was_killed(shared, reviews, save, step, times):
    shared.run()
    save(reviews().filter(pl.col("user_id") != "u007"), shared.folder / "raw.parquet")
    seen = []

    def stopping(name):
        seen.append(name)
        if seen.count(step) == times and name == step:
            raise StopError

    with pytest.raises(StopError):
        forget(shared.policy(), subjects=["u007"], checkpoint=stopping)
    forget(shared.policy(), subjects=["u007"])
    assert [table(shared, name).height for name in TABLES] == [234] * 3


def test_everywhere_names_the_tables_of_audiences(shared, reviews, save):
    shared.run()
    save(reviews().filter(pl.col("user_id") != "u007"), shared.folder / "raw.parquet")
    done = erase(shared.write_policy(), subjects=["u007"])
    assert [(place.audience, place.records) for place in done.places] == [(None, 6), ("analysts", 6), ("partners", 6)]
    assert [table(shared, name).height for name in TABLES] == [234] * 3
    shared.write_policy(audience=None)
    with pytest.raises(LedgerError, match="audiences that the policy does not name"):
        erase(shared.folder / "privacy.toml", subjects=["u008"])


def test_the_forgotten_go_from_the_staging_of_an_audience_that_is_not_published(shared, reviews, save):
    shared.stop("manifest written")
    save(reviews().filter(pl.col("user_id") != "u007"), shared.folder / "raw.parquet")
    forget(shared.policy(), subjects=["u007"])
    assert not [*(shared.folder / "published.staging").rglob("shard-*.parquet")], "each held records of this person"
    shared.run()
    assert [table(shared, name).height for name in TABLES] == [234] * 3


@pytest.mark.parametrize(
    ("incremental", "published"), quick([(False, False), (True, True), (False, True), (True, False)], first=2)
)
def test_a_new_audience_gets_the_earlier_texts_of_changed_records(shared, reviews, save, incremental, published):
    more = {"on_changed": "keep", "incremental": incremental}
    first = shared.run(audience=None, **more)
    if not published:
        shared.run(audience=None, **more, compression="none")
    save(reviews(260).with_columns(review=pl.col("review") + " good"), shared.folder / "raw.parquet")
    charged = shared.charged()
    summary = shared.run(**more)
    assert first.version == 1
    assert summary.rows["new"] == 20
    assert [table(shared, name).height for name in TABLES] == [260] * 3
    own, analysts, partners = (texts(table(shared, name)) for name in TABLES)
    assert own.equals(analysts)
    assert own.equals(partners)
    assert len(charged) == len(shared.charged())
    assert all(facts("check", shared.write_policy(**more)).values())


def test_two_policies_of_one_release_share_no_file_of_an_explicit_staging(make_job):
    job = make_job(ids="keyed", keep=[])
    other = {"sink": str(job.folder / "other"), "staging": str(job.folder / "published.staging"), "keep": ["stars"]}
    job.run()
    job.run(**other)
    for changes in ({}, other):
        assert facts("check", job.write_policy(**changes))["passed"], "the lists of ids of both tables are there"


def test_a_staged_shard_of_one_table_is_none_of_another(shared):
    shared.stop("gated", 2)
    first, second = (
        Staging(Layout.of(item).staging, key)
        for item, key in ((attempt.policy, attempt.staging_key) for attempt in _attempts(shared.policy())[:2])
    )

    def recorded(staging):
        return [*filter(None, map(staging._recorded, staging.storage.glob("shard-*.json")))]

    assert len(recorded(first)) == len(recorded(second)) == 1
    for name in first.storage.glob("shard-*"):
        (second.folder / name).write_bytes((first.folder / name).read_bytes())
    assert recorded(second) == []


def _attempts(policy):
    from dptext_etl.runner.shard.attempt import Attempt

    attempt = Attempt.of(policy, None)
    return attempt, *attempt.audiences


def test_commands_name_the_audience(shared, tmp_path):
    path = shared.write_policy()
    assert facts("plan", path)["audiences"] == ["analysts", "partners"]
    assert EQUAL_TEXTS in facts("plan", path)["notes"]
    shown = dptext("plan", path).output
    assert "analysts" in shown
    done = dptext("run", path).output
    assert "Audience analysts" in done
    checked = facts("check", path)
    assert checked["passed"]
    assert checked["audiences"].keys() == {"analysts", "partners"}
    exported = facts("export", path, "--to", tmp_path / "out", "--audience", "analysts")
    assert exported["rows"] == 240
    assert "equal texts join their rows" in " ".join((tmp_path / "out/README.md").read_text().split())
    assert facts("verify-export", tmp_path / "out")["rows"] == 240
    assert dptext("export", path, "--to", tmp_path / "no", "--audience", "others").exit_code == 5
    assert facts("statement", path, "--released", shared.folder / "analysts")["in_clear"] == ["stars"]
    next((shared.folder / "partners").glob("part-00000-*")).unlink()
    assert dptext("check", path).exit_code == 4, "a damaged table of an audience"


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"ids": "keep"}, "audience.0.ids: must be 'keyed' or 'drop'"),
        ({"name": "partners"}, "two audiences have one name"),
        ({"name": "a:b"}, "audience.0.name"),
    ],
)
def test_entries_that_contradict_each_other(shared, changes, pattern):
    with pytest.raises(PolicyError, match=pattern):
        shared.policy(audience=entries(shared, **changes))


def test_two_tables_have_two_sinks_and_a_table_of_the_whole_release_has_no_audience(shared, make_synthetic):
    for place in ("published", "./published/", "published/inner", "."):
        with pytest.raises(PolicyError, match="the sink of one table is, or lies in"):
            shared.policy(audience=entries(shared, sink=f"{shared.folder}/{place}"))
    with pytest.raises(PolicyError, match="no rows of records for a second table"):
        make_synthetic("synthetic").policy(audience=entries(shared))
    with pytest.raises(PolicyError, match=r"audience 'analysts': .* two roles"):
        run(shared.policy(audience=entries(shared, keep=["review"])))
    with pytest.raises(PolicyError, match=r"entries \[\[audience\]\]"):
        stage(shared.policy())
    shown = dptext("plan", shared.write_policy(), "--set", "sink=elsewhere")
    assert shown.exit_code == 5
    assert "sinks would stay" in " ".join(shown.stderr.split())


def test_partitions_and_variables(make_job, reviews, save, monkeypatch):
    job = make_job(ids="keyed", keep=[])
    save(reviews(120), job.folder / "raw/2026-01.parquet")
    monkeypatch.setenv("DPTEXT_SINKS", str(job.folder))
    places = {"source": "raw/{partition}.parquet", "sink": "published/{partition}", "key": "file:noise.key"}
    job.values["audience"] = [{"name": "analysts", "sink": "${DPTEXT_SINKS}/analysts/{partition}"}]
    path = job.write_policy(**places, staging=None)
    run(path, partition="2026-01")
    assert table(job, "analysts/2026-01").height == 120
    save(reviews(120).filter(pl.col("user_id") != "u007"), job.folder / "raw/2026-01.parquet")
    assert [place.audience for place in erase(path, subjects=["u007"]).places] == [None, "analysts"]
    assert table(job, "analysts/2026-01").height == 117
