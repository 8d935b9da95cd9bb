"""An incremental run that recognizes rows of the run before has the results of one that compares them all."""

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import Ledger
from dptext_etl.errors import DPTextError
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.source import examine, seen
from tests.review_jobs import make_reviews, save_table

FIRST, MORE = make_reviews(), make_reviews(400)
ENDS = {"source": ".parquet", "sink": ""}


def edited(rows, column, value, at):
    return rows.with_columns(pl.when(pl.col("id") == f"r{at:05d}").then(pl.lit(value)).otherwise(column).alias(column))


def outcome(job, **changes):
    """What a run says, publishes, and leaves in the ledger."""
    try:
        found = job.run(**changes).as_dict()
        said = {name: found[name] for name in ("rows", "spend", "gates", "reports", "published_rows", "version")}
        said["note"] = found["notes"][0]
    except DPTextError as exc:
        said = {"error": type(exc).__name__, "message": str(exc).replace(str(job.folder), ""), **exc.fields}
    files = job.files() if (job.folder / "published.manifest.json").exists() else {}
    with job.ledger() as ledger:
        assert ledger.verify().ok
        kinds = [(entry.kind, entry.facts.get("rows")) for entry in ledger._db.journal.entries()]
        return said, files, kinds, ledger.show(), ledger.export()


@pytest.fixture
def both(make_job, monkeypatch):
    """Take two jobs through the same: one may recognize rows, the other compares all; return whether the one did."""
    monkeypatch.setattr(seen, "BLOCK_ROWS", 8)
    quick, full = make_job("quick"), make_job("fully")
    looked = []
    check_ids = examine.check_ids
    monkeypatch.setattr(examine, "check_ids", lambda *given: looked.append(1) or check_ids(*given))

    def each(rows, meanwhile=lambda job: None, **changes):
        found = []
        for job in (quick, full):
            save_table(rows, job.folder / "raw.parquet")
            meanwhile(job)
            if job is full:
                job.forget_that_nothing_changed()
            looked.clear()
            said = outcome(job, incremental=True, **changes)
            found.append((not looked, *said))
        assert found[0][1:] == found[1][1:]
        assert not found[1][0], "the other compares all rows"
        return found[0][0], found[0][1]

    return each


def test_rows_that_come_go_and_change_have_the_results_of_a_full_comparison(both):
    def recognized(rows, said=None, **changes):
        known, found = both(rows, **changes)
        assert said is None or said in found.get("message", found.get("note", "")), found
        return known

    assert not recognized(FIRST)
    assert "a key" not in repr(seen.SeenRows(b"a key"))
    assert recognized(MORE.head(270), "version 2")
    inside = pl.concat([MORE.head(100), MORE.slice(270, 5), MORE.slice(100, 170)])
    assert recognized(inside, "version 3")
    assert not recognized(pl.concat([inside, MORE.slice(40, 1), MORE.slice(275, 5)]), "1 record id occurs more")
    assert not recognized(pl.concat([inside, MORE.slice(275, 5), MORE.slice(275, 1)]), "1 record id occurs more")
    assert not recognized(edited(MORE.head(280), "id", None, 277), "1 record id is null")
    assert recognized(edited(MORE.head(280), "review", "wordaa wordab", 50), "the texts of 1 record changed")
    assert recognized(edited(MORE.head(280), "note", None, 101), "the texts of 1 record changed")
    assert recognized(edited(MORE.head(280), "user_id", "u001", 50), "1 of 280 records was charged to another")
    assert recognized(MORE.head(280).filter(pl.col("id") != "r00050"), "1 of 275 published records are no longer")
    assert recognized(edited(inside, "secret", "dropped", 50), "no new rows")
    assert recognized(pl.concat([inside.tail(120), inside.head(155)]), "no new rows")
    assert recognized(MORE.slice(100, 185), "version 4", deletions="keep") is False, "another policy"


def test_what_other_writers_and_policies_did_meanwhile_counts(both):
    def forget_one(job):
        with Ledger.open(job.folder / "ledger.db") as ledger:
            ledger.forget("reviews", pa.array(["r00300"]), pa.array([], pa.string()))

    assert not both(FIRST)[0]
    known, said = both(MORE.head(310), forget_one)
    assert (known, said["rows"]["forgotten"], said["rows"]["new"]) == (False, 1, 69)
    assert not both(MORE.head(320))[0], "the run before left a row out"
    there = MORE.head(330).filter(pl.col("id") != "r00300")
    assert not both(there)[0]
    known, said = both(MORE.head(340).filter(pl.col("id") != "r00300"))
    assert (known, said["rows"]["new"]) == (True, 10)
    left = MORE.head(350).filter((pl.col("id") != "r00300") & (pl.col("user_id") != "u007"))
    known, said = both(left, lambda job: forget(job.policy(incremental=True), subjects=["u007"]))
    assert (known, said["published_rows"]) == (False, left.height)
    longer = left.tail(5).with_columns(
        id=pl.col("id") + "x", review=pl.concat_str([pl.col("review")] * 40, separator=" ")
    )
    known, said = both(pl.concat([left, longer]))
    assert (known, said["rows"]["quarantined"]) == (True, 5)
    assert not both(pl.concat([left, longer, MORE.slice(360, 5)]))[0], "rows over the cap may fit now"
    keep = {"on_changed": "keep", "deletions": "keep"}
    changed = edited(left, "review", "wordaa wordab", 50)
    known, said = both(changed, **keep)
    assert (known, said["rows"]["changed_kept"]) == (False, 1)
    assert not both(changed.vstack(MORE.slice(380, 5)), **keep)[0], "its earlier text stays published"


def test_published_files_that_changed_and_units_of_other_releases_count(both):
    def accept(job):
        with Ledger.open(job.folder / "ledger.db") as ledger:
            ledger.accept_units("reviews", lost={"eps_pure": 0.0}, reason="spelled anew")

    def release_of_another_person(job):
        save_table(edited(FIRST, "user_id", "another", 50), job.folder / "other.parquet")
        job.run(release="other", **{name: str(job.folder / f"other{end}") for name, end in ENDS.items()})

    def cut(job):
        part = next((job.folder / "published").rglob("part-*.parquet"))
        pl.read_parquet(part).slice(1).write_parquet(part)

    assert not both(FIRST)[0]
    assert not both(MORE.head(250), cut)[0]
    moved = edited(MORE.head(250), "user_id", "someone", 50)
    assert not both(moved, accept, deletions="keep")[0]
    assert not both(moved.vstack(MORE.slice(250, 5)), deletions="keep")[0]
    known, said = both(moved.vstack(MORE.slice(250, 9)), release_of_another_person, deletions="keep")
    assert not known
    assert "1 of 259 records was charged to another subject" in said["message"]
