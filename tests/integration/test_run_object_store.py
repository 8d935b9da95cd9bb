"""Source and sink in an object store: a small S3 on the loopback interface."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from dptext_etl.errors import InputError, PolicyError
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest


class Store(BaseHTTPRequestHandler):
    """As much of S3 as a client needs to put, get, list and upload in parts."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query or "prefix" in query:
            prefix = query.get("prefix", [""])[0]
            found = [key for key in sorted(self.objects) if key.startswith(prefix)]
            items = "".join(
                f"<Contents><Key>{key}</Key><Size>{len(self.objects[key])}</Size>"
                "<LastModified>2026-11-20T00:00:00.000Z</LastModified></Contents>"
                for key in found
            )
            self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode())
            return
        self._object(body=True)

    def do_HEAD(self):
        self._object(body=False)

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        query = parse_qs(urlsplit(self.path).query)
        if self.refusing and re.search(self.refusing, self.path):
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        if "partNumber" in query:
            self.uploads[(self._key(), int(query["partNumber"][0]))] = data
        else:
            self.objects[self._key()] = data
            self.order.append(self._key())
        self._answer(200, b"", {"ETag": '"e"'})

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self._key()
        if "uploads" in urlsplit(self.path).query:
            self._answer(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
            return
        parts = sorted(number for name, number in self.uploads if name == key)
        self.objects[key] = b"".join(self.uploads.pop((key, number)) for number in parts)
        self.order.append(key)
        self._answer(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")

    def _key(self):
        return unquote(urlsplit(self.path).path).removeprefix("/bucket/")

    def _object(self, *, body):
        data = self.objects.get(self._key())
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>" if body else b"")
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        headers = {"ETag": '"e"', "Last-Modified": "Fri, 20 Nov 2026 00:00:00 GMT"}
        if asked:
            first, last = int(asked[1]), min(int(asked[2] or len(data) - 1), len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            self._answer(206, data[first : last + 1], headers)
            return
        self._answer(200, data if body else b"", {**headers, **({} if body else {"Content-Length": str(len(data))})})

    def _answer(self, status, data, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def store(monkeypatch):
    """A running store: its handler class, with the objects in it."""
    handler = type("Handler", (Store,), {"objects": {}, "uploads": {}, "order": [], "refusing": ""})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("DPTEXT_TEST_SECRET", "not-to-be-printed")
    handler.options = {
        "aws_endpoint_url": f"http://127.0.0.1:{server.server_port}",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "env:DPTEXT_TEST_SECRET",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
        "max_retries": "0",
    }
    yield handler
    server.shutdown()
    server.server_close()


def remote(job, store, **changes):
    """The job's policy with source and sink in the store."""
    places = {"source": "s3://bucket/raw/*.parquet", "sink": "s3://bucket/published/reviews"}
    staging = str(job.folder / "staging")
    return {**places, "staging": staging, "storage_options": store.options, **changes}


def upload(job, store, suffix=".parquet"):
    store.objects[f"raw/reviews{suffix}"] = (job.folder / f"raw{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson"])
def test_the_store_holds_the_bytes_that_a_folder_would(make_job, store, suffix):
    local, job = make_job("local", suffix=suffix), make_job("remote", suffix=suffix)
    local.run()
    upload(job, store, suffix)
    changes = remote(job, store, source=f"s3://bucket/raw/reviews{suffix}")
    summary = job.run(**changes)
    objects = {
        name.removeprefix("published/reviews/"): data for name, data in store.objects.items() if "published" in name
    }
    folders = {"published.manifest.json": "manifest.json", "published.versions/v1/": "v1/"}
    of_folder = {
        name.replace(place, there): data
        for name, data in local.files().items()
        for place, there in folders.items()
        if name.startswith(place)
    }
    assert objects == of_folder
    assert store.order[-1] == "published/reviews/manifest.json"
    manifest = json.loads(store.objects["published/reviews/manifest.json"])
    for part in manifest["parts"]:
        assert hashlib.sha256(objects[part["path"]]).hexdigest() == part["sha256"]
    assert summary.version == 1
    assert "not-to-be-printed" not in json.dumps(summary.as_dict()) + repr(Layout.of(job.policy(**changes)))
    published = scan_published("s3://bucket/published/reviews", store.options).collect()
    assert published.height == 240
    before = len(store.order)
    again = job.run(**changes)
    assert not again.changed
    assert len(store.order) == before


def test_incremental_in_a_store(make_job, store, reviews, save):
    job = make_job()
    upload(job, store)
    changes = remote(job, store, incremental=True)
    job.run(**changes)
    save(reviews(300), job.folder / "raw.parquet")
    upload(job, store)
    summary = job.run(**changes)
    assert (summary.version, summary.rows["already_published"], summary.published_rows) == (2, 240, 300)
    published = scan_published("s3://bucket/published/reviews", store.options).collect()
    assert published["id"].to_list() == reviews(300)["id"].to_list()


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


def test_objects_of_a_delta_table_are_refused(make_job, store):
    job = make_job()
    upload(job, store)
    store.objects["raw/_delta_log/00000000000000000000.json"] = b'{"protocol": {}}\n'
    with pytest.raises(InputError, match="belong to a table of Delta Lake"):
        job.run(**remote(job, store))
    assert not (job.folder / "ledger.db").exists()


def test_a_store_needs_a_local_staging_folder(make_job, store):
    job = make_job()
    with pytest.raises(PolicyError, match="local folder"):
        job.run(**remote(job, store, staging=None))
    with pytest.raises(PolicyError, match="local folder"):
        job.run(**remote(job, store, staging="s3://bucket/staging"))


def test_a_missing_object_and_a_missing_variable(make_job, store, monkeypatch):
    job = make_job()
    with pytest.raises(InputError, match="source"):
        job.run(**remote(job, store))
    monkeypatch.delenv("DPTEXT_TEST_SECRET")
    with pytest.raises(PolicyError, match="DPTEXT_TEST_SECRET"):
        job.run(**remote(job, store))


def test_a_manifest_of_somebody_else_is_refused(make_job, store):
    job = make_job()
    upload(job, store)
    store.objects["published/reviews/manifest.json"] = b'{"format": "other"}'
    with pytest.raises(InputError, match="manifest"):
        job.run(**remote(job, store))
    assert Manifest.read(Layout.of_sink("s3://bucket/nothing", store.options)) is None
