"""Messy tickets from `init` to erasure, as a user goes: only the command line, and the messages that it gives.

The table is a CSV file with ";" in cp1252. Its columns have umlauts and blanks in their names, its ids have leading
zeros, 80 ids occur twice, 24 rows name no person, and one person wrote 200 of 5,040 tickets.
"""

import csv
import json
import random
import re
import tomllib
from collections import Counter

import polars as pl
import pytest

from dptext_etl import Policy
from dptext_etl.runner import scan_published
from tests.command_line import dptext, facts

SENTINEL = "zzqsentinelqzz"
HEADER = ["Ticket Nr", "Kunde Größe", "Status", "Text der Anfrage", "user_timezone"]
ROLES = ("--id", "Ticket Nr", "--subject", "Kunde Größe", "--text", "Text der Anfrage")
SAID = [
    "Die Größe passt nicht; bitte tauschen",
    "My invoice is wrong, I was charged twice",
    "Where is my parcel? It should be here – since Monday",
    'Die App zeigt "Fehler 7" und öffnet sich nicht',
    "Ich möchte mein Geld zurück",
]
ZONES = ["Europe/Berlin", "America/Lima", "Asia/Tokyo"]
BUSY, DOUBLED, NAMELESS, ROWS = "0007", 80, 24, 5_040
COUNTED = {"rows": "5,040", "ids that occur more than once": DOUBLED, "rows without a person": NAMELESS}


def tickets():
    """Rows of ids, persons, states and texts, the doubled ones last."""
    draw = random.Random(34)
    persons = [BUSY] * 200 + [f"{100 + n % 1_190:04d}" for n in range(ROWS - DOUBLED - 200)]
    draw.shuffle(persons)
    rows = [
        [
            f"{n:06d}",
            person,
            draw.choice(["offen", "erledigt"]),
            f"{SENTINEL} {draw.choice(SAID)} {n}",
            draw.choice(ZONES),
        ]
        for n, person in enumerate(persons)
    ]
    for row in draw.sample([row for row in rows if row[1] != BUSY], NAMELESS):
        row[1] = ""
    return [*rows, *([*row[:3], f"{row[3]} noch einmal", row[4]] for row in draw.sample(rows, DOUBLED))]


def save(rows, path):
    with path.open("w", encoding="cp1252", newline="") as file:
        csv.writer(file, delimiter=";").writerows([HEADER, *rows])


def edited(rows, *ids):
    """The rows after someone wrote more into some tickets."""
    return [[*row[:3], f"{row[3]} und sofort", row[4]] if row[0] in ids else row for row in rows]


def once(rows):
    """The first row of each id, as a spreadsheet removes duplicates."""
    return list({row[0]: row for row in reversed(rows)}.values())[::-1]


def write(path, **entries):
    """Set entries of a policy, as an editor would: in their line, or above the columns."""
    text = path.read_text()
    for name, value in entries.items():
        line = f"{name} = {value}"
        if re.search(rf"^{name} = ", text, re.MULTILINE):
            text = re.sub(rf"^{name} = .*$", line, text, flags=re.MULTILINE)
        else:
            text = text.replace("[[column]]", f"{line}\n\n[[column]]")
    path.write_text(text)


def refused(code, exit_code, *words):
    """Return the message and fields of a refusal, which is one JSON object on stdout and two lines on stderr."""
    done = dptext(*words, "--json")
    assert done.exit_code == exit_code, done.output
    found = json.loads(done.stdout)
    error = found.get("error") or found["refusal"]
    assert (error["code"], error["exit_code"]) == (code, exit_code)
    assert error["message"] in done.stderr
    assert error["hint"] in done.stderr
    assert SENTINEL not in done.output
    return error["message"], error["fields"]


def used(folder):
    """What persons have used, in all quantiles."""
    (scope,) = facts("ledger", "remaining", folder / "privacy.toml")["scopes"]
    return scope["units"], scope["used"]


@pytest.fixture(scope="module")
def rows():
    return once(tickets())


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    """A folder after `init`, with the choices that refusals ask for, and after a first run."""
    place = tmp_path_factory.mktemp("tickets")
    save(tickets(), place / "tickets.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        place.joinpath("init.json").write_text(json.dumps(facts("init", "tickets.csv", "--form", "rows", *ROLES)))
        policy = place / "privacy.toml"
        text = policy.read_text()
        place.joinpath("first.txt").write_text(text)
        text = text.replace("per_subject = 5\n", "").replace(
            '"approx", epsilon = 20.0, delta = 1e-6', '"pure", epsilon = 20.0'
        )
        policy.write_text(text.replace('"everyday-30k-2"', '"example"'))
        write(policy, keep='["Status"]', ids='"keyed"')
        place.joinpath("refusals.json").write_text(json.dumps(_met(place, policy, rows)))
        place.joinpath("plan.json").write_text(json.dumps(facts("plan", policy)))
        place.joinpath("run.json").write_text(json.dumps(facts("run", policy)))
        yield place


def _met(place, policy, rows):
    """Meet the refusals of a first plan, and of a first run, one after the other; answer each."""
    met = [refused("input", 5, command, policy) for command in ("plan", "run")]
    place.joinpath("counts.txt").write_text(dptext("plan", policy).stdout)
    write(policy, on_null_subject='"quarantine"')
    met.append(refused("input", 5, "plan", policy))
    save(rows, place / "tickets.csv")
    write(policy, on_cap='"refuse"')
    met += [refused("budget", 3, command, policy) for command in ("plan", "run")]
    write(policy, on_cap='"quarantine"')
    assert not (place / "ledger.db").exists() or not facts("ledger", "show", policy)["releases"][0]["records"]
    return met


def read(folder, name):
    return json.loads((folder / name).read_text())


def published(folder):
    return scan_published(str(folder / "published" / "tickets")).collect()


def test_init_says_roles_and_how_the_file_is_written(folder):
    found = read(folder, "init.json")
    roles = {item["role"]: item["column"] for item in found["columns"]}
    assert (roles["id"], roles["person"], roles["text"]) == ("Ticket Nr", "Kunde Größe", "Text der Anfrage")
    assert all(item["why"] for item in found["columns"])
    assert [item["role"] for item in found["columns"] if item["column"] == "user_timezone"] != ["person"]
    assert found["csv"] == {"separator": ";", "encoding": "cp1252", "quote": '"'}
    values = tomllib.loads((folder / "first.txt").read_text())
    assert values["csv"] == found["csv"]
    assert "10^" in (folder / "first.txt").read_text(), "a cap is said as odds per person"


def test_each_refusal_is_foretold_with_its_figures(folder):
    nulls, again, doubled, cap, capped = read(folder, "refusals.json")
    assert nulls == again
    counts = {"rows": ROWS, "null_ids": 0, "doubled_ids": DOUBLED, "null_subjects": NAMELESS}
    also = ["80 record ids occur more than once in column 'Ticket Nr'; a record is released once"]
    assert nulls[1] == {"rows": NAMELESS, "column": "Kunde Größe", "counts": counts, "also": also}
    assert doubled[1] == {"ids": DOUBLED, "column": "Ticket Nr", "counts": counts}
    shown = (folder / "counts.txt").read_text()
    assert all(re.search(rf"{title} +{count}\n", shown) for title, count in COUNTED.items()), shown
    assert (cap, cap[1]["records"]) == (capped, 195)
    planned = read(folder, "plan.json")
    assert planned["excluded"] == {"quarantined": 195, "without_subject": NAMELESS}
    assert planned["draws"] == ROWS - DOUBLED - NAMELESS
    assert planned["refusal"] is None


def test_a_run_does_what_the_plan_said(folder):
    done, planned = read(folder, "run.json"), read(folder, "plan.json")
    assert {name: done["rows"][name] for name in planned["excluded"]} == planned["excluded"]
    assert done["rows"]["released"] == done["draws"] == published(folder).height == 4_741
    assert all(gate["passed"] for gate in done["gates"])


def test_readers_see_keyed_ids_and_no_person(folder, rows):
    table = published(folder)
    assert table.columns == ["Ticket Nr", "Status", "Text der Anfrage"]
    assert not {row[0] for row in rows} & set(table["Ticket Nr"])
    assert (table["Ticket Nr"].n_unique(), set(table["Status"])) == (table.height, {"offen", "erledigt"})
    assert not any(
        SENTINEL in path.read_bytes().decode("latin-1") for path in (folder / "published").rglob("*.parquet")
    )


def test_the_same_run_again_costs_nothing(folder):
    before, table = used(folder), published(folder)
    again = facts("run", folder / "privacy.toml")
    assert (again["changed"], again["rows"]["new"], again["version"]) == (False, 0, 1)
    assert "nothing was computed again" in again["notes"][0], "though rows were excluded"
    assert used(folder) == before
    assert published(folder).equals(table)


def test_the_page_to_sign_says_who_is_excluded(folder):
    assert dptext("statement", folder / "privacy.toml", "--out", folder / "page").exit_code == 0
    page = (folder / "page" / "statement.md").read_text()
    assert "| over the cap | 195 records" in page
    assert "| cap of a subject: dataset:tickets, period all | ε 20: odds move by 10^8.69 at most |" in page
    assert "| unchanged | Status |" in page
    assert "The record id is a keyed hash" in page
    assert f"| without a person | {NAMELESS} rows" in page
    assert "Passed. Catches texts that no draw could have made" in page
    (column,) = facts("statement", folder / "privacy.toml")["columns"]
    assert column["charged"]["records"] == 4_741, "canary rows are not records"
    assert dptext("statement", folder / "privacy.toml", "--public", "--out", folder / "public").exit_code == 0
    public = (folder / "public" / "statement.md").read_text()
    assert not re.search(r"\b195\b", public), "a hash may hold these digits"
    assert "without a person" not in public
    for inside in ("variant", "caps (epsilon)", "excluded by"):
        assert inside not in public


def test_one_edited_ticket_is_refused_then_kept(folder, rows):
    save(edited(rows, "000123"), folder / "tickets.csv")
    before, table = used(folder), published(folder)
    (staging,) = folder.glob(".dptext/*/*/1/_")
    try:
        for command in ("plan", "run"):
            message, told = refused("input", 5, command, folder / "privacy.toml")
            listed = list(staging.glob("changed-*.parquet"))
            assert bool(listed) == (command == "run"), "a plan writes nothing"
            assert "texts of 1 record changed" in message
            assert told == {"records": 1}
        assert f"only a file in {staging} (changed-" in dptext("plan", folder / "privacy.toml").stderr
        write(folder / "privacy.toml", on_changed='"keep"')
        kept = facts("run", folder / "privacy.toml")
        assert (kept["rows"]["changed_kept"], kept["rows"]["released"]) == (1, 4_741)
        assert (used(folder), published(folder).equals(table)) == (before, True)
        listed = list(staging.glob("changed-*.parquet"))
        assert pl.concat(map(pl.read_parquet, listed))["Ticket Nr"].to_list() == ["000123"]
    finally:
        save(rows, folder / "tickets.csv")
    assert facts("run", folder / "privacy.toml")["rows"]["new"] == 0


@pytest.mark.parametrize("form", ["shuffled", "synthetic"])
def test_forms_that_help_readers_who_count(rows, monkeypatch, tmp_path, form):
    """`init` reads public labels from a person; the policy plans and runs as it is."""
    monkeypatch.chdir(tmp_path)
    save([row for row in rows if row[1]][:1_200], tmp_path / "tickets.csv")
    asked, policy = ("init", "tickets.csv", *ROLES), tmp_path / "privacy.toml"
    assert "not known which values are public" in refused("usage", 2, *asked)[0]
    facts(*asked, "--labels", "Status=offen", *(("--form", form) if form == "shuffled" else ()))
    policy.write_text(policy.read_text().replace('"everyday-30k-2"', '"example"').replace("# rows = ", "rows = 1000"))
    if form == "shuffled":
        assert "406 texts of 'offen' would be published" in refused("input", 5, "plan", policy)[0]
    write(policy, rows={"shuffled": 20, "synthetic": 500}[form])
    assert facts("plan", policy)["refusal"] is None
    assert all(gate["passed"] for gate in facts("run", policy)["gates"])
    table = published(tmp_path)
    assert {*table.columns} == {"Status", "Text der Anfrage"}
    assert {*table["Status"]} == {"offen"}, "other is not listed"
    assert facts("check", policy)["passed"]
    assert dptext("statement", policy, "--out", "page").exit_code == 0


def test_what_is_published_can_be_checked_without_the_tickets(folder, rows):
    (folder / "tickets.csv").unlink()
    try:
        assert facts("check", folder / "privacy.toml")["passed"]
        assert facts("ledger", "verify", folder / "privacy.toml")["ok"]
    finally:
        save(rows, folder / "tickets.csv")


def test_a_report_finds_rows_by_ids_as_they_are_written(folder):
    """Ids of a CSV file keep their zeros, and staging has those behind keyed ones."""
    from dptext_etl_eval.published import columns_of

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        ((_, pairs, _),) = columns_of(Policy.load("privacy.toml"), folder / "evidence", rows=100)
    assert (pairs.of, len(pairs.raw)) == (4_741, 100)
    assert all(text.startswith(SENTINEL) for text in pairs.raw)


def test_a_person_is_erased_everywhere(folder, rows):
    person, count = next(item for item in Counter(row[1] for row in rows).most_common() if item[0] not in {"", BUSY})
    erase = ("forget", folder, "--subject", person, "--everywhere")
    message, _ = refused("input", 5, "forget", folder, "--subject", "4711x", "--everywhere", "--yes")
    assert "knows 1 of 1 subjects" in message
    message, _ = refused("input", 5, *erase, "--yes")
    assert "the source still holds" in message
    save([row for row in rows if row[1] != person], folder / "tickets.csv")
    copy = folder / "privacy (copy).toml"
    copy.write_text((folder / "privacy.toml").read_text())
    message, _ = refused("policy", 5, *erase, "--yes")
    assert "publish release 1 to one place" in message
    copy.unlink()
    version = facts("statement", folder / "privacy.toml")["version"]
    (place,) = facts(*erase, "--dry-run")["places"]
    assert (place["outcome"], place["records"], published(folder).height) == ("removed", count, 4_741)
    assert dptext(*erase, "--yes", "--out", folder / "report.md").exit_code == 0
    assert published(folder).height == 4_741 - count
    assert person not in (folder / "report.md").read_text()
    assert facts("statement", folder / "privacy.toml")["version"] == version + 1
    assert facts("check", folder / "privacy.toml")["passed"]
    after = facts("run", folder / "privacy.toml")
    assert (after["rows"]["new"], after["published_rows"]) == (0, 4_741 - count)
