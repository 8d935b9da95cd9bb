"""An export holds the published version and nothing else, and shows without key or ledger that it is whole."""

import glob
import hashlib
import io
import json
import re
import shutil

import duckdb
import polars as pl
import pytest

from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import GateError, InputError
from dptext_etl.runner.publish.export import CONTRACT, MANIFEST, REHEARSAL, SUMS, contract_text, export, verify
from dptext_etl.runner.publish.manifest import scan_published
from tests.command_line import dptext, facts
from tests.later import later
from tests.review_jobs import SURROGATE

pd = later("pandas")


def contents(place):
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def written(place, entries):
    """Write an export from names and contents."""
    for name, content in entries.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return place


def test_an_export_is_the_published_version(policy_of_job, tmp_path, sentinel, monkeypatch):
    wrote = facts("export", policy_of_job, "--to", tmp_path / "out")
    dptext("export", policy_of_job, "--to", tmp_path / "again")
    folder = contents(tmp_path / "out")
    assert folder == contents(tmp_path / "again")
    sink = policy_of_job.parent / "published"
    assert wrote["sums_sha256"] == hashlib.sha256(folder[SUMS]).hexdigest()
    assert folder[MANIFEST] == sink.with_name("published.manifest.json").read_bytes()
    published = pl.read_parquet(sink / "*.parquet")
    assert sorted(content for name, content in folder.items() if name.startswith("data/")) == sorted(
        path.read_bytes() for path in sink.iterdir()
    )
    everything = b"".join(content for name, content in folder.items())
    for inside in (sentinel, str(policy_of_job.parent), "ledger.db", "noise.key"):
        assert inside.encode() not in everything
    assert facts("verify-export", tmp_path / "out") == wrote
    require_read(tmp_path / "out", published, monkeypatch)


def require_read(folder, published, monkeypatch):
    """Run the commands of the page for readers, and compare texts with texts of a table."""
    monkeypatch.chdir(folder)
    readers, texts = {"pl": pl, "pd": pd, "glob": glob}, published["review"].to_list()
    lines = [line.strip() for line in (folder / "README.md").read_text().splitlines()]
    frames = [pl.DataFrame(eval(line, readers)) for line in lines if line.startswith(("pl.", "pd."))]
    frames += [duckdb.sql(re.search('"(.*)"', line)[1]).pl() for line in lines if line.startswith("duckdb.sql")]
    assert [frame["review"].to_list() for frame in frames] == [texts] * 3


def test_the_contract_states_claims_types_and_rows(policy_of_job, tmp_path):
    yaml = pytest.importorskip("yaml")
    dptext("export", policy_of_job, "--to", tmp_path / "out")
    written = (tmp_path / "out" / CONTRACT).read_text()
    found = yaml.safe_load(written)
    assert found == json.loads(written)
    assert {"apiVersion", "kind", "id", "version", "status"} <= set(found)  # required by the standard
    (table,) = found["schema"]
    columns = {column["name"]: column for column in table["properties"]}
    claims = {item["property"]: item["value"] for item in columns["review"]["customProperties"]}
    assert (claims["dptext_class"], claims["dptext_unit"], claims["dptext_unit_epsilon"]) == ("COND_PURE", "word", 2.0)
    assert claims["dptext_disclosures"] == ["cluster", "length", "nullness"]
    assert "customProperties" not in columns["stars"]
    assert (columns["stars"]["logicalType"], columns["id"]["primaryKey"]) == ("integer", True)
    assert {"rowCount", *Manifest.parse((tmp_path / "out" / MANIFEST).read_text()).gates} == {
        rule.get("metric") or rule["implementation"] for rule in table["quality"]
    }


@pytest.mark.parametrize("suffix", [".csv", ".ndjson"])
def test_files_without_types_are_verified(make_job, tmp_path, suffix, monkeypatch):
    job = make_job(suffix=suffix)
    job.run(ids="keyed")
    export(job.policy(ids="keyed"), tmp_path / "out")
    assert verify(tmp_path / "out")["rows"] == 240
    require_read(tmp_path / "out", scan_published(str(job.folder / "published")).collect(), monkeypatch)


FORMS = {
    "make_synthetic": (
        {},
        {"classes": ["CENTRAL_ZCDP"], "rows": 50},
        (
            "50 rows of public texts with labels in topic.",
            "no row belongs to a\nrecord",
            "At most 6 records of each person count.",
            "`dptext label . TEXTS.parquet`",
            "use words, each label with the same weight",
        ),
    ),
    "make_shuffled": ({}, {"rows": 240}, ("240 rows: public texts, each drawn near one private text of `review`",)),
    "make_job": (
        {"table": {"format": "delta"}},
        {"rows": 240},
        ("240 rows. The text in review, note was rewritten", "Do not count a word"),
    ),
}


@pytest.mark.parametrize("make", FORMS)
def test_every_form_of_release_is_exported_with_a_page_of_its_own(request, make, tmp_path):
    changes, expected, stated = FORMS[make]
    pytest.importorskip("deltalake")
    job = request.getfixturevalue(make)()
    job.run(**changes)
    export(job.policy(**changes), tmp_path / "out")
    assert verify(tmp_path / "out").items() >= expected.items()
    page = (tmp_path / "out" / "README.md").read_text()
    purpose = json.loads((tmp_path / "out" / CONTRACT).read_text())["description"]["purpose"]
    assert [text for text in stated if text not in page] == []
    assert ("rewritten" in page + purpose) == (make == "make_job")
    assert "{{" not in page


VERDICT = "Use a synthetic table at epsilon 3 per record to train classifiers; do not use it to read texts."
PEOPLE = 471_108_154_711  # no hash has these twelve digits by chance


def rehearsal(place, *figures, **changes):
    """Write what `dptext rehearse --json` prints, with the policy lines of each figure."""
    facts = {"rows": PEOPLE, "verdict": VERDICT, "tested": 2000, "labels": 3, "raw": 1.0, "installs": ["pip"]}
    facts["baselines"] = {"label names": 0.5}
    facts["figures"] = [
        {"form": form, "corpus": "", "asked": 1.0, "macro_f1": f1, "entries": lines, "person": 1.0}
        for form, f1, lines in figures
    ]
    place.write_text(json.dumps(facts | changes))
    return place


def lines_of(form, mechanism):
    """Return the lines of a policy that publishes a form of release."""
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in mechanism.items())
    return ["[synthetic]" if form == "synthetic" else "[[column]]", f"mechanism = {{ {given} }}"] + (
        ["[shuffled]", "rows = 100"] if form == "shuffled" else []
    )


@pytest.mark.parametrize("form", ["rows", "shuffled", "synthetic"])
def test_an_export_shows_the_rehearsal_of_its_own_release(request, form, tmp_path):
    job = request.getfixturevalue({"rows": "make_job"}.get(form, f"make_{form}"))()
    if form == "rows":
        job.values["column"] = [{"name": "review", "mechanism": SURROGATE}]
    job.run()
    mechanism = (job.values["synthetic"] if form == "synthetic" else job.values["column"][0])["mechanism"]
    other = {**mechanism, "epsilon": 0.5}
    figures = [(name, 0.8, lines_of(name, mechanism)) for name in ("rows", "shuffled", "synthetic")]
    given = rehearsal(tmp_path / "r.json", *figures, ("other", 0.99, lines_of(form, other)))
    export(job.policy(), tmp_path / "out", rehearsal=given)
    assert verify(tmp_path / "out")["rows"] > 0
    held = json.loads((tmp_path / "out" / REHEARSAL).read_text())
    assert ([figure["form"] for figure in held["figures"]], held["verdict"]) == ([form], VERDICT)
    assert str(PEOPLE).encode() not in b"".join(contents(tmp_path / "out").values()), "the number of people"
    page = (tmp_path / "out" / "README.md").read_text()
    assert f"> {VERDICT}" in page
    assert re.findall(r"^(0\.\d+|1\.00) +█+ +(.*)$", page, re.MULTILINE) == [
        ("0.50", "label names"),
        ("0.80", form),
        ("1.00", "raw texts"),
    ]
    with pytest.raises(InputError, match="did not measure this release"):
        export(job.policy(), tmp_path / "no", rehearsal=rehearsal(given, ("other", 0.99, lines_of(form, other))))


@pytest.mark.parametrize("content", ["", "[]", '{"verdict": "use it"}', "evaluated"])
def test_another_file_than_a_rehearsal_is_refused(job, tmp_path, content):
    job.run()
    given = rehearsal(tmp_path / "r.json", ("rows", 1.5, ["[[column]]"]))
    if content != "evaluated":
        given.write_text(content)
    with pytest.raises(InputError, match="is not the output of `dptext rehearse --json`"):
        export(job.policy(), tmp_path / "out", rehearsal=given)
    assert not (tmp_path / "out").exists()


def test_a_store_gives_the_bytes_that_a_folder_would(make_job, store, tmp_path):
    from tests.object_store import remote, upload

    local, job = make_job("local"), make_job("remote")
    local.run()
    upload(job, store)
    changes = remote(job, store)
    job.run(**changes)
    export(local.policy(), tmp_path / "first")
    export(job.policy(**changes), tmp_path / "second")
    pages = [contents(tmp_path / name) for name in ("first", "second")]
    assert {name for name in pages[0] if name.startswith("data/")} < {*pages[1]}
    assert verify(tmp_path / "second")["rows"] == 240
    assert b"bucket" not in b"".join(pages[1].values())


def test_refusals(job, tmp_path):
    with pytest.raises(InputError, match="nothing is published"):
        export(job.policy(), tmp_path / "out")
    job.run()
    with pytest.raises(InputError, match="and the policy is of reviews / 2026-12"):
        export(job.policy(release="2026-12"), tmp_path / "out")
    (tmp_path / "there").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="exists"):
        export(job.policy(), tmp_path / "there")
    job.part(0).write_bytes(b"damaged")
    with pytest.raises(GateError):
        export(job.policy(), tmp_path / "out")
    assert not [*tmp_path.glob("*out*")]


def resealed(entries):
    """Write checksums that fit, as a forger would."""
    entries[SUMS] = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in entries.items() if name != SUMS
    ).encode()


def other_manifest(entries, change, *, fit):
    facts = json.loads(entries[MANIFEST])
    change(facts)
    before = Manifest.parse(entries[MANIFEST].decode())
    now = Manifest.parse(json.dumps(facts))
    entries[MANIFEST] = now.text().encode()
    if fit:
        entries["statement.md"] = entries["statement.md"].replace(before.digest.encode(), now.digest.encode())
        entries[CONTRACT] = contract_text(now).encode()
    resealed(entries)


def more_rows(facts):
    facts["parts"][0]["rows"] += 1


def other_class(facts):
    facts["columns"][0]["class"] = "PERFECT"


def other_type(facts):
    facts["schema"]["stars"] = "String"


def other_words(entries):
    name = next(name for name in entries if name.startswith("data/"))
    frame = pl.read_parquet(io.BytesIO(entries[name])).with_columns(review=pl.lit("other"))
    frame.write_parquet(written := io.BytesIO())
    entries[name] = written.getvalue()


def weaker_contract(entries):
    entries[CONTRACT] = entries[CONTRACT].replace(b"COND_PURE", b"PURE_LDP")
    resealed(entries)


def two_answers(entries):
    entries[CONTRACT] = entries[CONTRACT].replace(b'"status": ', b'"status": "retired", "status": ')
    resealed(entries)


DAMAGES = {
    "words": (other_words, "do not match SHA256SUMS"),
    "words and sums": (lambda entries: (other_words(entries), resealed(entries)), "data file does not match"),
    "more": (lambda entries: entries.update({"more.txt": b"x"}), "do not match the manifest"),
    "less": (lambda entries: entries.pop("statement.html"), "do not match the manifest"),
    "no sums": (lambda entries: entries.pop(SUMS), "not an export"),
    "repeated key": (two_answers, "contract does not match"),
    "contract": (weaker_contract, "contract does not match"),
    "manifest": (lambda entries: other_manifest(entries, more_rows, fit=False), "statement belongs to another"),
    "rows": (lambda entries: other_manifest(entries, more_rows, fit=True), "another number of rows"),
    "class": (lambda entries: other_manifest(entries, other_class, fit=True), "class is unknown"),
    "type": (lambda entries: other_manifest(entries, other_type, fit=True), "other columns"),
}


def test_what_differs_is_found(policy_of_job, tmp_path):
    dptext("export", policy_of_job, "--to", tmp_path / "out")
    good = contents(tmp_path / "out")
    order = [line.split("  ", 1)[1] for line in good[SUMS].decode().splitlines()]
    good = {name: good[name] for name in (*order, SUMS)}
    for name, (damage, said) in DAMAGES.items():
        entries = dict(good)
        damage(entries)
        with pytest.raises(GateError, match=said):
            verify(written(tmp_path / name, entries))
    forged = dict(good)
    forged["statement.md"] += b"There is no risk."
    resealed(forged)
    seen = [verify(path) for path in (tmp_path / "out", written(tmp_path / "forged", forged))]
    assert seen[0]["sums_sha256"] != seen[1]["sums_sha256"], "readers compare a sum that covers every page"
    assert dptext("verify-export", tmp_path / "words").exit_code == 4
    (tmp_path / "text").write_text("no folder")
    assert dptext("verify-export", tmp_path / "text").exit_code == 5
    assert dptext("verify-export", tmp_path / "nothing").exit_code == 5


def test_a_folder_with_links_is_refused(policy_of_job, tmp_path):
    dptext("export", policy_of_job, "--to", tmp_path / "out")
    shutil.move(tmp_path / "out" / "statement.html", tmp_path / "elsewhere.html")
    (tmp_path / "out" / "statement.html").symlink_to(tmp_path / "elsewhere.html")
    with pytest.raises(GateError, match="holds a link"):
        verify(tmp_path / "out")
