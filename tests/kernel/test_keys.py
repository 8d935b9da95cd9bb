"""Secrets by reference: accepted and refused references, the words of refusals, and no print or pickle of a secret."""

import copy
import hashlib
import hmac
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.errors import InputError, KeyReferenceError, PolicyError

HEX = "8f" * 31 + "a0"


@pytest.fixture
def key_file(tmp_path):
    def make(text=HEX + "\n", mode=0o600):
        path = tmp_path / f"key-{len(list(tmp_path.iterdir()))}"
        path.write_text(text)
        path.chmod(mode)
        return path

    return make


def same(a, b):
    return _kernel.fingerprint(a, "x") == _kernel.fingerprint(b, "x")


@pytest.mark.parametrize("text", [HEX, HEX + "\n", HEX + "\r\n", HEX.upper()])
def test_a_key_file_is_64_hex_digits(key_file, text):
    assert same(_kernel.Secret.resolve(f"file:{key_file(text)}"), _kernel.Secret.from_bytes(bytes.fromhex(HEX)))


@pytest.mark.parametrize(
    "text", ["", HEX[:-1], HEX + "0", HEX + "\n\n", "g" + HEX[1:], " " + HEX, HEX[:-1] + "é", HEX * 100]
)
def test_other_contents_are_refused_without_quoting_them(key_file, text):
    with pytest.raises(KeyReferenceError, match=r"64 hex digits|cannot be read") as caught:
        _kernel.Secret.resolve(f"file:{key_file(text)}")
    assert "8f8f" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o644, 0o610])
def test_a_file_open_to_others_is_refused_with_the_command_that_closes_it(key_file, mode):
    path = key_file(mode=mode)
    with pytest.raises(KeyReferenceError, match=f"chmod 600 {path}"):
        _kernel.Secret.resolve(f"file:{path}")


def test_only_a_regular_file_of_ones_own(tmp_path, key_file):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (tmp_path, pipe):
        with pytest.raises(KeyReferenceError, match="not a regular file"):
            _kernel.Secret.resolve(f"file:{path}")
    with pytest.raises(KeyReferenceError, match="dptext key new"):
        _kernel.Secret.resolve(f"file:{tmp_path / 'missing'}")
    link = tmp_path / "link"
    link.symlink_to(key_file())
    _kernel.Secret.resolve(f"file:{link}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(key_file):
    path = key_file()
    os.chown(path, 12345, -1)
    with pytest.raises(KeyReferenceError, match="belongs to user 12345"):
        _kernel.Secret.resolve(f"file:{path}")


MOUNTED = [
    (0, 4321, 0o440, "taken"),  # a secret volume of Kubernetes under fsGroup 4321
    (0, 5000, 0o640, "taken"),
    (5001, 4321, 0o400, "taken"),
    (0, 4321, 0o444, "open to others (mode 0444)"),
    (0, 4321, 0o460, "open to others (mode 0460)"),
    (0, 4321, 0o400, "cannot be opened"),
    (0, 9999, 0o440, "cannot be opened"),
    (0, 9999, 0o444, "belongs to user 0"),
    (12345, 4321, 0o440, "belongs to user 12345"),
    (5001, 4321, 0o440, "open to others (mode 0440)"),
]
"""Owner, group, and mode of a key file, and the answer of a process of user 5001 and the groups 5000 and 4321."""
RESOLVING = """
import json, os, sys
from dptext_etl import _kernel
os.setgroups([4321])
os.setgid(5000)
os.setuid(5001)
for path in sys.argv[1:]:
    try:
        _kernel.Secret.resolve(f"file:{path}")
    except Exception as error:
        print(json.dumps(str(error)))
    else:
        print(json.dumps("taken"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be someone else")
def test_a_mounted_secret_of_root_is_taken_by_its_group():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        paths = [Path(folder) / f"key-{at}" for at in range(len(MOUNTED))]
        for path, (owner, group, mode, _) in zip(paths, MOUNTED, strict=True):
            path.write_text(HEX)
            os.chown(path, owner, group)
            path.chmod(mode)
        command = [sys.executable, "-c", RESOLVING, *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    for case, found in zip(MOUNTED, said, strict=True):
        assert case[-1] in found, case


def test_an_environment_variable_says_secret_in_its_name(monkeypatch):
    monkeypatch.setenv("DPTEXT_TEST_SECRET", HEX)
    monkeypatch.setenv("DPTEXT_TEST_KEY", HEX)
    assert same(_kernel.Secret.resolve("env:DPTEXT_TEST_SECRET"), _kernel.Secret.from_bytes(bytes.fromhex(HEX)))
    with pytest.raises(KeyReferenceError, match="SECRET in its name"):
        _kernel.Secret.resolve("env:DPTEXT_TEST_KEY")
    with pytest.raises(KeyReferenceError, match=r"UNSET_SECRET is not set(.|\n)*`dptext key new PATH`") as caught:
        _kernel.Secret.resolve("env:DPTEXT_UNSET_SECRET")
    assert "openssl" not in str(caught.value)
    monkeypatch.setenv("DPTEXT_BAD_SECRET", HEX[1:])
    with pytest.raises(KeyReferenceError, match=r"64 hex digits(.|\n)*`dptext key new PATH`") as caught:
        _kernel.Secret.resolve("env:DPTEXT_BAD_SECRET")
    assert "8f8f" not in str(caught.value)


@pytest.mark.parametrize("reference", ["", HEX, "vault:x", "DPTEXT_SECRET"])
def test_other_references_are_refused_without_quoting_them(reference):
    with pytest.raises(KeyReferenceError, match='"env:NAME" or "file:PATH"') as caught:
        _kernel.Secret.resolve(reference)
    assert "8f8f" not in str(caught.value)


@pytest.mark.parametrize("reference", [f"file:{HEX}", f"env:{HEX}", f"hex:{HEX}"])
def test_a_key_in_the_place_of_its_name_is_not_quoted(reference):
    with pytest.raises(KeyReferenceError, match="may be a key itself") as caught:
        _kernel.Secret.resolve(reference)
    assert "8f8f" not in str(caught.value)


def test_a_reference_is_read_once_per_process(key_file):
    path = key_file()
    before = _kernel.Secret.resolve(f"file:{path}")
    path.write_text("11" * 32)
    assert same(_kernel.Secret.resolve(f"file:{path}"), before)
    assert not same(_kernel.Secret.resolve(f"file:{path}", reread=True), before)
    path.unlink()
    assert not same(_kernel.Secret.resolve(f"file:{path}"), before)


def test_writing_a_key(tmp_path):
    path, secret = tmp_path / "new.key", _kernel.Secret()
    before = os.umask(0)
    try:
        secret.write(str(path))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert same(_kernel.Secret.resolve(f"file:{path}"), secret)
    written = path.read_bytes()
    with pytest.raises(KeyReferenceError, match="never overwritten"):
        secret.write(str(path))
    assert path.read_bytes() == written
    with pytest.raises(KeyReferenceError, match="cannot be written"):
        secret.write(str(tmp_path / "no" / "folder"))
    assert not same(_kernel.Secret(), _kernel.Secret())


def test_published_keys_are_known():
    assert _kernel.Secret.from_bytes(bytes(range(32))).published
    assert _kernel.Secret.from_bytes(bytes(range(32, 64))).published
    assert _kernel.Secret.from_bytes(bytes(32)).published
    assert not _kernel.Secret.from_bytes(bytes.fromhex(HEX)).published
    assert not _kernel.Secret().published


def test_keys_for_other_uses():
    key = bytes.fromhex(HEX)
    secret = _kernel.Secret.from_bytes(key)
    for label in ("canary", "seal"):
        expected = hmac.new(key, f"dptext/{label}/v1\0".encode() + b"message", hashlib.sha256).digest()
        assert secret.derive(label, b"message") == expected
    for label in ("fp", "rel", "rec", "id", "Seal", ""):
        with pytest.raises(PolicyError, match="canary"):
            secret.derive(label, b"")


def test_ledger_ids_and_digests_follow_their_definitions():
    key = bytes.fromhex(HEX)
    ids = pa.array(["a", "", "é" * 50], pa.string_view())
    for kind in ("rec", "sub", "canary"):
        got = pa.array(_kernel.hash_ids(_kernel.Secret.from_bytes(key), kind, ids)).to_pylist()
        for text, found in zip(ids.to_pylist(), got, strict=True):
            name = text.encode()
            assert (
                found
                == hmac.new(
                    key, b"dptext/id/v1\0" + kind.encode() + struct.pack("<Q", len(name)) + name, hashlib.sha256
                ).digest()
            )
    with pytest.raises(PolicyError):
        _kernel.hash_ids(_kernel.Secret.from_bytes(key), "other", ids)
    with pytest.raises(InputError, match="1 nulls"):
        _kernel.hash_ids(_kernel.Secret.from_bytes(key), "rec", pa.array(["a", None]))
    texts = pa.chunked_array([["a", None], ["", "é"]])
    expected = [hashlib.sha256(b"\0" if t is None else b"\1" + t.encode()).digest() for t in texts.to_pylist()]
    assert pa.array(_kernel.digests(texts)).to_pylist() == expected


def test_merkle_root():
    def oracle(level):
        while len(level) > 1:
            pairs = [hashlib.sha256(b"\1" + level[i] + level[i + 1]).digest() for i in range(0, len(level) - 1, 2)]
            level = pairs + level[len(level) // 2 * 2 :]
        return level[0] if level else hashlib.sha256(b"").digest()

    for n in (0, 1, 2, 3, 5, 8, 1000, 20_000):
        rows = [struct.pack("<QB", i, i % 7) for i in range(n)]
        expected = oracle([hashlib.sha256(b"\0" + row).digest() for row in rows])
        assert _kernel.merkle_root([(pa.array(rows, pa.binary(9)), 9)], n) == expected
        numbers = [(pa.array(range(n), pa.int64()), 8), (pa.array([i % 7 for i in range(n)], pa.int64()), 1)]
        assert _kernel.merkle_root(numbers, n) == expected
    rows = [struct.pack("<IH", 70_000, i) for i in range(5)]
    columns = [(pa.array([70_000], pa.int64()), 4), (pa.chunked_array([[0, 1], [], [2, 3, 4]], pa.int64()), 2)]
    assert _kernel.merkle_root(columns, 5) == oracle([hashlib.sha256(b"\0" + row).digest() for row in rows])
    for column, width in (
        (pa.array([b"123456789", None], pa.binary(9)), 9),
        (pa.array([b"123456789"] * 2, pa.binary(9)), 8),
        (pa.array([b"123456789"] * 3, pa.binary(9)), 9),
        (pa.array([1, 2], pa.int64()), 9),
        (pa.array(["text"] * 2), 4),
    ):
        with pytest.raises(InputError):
            _kernel.merkle_root([(column, width)], 2)


def test_prefixes_and_words_are_found_by_single_spaces():
    texts = ["", " ", "a", "a b", "a  b c d e", "ä b\nc d\te f", None, "word " * 600]
    split = [text.split(" ") for text in texts if text is not None]
    for words in (1, 2, 5, 513, 10_000):
        expected = [" ".join(each[:words]) for each in split if len(each) >= words]
        found = pa.array(_kernel.prefix_digests(pa.array(texts), words))
        assert found.equals(pa.array(_kernel.digests(pa.array(expected, pa.string()))))
    assert len(pa.array(_kernel.prefix_digests(pa.array(texts), 0))) == 0
    counts = pa.array(_kernel.spaced_words(pa.array(texts))).to_pylist()
    assert counts == [0 if not text else len(text.split(" ")) for text in texts]


def test_nothing_prints_pickles_or_copies_a_key():
    key = bytes.fromhex(HEX)
    secret = _kernel.Secret.from_bytes(key)
    release = _kernel.ReleaseKey(secret, "d", "c", "r", "ab")
    for thing in (secret, release):
        shown = f"{thing} {thing!r} {thing.__doc__} {dir(thing)}"
        assert HEX[:8] not in shown
        assert repr(key)[2:10] not in shown
        for refused in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="never pickled"):
                refused(thing)
        with pytest.raises(TypeError):
            json.dumps(thing)
        with pytest.raises(TypeError):
            bytes(thing)
        assert not hasattr(thing, "__dict__")
    with pytest.raises(KeyReferenceError, match="got 5") as caught:
        _kernel.Secret.from_bytes(b"\x8f" * 5)
    assert "8f" not in str(caught.value)


def test_a_panic_prints_a_location_only():
    code = """
from dptext_etl import _kernel
try:
    _kernel._defect("xyzzy raw text of a patient")
except RuntimeError as error:
    assert "xyzzy" not in str(error), error
    print("caught:", error)
"""
    environment = {**os.environ, "POLARS_VERBOSE": "1", "RUST_BACKTRACE": "full"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "caught: the kernel has a defect" in done.stdout
    assert "xyzzy" not in done.stdout + done.stderr
    assert "defect at mod.rs:" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
