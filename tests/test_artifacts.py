import errno
import hashlib
import json
import multiprocessing as mp
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from dptext_etl import files
from dptext_etl.artifacts import Artifact, cache_directory, canon, save_tensors, sha256_file, store
from dptext_etl.errors import ArtifactError, DiskError, PolicyError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("DPTEXT_CACHE", str(folder))
    return folder


def write(content):
    return lambda path: path.write_bytes(content)


def refuse(path):
    pytest.fail("built again")


@given(PLAIN)
def test_canon_is_ascii_and_loses_nothing(value):
    text = canon(value)
    assert text.isascii()
    assert (json.loads(text), canon(json.loads(text))) == (value, text)


def test_canon_ignores_order_and_refuses_nan():
    assert canon({"b": 1, "a": [1, 2]}) == canon({"a": [1, 2], "b": 1}) == b'{"a":[1,2],"b":1}'
    with pytest.raises(ValueError, match="JSON"):
        canon(float("nan"))


def test_an_artifact_is_its_content_and_a_missing_one_is_named(tmp_path):
    file = tmp_path / "words.txt"
    file.write_bytes(b"abc")
    artifact = Artifact.open(file)
    assert artifact.sha256 == sha256_file(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert Artifact.open(file, artifact.sha256) == artifact.verify()
    file.write_bytes(b"another text")
    for use in (artifact.verify, lambda: Artifact.open(file, artifact.sha256)):
        with pytest.raises(ArtifactError, match=r"hash differs(.|\n)*Hint: ") as raised:
            use()
        assert isinstance(raised.value, PolicyError)
        assert "another text" not in str(raised.value)
    with pytest.raises(ArtifactError, match=r"nowhere.npz cannot be read .No such file(.|\n)*Hint"):
        Artifact.open(tmp_path / "nowhere.npz")


def test_a_file_is_read_again_once_it_may_have_changed(tmp_path, monkeypatch):
    file, read = tmp_path / "words.txt", []
    file.write_bytes(b"abc")
    monkeypatch.setattr(
        files, "sha256", lambda path: read.append(path) or hashlib.sha256(path.read_bytes()).hexdigest()
    )
    young = [sha256_file(file) for _ in range(2)]
    assert len(read) == 2, "the times of a file this young may not show another change"
    os.utime(file, ns=(0, 0))
    monkeypatch.setattr("dptext_etl.artifacts.SETTLED", -1)
    assert ([sha256_file(file) for _ in range(3)], len(read)) == ([*young, young[0]], 3)
    changed = file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == changed:  # until the clock of the file system has moved on
        file.write_bytes(b"another text")
    os.utime(file, ns=(0, 0))  # the time of its change cannot be set back
    assert sha256_file(file) != young[0]
    other = tmp_path / "other.txt"
    other.write_bytes(b"abe")
    other.replace(file)
    assert sha256_file(file) == hashlib.sha256(b"abe").hexdigest()


def test_what_comes_with_the_package_is_verified_and_is_not_built(tmp_path, cache, monkeypatch):
    entry = store({"of": "p"}, write(b"shipped"), suffix=".bin").path.parent
    cache.rename(tmp_path / "derived")
    monkeypatch.setattr("dptext_etl.artifacts.DERIVED", tmp_path / "derived")
    found = store({"of": "p"}, refuse, suffix=".bin")
    assert found.path == tmp_path / "derived" / entry.name / "content.bin"
    assert not cache.exists()
    found.path.chmod(0o600)
    found.path.write_bytes(b"shippee")
    with pytest.raises(ArtifactError, match="hash differs"):
        store({"of": "p"}, refuse, suffix=".bin")


def test_the_cache_is_its_owners(cache, monkeypatch, tmp_path):
    assert (cache_directory(), stat.S_IMODE(cache.stat().st_mode)) == (cache, 0o700)
    monkeypatch.delenv("DPTEXT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "dptext"
    cache.chmod(0o777)
    monkeypatch.setenv("DPTEXT_CACHE", str(cache))
    with pytest.raises(ArtifactError, match="every user may write"):
        cache_directory()


def test_a_user_without_a_home_folder_hears_what_to_set(cache, monkeypatch):
    """As in a container that runs as a number, without HOME."""

    def unknown(number):
        raise KeyError(number)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert cache_directory() == cache, "named, it needs no home folder"
    monkeypatch.delenv("DPTEXT_CACHE")
    with pytest.raises(ArtifactError, match="this user has no home folder\nHint: set DPTEXT_CACHE"):
        cache_directory()


def test_a_full_disk_under_the_cache_is_a_full_disk(cache, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DiskError, match=r"the artifact cache .* cannot be used"):
        cache_directory()


def test_store_builds_once(cache):
    first = store({"of": "a", "k": 2}, write(b"table"), suffix=".safetensors", provenance="test")
    again = store({"k": 2, "of": "a"}, refuse, suffix=".safetensors", provenance="test")
    assert (first, first.path.read_bytes(), first.path.suffix) == (again, b"table", ".safetensors")
    assert (first.description, stat.S_IMODE(first.path.stat().st_mode) & 0o222) == ({"of": "a", "k": 2}, 0)
    assert store({"of": "a", "k": 3}, write(b"other")).path != first.path
    assert {path.name[:1] for path in cache.iterdir()} <= {*"0123456789abcdef"}, "no draft is left"


def test_a_changed_entry_is_refused_and_can_be_deleted():
    artifact = store({"of": "b"}, write(b"weights"))
    artifact.path.chmod(0o600)
    artifact.path.write_bytes(b"weightz")
    with pytest.raises(ArtifactError, match=r"hash differs(.|\n)*may be deleted"):
        store({"of": "b"}, refuse)
    about = artifact.path.parent / "about.json"
    about.chmod(0o600)
    about.write_bytes(b"{")
    with pytest.raises(ArtifactError, match="is damaged"):
        store({"of": "b"}, refuse)


def test_a_failed_build_leaves_nothing_and_a_bad_cache_says_so(cache, tmp_path, monkeypatch):
    def full(path):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DiskError, match=r"No space left on device(.|\n)*Hint: free some space"):
        store({"of": "c"}, full)
    assert (list(cache.iterdir()), store({"of": "c"}, write(b"whole")).path.read_bytes()) == ([], b"whole")
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPTEXT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ArtifactError, match=r"cannot be used(.|\n)*Hint: set DPTEXT_CACHE"):
        store({"of": "d"}, refuse)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_cache_serves_what_it_has(cache):
    held = store({"of": "e"}, write(b"x"))
    cache.chmod(0o500)
    assert store({"of": "e"}, refuse) == held
    with pytest.raises(ArtifactError, match=r"cannot be written to the cache(.|\n)*Permission denied"):
        store({"of": "f"}, write(b"y"))


def test_a_cache_on_a_read_only_disk_says_so(monkeypatch):
    def refuse_folder(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    cache_directory()
    monkeypatch.setattr("tempfile.mkdtemp", refuse_folder)
    with pytest.raises(ArtifactError, match=r"Read-only file system(.|\n)*DPTEXT_CACHE"):
        store({"of": "g"}, refuse)


def race(cache, barrier, number, queue):
    os.environ["DPTEXT_CACHE"] = cache

    def build(path):
        barrier.wait()
        path.write_bytes(b"built by %d" % number)

    artifact = store({"of": "race"}, build)
    queue.put((artifact.sha256, artifact.path.read_bytes()))


def test_racing_processes_get_one_artifact(cache):
    context = mp.get_context("spawn")
    barrier, queue = context.Barrier(2), context.Queue()
    racers = [context.Process(target=race, args=(str(cache), barrier, number, queue)) for number in range(2)]
    for racer in racers:
        racer.start()
    results = {queue.get(timeout=600) for _ in racers}
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert (len(results), [entry.name[0] != "." for entry in cache.iterdir()]) == (1, [True])


def test_tensor_files_are_read_by_the_library_and_always_have_the_same_bytes(tmp_path):
    tensors = {
        "words": np.frombuffer(b"odd", dtype=np.uint8),
        "empty": np.zeros(0, dtype=np.uint32),
        "wide": np.array([[1, 2**63]], dtype=np.uint64),
        "grid": np.arange(6, dtype=np.int8).reshape(2, 3)[:, ::2],
        "big": np.array([1, 258], dtype=">i2"),
    }
    one, two = tmp_path / "one", tmp_path / "two"
    save_tensors(one, tensors, {"format": "x", "a": "é", "z": "1"})
    save_tensors(two, dict(reversed(tensors.items())), {"z": "1", "a": "é", "format": "x"})
    assert one.read_bytes() == two.read_bytes()
    with safe_open(one, "np") as file:
        assert file.metadata() == {"format": "x", "a": "é", "z": "1"}
    for name, tensor in load_file(one).items():
        np.testing.assert_array_equal(tensor, tensors[name])
    header = json.loads(one.read_bytes()[8:].split(b"}}")[0] + b"}}")
    start = 8 + int.from_bytes(one.read_bytes()[:8], "little")
    widths = {"U64": 8, "U32": 4, "I16": 2, "I8": 1, "U8": 1}
    for name in tensors:
        assert (start + header[name]["data_offsets"][0]) % widths[header[name]["dtype"]] == 0
