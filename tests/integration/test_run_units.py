"""People keep their budget in runs: another person, column or spelling gives them no new one."""

import json
import unicodedata

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.errors import InputError, LedgerError, PolicyError
from dptext_etl.id_forms import normalized
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan
from dptext_etl.runner.publish.forgetting import forget

CAP = {"measure": "pure", "epsilon": 1000.0, "period": "2026"}
NFD = unicodedata.normalize("NFD", "Zoë@x")
SPELLED = ["Zoë@x", NFD, " zoë@X\u00a0", "ZOË@X", "Straße", "STRASSE\n", "ΣΊΣΥΦΟΣ", "σίσυφος"]
"""Three people, as eight strings."""


def balances(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        found = ledger.remaining(Scope("reviews", "2026"))
        return found.units, found.used


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
    assert "normalize" not in job.policy().model_dump(), "what a run is recognized by stays what it is"
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
    assert published["user_id"].to_list() == SPELLED, "what is kept is published as it is"
    forecast = plan(job.policy(release="2026-12"))
    assert forecast.subjects == 3
    assert forecast.over_cap["records"] == 0
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


def test_without_normalize_spellings_are_people(make_job, reviews):
    job = make_job(frame=people(reviews, SPELLED))
    job.run()
    assert balances(job)[0] == len(SPELLED)


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


def dptext(*arguments):
    found = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_a_new_subject_column_is_accepted_by_name(make_job, reviews, save):
    people = {"email": pl.concat_str("user_id", pl.lit("@x"))}
    job = make_job(frame=reviews(60).with_columns(**people))
    job.run()
    place = ("--ledger", job.folder / "ledger.db")
    asked = ("ledger", "accept-units", "reviews", "--reason", "people have addresses now", *place)
    refused = CliRunner().invoke(app, [*map(str, asked), "--lost", "eps_pure=300"])
    assert refused.exit_code == PolicyError.exit_code, "there is no terminal to answer"
    assert "caps lowered by eps_pure 300?" in refused.stderr
    said = dptext(*asked, "--lost", "eps_pure=300", "--yes")
    assert said["caps"] == {"dataset:reviews, period 2026": {"eps_pure": 700.0}}
    again = job.run(release="2026-12", subject="email", cap={**CAP, "epsilon": 700.0})
    assert again.rows["new"] == 60
    with pytest.raises(LedgerError, match="pinned as column 'email', got column 'user_id'"):
        job.run(release="2027-01", cap={**CAP, "epsilon": 700.0})
    assert dptext("ledger", "verify", *place)["ok"]


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
    refused = CliRunner().invoke(app, ["ledger", "set-cap", *map(str, place)])
    assert "charges in dataset:reviews, period 2026 do NOT count: every unit starts at zero" in refused.stderr
    assert dptext("ledger", "set-cap", *place, "--yes")["changed"]
    assert job.run(**later).rows["new"] == 60
    assert not any("by name" in note for note in plan(job.policy(**later)).notes)
    assert not dptext("ledger", "set-cap", *place, "--yes")["changed"]
