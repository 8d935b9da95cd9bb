"""The picture of the page to sign has the headings of a statement, in their order."""

import re
from pathlib import Path

from dptext_etl.runner import statement
from tests.study import study

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


def test_the_picture_has_the_headings_of_a_statement(pictures):
    drawn = re.findall(r'<text class="head" x="34"[^>]*>([^<]*)</text>', PICTURE.read_text(encoding="utf-8"))
    for public in (False, True):
        written = re.findall(r"^## (.*)$", statement.markdown(FACTS | {"public": public}), re.MULTILINE)
        assert written == drawn[pictures.INSIDE if public else 0 :]
