"""`dptext key new`: a file that only its owner can read, never overwritten, never printed."""

import json
import stat

from dptext_etl import keys
from tests.command_line import dptext


def test_a_new_key_is_private_works_and_differs_from_others(tmp_path):
    path = tmp_path / "noise.key"
    done = dptext("key", "new", path, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (tuple(found), stat.S_IMODE(path.stat().st_mode)) == (("path", "reference", "mode"), 0o600)
    text = path.read_text().strip()
    assert len(bytes.fromhex(text)) == 32
    assert text not in done.output
    assert not keys.resolve(found["reference"]).published
    for name in ("a", "b"):
        assert dptext("key", "new", tmp_path / name).exit_code == 0
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()


def test_a_key_is_never_overwritten_and_needs_a_folder(tmp_path):
    path = tmp_path / "noise.key"
    assert dptext("key", "new", path).exit_code == 0
    before = path.read_bytes()
    done = dptext("key", "new", path)
    assert done.exit_code == 5
    assert "Hint:" in done.stderr
    assert before.decode().strip() not in done.output
    assert path.read_bytes() == before
    done = dptext("key", "new", tmp_path / "nowhere" / "noise.key")
    assert done.exit_code == 5
    assert "Hint:" in done.stderr
