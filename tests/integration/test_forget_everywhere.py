"""`dptext forget --everywhere`: all partitions, releases, and policies of a folder, with a plan and a report."""

import json
import shutil
from functools import partial

import polars as pl
import pytest

from dptext_etl import Ledger, Policy, run
from dptext_etl.checks.published import check_published
from dptext_etl.engines import stage
from dptext_etl.errors import InputError, LedgerError
from dptext_etl.runner import scan_published
from dptext_etl.runner.publish.forgetting import erase
from tests.command_line import dptext
from tests.review_jobs import copied_with_links, make_reviews

HEAD = """
dataset = "{dataset}"
release = "{release}"
source  = "raw/{source}.parquet"
sink    = "{sink}"
id      = "id"
subject = "user_id"
key     = "file:noise.key"
ledger  = {{ url = "sqlite:///ledger.db", anchors = "{anchors}" }}
"""
ROWS = """
keep = ["stars"]
[[column]]
name = "review"
mechanism = {{ name = "surrogate", epsilon = {epsilon}, corpus = "example" }}
"""
SHUFFLED = """
[shuffled]
rows = 200
delta = 1e-8
"""
SYNTHETIC = """
[synthetic]
column = "review"
rows = 50
per_subject = 50
mechanism = { name = "maxent", epsilon = 2.0, delta = 1e-8, corpus = "example" }
"""
CAPS = {
    "pure": 'cap = { measure = "pure", epsilon = 500 }',
    "approx": 'cap = { measure = "approx", epsilon = 500, delta = 1e-2 }',
}


@pytest.fixture(scope="module")
def folder_once(make_shared):
    """Two partitions row by row, a shuffled release, a synthetic table, a partition that is only staged; a copy."""
    place, raw = make_shared("everywhere").folder, make_reviews()
    head = partial(HEAD.format, release="1", anchors=place / "anchors")
    (place / "raw").mkdir()
    (place / "published").mkdir()
    raw = raw.with_columns(user_id=pl.int_range(pl.len()).mod(200).cast(pl.String))  # 40 people have two rows each
    raw[:120].write_parquet(place / "raw" / "2026-09.parquet")
    raw[120:].write_parquet(place / "raw" / "2026-10.parquet")
    raw.write_parquet(place / "raw" / "all.parquet")
    rows = head(dataset="rows", source="{partition}", sink="published/{partition}")
    (place / "rows.toml").write_text(rows + CAPS["pure"] + ROWS.format(epsilon=4.0))
    shuffled = head(dataset="shuffled", source="all", sink="published/shuffled")
    (place / "more").mkdir()
    mechanism = ROWS.format(epsilon=2.0).replace('keep = ["stars"]', "")
    (place / "shuffled.toml").write_text(shuffled + CAPS["approx"] + SHUFFLED + mechanism)
    synthetic = head(dataset="synthetic", source="all", sink="published/synthetic")
    (place / "synthetic.toml").write_text(synthetic + CAPS["approx"] + SYNTHETIC)
    (place / "other.toml").write_text("[tool]\nname = 1\n")
    run(place / "rows.toml", partition="2026-09")
    stage(Policy.load(place / "rows.toml"), partition="2026-10")
    run(place / "shuffled.toml")
    run(place / "synthetic.toml")
    aside = place.with_name("everywhere aside")
    copied_with_links(place, aside)
    return place, aside


@pytest.fixture
def folder(folder_once):
    """The folder as these runs left it."""
    place, aside = folder_once
    shutil.rmtree(place)
    copied_with_links(aside, place)
    return place


def without(place, person):
    for path in (place / "raw").iterdir():
        pl.read_parquet(path).filter(pl.col("user_id") != person).write_parquet(path)


def everything(place):
    """Return the bytes of all files except locks, and except those that a ledger in write-ahead mode adds."""
    return {
        path: path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and path.suffix not in {".lock", ".db-wal", ".db-shm"} and path.stat().st_size
    }


def test_a_dry_run_says_what_happens_and_changes_nothing(folder):
    without(folder, "5")
    before = everything(folder)
    said = dptext("forget", folder, "--subject", "5", "--everywhere", "--dry-run", "--json")
    assert said.exit_code == 0, said.stderr
    assert everything(folder) == before
    plan = json.loads(said.stdout)
    assert plan["dry_run"]
    assert {
        (place["dataset"], place["partition"]): (place["outcome"], place["records"]) for place in plan["places"]
    } == {
        ("rows", "2026-09"): ("removed", 1),
        ("rows", "2026-10"): ("not published", 0),
        ("shuffled", None): ("withdrawn", 1),
        ("synthetic", None): ("statistic stays", 2),
    }


def test_a_person_is_erased_everywhere_and_the_report_names_no_one(folder):
    without(folder, "5")
    report = folder / "report.md"
    done = dptext("forget", folder, "--subject", "5", "--everywhere", "--yes", "--out", report)
    assert done.exit_code == 0, done.output
    left = scan_published(str(folder / "published" / "2026-09")).collect()
    assert (left.height, "r00005" in left["id"]) == (119, False)
    assert scan_published(str(folder / "published" / "shuffled")).collect().height == 0
    assert scan_published(str(folder / "published" / "synthetic")).collect().height == 50
    said = report.read_text()
    assert "| rows | 1 | 2026-09 | 1 | removed | 2 | v1 | " in said
    assert "r00005" not in said
    for name in ("rows", "shuffled", "synthetic"):
        policy = Policy.load(folder / f"{name}.toml")
        with Ledger.open(policy.ledger.url, create=False, read_only=True) as ledger:
            assert ledger.verify().ok
            assert ledger.people.forgets(name)
    assert all(
        gate.passed for gate in check_published(folder / "published" / "2026-09", Policy.load(folder / "rows.toml"))
    )
    staged = [pl.read_parquet(path) for path in folder.glob(".dptext/rows/*/1/2026-10/shard-*.parquet")]
    assert not any("r00205" in frame["id"] for frame in staged)
    run(folder / "rows.toml", partition="2026-10")
    assert "r00205" not in scan_published(str(folder / "published" / "2026-10")).collect()["id"]


def test_an_unknown_person_is_an_error_and_changes_nothing(folder):
    before = everything(folder)
    with pytest.raises(InputError, match=r"knows 1 of 2 subjects and 0 of 0 records; nothing was changed"):
        erase(folder, subjects=["5", "nobody"])
    with pytest.raises(InputError, match=r"0 of 0 subjects and 1 of 1 records"):
        erase(folder, records=["r99999"])
    assert everything(folder) == before


def test_a_person_whom_only_a_list_knows_is_erased(folder):
    """A person over the cap was never charged, and their rows are removed from the source before."""
    text = (folder / "rows.toml").read_text().replace("epsilon = 500 }", "epsilon = 1 }")
    small = text.replace("ledger.db", "small.db").replace("published/", "small/")
    (folder / "small.toml").write_text(f"min_released = 0.0\n{small}")
    run(folder / "small.toml", partition="2026-09")
    without(folder, "5")
    lists = list(folder.glob(".dptext/*/*/*/2026-09/quarantine-*.parquet"))
    assert "r00005" in pl.concat([pl.read_parquet(path) for path in lists])["id"]
    done = erase(folder / "small.toml", subjects=["5"])
    assert [place.staged for place in done.places] == [1]
    assert "r00005" not in pl.concat([pl.read_parquet(path) for path in lists])["id"]


def test_nothing_changes_while_one_source_still_holds_the_person(folder):
    before = everything(folder)
    done = dptext("forget", folder, "--subject", "5", "--everywhere", "--yes")
    assert done.exit_code == 5
    assert "the source still holds" in done.stderr
    assert everything(folder) == before


def test_a_release_that_no_policy_has_any_more_is_listed(folder):
    (folder / "shuffled.toml").write_text(
        (folder / "shuffled.toml").read_text().replace('release = "1"', 'release = "2"')
    )
    without(folder, "5")
    plan = erase(folder, subjects=["5"], dry_run=True)
    (other,) = plan.elsewhere
    assert (other["dataset"], other["release"], len(other["versions"]), other["records"]) == ("shuffled", "1", 1, 1)


def test_a_policy_that_never_ran_has_nothing_to_forget(folder):
    text = (folder / "rows.toml").read_text().replace("ledger.db", "new.db").replace("published/", "other/")
    (folder / "new.toml").write_text(text)
    without(folder, "5")
    plan = erase(folder, subjects=["5"], dry_run=True)
    assert len(plan.places) == 4
    assert not (folder / "new.db").exists()


def test_a_policy_of_records_cannot_say_whose_they_are(folder):
    text = (folder / "rows.toml").read_text().replace('subject = "user_id"', 'unit = "record"')
    (folder / "rows.toml").write_text(text)
    refused = dptext("forget", folder, "--subject", "5", "--everywhere", "--yes")
    assert refused.exit_code == 5
    assert "rows.toml" in refused.stderr


@pytest.mark.parametrize("words", [["--dry-run"], ["--out", "x.md"]])
def test_options_of_everywhere_need_it(folder, words):
    assert dptext("forget", folder / "shuffled.toml", "--subject", "5", *words).exit_code == 5


def test_a_release_that_has_not_run_yet_stops_no_erasure(folder):
    text = (folder / "rows.toml").read_text()
    text = text.replace('release = "1"', 'release = "2"').replace("{partition}", "all").replace("published/", "later/")
    (folder / "a-later.toml").write_text(text)
    without(folder, "5")
    done = erase(folder, subjects=["5"])
    assert "r00005" not in scan_published(str(folder / "published" / "2026-09")).collect()["id"]
    assert {(place.release, place.outcome) for place in done.places if place.dataset == "rows"} >= {
        ("1", "removed"),
        ("2", "not published"),
    }


def test_other_ids_than_were_published_are_refused_before_anyone_is_forgotten(folder):
    text = (folder / "rows.toml").read_text().replace('id      = "id"', 'id = "id"\nids = "keyed"')
    (folder / "rows.toml").write_text(text)
    without(folder, "5")
    before = everything(folder)
    for dry_run in (True, False):
        with pytest.raises(LedgerError, match="published table has ids = 'keep', and the policy says 'keyed'"):
            erase(folder, subjects=["5"], dry_run=dry_run)
    assert everything(folder) == before
