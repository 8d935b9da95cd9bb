"""A week with tickets in each form, from a CSV file to the export: the commands of the docs, and no other step."""

import csv
import random
import re
from pathlib import Path

import pytest

from dptext_etl.runner import scan_published
from tests.command_line import dptext, facts

DOCS = Path(__file__).resolve().parents[2] / "docs"
SENTINEL = "zzqsentinelqzz"
TICKETS = {
    "refund": ("I want my money back for this order", "Please refund the double charge"),
    "delivery": ("Where is my parcel", "The courier never came with the parcel"),
    "login": ("I cannot sign in to my account", "The link to reset my password fails"),
}
PEOPLE, FORGOTTEN = 1_100, "c0001"
FORMS = {
    "synthetic": ("--labels", f"category={','.join(TICKETS)}"),
    "shuffled": ("--form", "shuffled"),
    "rows": ("--form", "rows"),
}


def tickets(days):
    """Rows of as many days: a ticket of each person and day."""
    draw = random.Random(68)
    for day in range(days):
        for person in range(PEOPLE):
            category = draw.choice(list(TICKETS))
            text = f"{SENTINEL} {draw.choice(TICKETS[category])}"
            yield [f"t{day}-{person:04d}", f"c{person:04d}", "Amara" if person % 2 else "Bo", category, text]


def save(rows):
    with Path("tickets.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["ticket_id", "customer_id", "agent_name", "category", "notes"], *rows])


def done(*words, code=0):
    """Run a command that a page shows, and return its output, which holds nothing of a text or an id."""
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert re.search(rf"dptext {words[0]}\b", pages), f"no page shows dptext {words[0]}"
    for option in (word for word in words if word.startswith("--")):
        assert option in pages, f"no page shows {option}"
    result = dptext(*words)
    assert result.exit_code == code, result.output
    assert SENTINEL not in result.output
    return result.output


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_week_from_a_csv_file_to_the_export(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tickets(1))
    assert "Amara" not in done("init", "tickets.csv", *FORMS[form])
    policy, per_record = Path("privacy.toml"), form == "rows"
    assert f"rehearse PUBLIC.parquet --policy {policy} --rows {PEOPLE}" in done("plan", "privacy.toml") or per_record
    assert "published version 1" in done("run", "privacy.toml")
    assert "no budget used" in done("run", "privacy.toml")
    save(row for row in tickets(1) if row[1] != FORGOTTEN)
    code = 8 if form == "synthetic" else 0  # its table stays, because one statistic of all people was charged
    assert "would" in done("forget", "privacy.toml", "--subject", FORGOTTEN, "--dry-run", code=code)
    done("forget", "privacy.toml", "--subject", FORGOTTEN, "--yes", code=code)
    save(row for row in tickets(2) if row[1] != FORGOTTEN)
    if not per_record:  # a release is one complete table, so new rows need a new release name
        policy.write_text(policy.read_text().replace('release = "1"', 'release = "2"'))
    done("plan", "privacy.toml")
    done("run", "privacy.toml")
    (scope,) = facts("ledger", "remaining", "privacy.toml")["scopes"]
    assert scope["units"] == PEOPLE
    done("check", "privacy.toml")
    done("statement", "privacy.toml", "--public")
    done("export", "privacy.toml", "--to", "tickets-export")
    done("verify-export", "tickets-export")
    rows = scan_published("published/tickets").collect()
    assert rows.height >= 1_000
    outside = [path for folder in ("published", "tickets-export") for path in Path(folder).rglob("*") if path.is_file()]
    assert not [path for path in outside if SENTINEL.encode() in path.read_bytes()]
    assert FORGOTTEN not in str(rows.to_dicts()) if "customer_id" in rows.columns else "agent_name" not in rows.columns
