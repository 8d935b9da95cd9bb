"""Many releases published into one sink of an object store at once: nothing is lost, the manifest reveals the truth."""

import json
import subprocess

import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.runner import scan_published
from dptext_etl.storage import Storage

pytest.importorskip("obstore", reason="obstore is not installed (extra: objects)")
moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
SINK = "s3://bucket/published/reviews"
CHILD = """
import json, sys, time
from dptext_etl import Policy, run
from dptext_etl.errors import PolicyError
policy = Policy.parse(json.loads(sys.argv[1]))
for attempt in range(30):
    try:
        print(run(policy).version)
        break
    except PolicyError as refusal:
        if not any(words in str(refusal) for words in ("publishing to this sink", "meanwhile")):
            raise
        time.sleep(0.3)
"""


@pytest.fixture
def bucket(monkeypatch):
    """A real S3-compatible server with an empty bucket; options as a policy writes them."""
    import boto3

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    place = f"http://{host}:{port}"
    monkeypatch.setenv("DPTEXT_TEST_SECRET", "x")
    names = {"aws_access_key_id": "test", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=place, **names).create_bucket(Bucket="bucket")
    yield {
        "aws_endpoint_url": place, "aws_access_key_id": "test", "aws_secret_access_key": "env:DPTEXT_TEST_SECRET",
        "aws_region": "us-east-1", "aws_allow_http": "true",
    }  # fmt: skip
    server.stop()


def test_a_crowd_at_one_sink(job, bucket, warm, drill):
    """Every release gets its version, one after the other, anyone who was first; the last one is whole."""
    writers = drill.count("objects", 3)
    cap = {"measure": "pure", "epsilon": 100_000.0, "period": "2026"}
    places = {"sink": SINK, "storage_options": bucket, "staging": str(job.folder / "staging"), "cap": cap}
    policies = [job.policy(release=f"r{number}", **places) for number in range(writers)]
    children = [
        subprocess.Popen(
            [*warm, "-c", CHILD, json.dumps(policy.model_dump(mode="json", by_alias=True))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for policy in policies
    ]
    said = [child.communicate(timeout=300) for child in children]
    assert all(child.returncode == 0 for child in children), [error for _, error in said]
    versions = sorted(int(printed) for printed, _ in said)
    assert versions == list(range(1, writers + 1))
    store = Storage.open(SINK, bucket)
    manifest = json.loads(store.read("manifest.json"))
    assert (manifest["version"], scan_published(SINK, bucket).collect().height) == (writers, 240)
    (last,) = (policy for policy in policies if policy.release == manifest["release"])
    assert all(verdict.passed for verdict in check_published(SINK, last))
    folders = {name.partition("/")[0] for name in store.names() if "/part-" in name}
    assert len(folders) == writers, "every version has names of its own"
    assert store.read("lease.json") is None
    with job.ledger() as ledger:
        assert ledger.verify().ok
    drill.tell(
        "objects",
        f"{writers} releases published by as many processes at once to one sink on a server that speaks S3",
        f"{writers} versions, each whole under names of its own, one after the other; the manifest names the last, and "
        "the ledger knows it; no object was lost",
    )


def test_the_store_lets_one_writer_through(bucket):
    """The condition is the store's own: two writers that know the same state do not overwrite each other."""
    one, two = (Storage.open("s3://bucket/other", bucket) for _ in range(2))
    first = one.replace_object("manifest.json", b"one", None)
    assert first is not None
    assert two.replace_object("manifest.json", b"two", None) is None
    assert two.replace_object("manifest.json", b"two", first) is not None
    assert one.replace_object("manifest.json", b"three", first) is None
    assert one.read("manifest.json") == b"two"
