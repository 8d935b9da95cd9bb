"""Files inside the boundary are only for their owner; where staging is, and which names drafts have."""

import os
import shlex
import shutil
import stat

import polars as pl
import pytest

from dptext_etl import Policy, files, run
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.runner import plan
from dptext_etl.runner.layout import Layout

from ..command_line import dptext

_SINK = ("published", "published.versions", "published.manifest.json")
OUTSIDE = ("raw.parquet", "privacy.toml", "first.toml", *_SINK)
"""Files of the caller, policies, which hold no row, and published ones."""
COMMANDS = """\
init raw.parquet --out first.toml --form rows --id id --subject user_id --text review
key new other.key
plan privacy.toml
run privacy.toml
run privacy.toml
check privacy.toml
statement privacy.toml --out statements/2026
ledger show privacy.toml
ledger verify privacy.toml
ledger anchor privacy.toml
ledger export privacy.toml tables
ledger backup copy.db privacy.toml
forget privacy.toml --record r00001 --everywhere --out erasure.md --yes
clean privacy.toml
"""


@pytest.fixture
def _open_to_all():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_to_all")
def test_no_command_leaves_a_file_open_to_others(job, monkeypatch):
    monkeypatch.chdir(job.folder)
    monkeypatch.setenv("DPTEXT_ANCHORS", str(job.folder / "state/anchors"))
    job.folder.chmod(0o755)
    job.write_policy(ids="keyed", cap={"measure": "pure", "epsilon": 30.0, "period": "2026"}, min_released=0.0)
    failed = []
    for line in COMMANDS.splitlines():
        if line.startswith("forget"):
            pl.read_parquet("raw.parquet").filter(pl.col("id") != "r00001").write_parquet("raw.parquet")
        done = dptext(*shlex.split(line))
        if done.exit_code:
            failed.append((line, done.output))
    left = [path for path in job.folder.rglob("*") if path.relative_to(job.folder).parts[0] not in OUTSIDE]
    seen = {path.name for path in left}
    assert {"statement.md", "erasure.md", "left-out.json", "copy.db", "record.parquet"} <= seen, failed
    open_to_others = {str(path.relative_to(job.folder)): oct(path.stat().st_mode) for path in left if is_open(path)}
    assert not open_to_others
    assert not failed


def is_open(path):
    return not path.is_symlink() and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def test_readers_get_to_a_sink_whose_folders_were_not_there(job):
    run(job.write_policy(sink=str(job.folder / "new" / "deep" / "reviews"), staging=None))
    new = job.folder / "new"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (new, *new.rglob("*")) if path.is_dir()}
    usual = job.folder / "usual"
    usual.mkdir()
    open_as_usual = stat.S_IMODE(usual.stat().st_mode)
    assert {modes[name] for name in ("new", "deep", "reviews", "reviews.versions")} == {open_as_usual}
    inside = job.folder / ".dptext"
    folders = [path for path in (inside, *inside.rglob("*")) if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    (staging,) = inside.glob("reviews/*/2026-11/_")
    assert (staging / "unchanged.json").is_file()
    assert (inside / ".gitignore").read_text() == "*\n"


def test_a_draft_follows_no_link_and_takes_no_name_that_is_there(tmp_path, monkeypatch):
    victim, target = tmp_path / "victim", tmp_path / "published.manifest.json"
    victim.write_text("mine")
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "0123456789abcdef")
    draft = files.draft_of(target)
    draft.symlink_to(victim)
    with pytest.raises(InputError, match="writing failed"):
        files.write(target, b"theirs")
    assert victim.read_text() == "mine"
    assert not target.exists()


def test_names_of_drafts_cannot_be_foreseen(job, monkeypatch):
    made = []
    create = files.create
    monkeypatch.setattr(files, "create", lambda path, mode=0o600: (made.append(str(path)), create(path, mode))[1])
    job.run()
    assert any(".published.manifest.json-" in name for name in made)
    assert len(set(made)) == len(made)


def test_the_draft_of_a_manifest_of_a_killed_run_goes(job):
    job.run()
    stale = job.folder / ".published.manifest.json-0123456789abcdef.draft"
    stale.write_text("{}")
    frame = pl.read_parquet(job.folder / "raw.parquet").with_columns(pl.col("stars") + 1)
    frame.write_parquet(job.folder / "raw.parquet")
    job.run()
    assert not stale.exists()
    assert isinstance(Manifest.parse((job.folder / "published.manifest.json").read_text()), Manifest)


def test_by_default_it_is_next_to_the_policy_file_and_moves_with_it(job):
    policy = job.write_policy(sink="published", source="raw.parquet", staging=None)
    summary = run(policy)
    (folder,) = job.folder.glob(".dptext/reviews/*/2026-11/_")
    assert summary.staging == str(folder)
    assert not any("staging" in note for note in [*summary.notes, *plan(policy).notes])
    assert not list(job.folder.glob("*.staging"))
    moved = shutil.move(job.folder, job.folder.with_name("moved"))
    found = Layout.of(Policy.load(moved / "privacy.toml")).staging
    assert found.url == str(moved / folder.relative_to(job.folder))
    other = Policy.load(moved / "privacy.toml").model_copy(update={"sink": str(moved / "other")})
    assert Layout.of(other).staging.url != found.url, "every sink has a place of its own"


def test_a_policy_without_a_file_must_name_it(job):
    for way in (plan, run):
        with pytest.raises(PolicyError, match="was not read from a file") as caught:
            way(job.policy(staging=None))
        assert 'write: staging = "staging"' in caught.value.hint
    assert not (job.folder / "ledger.db").exists()
