"""Published ids: as they are, keyed, or none; ids that are written in another way get no new budget."""

import hashlib
import hmac
import json
import warnings
from functools import partial

import polars as pl
import pyarrow as pa
import pytest

import dptext_etl.polars  # noqa: F401  (registers the namespace)
from dptext_etl import ColumnPolicy, privatize, run
from dptext_etl.checks.published import check_published
from dptext_etl.errors import InputError, LedgerError, PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.polars import run_frame
from dptext_etl.polars.frame import OtherIdsWarning
from dptext_etl.runner import plan, scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.publish.parts import id_finder, ids_of_parts
from tests.quick import quick
from tests.review_jobs import make_reviews

HIDDEN = ["keyed", "drop"]


def checked(job, **changes):
    policy = job.policy(**changes)
    found = id_finder(Layout.of(policy).staging, policy.ledger)
    verdicts = check_published(job.folder / "published", policy, own_ids=found)
    assert all(verdict.passed for verdict in verdicts), [item.message for item in verdicts if not item.passed]
    return {verdict.name: verdict.counts for verdict in verdicts}


def own_ids(job, ids):
    parts = json.loads((job.folder / "published.manifest.json").read_text())["parts"]
    policy = job.policy(ids=ids)
    return pl.concat(ids_of_parts(Layout.of(policy).staging, policy.ledger, (part["sha256"] for part in parts)))


def lists(job):
    return sorted((job.folder / "published.staging").rglob("*.ids"))


def digest(job):
    (part,) = json.loads((job.folder / "published.manifest.json").read_text())["parts"]
    return part["sha256"]


def expected(job, rid, release="2026-11", *audience):
    """The formula of docs/spec/stream.md#published-ids, from the standard library."""
    secret = bytes.fromhex((job.folder / "noise.key").read_text().strip())
    names = json.dumps(["reviews", release, *audience], separators=(",", ":")).encode()
    key = hmac.digest(secret, b"dptext/seal/v1\0dptext/published-id/v1\0" + names, hashlib.sha256)
    told = b"dptext/id/v1\0rec" + len(rid.encode()).to_bytes(8, "little") + rid.encode()
    return hmac.digest(key, told, hashlib.sha256).hex()


def test_the_ids_of_an_audience_are_under_a_key_of_their_own(job):
    job.values["audience"] = [{"name": "analysts", "sink": str(job.folder / "analysts"), "keep": ["stars"]}]
    job.run()
    shown = scan_published(str(job.folder / "analysts")).collect()
    assert {*shown["id"]} == {expected(job, rid, "2026-11", "analysts") for rid in job.published()["id"]}


@pytest.mark.parametrize("suffix", quick([".parquet", ".csv", ".ndjson"]))
@pytest.mark.parametrize("ids", HIDDEN)
def test_readers_see_no_id_of_a_record(make_job, ids, suffix):
    job, plain = make_job("hidden", None, suffix), make_job("plain", None, suffix)
    job.run(ids=ids)
    plain.run()
    rows, known = job.published(), plain.published()
    order = ["stars", "review", "note"]
    assert rows.drop("id", strict=False).sort(order).equals(known.drop("id").sort(order))
    assert ("id" in rows.columns) == (ids == "keyed")
    if ids == "keyed":
        assert set(rows["id"]) == {expected(job, rid) for rid in known["id"]}
    shown = [path for path in (job.folder / "published").rglob("*") if path.is_file()]
    assert not any(b"r00003" in path.read_bytes() for path in shown)
    assert b"r00003" not in (job.folder / "published.manifest.json").read_bytes()
    assert checked(job, ids=ids)["rows_ledgered"] == checked(plain)["rows_ledgered"]


def test_keyed_ids_are_those_of_a_release(job):
    job.run(ids="keyed")
    first = job.published()["id"]
    job.forget_that_nothing_changed()
    assert not job.run(ids="keyed").changed
    job.run(ids="keyed", release="2026-12")
    assert not set(job.published()["id"]) & set(first)
    assert job.published()["id"].n_unique() == first.n_unique() == 240


@pytest.mark.parametrize("ids", HIDDEN)
def test_forget_takes_people_out(job, ids, save):
    job.run(ids=ids)
    rows = pl.read_parquet(job.folder / "raw.parquet")
    save(rows.filter(pl.col("user_id") != "u003"), job.folder / "raw.parquet")
    before, own = job.published(), own_ids(job, ids)
    done = forget(job.policy(ids=ids), subjects=["u003"])
    assert (done.removed, done.rows, done.withdrawn) == (6, 234, False)
    theirs = rows.filter(pl.col("user_id") == "u003")["id"].implode()
    kept = before.filter(~own.is_in(theirs))
    assert job.published().equals(kept)
    checked(job, ids=ids)
    assert "r00003" not in set(pl.concat(map(pl.read_parquet, lists(job)))["id"])
    assert len(lists(job)) == len({path.name for path in lists(job)}) > 0
    assert forget(job.policy(ids=ids), subjects=["u003"]).removed == 0
    assert checked(job, ids=ids)["rows_ledgered"]["cells"] == 2 * 234


@pytest.mark.parametrize("ids", quick(HIDDEN))
@pytest.mark.thorough
def test_a_killed_publication_goes_on(make_job, ids):
    job, other = make_job("killed"), make_job("whole")
    job.values["ids"] = other.values["ids"] = ids
    for step in ("parts written", "recorded", "version written", "manifest written", "shown"):
        assert job.stop(step)
    job.run()
    other.run()
    assert job.files() == other.files()
    checked(job)
    assert len(lists(job)) == len(lists(other))


def test_what_needs_ids_says_so(job):
    job.run(ids="keyed")
    with pytest.raises(PolicyError, match=r"differs from the policy in: .*ids"):
        job.run(incremental=True)
    with pytest.raises(LedgerError, match="published table has ids = 'keyed', and the policy says 'keep'"):
        forget(job.policy(), records=["r00003"])
    with pytest.raises(InputError, match="only staging knows whose rows these are"):
        check_published(job.folder / "published", job.policy(ids="keyed"))
    for path in lists(job):
        path.unlink()
    with pytest.raises(InputError, match="the records' own ids of a published part are not in staging"):
        checked(job, ids="keyed")
    job.forget_that_nothing_changed()
    job.run(ids="keyed")
    checked(job, ids="keyed")


@pytest.mark.parametrize("ids", quick(HIDDEN))
def test_a_person_in_two_partitions_is_taken_out_of_both(job, ids):
    rows, raw = make_reviews(), job.folder / "raw"
    raw.mkdir()
    (job.folder / "published").mkdir()
    policy = job.policy(
        ids=ids,
        source=str(raw / "{partition}.parquet"),
        sink=str(job.folder / "published" / "{partition}"),
        staging=str(job.folder / "staging"),
    )
    parts = {"a": rows[:120], "b": rows[120:]}
    for partition, table in parts.items():
        table.write_parquet(raw / f"{partition}.parquet")
        run(policy, partition=partition)
        table.filter(pl.col("user_id") != "u003").write_parquet(raw / f"{partition}.parquet")
    assert forget(policy, partition="a", subjects=["u003"]).removed == 3
    judge = partial(check_published, job.folder / "published" / "b", policy)
    with pytest.raises(InputError, match="3 rows of a published part are of people who were forgotten in another"):
        judge(own_ids=id_finder(Layout.of(policy, "b").staging, policy.ledger))
    assert forget(policy, partition="b", subjects=["u003"]).removed == 3
    assert all(verdict.passed for verdict in judge(own_ids=id_finder(Layout.of(policy, "b").staging, policy.ledger)))


@pytest.mark.parametrize("order", quick([((0, 1),), ((3, 2),), ((1, 0),), ((2, 3),)], first=2))
def test_parts_of_equal_bytes_stay_with_their_people(job, order, save):
    """Without texts and kept columns, the rows of two days are equal; the list of a removed part must go."""
    changes = {"ids": "drop", "keep": [], "incremental": True, "deletions": "keep"}
    rows = make_reviews(8).with_columns(review=pl.lit(None, pl.String), note=pl.lit(None, pl.String))
    for row in order:
        save(rows[[row]], job.folder / "raw.parquet")
        job.run(**changes)
    save(rows[7:], job.folder / "raw.parquet")
    for row, left in zip(order, (1, 0), strict=True):
        done = forget(job.policy(**changes), records=[rows["id"][row]])
        assert (done.removed, done.rows) == (1, left)


def test_another_record_with_an_equal_row_can_be_forgotten(job, save):
    changes = {"ids": "drop", "keep": []}
    rows = make_reviews(8).with_columns(review=pl.lit(None, pl.String), note=pl.lit(None, pl.String))
    for row in (0, 1, 2, 1):
        save(rows[[row]], job.folder / "raw.parquet")
        job.run(**changes)
        assert list(pl.concat(map(pl.read_parquet, lists(job)))["id"]) == [rows["id"][row]]
    save(rows[7:], job.folder / "raw.parquet")
    assert forget(job.policy(**changes), records=[rows["id"][1]]).removed == 1


@pytest.mark.parametrize("ids", quick(HIDDEN))
def test_the_order_of_rows_links_no_releases(job, ids):
    """Rows in the order of the source, or of raw ids, would say which rows of two releases are of one record."""
    places = []
    for release in ("2026-11", "2026-12"):
        job.run(ids=ids, release=release, shard_rows=1000)
        (own,) = ids_of_parts(
            Layout.of(job.policy(ids=ids, release=release)).staging, job.policy().ledger, [digest(job)]
        )
        assert sorted(own) == sorted(make_reviews()["id"])
        assert list(own) == sorted(own, key=lambda rid, name=release: expected(job, rid, name))
        places.append([list(own).index(rid) for rid in sorted(own)])
    same = sum(one == other for one, other in zip(*places, strict=True))
    assert same < 12, "a random permutation of 240 rows has one fixed place on average"


CAP = {"measure": "pure", "epsilon": 20.0, "period": "2026"}


def numbered(reviews):
    """The reviews, their people as strings of digits."""
    return reviews(60).with_columns(user_id=pl.col("user_id").str.slice(1))


def balances(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        found = ledger.remaining(Scope("reviews", "2026"))
        return found.units, found.exhausted, found.used


def test_people_as_integers_have_no_new_budget(make_job, reviews, save):
    job = make_job(frame=numbered(reviews), cap=CAP, min_released=0.0)
    assert job.run().rows["quarantined"]
    spent = balances(job)
    save(numbered(reviews).with_columns(pl.col("user_id").cast(pl.Int64)), job.folder / "raw.parquet")
    for ask in (job.run, lambda **changes: plan(job.policy(**changes))):
        with pytest.raises(LedgerError, match="subject ids of dataset:reviews are pinned as string, got integer"):
            ask(release="2026-12")
    assert balances(job) == spent


@pytest.mark.parametrize("ledger", [True, False])
def test_ids_that_a_csv_reader_makes_numbers_of_are_warned_of(make_job, reviews, ledger):
    """The command line reads ids of CSV as strings; `pl.read_csv` reads integers, which draw other texts."""
    job = make_job(frame=reviews(60).with_columns(pl.col("id").str.slice(1)), suffix=".csv")
    job.run()
    released = scan_published(str(job.folder / "published")).collect()["review"]
    policy = job.policy() if ledger else job.policy(ledger={"url": f"sqlite:///{job.folder / 'none.db'}"})
    raw = pl.read_csv(job.folder / "raw.csv")
    for frame in (raw, raw.lazy()):
        with pytest.warns(OtherIdsWarning, match=r"ids in column 'id' are integer here, and string in reviews") as seen:
            drawn = frame.dptext.privatize(policy)
        assert "schema_overrides={'id': pl.String}" in str(seen[0].message)
        assert not drawn.lazy().collect()["review"].equals(released)
    as_strings = pl.read_csv(job.folder / "raw.csv", schema_overrides={"id": pl.String})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert as_strings.dptext.privatize(policy)["review"].equals(released)
    if ledger:
        with pytest.warns(OtherIdsWarning), pytest.raises(LedgerError, match="pinned to type string, got integer"):
            run_frame(raw, policy)


def composite(frame, *fields):
    parts = {"shop": pl.col("user_id"), "number": pl.col("id").str.slice(1).cast(pl.Int64)}
    return frame.with_columns(id=pl.struct(**{name: parts[name] for name in fields}))


@pytest.mark.parametrize("composed", [False, True])
def test_a_struct_as_id_draws_other_texts_in_an_expression_than_in_a_run(make_job, reviews, composed):
    """docs/polars.md says so: a ledger pins the order of its fields, and an expression writes them by name."""
    joined = pl.concat_str("user_id", "id", separator="|")
    raw = composite(reviews(60), "shop", "number") if composed else reviews(60).with_columns(id=joined)
    job = make_job(frame=raw)
    job.run()
    released = scan_published(str(job.folder / "published")).collect().sort("id")["review"]
    column = next(item for item in job.policy().column_policies() if item.column == "review")
    drawn = raw.sort("id").select(pl.col("review").dptext.privatize(column, id="id"))["review"]
    assert drawn.equals(released) is not composed


def test_composite_ids_keep_their_budget_and_their_bytes_in_any_order(make_job, reviews, save):
    raw = reviews(60)
    job = make_job(frame=composite(raw, "shop", "number"), cap=CAP, unit="record", subject=None, min_released=0.0)
    first, charged, files = job.run(), job.charged(), job.files()
    save(composite(raw, "number", "shop"), job.folder / "raw.parquet")
    assert plan(job.policy()).over_cap == {"records": first.rows["quarantined"], "units": first.rows["quarantined"]}
    again = job.run()
    assert (again.rows["new"], again.changed, job.charged(), job.files()) == (0, False, charged, files)
    other = run(job.policy(release="2026-12"), accept_fewer_rows=True)
    assert other.rows["quarantined"] > first.rows["quarantined"], "the balances count earlier charges"
    save(
        composite(raw, "number", "shop").with_columns(pl.col("id").struct.rename_fields(["nr", "shop"])),
        job.folder / "raw.parquet",
    )
    pinned, got = (rf"composite of 2 fields \({kinds}\)" for kinds in ("string, integer", "integer, string"))
    with pytest.raises(LedgerError, match=f"pinned as {pinned}, got {got}"):
        job.run()


def test_without_a_ledger_the_order_of_fields_says_nothing(make_job, reviews):
    job = make_job()
    policy = job.policy().column_policy("review")
    rows = [{"b": {"y": 1, "x": "p"}, "a": 5}, {"b": {"y": 2, "x": "q"}, "a": 5}]
    turned = [{"a": row["a"], "b": {"x": row["b"]["x"], "y": row["b"]["y"]}} for row in rows]
    texts = pl.Series("review", [" ".join(reviews(1)["review"]) * 3] * 2)
    released = []
    for ids in (rows, turned):
        array = pa.array(ids, pa.struct([(name, pa.array([row[name] for row in ids]).type) for name in ids[0]]))
        released.append(privatize(texts.to_arrow(), array, policy).to_pylist())
        frame = pl.DataFrame({"id": pl.Series(ids), "review": texts})
        released.append(frame.select(pl.col("review").dptext.privatize(policy, id="id"))["review"].to_list())
    assert all(item == released[0] for item in released)
    assert released[0][0] != released[0][1]
    assert isinstance(policy, ColumnPolicy)


def test_who_is_missing_is_seen_in_any_order_of_fields(make_job, reviews, save):
    raw = reviews(60)
    job = make_job(frame=composite(raw, "shop", "number"))
    job.run()
    save(composite(raw.head(59), "number", "shop"), job.folder / "raw.parquet")
    assert forget(job.policy(), missing=True).removed == 1
    added = job.run(incremental=True)
    assert (added.rows["read"], added.rows["already_published"]) == (59, 59)
