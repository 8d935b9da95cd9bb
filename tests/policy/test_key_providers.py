"""Keys from a plug-in: the provider of `docs/ledger.md`, found by its entry point, and its error messages."""

import re
import secrets
from pathlib import Path

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl import ColumnPolicy, Policy, _kernel, keys, load, privatize
from dptext_etl.errors import KeyReferenceError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ledger.md"
DIGITS = secrets.token_hex(32)
FAILURES = {
    "fails": f'raise ConnectionError("the server said {DIGITS}")',
    "short": "return b'short'",
    "another type": "return 7",
    "no digits": f"return {DIGITS[:-1]!r}",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a distribution with a provider next to the installed ones: install(scheme, code of its module)."""

    def put(scheme, code):
        name = f"provider_{secrets.token_hex(4)}"
        (tmp_path / f"{name}.py").write_text(code)
        facts = tmp_path / f"{name}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[dptext_etl.keys]\n{scheme} = {name}:provide\n")

    monkeypatch.syspath_prepend(tmp_path)
    return put


@pytest.fixture
def shown():
    """The provider that the page shows."""
    found = re.search(r"```python\n# dptext_vault\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found[1].count("\n") <= 20
    return found[1]


def policy(reference):
    mechanism = load("custext").example()
    return ColumnPolicy(
        dataset="d", column="review", release="r", mechanism=mechanism, key=reference, allow={"cluster"}
    )


def test_the_provider_of_the_page_gives_a_key_in_every_door(install, shown, tmp_path, monkeypatch):
    install("vault", shown)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "noise").write_text(f"{DIGITS}\n")
    monkeypatch.setenv("VAULT_MOUNT", str(mounted))
    monkeypatch.setenv("DPTEXT_SAME_SECRET", DIGITS)
    here, there = policy("vault:noise"), policy("env:DPTEXT_SAME_SECRET")
    frame = pl.DataFrame({"id": ["a", "b"], "review": ["good film", "bad plot"]})
    arrow = frame["review"].to_arrow(), frame["id"].to_arrow()
    expected = privatize(*arrow, there).to_pylist()
    assert frame.lazy().dptext.privatize(here, id="id").collect(engine="streaming")["review"].to_list() == expected
    assert privatize(*arrow, here).to_pylist() == expected
    (mounted / "noise").unlink()
    assert privatize(*arrow, here).to_pylist() == expected, "a process asks once"
    assert DIGITS not in frame.lazy().dptext.privatize(here, id="id").explain() + repr(here)


def test_the_first_to_ask_may_be_the_plugin(install):
    install("first", f"def provide(name):\n    return bytes.fromhex({DIGITS!r})\n")
    frame = pl.LazyFrame({"id": ["a"], "review": ["good film"]})
    plan = frame.dptext.privatize(policy("first:noise"), id="id")
    assert plan.collect()["review"].null_count() == 0


@pytest.mark.parametrize("why", FAILURES)
def test_a_provider_that_fails_says_nothing_of_a_secret(why, install):
    scheme = f"bad{list(FAILURES).index(why)}"
    install(scheme, f"def provide(name):\n    {FAILURES[why]}\n")
    chosen = policy(f"{scheme}:name-of-key")
    frame = pl.LazyFrame({"id": ["a"], "review": ["good film"]})
    with pytest.raises(KeyReferenceError, match=f"the key provider '{scheme}'") as caught:
        keys.resolve(chosen.key)
    with pytest.raises(pl.exceptions.ComputeError, match=f"the key provider '{scheme}'") as said:
        frame.dptext.privatize(chosen, id="id").collect()
    assert caught.value.__cause__ is caught.value.__context__ is None
    for text in (str(caught.value), str(said.value)):
        assert DIGITS[:20] not in text
        assert "name-of-key" not in text


def test_only_installed_schemes_are_references(install):
    install("env", "def provide(name):\n    raise SystemExit\n")  # no plug-in replaces a scheme that is built in
    install("Not A Scheme", "")
    install("kms", "provide = 7")
    for wrong, said in (
        ("vaults:noise", 'allowed: "env:NAME".*or "kms:NAME"'),
        ("kms:", "got something else"),
        (f"kms:{DIGITS}", "64 hex digits"),
        ("kms:https://me:word@host/noise", "holds a password"),
        ("env:PLAIN", "needs SECRET in its name"),
    ):
        with pytest.raises(KeyReferenceError, match=said):
            keys.reference(wrong)
    with pytest.raises(KeyReferenceError, match=r"the key provider 'kms' failed \(TypeError\)"):
        keys.resolve("kms:projects/p/keys/noise")
    with pytest.raises(KeyReferenceError, match="the scheme of an installed plug-in"):
        _kernel.Secret.resolve("vaults:noise")


def test_a_policy_file_keeps_the_reference(install, tmp_path):
    install("kms", "provide = 7")
    text = 'dataset = "d"\nrelease = "r"\nsource = "a.parquet"\nsink = "b"\nid = "id"\nunit = "record"\n'
    text += 'key = "kms:projects/p/noise"\nledger = { url = "sqlite:///l.db", id_key = "kms:projects/p/ids" }\n'
    text += '[[column]]\nname = "review"\nmechanism = { name = "custext", epsilon = 2.0 }\nallow = ["cluster"]\n'
    (tmp_path / "privacy.toml").write_text(text)
    made = Policy.load(tmp_path / "privacy.toml")
    assert (made.key, made.ledger.id_key) == ("kms:projects/p/noise", "kms:projects/p/ids")
    assert made.source == str(tmp_path / "a.parquet")
    assert dptext_etl.polars.privatize("review", made, id="id") is not None
