"""Source and sink in an object store: a small S3 on the loopback interface."""

import hashlib
import json
import re
from unittest.mock import Mock

import polars as pl
import pytest

from dptext_etl import object_stores, run, text_files
from dptext_etl.checks.published import check_published
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.engines import stage
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.publish.versions import clean
from dptext_etl.runner.source.roles import open_table
from dptext_etl.runner.source.table import Files, partitions_of_source
from dptext_etl.text_files import require_rows
from tests.quick import quick

pytest.importorskip("obstore", reason="obstore is not installed (extra: objects)")

from ..object_store import remote, upload
from ..refusals import foretold, head, same_refusal


@pytest.mark.parametrize("suffix", quick([".parquet", ".csv", ".ndjson"]))
def test_the_store_holds_the_bytes_that_a_folder_would(make_job, store, suffix):
    local, job = make_job("local", suffix=suffix), make_job("remote", suffix=suffix)
    local.run()
    upload(job, store, suffix)
    changes = remote(job, store, source=f"s3://bucket/raw/reviews{suffix}")
    summary = job.run(**changes)
    objects = {
        name.removeprefix("published/reviews/"): data for name, data in store.objects.items() if "published" in name
    }
    files = {
        re.sub(r"-[0-9a-f]{16}(?=\.)", "", name.rpartition("/")[2]): data
        for name, data in local.files().items()
        if "/part-" in name
    }
    assert {name.rpartition("/")[2]: data for name, data in objects.items() if "/" in name} == files
    assert len({name.partition("/")[0] for name in objects if "/" in name}) == 1
    assert all(re.fullmatch(r"v1-[0-9a-f]{12}/part-0000\d" + suffix, name) for name in objects if "/" in name)
    assert store.order[-1] == "published/reviews/manifest.json"
    manifest = json.loads(store.objects["published/reviews/manifest.json"])
    for part in manifest["parts"]:
        assert hashlib.sha256(objects[part["path"]]).hexdigest() == part["sha256"]
    assert summary.version == 1
    assert "not-to-be-printed" not in json.dumps(summary.as_dict()) + repr(Layout.of(job.policy(**changes)))
    published = scan_published("s3://bucket/published/reviews", store.options).collect()
    assert published.height == 240
    before = dict(store.objects)
    again = job.run(**changes)
    assert not again.changed
    assert store.objects == before


NAMES = [
    "day=1/a.csv",
    "day%3D1/a.csv",
    "d#1/a.csv",
    "d/a.csv",
    "d 1/a.csv",
    "d%201/a.csv",
    "a?.csv",
    "ab.csv",
    "a*.csv",
]
"""Names of objects that a URL, or a pattern, may confuse with another."""


@pytest.mark.parametrize(("name", "count"), [*((name, 1) for name in NAMES[:6]), ("*.csv", 3), ("a[?].csv", 1)])
def test_the_csv_objects_that_are_read_are_those_that_were_checked(store, monkeypatch, name, count):
    for number, key in enumerate(NAMES):
        store.objects[f"raw/{key}"] = f"id,t\n{number},x\n".encode()
    options, checked = object_stores.resolved(store.options), []

    def check(chunks, path, *dialect):
        content = b"".join(chunks)
        checked.append(content.split()[1].decode().partition(",")[0])
        return require_rows([content], path, *dialect)

    monkeypatch.setattr(text_files, "require_rows", check)
    read = Files.at(f"s3://bucket/raw/{name}", options).scan(all_text=True).collect()["id"].to_list()
    assert (read, len(read)) == (checked, count)


@pytest.mark.parametrize("suffix", quick([".parquet", ".ndjson", ".csv"], first=2))
def test_objects_whose_names_are_hidden_are_left_out_as_files_are(store, tmp_path, save, suffix):
    """Files of jobs that were stopped, and other names that engines skip."""
    for name in ("a", "_b", ".c", "_temporary/0/d", "x/e", ".f/g", "x/_h/i"):
        file = save(pl.DataFrame({"id": [name], "t": ["x"]}), tmp_path / f"{name}{suffix}")
        store.objects[f"raw/{name}{suffix}"] = file.read_bytes()
    options = object_stores.resolved(store.options)
    patterns = ("*", "**/*", "?", "_*", "[_a]*", "_b", "_temporary/**/*", "*/*", "x/_h/*")
    found = [
        [Files.at(f"{place}/{pattern}{suffix}", storage).scan(all_text=True).collect()["id"].sort().to_list()]
        for pattern in patterns
        for place, storage in (("s3://bucket/raw", options), (str(tmp_path), {}))
    ]
    assert found[::2] == found[1::2]
    assert found[::2][:3] == [[["a"]], [["a", "x/e"]], [["a"]]]


def test_csv_objects_are_checked_before_they_are_read(make_job, store, reviews):
    job, whole = make_job(suffix=".csv"), reviews(240)
    for name, rows in {"a": whole.head(100), "day=2/b": whole.tail(140)}.items():
        store.objects[f"raw/{name}.csv"] = rows.write_csv().encode()
    policy = job.policy(**remote(job, store, source="s3://bucket/raw/**/[!z]*.csv"))
    assert open_table(policy, Layout.of(policy)).frame.collect().height == 240
    store.objects["raw/day=2/c.csv"] = whole.head(3).write_csv().encode() + b"r9,u9,5,my doctor, a note,x,y\n"
    store.objects["raw/z.csv"] = b"id\nno row of the source\n"
    with pytest.raises(InputError) as caught:
        open_table(policy, Layout.of(policy))
    said = "1 row has another number of fields than the header of s3://bucket/raw/day=2/c.csv: the first, in line 5, "
    assert said in caught.value.message
    assert "doctor" not in str(caught.value)


def test_a_store_that_refuses_loses_nothing(make_job, store):
    job = make_job()
    upload(job, store)
    changes = remote(job, store)
    for refusing in ("part-00001", "manifest.json"):
        store.refusing = refusing
        with pytest.raises(InputError) as caught:
            job.run(**changes)
        assert "run the same policy again" in caught.value.hint.lower()
        assert "published/reviews/manifest.json" not in store.objects
    store.refusing = ""
    summary = job.run(**changes)
    assert (summary.version, summary.rows["new"], summary.rows["replayed"]) == (1, 0, 240)
    with job.ledger() as ledger:
        assert ledger.verify().ok


@pytest.mark.parametrize("denied", quick(["published/reviews", "inside/reviews"]))
def test_a_plan_foretells_a_store_that_denies_writing(make_job, store, denied):
    job = make_job()
    upload(job, store)
    entries, held = remote(job, store, staging="s3://bucket/inside"), dict(store.objects)
    store.refusing = denied
    error = same_refusal(job, entries, InputError)
    assert f"write access to s3://bucket/{denied}" in error.message
    assert head(job) is None, "nothing was charged"
    store.refusing = ""
    assert foretold(job, **entries) is None
    assert (store.objects, store.order) == (held, []), "nothing was written, not even for a moment"
    if denied.startswith("published"):
        store.refusing = denied
        assert foretold(job, publish=False, **entries) is None, "what stays staged needs no sink"


def test_a_store_without_conditions_keeps_nothing(store, monkeypatch):
    monkeypatch.setattr(store, "_allowed", lambda _: True)
    object_stores.require_writable("s3://bucket/published", store.options)
    assert (store.objects, store.order) == ({}, ["published/.dptext-probe"])


def test_objects_of_a_delta_table_are_refused(make_job, store):
    job = make_job()
    upload(job, store)
    store.objects["raw/_delta_log/00000000000000000000.json"] = b'{"protocol": {}}\n'
    with pytest.raises(InputError, match="belong to a table of Delta Lake"):
        job.run(**remote(job, store))
    assert not (job.folder / "ledger.db").exists()


def test_a_sink_in_a_store_needs_a_place_for_what_is_not_published(make_job, store):
    job = make_job()
    with pytest.raises(PolicyError, match="must name a place for unpublished rows"):
        job.run(**remote(job, store, staging=None))


def test_a_manifest_of_somebody_else_is_refused(make_job, store):
    job = make_job()
    upload(job, store)
    store.objects["published/reviews/manifest.json"] = b'{"format": "other"}'
    with pytest.raises(InputError, match="manifest"):
        job.run(**remote(job, store))
    assert Manifest.read(Layout.of_sink("s3://bucket/nothing", store.options)) is None


SINK = "s3://bucket/published/reviews"


def failing(policy):
    verdicts = check_published(SINK, policy)
    return {verdict.name: verdict.message for verdict in verdicts if not verdict.passed}


def test_two_releases_in_one_sink_lose_nothing(make_job, store, monkeypatch, reviews):
    """The second publishes while the first is between its objects and its manifest; the lease has run out."""
    job = make_job()
    upload(job, store)
    one, two = (job.policy(**remote(job, store, release=name)) for name in ("one", "two"))
    staged = stage(one)
    verdicts = check(staged)
    monkeypatch.setattr("dptext_etl.storage.LEASE_SECONDS", -1.0)
    monkeypatch.setattr("dptext_etl.storage.Thread", Mock())  # nothing renews the lease in the background
    done = []

    def checkpoint(name):
        if name == "version written" and not done:
            done.append(run(two))

    with pytest.raises(PolicyError, match=r"published to this sink meanwhile|stood still"):
        publish(staged, verdicts, checkpoint=checkpoint)
    assert json.loads(store.objects["published/reviews/manifest.json"])["release"] == "two"
    assert not failing(two)
    assert scan_published(SINK, store.options).collect().height == 240
    monkeypatch.undo()
    monkeypatch.setenv("DPTEXT_TEST_SECRET", "not-to-be-printed")
    again = run(one)
    assert (again.version, again.rows["new"]) == (2, 0)
    assert not failing(one)


def test_a_manifest_with_other_spaces_is_written_again_or_replaced(make_job, store):
    job, key = make_job(), "published/reviews/manifest.json"
    upload(job, store)
    first = run(job.policy(**remote(job, store)))
    before = store.objects[key]
    for changes, version in (({}, 1), ({"release": "later"}, 2)):
        store.objects[key] = before.replace(b"\n", b"\n ")
        again = run(job.policy(**remote(job, store, **changes)))
        assert (again.version, hashlib.sha256(store.objects[key]).hexdigest()) == (version, again.manifest)
    assert first.manifest == hashlib.sha256(before).hexdigest()


def test_a_lost_object_is_seen_and_comes_back(make_job, store):
    job = make_job(shard_rows=100)
    upload(job, store)
    changes = remote(job, store)
    job.run(**changes)
    before = dict(store.objects)
    lost, damaged = sorted(name for name in store.objects if "/part-" in name)[:2]
    del store.objects[lost]
    store.objects[damaged] = next(data for name, data in before.items() if "/part-00002" in name)
    with pytest.raises(InputError, match="2 of 3 published files do not match their manifest"):
        scan_published(SINK, store.options)
    assert "missing: 1" in failing(job.policy(**changes))["published_files"]
    assert "2 damaged or missing" in job.run(**changes).notes[0]
    assert store.objects == before


def test_without_the_extra_a_store_is_refused_before_anything_is_charged(make_job, store, monkeypatch):
    job = make_job()
    upload(job, store)
    monkeypatch.setattr(object_stores, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs obstore"):
        job.run(**remote(job, store))
    assert not (job.folder / "ledger.db").exists()


def test_people_are_forgotten_and_versions_cleaned_in_a_store(make_job, store, reviews, save):
    job = make_job()
    for stars in range(3):
        save(reviews().with_columns(stars=stars), job.folder / "raw.parquet")
        upload(job, store)
        job.run(**remote(job, store))
    policy = job.policy(**remote(job, store, retention={"versions": 2}))
    assert [name.partition("-")[0] for name in clean(policy).versions] == ["v1"]
    assert not failing(policy)
    for name in ("v3-0123456789ab", "v4-0123456789ab"):  # of a publication that was refused half-way
        store.objects[f"published/reviews/{name}/part-00000.parquet"] = b"left"
    assert clean(policy).versions == ["v3-0123456789ab", "v4-0123456789ab"]
    assert not [name for name in store.objects if "0123456789ab" in name]
    left = reviews().with_columns(stars=2).filter(pl.col("user_id") != "u007")
    save(left, job.folder / "raw.parquet")
    upload(job, store)
    done = forget(policy, subjects=["u007"])
    assert (done.version, done.removed, len(done.versions)) == (4, 6, 2)
    assert scan_published(SINK, store.options).collect()["id"].to_list() == left["id"].to_list()
    assert {name.split("/")[2].partition("-")[0] for name in store.objects if "/part-" in name} == {"v4"}
    assert not failing(policy)
    with job.ledger() as ledger:
        assert ledger.verify().ok


@pytest.mark.parametrize(
    ("template", "found"), [("{partition}.parquet", ["a", "b"]), ("month={partition}", ["01", "02"])]
)
def test_the_partitions_of_a_store_are_its_objects(job, store, template, found):
    names = ("a.parquet", "b.parquet", "c.csv", "month=01/x.parquet", "month=02/y.parquet", "other/d.parquet")
    names += ("_old.parquet", ".new.parquet", "_temporary/month=03/z.parquet")
    store.objects |= {f"raw/{name}": b"" for name in names}
    changes = remote(job, store, source=f"s3://bucket/raw/{template}", sink="s3://bucket/published/{partition}")
    assert partitions_of_source(job.policy(**changes)) == found
