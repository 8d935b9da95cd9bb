"""A week with messy tickets: a person goes from `init` to the hand-over, by the command line, and looks at the table.

1,200 tickets of 195 persons in 313 spellings, of six categories in three months. One person wrote many of them. The
notes of agents hold raw text. What single commands do in detail is tested next to them.
"""

import random
import re
import tomllib
from datetime import datetime, timedelta

import polars as pl
import pytest

from dptext_etl.runner import scan_published
from tests.command_line import dptext, facts

SENTINEL = "zzqsentinelqzz"
SAID = {
    "billing": "my invoice is wrong and I was charged twice",
    "delivery": "where is my parcel it should be here since monday",
    "returns": "I want to send back the shoes because they are too small",
    "account": "I cannot log in to my account since the update",
    "hardware": "the screen of the phone is broken and it does not start",
    "other": "I have a question about your opening hours",
}
GIVEN = ["Ana", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jon"]
GIVEN += ["Kai", "Lea", "Mia", "Nils", "Ole", "Pia", "Rut", "Sam", "Tom", "Uma"]
TREES = ["Alder", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Larch", "Maple", "Oak", "Pine"]
NAMES = [f"{first} {tree}" for first in GIVEN for tree in TREES]
PUBLIC = "category=billing,delivery,returns,account,hardware"


def tickets(rows=1_200):
    draw = random.Random(7)
    table = []
    for number in range(rows):
        busy = number % 3 == 0
        name = NAMES[min(int(draw.paretovariate(0.7)) - 1, 199)] if busy else draw.choice(NAMES)
        name = draw.choice([name, name, name.upper(), f" {name}"]) if draw.random() < 0.3 else name
        category, priority = draw.choice([*SAID]), draw.choice(["low", "normal", "high"])
        opened = datetime(2026, 9, 1) + timedelta(minutes=draw.randrange(90 * 24 * 60))
        note = f"{SENTINEL} call back {number}"
        table.append((f"T-{10_000 + number}", name, category, priority, opened, note, f"{SAID[category]} {number}"))
    columns = ["ticket", "customer_name", "category", "priority", "opened", "agent_note", "text"]
    return pl.DataFrame(table, schema=columns, orient="row")


def change(path, **entries):
    """Set entries of a policy in their lines; None removes one."""
    text = path.read_text()
    for name, value in entries.items():
        text, count = re.subn(rf"^{name} = .*$", "" if value is None else f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    path.write_text(text)


def said(*words, code=0):
    done = dptext(*words)
    assert done.exit_code == code, done.output
    assert SENTINEL not in done.output
    return " ".join(f"{done.stdout} {done.stderr}".split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder after `init`, a refused plan with three harmless columns, and a run with one of them coarsened."""
    place = tmp_path_factory.mktemp("week")
    tickets().write_parquet(place / "tickets.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        (place / "init.txt").write_text(said("init", "tickets.parquet", "--text", "text"))
        policy = place / "privacy.toml"
        (place / "proposed.toml").write_text(policy.read_text())
        policy.write_text(policy.read_text().replace('"everyday-30k-2"', '"example"'))
        change(policy, keep='["category", "priority", "opened"]')
        (place / "refused.txt").write_text(said("plan", policy, code=5))
        change(policy, keep='["category", "priority", { column = "opened", as = "month" }]')
        (place / "plan.txt").write_text(said("plan", policy))
        (place / "run.txt").write_text(said("run", policy))
        yield place


def read(folder, name):
    return (folder / name).read_text()


def test_init_looks_at_persons_ids_and_its_own_cap(folder):
    shown, proposed = read(folder, "init.txt"), tomllib.loads(read(folder, "proposed.toml"))
    assert "persons: 313 spellings of 195" in shown
    assert "of the rows that name a person stay" in shown
    assert proposed["normalize"] == ["nfc", "casefold", "strip"]
    assert (proposed["ids"], proposed["keep"], proposed["per_subject"]) == ("keyed", [], 5)
    assert proposed["cap"] == {"measure": "approx", "epsilon": 20.0, "delta": 1e-6, "period": "all"}
    assert (proposed["key"], proposed["release"]) == ("file:noise.key", "1")


def test_three_harmless_columns_single_out_every_row(folder):
    shown = read(folder, "refused.txt")
    assert "they single out 760 of 760 rows (100.0%)" in shown
    assert re.search(r"each of them singles out: category 0.0%, priority 0.0%, opened 9\d\.\d%", shown)
    assert "without opened: 0 of 760 rows (0.0%)" in shown
    assert 'keep = [{ column = "opened", as = "month" }]' in shown
    assert 'keep_unique = "accepted"' in shown
    assert "nothing was spent" in shown


@pytest.mark.parametrize("screen", ["plan.txt", "run.txt"])
def test_the_table_is_looked_at_before_and_after(folder, screen):
    shown = read(folder, screen)
    assert "195 persons" in shown
    assert "caps (epsilon) and rows that they keep: 10 → 50%, 20 → 100%" in shown
    assert re.search(r"left out by opened: 2026-09: \d+%, 2026-10: \d+%, 2026-11: \d+%", shown)
    assert "per_subject = 5 of a person count" in shown
    assert "quarantine" not in shown
    if screen == "plan.txt":
        assert "at epsilon 20 per subject with 5 records, epsilon may be: rows: 4 of a text; unlinked:" in shown
        assert "category, priority: few values, as of labels; a synthetic table keeps labels" in shown


def test_the_page_to_sign_begins_with_whether_a_row_could_be_traced(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert dptext("statement", "privacy.toml", "--out", "page").exit_code == 0
    lines = read(folder, "page/statement.md").splitlines()
    heads = [line for line in lines if line.startswith("## ")]
    assert heads[0] == "## Could a row be traced?"
    page = "\n".join(lines)
    assert "opened (month)" in page
    assert len(lines) <= 40
    assert dptext("statement", "privacy.toml", "--public", "--out", "public").exit_code == 0
    public = read(folder, "public/statement.md")
    assert "ε 20" in public, "the cap"
    for inside in ("313", "spelling", "caps (epsilon)", "left out by"):
        assert inside not in public


@pytest.mark.parametrize("form", ["unlinked", "synthetic"])
def test_forms_that_help_readers_who_count(folder, monkeypatch, tmp_path, form):
    """`init` reads public labels from a person; the policy plans and runs as it is, at a cap of 4."""
    monkeypatch.chdir(tmp_path)
    tickets().write_parquet("tickets.parquet")
    asked = ("init", "tickets.parquet", "--text", "text", "--form", form)
    if form == "synthetic":
        assert "not known which values are public" in said(*asked, code=2)
    said(*asked, "--labels", PUBLIC)
    policy = tmp_path / "privacy.toml"
    policy.write_text(policy.read_text().replace('"everyday-30k-2"', '"example"'))
    if form == "unlinked":
        change(policy, rows=400)
        assert "texts of 'billing'" in said("plan", policy, code=5)
        change(policy, rows=20)
    else:
        change(policy, rows=500)
    before = facts("plan", policy)
    assert before["refusal"] is None
    done = facts("run", policy)
    published = scan_published(str(tmp_path / "published" / "tickets")).collect()
    labels = {*PUBLIC.partition("=")[2].split(",")}
    assert {*published.columns} == {"category", "text"}
    assert {*published["category"]} == labels, "other is not listed"
    assert all(gate["passed"] for gate in done["gates"])
    assert facts("check", policy)["passed"]
    assert dptext("statement", policy, "--out", "page").exit_code == 0
