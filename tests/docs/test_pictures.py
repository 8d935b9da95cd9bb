"""The pictures of the page to sign and of a terminal show headings of a statement and commands of README."""

import json
import re
from pathlib import Path

from dptext_etl.runner import statement
from tests.study import study

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guarantee.md"
COLUMN = {
    "name": "review",
    "mechanism": "surrogate",
    "parameter": 4.0,
    "class": "PURE_LDP",
    "meaning": "any two texts, epsilon",
    "unit": "record",
    "unit_epsilon": 4.0,
    "unit_delta": 0.0,
    "worst_case": {"epsilon": 4.0, "delta": 0.0, "words": 10_000},
    "disclosures": {"nullness": "which rows are null"},
    "assumptions": ["PRF"],
    "cfg": "",
    "charged": {"largest_epsilon": 4.0, "largest_delta": 0.0, "records": 300},
}
FACTS = {
    "dataset": "reviews",
    "release": "1",
    "partition": None,
    "version": 1,
    "columns": [COLUMN],
    "lacks": [],
    "gates": [],
    "id": "id",
    "ids": "keep",
    "traceable": None,
    "coarse": {},
    "rows": 300,
    "in_clear": ["id"],
    "sink": "published/reviews",
    "manifest_sha256": "",
    "written_by": "dptext_etl",
    "excluded": {"read": 300},
    "record": {"epsilon": 4.0, "delta": 0.0},
    "caps": [],
    "person": {"unit": "person", "release": {"epsilon": 4.0, "delta": 0.0}, "all": None},
    "reidentified": [],
    "published_at": None,
}


pictures = study("generators.pictures")
session = study("recorded_session")


def test_the_words_of_the_page_to_sign_are_headings_of_a_statement_in_order():
    (shown,) = re.findall(r"!\[([^\]]*)\]\(images/page-to-sign\.png\)", PAGE.read_text(encoding="utf-8"))
    written = re.findall(r"^## (.*)$", statement.markdown(FACTS | {"public": False}), re.MULTILINE)
    headings = [heading.replace("review", "request") for heading in written]
    places = [shown.find(heading) for heading in headings if heading in shown]
    assert places == sorted(places)
    assert len(places) > 3


def test_the_recorded_terminal_has_the_commands_of_readme(session):
    record = json.loads(session.SESSION.read_text(encoding="utf-8"))
    assert [step["command"] for step in record] == session.commands()
    assert len(record) == 3
    assert any("published version 1: 10,000 rows" in line for line in record[-1]["lines"])


def test_the_chart_of_usefulness_has_the_figures_of_the_tidy_file(pictures):
    drawn = (ROOT / "docs" / "images" / "usefulness.svg").read_text(encoding="utf-8")
    for name, best, curves in pictures._measured_curves():
        assert name in drawn
        assert f"best baseline {best:.2f}" in drawn
        assert all(f"{value:.2f}" in drawn for values in curves for value in values)
