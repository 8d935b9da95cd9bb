"""Tables with their own log in an object store: a server that speaks S3, on the loopback interface."""

import hashlib
import json
from urllib.request import urlopen

import polars as pl
import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.errors import InputError
from dptext_etl.runner import scan_published
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.storage import Storage
from tests.later import later

from ..refusals import foretold, head, same_refusal

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
pytest.importorskip("obstore", reason="obstore is not installed (extra: objects)")
server = later("moto.server", reason="moto is not installed (extra: dev)")

SINK = "s3://bucket/published/reviews"


@pytest.fixture
def options(monkeypatch):
    import boto3

    monkeypatch.setenv("DPTEXT_TEST_SECRET", "not-to-be-printed")
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urlopen(f"{endpoint}/moto-api/reset", data=b"")
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "not-to-be-printed", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="bucket")
    yield {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": "test",
        "aws_secret_access_key": "env:DPTEXT_TEST_SECRET",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    running.stop()


@pytest.fixture
def user(options, monkeypatch):
    """Return the options of a user who may do all in the bucket but write below some prefixes."""
    import boto3

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    iam = boto3.client("iam", endpoint_url=options["aws_endpoint_url"], **keys)

    def user(name, *prefixes):
        denied = [f"arn:aws:s3:::bucket/{prefix}/*" for prefix in prefixes]
        rules = [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]
        rules += [{"Effect": "Deny", "Action": "s3:PutObject", "Resource": denied}] if denied else []
        iam.create_user(UserName=name)
        document = json.dumps({"Version": "2012-10-17", "Statement": rules})
        iam.put_user_policy(UserName=name, PolicyName="bucket", PolicyDocument=document)
        made = iam.create_access_key(UserName=name)["AccessKey"]
        monkeypatch.setenv(f"DPTEXT_TEST_{name}", made["SecretAccessKey"])
        found = {"aws_access_key_id": made["AccessKeyId"], "aws_secret_access_key": f"env:DPTEXT_TEST_{name}"}
        return {**options, **found, "max_retries": "0"}

    return user


@pytest.fixture
def checked(monkeypatch):
    """Let the server check who may do what, from a call on."""
    from moto import settings
    from moto.core.responses import ActionAuthenticatorMixin

    def check():
        monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        monkeypatch.setattr(ActionAuthenticatorMixin, "request_count", 0)

    return check


def plain(options):
    return options | {"aws_secret_access_key": "not-to-be-printed"}


@pytest.fixture
def job(make_job, options):
    made = make_job()
    made.values |= {
        "sink": SINK,
        "staging": str(made.folder / "staging"),
        "storage_options": options,
        "table": {"format": "delta"},
    }
    return made


def iceberg(folder, options):
    """The entry of an Iceberg table in the same store; its catalog is a file."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "s3.endpoint": options["aws_endpoint_url"],
        "s3.access-key-id": options["aws_access_key_id"],
        "s3.secret-access-key": options["aws_secret_access_key"],
        "s3.region": "us-east-1",
    }
    return {"format": "iceberg", "name": "public.reviews", "catalog": catalog}


def rows(options):
    return pl.read_delta(SINK, storage_options=plain(options))


def table(options):
    return deltalake.DeltaTable(SINK, storage_options=plain(options))


def failing(policy):
    return {verdict.name: verdict.message for verdict in check_published(SINK, policy) if not verdict.passed}


def test_a_table_in_a_store(job, options, reviews, save):
    assert job.run().version == 1
    first = rows(options)
    assert scan_published(SINK, options).collect().equals(first)
    assert first["id"].to_list() == reviews()["id"].to_list()
    assert not failing(job.policy())
    assert not job.run().changed
    assert table(options).version() == 0
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    assert forget(job.policy(), subjects=["u007"]).removed == 6
    assert rows(options).equals(first.filter(reviews()["user_id"] != "u007"))
    assert not failing(job.policy())


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["version written", "recorded", "manifest written", "shown"])
def test_a_run_that_died_settles_without_a_second_version(job, options, step):
    assert job.stop(step)
    job.run()
    assert table(options).version() == 0
    assert rows(options).height == 240
    assert not failing(job.policy())


@pytest.mark.thorough
def test_an_iceberg_table_in_a_store(job, options, reviews, save):
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (extra: dev)")
    from pyiceberg.catalog import load_catalog

    job.values["table"] = entry = iceberg(job.folder, options)
    properties = entry["catalog"] | {"s3.secret-access-key": "not-to-be-printed"}
    assert job.stop("shown")
    assert job.run().version == 1
    table = load_catalog("default", **properties).load_table("public.reviews")
    assert len(table.snapshots()) == 1
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == reviews()["id"].to_list()
    assert not failing(job.policy())
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    assert forget(job.policy(), subjects=["u007"]).removed == 6
    table = table.refresh()
    assert (len(table.snapshots()), table.scan().to_arrow().num_rows) == (1, 234)
    assert not failing(job.policy())


@pytest.mark.thorough
def test_a_plan_foretells_who_may_not_write(job, user, checked, tmp_path):
    """The server checks rights as an administrator wrote them; nothing comes into the bucket."""
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (extra: dev)")
    everything = user("all")
    log, metadata = user("log", "published/reviews/_delta_log"), user("metadata", "published/reviews/metadata")
    cases = {
        SINK: {"storage_options": user("sink", "published")},
        f"{SINK}/_dptext": {"storage_options": user("manifest", "published/reviews/_dptext")},
        f"{SINK}/_delta_log": {"storage_options": log},
        f"{SINK}/metadata": {"storage_options": everything, "table": iceberg(tmp_path, metadata)},
        f"s3://bucket/inside/reviews/{hashlib.sha256(SINK.encode()).hexdigest()[:16]}/2026-11/_": {
            "storage_options": user("staging", "inside"),
            "staging": "s3://bucket/inside",
        },
    }
    checked()
    for place, entries in cases.items():
        error = same_refusal(job, entries, InputError)
        assert error.message.startswith(f"checking write access to {place} failed")
    error = same_refusal(job, {"storage_options": everything, "sink": "s3://none/published", "table": None}, InputError)
    assert "bucket of s3://none/published is missing" in error.message
    assert foretold(job, storage_options=everything) is None
    assert (head(job), Storage.open("s3://bucket", everything).names()) == (None, [])
