"""A server of objects on this machine that honors conditions."""

import hashlib
import json
import os
import re
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

pytest.importorskip("obstore", reason="obstore is not installed (extra: objects)")


def tag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


def generation(data):
    """The number by which Google Cloud Storage knows a state of an object."""
    return str(int(hashlib.md5(data).hexdigest()[:12], 16))


class Store(BaseHTTPRequestHandler):
    """As much of S3 as a client needs to put, get, copy, list and upload in parts."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes; the second one would wait 40 ms for an answer

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query or "prefix" in query:
            prefix = query.get("prefix", [""])[0]
            found = [key for key in sorted(self.objects) if key.startswith(prefix)]
            items = "".join(
                f"<Contents><Key>{key}</Key><Size>{len(self.objects[key])}</Size>"
                f"<LastModified>{self._written(key):%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
                for key in found
            )
            self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode())
            return
        self._object(body=True)

    def do_HEAD(self):
        self._object(body=False)

    def do_PUT(self):
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        copied = (
            unquote(self.headers.get("x-amz-copy-source") or self.headers.get("x-goog-copy-source") or "")
            .removeprefix("/")
            .removeprefix("bucket/")
        )
        query = parse_qs(urlsplit(self.path).query)
        if self.refusing and re.search(self.refusing, self.path):
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        if not self._allowed():
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        if copied:
            if copied not in self.objects:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
                return
            self.objects[self._key()] = self.objects[copied]
            said = f"<CopyObjectResult><ETag>{tag(self.objects[copied])}</ETag></CopyObjectResult>"
            self._answer(200, said.encode())
            return
        if "partNumber" in query:
            self.uploads[(self._key(), int(query["partNumber"][0]))] = data
        else:
            self.objects[self._key()] = data
            self.times[self._key()] = datetime.now(UTC) + self.ahead
            self.order.append(self._key())
        self._answer(200, b"", {"ETag": tag(data)})

    def _allowed(self):
        """Whether the condition of a request holds."""
        held = self.objects.get(self._key())
        generation_wanted = self.headers.get("x-goog-if-generation-match")
        if generation_wanted is not None:
            return generation_wanted == ("0" if held is None else generation(held))
        if self.headers.get("If-None-Match") == "*":
            return held is None
        wanted = self.headers.get("If-Match")
        return wanted is None or (held is not None and wanted == tag(held))

    def do_DELETE(self):
        self.objects.pop(self._key(), None)
        self._answer(204, b"")

    def do_POST(self):
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self._key()
        if "delete" in urlsplit(self.path).query:
            gone = re.findall("<Key>(.*?)</Key>", asked.decode())
            for name in gone:
                self.objects.pop(name, None)
            said = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in gone)
            self._answer(200, f"<DeleteResult>{said}</DeleteResult>".encode())
            return
        if "uploads" in urlsplit(self.path).query:
            self._answer(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
            return
        parts = sorted(number for name, number in self.uploads if name == key)
        self.objects[key] = b"".join(self.uploads.pop((key, number)) for number in parts)
        self.order.append(key)
        self._answer(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")

    def _written(self, key):
        """When an object was put, on the store's clock; objects that a test adds by hand are old."""
        return self.times.get(key, datetime(2020, 11, 20, tzinfo=UTC))

    def _key(self):
        return unquote(urlsplit(self.path).path).removeprefix("/bucket/")

    def _object(self, *, body):
        data = self.objects.get(self._key())
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>" if body else b"")
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        headers = {
            "ETag": tag(data),
            "x-goog-generation": generation(data),
            "Last-Modified": format_datetime(self._written(self._key()), usegmt=True),
        }
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


@contextmanager
def serving():
    """A running store: its handler class, with the objects in it."""
    held = {"objects": {}, "uploads": {}, "order": [], "refusing": "", "times": {}, "ahead": timedelta(0)}
    handler = type("Handler", (Store,), held)
    server = type("Server", (ThreadingHTTPServer,), {"request_queue_size": 64})(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # `shutdown` waits as long
    handler.options = {
        "aws_endpoint_url": f"http://127.0.0.1:{server.server_port}", "aws_access_key_id": "test",
        "aws_secret_access_key": "env:DPTEXT_TEST_SECRET", "aws_region": "us-east-1", "aws_allow_http": "true",
        "max_retries": "0",
    }  # fmt: skip
    account = {"gcs_base_url": handler.options["aws_endpoint_url"], "disable_oauth": True}
    account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    os.environ["DPTEXT_TEST_GOOGLE_SECRET"] = json.dumps(account)
    handler.google = {"google_service_account_key": "env:DPTEXT_TEST_GOOGLE_SECRET", "allow_http": "true"}
    handler.google["max_retries"] = "0"
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
