"""Persons in runs: one budget in all spellings, at most per_subject records, and rows without a person."""

import json
import unicodedata

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.engines import run
from dptext_etl.errors import BudgetError, InputError, LedgerError, PolicyError
from dptext_etl.keys import canonical_ids, normalized
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan, scan_published, statement
from dptext_etl.runner.planning import further
from dptext_etl.runner.publish.forgetting import forget
from tests.command_line import dptext, facts
from tests.quick import quick

from .test_run_labels import Changing

CAP = {"measure": "pure", "epsilon": 1000.0, "period": "2026"}
NFD = unicodedata.normalize("NFD", "Zoë@x")
SPELLED = ["Zoë@x", NFD, " zoë@X\u00a0", "ZOË@X", "Straße", "STRASSE\n", "ΣΊΣΥΦΟΣ", "σίσυφος"]
"""Three people, as eight strings."""


def balances(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        found = ledger.remaining(Scope("reviews", "2026"))
        return found.units, found.used


@pytest.mark.parametrize("release", quick(["2026-12", "2026-11"]))
def test_records_of_another_person_are_refused(make_job, reviews, save, release):
    job = make_job(frame=reviews(60))
    job.run()
    spent = balances(job)
    moved = reviews(60).with_columns(user_id=pl.when(pl.col("id") < "r00004").then(pl.lit("z")).otherwise("user_id"))
    save(moved, job.folder / "raw.parquet")
    with pytest.raises(LedgerError, match=r"4 of 60 records were charged to another subject before"):
        job.run(release=release)
    assert balances(job) == spent


@pytest.mark.parametrize(("entries", "moment"), [({}, "computed"), ({"per_subject": 3}, "examined")])
def test_persons_that_change_during_a_run_are_refused(make_job, reviews, entries, moment):
    job = make_job(frame=reviews(60))

    def moved(rows):
        return rows.with_columns(user_id=pl.when(pl.col("user_id") == "u007").then(pl.lit("u008")).otherwise("user_id"))

    with pytest.raises(InputError, match="their persons, are not those that were checked"):
        run(job.policy(**entries), engine=Changing(reviews(60), **{moment: moved}))
    assert not (job.folder / "published.manifest.json").exists()
    assert (job.folder / "ledger.db").exists() == (moment == "computed"), "in time, nothing is charged"


@pytest.mark.parametrize(("role", "word", "column"), [("subject", "subject", "user_id"), ("id", "record", "id")])
def test_another_column_of_ids_is_refused(make_job, reviews, save, role, word, column):
    job = make_job(frame=reviews(60).with_columns(email=pl.concat_str("user_id", "id")))
    job.run()
    spent = balances(job)
    save(reviews(60, 60).with_columns(email=pl.concat_str("user_id", "id")), job.folder / "raw.parquet")
    for ask in (job.run, lambda **changes: plan(job.policy(**changes))):
        with pytest.raises(
            LedgerError, match=f"{word} ids of reviews are pinned as column '{column}', got column 'email'"
        ):
            ask(release="2026-12", **{role: "email"})
    assert balances(job) == spent
    assert job.run(release="2026-12").rows["new"] == 60


def test_a_subject_is_another_column_than_id_and_text(job):
    for subject in ("id", "review"):
        for unit in ("subject", "record"):
            with pytest.raises(PolicyError, match="subject must be another column"):
                job.policy(subject=subject, unit=unit)


def test_normalize_takes_known_steps_in_one_order(job):
    assert job.policy(normalize=["strip", "nfc"]).normalize == ("nfc", "strip")
    assert "normalize" not in job.policy().model_dump(), "a run is recognized as before"
    with pytest.raises(PolicyError, match="normalize"):
        job.policy(normalize=["lower"])
    with pytest.raises(PolicyError, match="normalize spells subjects"):
        job.policy(normalize=["nfc"], unit="record", subject=None)


def people(reviews, spelled):
    return reviews(len(spelled)).with_columns(user_id=pl.Series(spelled))


def test_spellings_of_one_person_share_a_budget(make_job, reviews, save):
    steps = ["nfc", "casefold", "strip"]
    job = make_job(frame=people(reviews, SPELLED), normalize=steps, keep=["user_id"])
    job.run()
    units, used = balances(job)
    assert units == 3
    published = pl.read_parquet(str(job.folder / "published" / "*.parquet"))
    assert published["user_id"].to_list() == SPELLED, "kept columns are published as they are"
    forecast = plan(job.policy(release="2026-12"))
    assert (forecast.subjects, forecast.over_cap["records"]) == (3, 0)
    with pytest.raises(LedgerError, match=r"pinned as string \(normalized: nfc, casefold, strip\), got string"):
        job.run(release="2026-12", normalize=None)
    save(people(reviews, list(reversed(SPELLED))), job.folder / "raw.parquet")
    with pytest.raises(LedgerError, match="were charged to another subject before"):
        job.run(release="2026-12")
    again = people(reviews, [unicodedata.normalize("NFD", text.upper()) for text in SPELLED])
    save(again, job.folder / "raw.parquet")
    job.run(release="2026-12")
    units, twice = balances(job)
    assert (units, twice["eps_pure"]["max"]) == (3, 2 * used["eps_pure"]["max"])


def test_a_person_is_forgotten_under_any_spelling(make_job, reviews, save):
    job = make_job(frame=people(reviews, SPELLED), normalize=["nfc", "casefold", "strip"])
    job.run()
    save(people(reviews, SPELLED).slice(4), job.folder / "raw.parquet")
    assert forget(job.policy(), subjects=["zoË@x"]).removed == 4


def test_only_strings_are_normalized(make_job, reviews):
    numbered = reviews(8).with_columns(user_id=pl.int_range(8))
    with pytest.raises(InputError, match="normalize needs subjects that are strings, got integer"):
        make_job(frame=numbered, normalize=["nfc"]).run()


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_layout_of_strings_has_one_spelling(kind):
    texts = pa.array([*SPELLED, None], pa.string()).cast(kind)
    found = normalized(texts, ("nfc", "casefold", "strip"))
    assert found.to_pylist() == ["zoë@x"] * 4 + ["strasse"] * 2 + ["σίσυφοσ"] * 2 + [None]
    assert normalized(found, ("nfc", "casefold", "strip")).equals(found)
    assert normalized(texts, ()) is texts
    assert json.dumps(normalized(texts, ("nfc",)).to_pylist()).count("zo") == 1


def test_a_new_subject_column_is_accepted_by_name(make_job, reviews, save):
    people = {"email": pl.concat_str("user_id", pl.lit("@x"))}
    job = make_job(frame=reviews(60).with_columns(**people))
    job.run()
    place = ("--ledger", job.folder / "ledger.db")
    asked = ("ledger", "accept-units", "reviews", "--reason", "people have addresses now", *place)
    refused = dptext(*asked, "--lost", "eps_pure=300")
    assert refused.exit_code == PolicyError.exit_code, "there is no terminal to answer"
    assert "caps lowered by eps_pure 300?" in refused.stderr
    said = facts(*asked, "--lost", "eps_pure=300", "--yes")
    assert said["caps"] == {"dataset:reviews, period 2026": {"eps_pure": 700.0}}
    again = job.run(release="2026-12", subject="email", cap={**CAP, "epsilon": 700.0})
    assert again.rows["new"] == 60
    with pytest.raises(LedgerError, match="pinned as column 'email', got column 'user_id'"):
        job.run(release="2027-01", cap={**CAP, "epsilon": 700.0})
    assert facts("ledger", "verify", *place)["ok"]


def test_a_new_period_is_opened_by_name(make_job, reviews):
    job = make_job(frame=reviews(60))
    job.run()
    later = {"release": "2027-01", "cap": {**CAP, "period": "2027"}}
    with pytest.raises(LedgerError, match="would not count charges in dataset:reviews, period 2026"):
        job.run(**later)
    assert any("opens the period by name" in note for note in plan(job.policy(**later)).notes)
    place = (
        "reviews",
        "--epsilon",
        1000,
        "--period",
        "2027",
        "--reason",
        "a new year",
        "--ledger",
        job.folder / "ledger.db",
    )
    refused = dptext("ledger", "set-cap", *place)
    assert "charges in dataset:reviews, period 2026 do NOT count: every unit starts at zero" in refused.stderr
    assert facts("ledger", "set-cap", *place, "--yes")["changed"]
    assert job.run(**later).rows["new"] == 60
    assert not any("by name" in note for note in plan(job.policy(**later)).notes)
    assert not facts("ledger", "set-cap", *place, "--yes")["changed"]


MOST = 2


def published(job):
    return set(scan_published(str(job.folder / "published")).collect()["id"])


def first_of(frame, job, most=MOST, stay=()):
    """The records that must be released, person by person, in plain Python."""
    key = job.policy().column_policies()[0].release_key()
    ids = frame["id"].to_list()
    keys = pa.array(_kernel.order_keys(key, canonical_ids(frame["id"].to_arrow())))
    order = dict(zip(ids, keys.to_pylist(), strict=True))
    chosen = {one for one, person in frame.select("id", "user_id").iter_rows() if person is None or one in stay}
    for person in set(frame["user_id"].drop_nulls()):
        theirs = frame.filter(user_id=person)["id"].to_list()
        old = [one for one in theirs if one in stay]
        new = sorted((one for one in theirs if one not in stay), key=order.get)
        chosen.update(new[: max(0, most - len(old))])
    return chosen


def keep(job, frame):
    frame.write_parquet(job.folder / "raw.parquet")


@pytest.mark.parametrize("incremental", quick([True, False]))
def test_released_records_stay_and_the_key_fills_what_remains(job, reviews, incremental):
    frame, early = reviews(), reviews().filter(pl.col("user_id") != "u001").head(90)
    policy = job.policy(per_subject=MOST, incremental=incremental)
    keep(job, early)
    first = job.run(per_subject=MOST, incremental=incremental)
    assert published(job) == first_of(early, job)
    assert first.rows["over_contribution"] == len(early) - len(published(job))
    before = published(job)
    keep(job, frame.sample(fraction=1.0, shuffle=True, seed=5))
    forecast = plan(policy)
    assert any("per_subject = 2 of a person count" in note for note in forecast.notes)
    job.run(per_subject=MOST, incremental=incremental)
    assert published(job) == first_of(frame, job, stay=before) > before
    job.run(per_subject=1, incremental=incremental)
    assert published(job) == first_of(frame, job, stay=before), "a lower limit removes nothing"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"unit": "record", "subject": None}, 'unit = "record" has none'),
        ({"incremental": True, "deletions": "keep"}, "needs a source with all rows of a person"),
    ],
)
def test_policies_that_cannot_have_it(job, changes, sentence):
    with pytest.raises(PolicyError, match=sentence):
        job.policy(per_subject=MOST, **changes)


@pytest.fixture
def nameless(make_job, reviews):
    """A job in which 24 of 240 rows name no person."""
    frame = reviews().with_row_index("at")
    return make_job(frame=frame.with_columns(user_id=pl.when(pl.col("at") % 10 > 0).then("user_id")).drop("at"))


def units(nameless):
    with nameless.ledger() as ledger:
        assert ledger.verify().ok
        return ledger.remaining(Scope.of(nameless.policy())).as_dict()["units"]


def test_excluded(nameless):
    assert plan(nameless.policy(on_null_subject="quarantine")).excluded["without_subject"] == 24
    summary = nameless.run(on_null_subject="quarantine")
    assert (summary.rows["read"], summary.rows["without_subject"], summary.rows["released"]) == (240, 24, 216)
    raw = pl.read_parquet(nameless.folder / "raw.parquet").filter(pl.col("user_id").is_not_null())
    assert nameless.published()["id"].to_list() == raw["id"].to_list()
    assert "24 rows without a person" in " ".join(summary.notes)
    page = statement.markdown(statement.facts(policy=nameless.policy(on_null_subject="quarantine")))
    assert "| without a person | 24 rows" in page
    again = nameless.run(on_null_subject="quarantine")
    assert (again.changed, again.rows["replayed"]) == (False, 216)


def test_persons_of_their_own(nameless):
    summary = nameless.run(on_null_subject="own")
    assert summary.rows["released"] == 240
    assert units(nameless) == 40 + 24 - 4, "each tenth person has no other rows"
    assert "k times the loss" in " ".join(summary.notes)
    assert "OWN_PERSONS" in (nameless.folder / "published.manifest.json").read_text()
    nameless.forget_that_nothing_changed()
    assert nameless.run(on_null_subject="own").rows["replayed"] == 240


def test_their_own_caps(make_job, reviews):
    frame = reviews(60).with_columns(user_id=pl.lit(None, pl.String), review=pl.lit("worda wordb"), note=None)
    frame = frame.with_columns(note=pl.lit(None, pl.String))
    cap = {"measure": "pure", "epsilon": 7.0, "period": "2026"}
    nameless = make_job(frame=frame, cap=cap, on_null_subject="own")
    assert plan(nameless.policy()).over_cap == {"records": 0, "units": 0}
    assert nameless.run().rows["quarantined"] == 0, "4 of 7 each, though they would be 240 of one person"
    second = {"release": "2026-12", "sink": str(nameless.folder / "second")}
    said = plan(nameless.policy(**second))
    assert said.over_cap == {"records": 60, "units": 60}, "a new release does not reset them"
    with pytest.raises(BudgetError):
        nameless.run(**second)


def test_a_person_who_is_found_later_is_another_unit(nameless, reviews, save):
    nameless.run(on_null_subject="own")
    save(reviews(), nameless.folder / "raw.parquet")
    with pytest.raises(LedgerError, match="24 of"):
        nameless.run(on_null_subject="own", shard_rows=1000)


def test_synthetic_and_shuffled(make_synthetic, reviews):
    from ..synthetic_runs import labeled

    frame = labeled(reviews()).with_columns(user_id=pl.when(pl.col("id") > "r00003").then("user_id"))
    nameless = make_synthetic(frame=frame)
    with pytest.raises(InputError, match="4 rows have no subject"):
        nameless.run()
    assert plan(nameless.policy(on_null_subject="quarantine")).excluded["without_subject"] == 4
    assert nameless.run(on_null_subject="quarantine").rows["without_subject"] == 4
    with pytest.raises(PolicyError, match="own"):
        nameless.policy(on_null_subject="own")


def test_no_persons_at_all(nameless):
    with pytest.raises(PolicyError, match="has none"):
        nameless.policy(on_null_subject="own", unit="record", subject=None)


def test_how_many_more_releases_fit(make_job, reviews):
    """As many as the line says are charged whole; the next one is over the cap."""
    number = pl.int_range(pl.len())
    frame = reviews(60).with_columns(user_id=pl.when(number % 10 > 0).then("user_id"))
    cap = {"measure": "pure", "epsilon": 140.0, "period": "2026"}
    nameless = make_job(frame=frame, on_null_subject="own", cap=cap)
    fresh = further(nameless.policy())
    assert (fresh["from_ledger"], fresh["units"]) == (False, {"count": 1, "p99": 0, "least": 0}), "of the longest text"
    nameless.run()
    nameless.write_policy()
    found = facts("ledger", "remaining", "--for", nameless.folder / "privacy.toml")["further"]
    assert (found["units"]["count"], found["rows"]["count"]) == (36, 6)
    least = min(found["units"]["least"], found["rows"]["least"])
    assert 0 < least < found["rows"]["p99"] + 1
    shown = dptext("ledger", "remaining", "--for", nameless.folder / "privacy.toml").stdout
    assert f"for 99% of 36 persons, {found['units']['least']} for the most charged one" in " ".join(shown.split())
    twice = [{"name": "review", "mechanism": {**nameless.policy().columns[0]._input["mechanism"], "epsilon": 4.0}}]
    halved = further(nameless.policy(release="other", column=[{**twice[0], "allow": ["cluster"]}]))
    assert halved["units"]["count"] == 36, "another epsilon for the same words"
    for number in range(least):
        assert nameless.run(release=f"more {number}").rows["quarantined"] == 0
    assert plan(nameless.policy(release="too many")).over_cap["records"] > 0
    assert min(further(nameless.policy())[kind]["least"] for kind in ("units", "rows")) == 0
    with pytest.raises(LedgerError, match="the policy asks for more: 141"):
        further(nameless.policy(cap={**cap, "epsilon": 141.0}))
    with pytest.raises(PolicyError, match="no cap"):
        further(nameless.policy(cap=None))
