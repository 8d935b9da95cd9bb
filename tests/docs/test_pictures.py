"""The picture of the page to sign has the headings of a statement, in their order."""

import re
from pathlib import Path

import pytest

from dptext_etl.runner import statement

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "page-to-sign.svg"
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
}
FACTS = {
    "dataset": "reviews",
    "release": "1",
    "partition": None,
    "version": 1,
    "public": False,
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
}


@pytest.mark.parametrize("public", [False, True])
def test_the_picture_has_the_headings_of_a_statement(public):
    facts = FACTS | ({"excluded": None} if public else {})
    written = re.findall(r"^## (.*)$", "\n".join(statement.sections(facts, full=False)), re.MULTILINE)
    drawn = re.findall(r'<text class="head" x="34"[^>]*>([^<]*)</text>', PICTURE.read_text(encoding="utf-8"))
    assert len(drawn) == 6
    assert [heading for heading in drawn if not (public and heading == "Rows left out")] == written
